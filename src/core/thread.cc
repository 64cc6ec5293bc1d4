// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/thread.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <future>
#include <iterator>
#include <system_error>

#include "core/check.h"
#include "core/leave.h"
#include "core/resources.h"

namespace samara {
namespace {

std::atomic<int> fail_at{0};

void Run(const std::string& name, const std::function<void()>& body) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  try {
    body();
  } catch (const std::exception& e) {
    const Status status = StatusOf(e);
    if (status.code() != Code::kInternal)
      Leave(status.code(), "thread " + name + ": " + status.message());
    CHECK(false) << "thread " << name << ": " << e.what();
  }
}

}  // namespace

Thread::Thread(const std::string& name, std::function<void()> body) {
  int error = EAGAIN;
  if (fail_at <= 0 || fail_at.fetch_sub(1) != 1) {
    try {
      thread_ = std::thread([name, body = std::move(body)] { Run(name, body); });
      return;
    } catch (const std::system_error& e) {
      error = e.code().value();
    }
  }
  throw Error(SystemError("cannot start thread '" + name + "'", error, Code::kInternal));
}

Result<std::unique_ptr<Thread>> Thread::Start(const std::string& name, std::function<void()> body) {
  try {
    return std::make_unique<Thread>(name, std::move(body));
  } catch (const std::exception& e) {
    return StatusOf(e);
  }
}

void Thread::Join() {
  if (thread_.joinable()) thread_.join();
}

ThreadGroup::~ThreadGroup() {
  if (stop_ && !threads_.empty()) stop_();
}

Status ThreadGroup::Start(const std::string& name, size_t count,
                          const std::function<void(size_t)>& body) {
  std::promise<bool> all_there;
  const std::shared_future<bool> go = all_there.get_future().share();
  std::vector<std::unique_ptr<Thread>> started;
  for (size_t i = 0; i < count; ++i) {
    auto thread = Thread::Start(name + std::to_string(i), [body, i, go] {
      if (go.get()) body(i);
    });
    if (!thread.ok()) {
      all_there.set_value(false);
      return count == 1 ? thread.status()
                        : thread.status().Annotate(std::to_string(i) + " of " +
                                                   std::to_string(count) + " threads started");
    }
    started.push_back(std::move(*thread));
  }
  std::ranges::move(started, std::back_inserter(threads_));
  all_there.set_value(true);
  return Status::Ok();
}

void TEST_FailNthThread(int n) { fail_at = n; }
bool TEST_ThreadFailurePending() { return fail_at > 0; }

}  // namespace samara
