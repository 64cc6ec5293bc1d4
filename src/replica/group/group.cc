#include "replica/group/group.h"

#include <algorithm>

#include "core/clock.h"

namespace samara {

namespace {

constexpr std::chrono::milliseconds kPollInterval{250};  // between two checks for a failure

}  // namespace

// A store whose waits end when a rank has failed.
class RankGroup::InterruptibleStore : public Store {
 public:
  InterruptibleStore(std::shared_ptr<Store> store, const RankGroup& group)
      : store_(std::move(store)), group_(group) {}
  Status Set(const std::string& key, std::string_view value) override {
    return store_->Set(key, value);
  }
  Result<std::string> Get(const std::string& key, std::chrono::milliseconds timeout) override {
    const SteadyTime deadline = Now() + timeout;
    for (;;) {
      RETURN_IF_ERROR(group_.peer_failure());
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
  const RankGroup& group_;
};

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
  auto route = links.route(std::make_shared<InterruptibleStore>(store_, *this));
  if (!route.ok()) {
    RETURN_IF_ERROR(peer_failure());  // the cause
    if (monitor_) monitor_->Fail(route.status());
    return route.status();
  }
  address_ = std::move(route->address);
  gpus_ = links.gpus;
  auto communicator = std::make_unique<Communicator>(std::move(route->transport), options);
  communicator->SetMonitor(monitor_.get());
  const MutexLock lock(mu_);
  if (!peer_failure_.ok()) communicator->Abort(peer_failure_);
  communicator_ = std::move(communicator);
  return {};
}

void RankGroup::RecordFailure(const Status& failure) {
  const MutexLock lock(mu_);
  peer_failure_ = failure;
  if (communicator_) communicator_->Abort(failure);
  failed_ = true;
}

Status RankGroup::peer_failure() const {
  const MutexLock lock(mu_);
  return peer_failure_;
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
  return gpus_(*this, WithPrefix(std::make_shared<InterruptibleStore>(store_, *this), name),
               device);
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
