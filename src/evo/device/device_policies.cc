#include "evo/device/device_policies.h"

#include <algorithm>
#include <deque>
#include <map>

#include "core/mutex.h"
#include "evo/device/decode.h"

namespace samara {
namespace {

constexpr size_t kAncestors = 64;  // vectors of parents in the device's memory

// Which policy each network of the device holds, and how many slots play it.
class Residents {
 public:
  explicit Residents(uint32_t networks) : networks_(networks) {}

  // A network for the policy, which counts one slot more. `fresh`: its parameters are to be written
  // now, and Written called; another call for the same policy waits until then. Nothing: they could
  // not be written.
  std::optional<uint32_t> Take(PolicyHandle policy, bool& fresh) {
    const MutexLock lock(mu_);
    for (Network& network : networks_) {
      if (network.policy != policy) continue;
      ++network.slots;
      const auto at = static_cast<uint32_t>(&network - networks_.data());
      fresh = false;
      changed_.Wait(mu_, [&]() REQUIRES(mu_) { return network.ready; });
      if (network.policy == policy) return at;
      --network.slots;
      return std::nullopt;
    }
    fresh = true;
    // of those that no slot plays the one that was free the longest
    auto free = networks_.end();
    for (auto it = networks_.begin(); it != networks_.end(); ++it) {
      if (it->slots == 0 && (free == networks_.end() || it->freed < free->freed)) free = it;
    }
    CHECK(free != networks_.end());  // a network for each slot
    *free = {.policy = policy, .slots = 1, .ready = false, .freed = 0};
    return static_cast<uint32_t>(free - networks_.begin());
  }
  void Written(uint32_t network, bool ok) {
    const MutexLock lock(mu_);
    networks_[network].ready = true;
    if (!ok) networks_[network].policy = kRandomHandle;
    changed_.NotifyAll();
  }
  void Leave(uint32_t network) {
    const MutexLock lock(mu_);
    if (--networks_[network].slots == 0) networks_[network].freed = ++clock_;
  }
  void Reset() {
    const MutexLock lock(mu_);
    std::ranges::fill(networks_, Network());
  }

 private:
  struct Network {
    PolicyHandle policy = kRandomHandle;
    uint32_t slots = 0;
    bool ready = true;
    uint64_t freed = 0;
  };
  Mutex mu_;
  CondVar changed_;
  std::vector<Network> networks_ GUARDED_BY(mu_);
  uint64_t clock_ GUARDED_BY(mu_) = 0;
};

class DevicePolicies : public SlotPolicies {
 public:
  DevicePolicies(std::unique_ptr<Accelerator> accelerator, std::unique_ptr<PolicyModel> model,
                 uint32_t slots, uint32_t batch)
      : accelerator_(std::move(accelerator)),
        model_(std::move(model)),
        batch_(batch),
        residents_(slots),
        networks_(slots, kNone) {
    for (uint32_t i = 0; i < slots; ++i) states_.emplace_back(*model_);
  }
  Status Allocate() {
    const InputRule& input = model_->input();
    const auto slots = static_cast<uint32_t>(states_.size());
    ASSIGN_OR_RETURN(
        population_,
        DevicePopulation::Make(*accelerator_, model_->kernel().network(),
                               {input.stacked ? std::optional(input.stack) : std::nullopt, slots,
                                slots, input.stacked && input.dtype == DType::kFloat32}));
    decoder_ = std::make_unique<DeviceDecoder>(*population_, kAncestors);
    return Status::Ok();
  }

  Result<std::unique_ptr<Worker>> MakeWorker() override {
    auto worker = std::make_unique<Scratch>();
    ASSIGN_OR_RETURN(worker->lane, population_->MakeLane(batch_));
    const MutexLock lock(mu_);
    lanes_.push_back(worker->lane.get());
    return std::unique_ptr<Worker>(std::move(worker));
  }
  size_t batch() const override { return batch_; }
  bool records() const override { return false; }
  void Reset() override {
    for (PolicyState& state : states_) state.LoadRandom();
    std::ranges::fill(networks_, kNone);
    residents_.Reset();
  }

  Status Load(Worker& worker, uint32_t slot, PolicyHandle policy,
              const ParameterSource& source) override {
    PolicyState& state = states_[slot];
    if (policy == state.loaded()) return Status::Ok();
    if (networks_[slot] != kNone) residents_.Leave(networks_[slot]);
    networks_[slot] = kNone;
    state.LoadRandom();
    if (policy == kRandomHandle) return Status::Ok();
    bool fresh = false;
    const std::optional<uint32_t> network = residents_.Take(policy, fresh);
    if (!network) return {Code::kUnavailable, "the parameters of a policy could not be written"};
    if (fresh) {
      const Status written = Write(static_cast<Scratch&>(worker), *network, policy, source);
      residents_.Written(*network, written.ok());
      if (!written.ok()) residents_.Leave(*network);
      RETURN_IF_ERROR(written);
    }
    networks_[slot] = *network;
    state.LoadElsewhere(policy);
    return Status::Ok();
  }

