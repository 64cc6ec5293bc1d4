// A policy that answers single observations, for programs that step the environment themselves.
#pragma once

#include <memory>
#include <span>

#include "play/saved_policy.h"

namespace samara {

// One decision. A memory is what a policy knows of one running episode: frame stack, recurrent
// state, last action.
struct DecisionRequest {
  uint32_t memory = 0;
  bool first = false;   // an episode begins
  bool greedy = false;  // of learners: the most probable action instead of a draw
  float reward = 0;     // of the step that led here, for networks that read it
  std::span<const std::byte> observation;
};

// Thread safety: none.
class ActingPolicy {
 public:
  virtual ~ActingPolicy() = default;
  // The environment that the policy was made for: what observations and actions are.
  virtual const EnvironmentSpec& environment() const = 0;
  // Whether `greedy` is what the policy's configuration plays tests with.
  virtual bool greedy() const = 0;
  // The action, as the fleet would get it; valid until the next call. An observation of another
  // size is kConfig, an output that is no number kUnavailable. REQUIRES: memory < memories.
  virtual Result<Action> Decide(const DecisionRequest& request) = 0;
};

// Starts the policy's environment once, to see what it is. Errors as of LoadPolicy and SetUp*.
// REQUIRES of a policy that learned: HasAgents(run.algorithm).
Result<std::unique_ptr<ActingPolicy>> MakeActingPolicy(const Policy& policy, uint32_t memories);

}  // namespace samara
