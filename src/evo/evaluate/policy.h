// SPDX-License-Identifier: Apache-2.0 OR MIT
// A policy as a fleet slot plays it: parameters, input state (frame stack) and action head. Engine
// and actors share this one executor, so an action does not depend on the process that chose it.
//
// Nor does it depend on where the numbers are: a ParameterSource writes the canonical parameter
// vector of a policy handle, whether it is a genome rebuilt from its seeds or a file. Handle
// kRandomHandle acts uniformly at random from the episode's own stream.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "core/check.h"
#include "env/interface.h"
#include "evo/evaluate/experience.h"
#include "evo/genome/genome.h"
#include "nn/frame_stack.h"
#include "nn/kernel.h"

namespace samara {

// Which parameters a slot plays: an individual of the population, the elite, an older version, ...
struct PolicyHandle {
  uint32_t id = 0;
  uint32_t version = 0;
  bool operator==(const PolicyHandle&) const = default;
};
constexpr PolicyHandle kRandomHandle{UINT32_MAX, 0};

// Thread safe: called from every inference thread.
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;
  virtual void Write(PolicyHandle policy, std::span<float> canonical) const = 0;
  // The genome that decodes to what Write writes, for devices that decode it themselves; nothing
  // where there is none.
  virtual std::optional<Genome> GenomeOf(PolicyHandle) const { return std::nullopt; }
};

// Parameters of one policy, whatever the handle; they outlive this object.
class FixedParameters : public ParameterSource {
 public:
  explicit FixedParameters(std::span<const float> parameters) : parameters_(parameters) {}
  void Write(PolicyHandle, std::span<float> canonical) const override {
    CHECK_EQ(parameters_.size(), canonical.size());
    std::copy(parameters_.begin(), parameters_.end(), canonical.begin());
  }

 private:
  std::span<const float> parameters_;
};

// How observations become network input; constant for a run.
struct InputRule {
  bool stacked = false;  // images: frame stack; vectors: as they are
  FrameStackRule stack;
  DType dtype = DType::kFloat32;
};

struct PolicyWorkspace;

// Constants of every slot: the network, its kernel, the input rule, the action space.
class PolicyModel {
 public:
  PolicyModel(NetworkDescription network, InputRule input, ActionSpec action,
              IsaLevel isa = ActiveIsa());
  // Describe writes what FromDescription makes the same model of in another process, instruction
  // set included, so that packed parameters mean the same there. REQUIRES: the network has a name
  // (network.h). kConfig: the text is not what Describe writes, or of another CPU.
  std::string Describe() const;
  static Result<std::unique_ptr<PolicyModel>> FromDescription(std::string_view description);
  // Inputs of the network, one after the other, from which the statistics of every policy are
  // computed that is packed from now on. Without a reference a policy's own are used. Not thread
  // safe: before any episode.
  void SetReference(std::vector<float> inputs);
  // The packed parameters of a policy.
  void Pack(PolicyHandle policy, const ParameterSource& source, PolicyWorkspace& workspace,
            std::span<float> packed) const;
  // Completes the canonical vector of a policy by the statistics of the reference, if there is one.
  void ComputeStatistics(PolicyWorkspace& workspace, std::span<float> canonical) const;
  const PopulationKernel& kernel() const { return kernel_; }
  const InputRule& input() const { return input_; }
  const ActionSpec& action() const { return action_; }
  size_t pixels() const {  // of one frame
    return static_cast<size_t>(kernel_.network().height * kernel_.network().width);
  }

 private:
  PopulationKernel kernel_;
  InputRule input_;
  ActionSpec action_;
  IsaLevel isa_;
  std::vector<float> reference_inputs_;
  std::vector<const float*> reference_;
};

// Scratch of one thread, whichever slots it serves.
struct PolicyWorkspace {
  explicit PolicyWorkspace(const PolicyModel& model)
      : kernel(model.kernel().MakeWorkspace()),
        parameters(model.kernel().network().parameter_count) {}
  // Room for parameters on their way to the packed layout. Allocated at the first use: an actor
  // that gets packed ones never needs it.
  std::span<float> Canonical() {
    if (canonical.size() == 0) canonical = AlignedFloats(parameters);
    return canonical.span();
  }
  std::unique_ptr<PopulationKernel::Workspace> kernel;
  size_t parameters;
  AlignedFloats canonical;
};

// State of one slot. One thread at a time. Nothing is allocated after the first Load.
class PolicyState {
 public:
  explicit PolicyState(const PolicyModel& model);
  // Takes the parameters of `policy` unless it already holds them.
  void Load(PolicyWorkspace& workspace, PolicyHandle policy, const ParameterSource& source);
  // The same from parameters that were packed by an equal model.
  void LoadPacked(std::span<const float> packed);
  // Acts at random from now on, and forgets the handle it had: that of another source may mean
  // another policy.
  void LoadRandom() { loaded_ = kRandomHandle; }
  // The policy is evaluated elsewhere: SetOutputs gives what Act chooses from.
  void LoadElsewhere(PolicyHandle policy) { loaded_ = policy; }
  PolicyHandle loaded() const { return loaded_; }
  void SetOutputs(std::span<const float> outputs) {
    std::copy(outputs.begin(), outputs.end(), outputs_.begin());
  }
  // The outputs of a policy that acts at random.
  void DrawOutputs();
  // Observations that the episode has brought before the newest one.
  uint32_t step() const { return step_; }
  // With `record` the episode's states are kept for experience(). Of `episode` the seed and the
  // noise on continuous actions count.
  void StartEpisode(const EpisodeSpec& episode, bool record = false);
  // The next observation begins a sequence of its own (StepResult::new_sequence).
  void StartSequence();
  // The action for the newest observation; `action.values` points into this state until the next
  // call. The first maximum wins, of each part or dimension with bins; continuous outputs are
  // clipped to [-1, 1].
  Action Decide(PolicyWorkspace& workspace, std::span<const std::byte> observation);
  // Decide in two parts: the outputs of up to kSideBySide `states` of one model for their newest
  // observations, where small networks run side by side, and the action that follows for each.
  static void EvaluateAll(PolicyWorkspace& workspace, std::span<PolicyState* const> states,
                          std::span<const std::span<const std::byte>> observations);
  Action Act();
  // The network's input after the newest observation: what Decide evaluates, and all that a policy
  // that acts at random leaves to be taken, before its Decide.
  const float* TakeObservation(std::span<const std::byte> observation);
  // Raw network outputs of the last Decide.
  std::span<const float> outputs() const { return outputs_; }
  // States of the episode so far, drawn by its seed. REQUIRES: it is recorded.
  Experience experience() const { return recorder_->Draw(seed_); }

 private:
  // Returns the network's input, or null: the outputs of a policy that acts at random.
  const float* Begin(std::span<const std::byte> observation);
  void Evaluate(PolicyWorkspace& workspace, std::span<const std::byte> observation);
  PolicyHandle loaded_ = kRandomHandle;
  const PolicyModel& model_;
  AlignedFloats packed_;  // allocated by the first Load
  std::unique_ptr<FrameStack> stack_;
  AlignedFloats input_;      // vector observations
  AlignedFloats recurrent_;  // state of the network's recurrent layers in this episode
  std::vector<float> outputs_, values_;
  uint64_t seed_ = 0;
  float action_noise_ = 0;
  uint32_t step_ = 0;
  std::unique_ptr<ExperienceRecorder> recorder_;  // made by the first episode that is recorded
  bool recording_ = false;
  bool new_sequence_ = true;  // the next observation begins one
};

}  // namespace samara
