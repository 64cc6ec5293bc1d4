// The ranks' store: torch's own, which a launcher has, or ours.
#include "nn/torch/torch.h"
// after the door to torch
#include <future>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "core/log.h"
#include "core/thread.h"
#include "replica/rendezvous/socket_store.h"
#include "replica/torch/c10d.h"
#include "replica/torch/c10d_group.h"

namespace samara {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kMissingLogTime = 10s;  // until the missing ranks are logged

// c10d's store behind ours.
class C10dStore : public Store {
 public:
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
  Status Set(const std::string& key, std::string_view value) override {
    return Try([&] { store_->set(key, std::vector<uint8_t>(value.begin(), value.end())); });
  }
  Result<std::string> Get(const std::string& key, std::chrono::milliseconds timeout) override {
    std::string value;
    const Status status = Try([&] {
      store_->wait({key}, std::max(timeout, 1ms));
      const std::vector<uint8_t> bytes = store_->get(key);
      value.assign(bytes.begin(), bytes.end());
    });
    if (!status.ok()) return status;
    return value;
  }
  Result<int64_t> Add(const std::string& key, int64_t amount) override {
    int64_t sum = 0;
    const Status status = Try([&] { sum = store_->add(key, amount); });
    if (!status.ok()) return status;
    return sum;
  }
  Status Delete(const std::string& key) override {
    return Try([&] { store_->deleteKey(key); });
  }

 private:
  template <typename Fn>
  Status Try(Fn&& fn) {
    try {
      fn();
      return {};
    } catch (const std::exception& e) {
      return Status(Code::kUnavailable, "the store of the ranks: " + FirstLine(e.what()));
    }
  }
  const c10::intrusive_ptr<c10d::Store> store_;
};

// torchrun's agent has the store: no rank opens one.
Result<std::shared_ptr<Store>> ConnectAgentStore(const World& world,
                                                 std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = world.port;
  options.isServer = false;
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    return std::shared_ptr<Store>(
        std::make_shared<C10dStore>(c10::make_intrusive<c10d::TCPStore>(world.address, options)));
  } catch (const std::exception& e) {
    return Status(Code::kUnavailable, "no store at " + world.address + ":" +
                                          std::to_string(world.port) + ": " + FirstLine(e.what()));
  }
}

}  // namespace

Result<std::shared_ptr<Store>> ConnectStore(const World& world, std::chrono::milliseconds timeout) {
  std::promise<void> done;
  const std::future<void> connected = done.get_future();
  const Thread patience("patience", [&] {
    if (connected.wait_for(kMissingLogTime) == std::future_status::timeout)
      LogInfo("no store at " + world.address + ":" + std::to_string(world.port) + " yet: rank " +
              std::to_string(world.rank) + " waits for rank 0, " +
              std::to_string(timeout.count() / 1000) + " s at most");
  });
  auto store = world.agent_store ? ConnectAgentStore(world, timeout)
                                 : MakeSocketStore({world.address, world.port}, world.rank == 0,
                                                   world.secret, timeout);
  done.set_value();
  return store;
}

}  // namespace samara
