#include "replica/group/group.h"

#include <algorithm>

#include "core/clock.h"

namespace samara {

namespace {

constexpr std::chrono::milliseconds kPollInterval{250};  // between two checks for a failure

}  // namespace

// The failure of another rank; OK until there is one.
class RankGroup::PeerFailure {
 public:
  void Set(const Status& failure) {
    const MutexLock lock(mu_);
    status_ = failure;
  }
  Status status() const {
    const MutexLock lock(mu_);
    return status_;
  }

 private:
  mutable Mutex mu_;
  Status status_ GUARDED_BY(mu_);
};

// A store whose waits end when a rank has failed. It may outlive the group: links that a failure
// has left behind keep it.
class RankGroup::InterruptibleStore : public Store {
 public:
  InterruptibleStore(std::shared_ptr<Store> store, std::shared_ptr<const PeerFailure> failure)
      : store_(std::move(store)), failure_(std::move(failure)) {}
  Status Set(const std::string& key, std::string_view value) override {
    return store_->Set(key, value);
  }
  Result<std::string> Get(const std::string& key, std::chrono::milliseconds timeout) override {
    const SteadyTime deadline = Now() + timeout;
    for (;;) {
      RETURN_IF_ERROR(failure_->status());
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Now());
      Result<std::string> value = store_->Get(key, std::min(left, kPollInterval));
      if (value.ok() || left <= kPollInterval) return value;
    }
  }
  Result<int64_t> Add(const std::string& key, int64_t amount) override {
    return store_->Add(key, amount);
  }
  Status Delete(const std::string& key) override { return store_->Delete(key); }

 private:
  const std::shared_ptr<Store> store_;
  const std::shared_ptr<const PeerFailure> failure_;
};

RankGroup::RankGroup(const World& world, std::shared_ptr<Store> store)
    : world_(world), store_(std::move(store)), peer_failure_(std::make_shared<PeerFailure>()) {}

std::shared_ptr<Store> RankGroup::Interruptible() const {
  return std::make_shared<InterruptibleStore>(store_, peer_failure_);
}

Result<std::unique_ptr<RankGroup>> RankGroup::Make(const World& world, const RankLinks& links,
                                                   const CommunicatorOptions& options) {
  std::unique_ptr<RankGroup> group(new RankGroup(world, links.store));
  RETURN_IF_ERROR(group->Join(links, options));
  return group;
}

Status RankGroup::Join(const RankLinks& links, const CommunicatorOptions& options) {
  if (links.monitor) {
    ASSIGN_OR_RETURN(monitor_,
                     links.monitor([this](const Status& failure) { RecordFailure(failure); }));
  }
  auto route = links.route(Interruptible());
  if (!route.ok()) {
    RETURN_IF_ERROR(peer_failure_->status());  // the cause
    if (monitor_) monitor_->Fail(route.status());
    return route.status();
  }
  address_ = std::move(route->address);
  gpus_ = links.gpus;
  auto communicator = std::make_unique<Communicator>(std::move(route->transport), options);
  communicator->SetMonitor(monitor_.get());
  const MutexLock lock(mu_);
  if (const Status failure = peer_failure_->status(); !failure.ok()) communicator->Abort(failure);
  communicator_ = std::move(communicator);
  return {};
}

void RankGroup::RecordFailure(const Status& failure) {
  const MutexLock lock(mu_);
  peer_failure_->Set(failure);
  if (communicator_) communicator_->Abort(failure);
  failed_ = true;
}

RankGroup::~RankGroup() { Leave(); }

Result<std::vector<std::string>> RankGroup::Exchange(const std::string& what,
                                                     std::string_view mine) {
  std::vector<std::vector<std::byte>> parts;
  RETURN_IF_ERROR(communicator_->AllGatherRagged({.operation = what, .operand = {}},
                                                 std::as_bytes(std::span(mine)), parts));
  std::vector<std::string> all;
  all.reserve(parts.size());
  for (const auto& part : parts)
    all.emplace_back(reinterpret_cast<const char*>(part.data()), part.size());
  return all;
}

Result<std::unique_ptr<GpuSum>> RankGroup::SumOnGpus(const Device& device,
                                                     const std::string& name) {
  if (!gpus_) return std::unique_ptr<GpuSum>();
  return gpus_(*this, WithPrefix(Interruptible(), name), device);
}

void RankGroup::Fail(const Status& why) {
  if (!communicator_->failure().ok()) return;
  if (monitor_) monitor_->Fail(why);
  communicator_->Abort(why);
  failed_ = true;
}

void RankGroup::Leave() {
  if (monitor_) monitor_->Leave();
}

}  // namespace samara