  void StartEpisode(uint32_t slot, const EpisodeSpec& episode, bool record) override {
    CHECK(!record);
    states_[slot].StartEpisode(episode);
  }
  void StartSequence(uint32_t slot) override { states_[slot].StartSequence(); }

  Status Decide(Worker& worker, std::span<const uint32_t> slots,
                std::span<const std::span<const std::byte>> observations,
                std::span<Action> actions) override {
    auto& scratch = static_cast<Scratch&>(worker);
    scratch.rows.clear();
    for (size_t i = 0; i < slots.size(); ++i) {
      PolicyState& state = states_[slots[i]];
      if (networks_[slots[i]] == kNone)
        state.DrawOutputs();
      else
        scratch.rows.push_back(
            {networks_[slots[i]], slots[i], state.step(), InputOf(scratch, i, observations[i])});
    }
    if (!scratch.rows.empty()) RETURN_IF_ERROR(scratch.lane->Forward(scratch.rows));
    const size_t size = model_->kernel().network().output_size();
    size_t row = 0;
    for (size_t i = 0; i < slots.size(); ++i) {
      PolicyState& state = states_[slots[i]];
      if (networks_[slots[i]] != kNone)
        state.SetOutputs(scratch.lane->outputs().subspan(row++ * size, size));
      actions[i] = state.Act();
    }
    return Status::Ok();
  }
  double device_seconds() const override {
    const MutexLock lock(mu_);
    double sum = 0;
    for (const DevicePopulation::Lane* lane : lanes_) sum += lane->seconds();
    return sum;
  }
  Experience experience(uint32_t slot) const override { return states_[slot].experience(); }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Scratch : Worker {
    std::unique_ptr<DevicePopulation::Lane> lane;
    std::vector<DeviceRow> rows;
    std::vector<float> canonical;
    std::vector<std::vector<float>> vectors;  // bytes of a vector as floats, by place in the batch
  };

  // Returns what the device is to get: a frame as it is, or the floats of a vector.
  const void* InputOf(Scratch& scratch, size_t place,
                      std::span<const std::byte> observation) const {
    const InputRule& input = model_->input();
    if (input.stacked || input.dtype == DType::kFloat32) return observation.data();
    scratch.vectors.resize(batch_);
    std::vector<float>& values = scratch.vectors[place];
    values.resize(observation.size());
    for (size_t k = 0; k < values.size(); ++k)
      values[k] = static_cast<float>(std::to_integer<uint8_t>(observation[k])) / 255.0F;
    return values.data();
  }

  Status Write(Scratch& scratch, uint32_t network, PolicyHandle policy,
               const ParameterSource& source) {
    const auto genome = source.GenomeOf(policy);
    if (genome && DecodesOnDevice(*genome)) {
      Status decoded = decoder_->Load(*scratch.lane, network, *genome);
      if (decoded.code() != Code::kNoResources) return decoded;  // no room for ancestors
    }
    scratch.canonical.resize(model_->kernel().network().parameter_count);
    source.Write(policy, scratch.canonical);
    return scratch.lane->Load(network, scratch.canonical);
  }

  const std::unique_ptr<Accelerator> accelerator_;  // outlives what it allocates
  const std::unique_ptr<PolicyModel> model_;
  const uint32_t batch_;
  std::unique_ptr<DevicePopulation> population_;
  std::unique_ptr<DeviceDecoder> decoder_;
  std::deque<PolicyState> states_;
  Residents residents_;
  std::vector<uint32_t> networks_;  // of each slot
  mutable Mutex mu_;
  std::vector<const DevicePopulation::Lane*> lanes_ GUARDED_BY(mu_);  // of all workers
};

}  // namespace

Status SupportsDevice(const PolicyModel& model) {
  return DevicePopulation::Supports(model.kernel().network());
}

Result<std::unique_ptr<SlotPolicies>> MakeDevicePolicies(std::unique_ptr<Accelerator> accelerator,
                                                         std::unique_ptr<PolicyModel> model,
                                                         uint32_t slots, uint32_t batch) {
  RETURN_IF_ERROR(SupportsDevice(*model));
  auto policies =
      std::make_unique<DevicePolicies>(std::move(accelerator), std::move(model), slots, batch);
  RETURN_IF_ERROR(policies->Allocate());
  return std::unique_ptr<SlotPolicies>(std::move(policies));
}

}  // namespace samara
