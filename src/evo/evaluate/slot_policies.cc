#include "evo/evaluate/slot_policies.h"

#include <deque>

namespace samara {
namespace {

// Large networks cost milliseconds: a thread takes one slot at a time so that the others share the
// rest.
constexpr size_t kLargeNetwork = 100'000;
constexpr size_t kSmallBatch = 8;

class CpuPolicies : public SlotPolicies {
 public:
  CpuPolicies(std::unique_ptr<PolicyModel> model, uint32_t slots) : model_(std::move(model)) {
    for (uint32_t i = 0; i < slots; ++i) policies_.emplace_back(*model_);
  }
  Result<std::unique_ptr<Worker>> MakeWorker() override {
    return std::unique_ptr<Worker>(std::make_unique<Scratch>(*model_));
  }
  size_t batch() const override {
    return model_->kernel().network().parameter_count > kLargeNetwork ? 1 : kSmallBatch;
  }
  bool records() const override { return true; }
  void Reset() override {
    for (PolicyState& policy : policies_) policy.LoadRandom();
  }
  Status Load(Worker& worker, uint32_t slot, PolicyHandle policy,
              const ParameterSource& source) override {
    policies_[slot].Load(static_cast<Scratch&>(worker).workspace, policy, source);
    return Status::Ok();
  }
  void StartEpisode(uint32_t slot, const EpisodeSpec& episode, bool record) override {
    policies_[slot].StartEpisode(episode, record);
  }
  void StartSequence(uint32_t slot) override { policies_[slot].StartSequence(); }
  Status Decide(Worker& worker, std::span<const uint32_t> slots,
                std::span<const std::span<const std::byte>> observations,
                std::span<Action> actions) override {
    PolicyWorkspace& workspace = static_cast<Scratch&>(worker).workspace;
    for (size_t i = 0; i < slots.size(); ++i)
      actions[i] = policies_[slots[i]].Decide(workspace, observations[i]);
    return Status::Ok();
  }
  Experience experience(uint32_t slot) const override { return policies_[slot].experience(); }

 private:
  struct Scratch : Worker {
    explicit Scratch(const PolicyModel& model) : workspace(model) {}
    PolicyWorkspace workspace;
  };
  const std::unique_ptr<PolicyModel> model_;
  std::deque<PolicyState> policies_;
};

}  // namespace

std::unique_ptr<SlotPolicies> MakeCpuPolicies(std::unique_ptr<PolicyModel> model, uint32_t slots) {
  return std::make_unique<CpuPolicies>(std::move(model), slots);
}

}  // namespace samara
