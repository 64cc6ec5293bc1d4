// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/thread.h"

#include <pthread.h>

#include <exception>

#include "core/check.h"

namespace samara {

Thread::Thread(std::string name, std::function<void()> body)
    : thread_([name = std::move(name), body = std::move(body)] {
        pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
        try {
          body();
        } catch (const std::exception& e) {
          CHECK(false) << "thread " << name << ": " << e.what();
        }
      }) {}

void Thread::Join() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace samara
