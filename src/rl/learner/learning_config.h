// Parameters of a learning agent, torch-free: a plain struct a part, and the rows that bind them to
// keys. What only one algorithm has is an AlgorithmConfig (rl/algorithms/registry.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/cloned.h"
#include "core/config.h"
#include "core/enum_names.h"
#include "nn/agent_core.h"
#include "nn/initializer.h"
#include "rl/trajectory/reward_transform.h"

namespace samara {

// Number format of a torso's products. kAuto: bfloat16 where a GPU has it, else float32; kFastest:
// where the CPU has it, too.
enum class Precision : uint8_t { kAuto, kFastest, kFloat32, kBfloat16 };
inline constexpr EnumName<Precision> kPrecisionNames[] = {{Precision::kAuto, "auto"},
                                                          {Precision::kFastest, "fastest"},
                                                          {Precision::kFloat32, "float32"},
                                                          {Precision::kBfloat16, "bfloat16"}};

// Torso of the value's head: the policy's, or one of its own.
enum class ValueTorso : uint8_t { kShared, kSeparate };
inline constexpr EnumName<ValueTorso> kValueTorsoNames[] = {{ValueTorso::kShared, "shared"},
                                                            {ValueTorso::kSeparate, "separate"}};
// Deviation of continuous actions: an output of the network, or free of the observation.
enum class Deviation : uint8_t { kNetwork, kFree };
inline constexpr EnumName<Deviation> kDeviationNames[] = {{Deviation::kNetwork, "network"},
                                                          {Deviation::kFree, "free"}};

// The network of agents (nn/torch/agent_network.h).
struct AgentNetworkKeys {
  std::string name = "mlp-64-64-tanh";
  std::string layers;  // a line (nn/layer_line.h); not empty: instead of the name
  const std::string& text() const { return layers.empty() ? name : layers; }
  // A file of TorchScript in place of the layers; of a run "sha256:" and the digest of its bytes.
  std::string module;
  // Not a key: those bytes, where they are needed.
  std::shared_ptr<const std::string> module_bytes;
  int64_t lstm = 0, gru = 0;  // units of a core; at most one of them
  AgentCore core() const {
    return gru > 0 ? AgentCore{gru, AgentCore::Kind::kGru} : AgentCore{lstm};
  }
  bool reward_input = false, action_input = false;
  int64_t head = 0;  // units of a layer in front of each head
  Initializer initializer = Initializer::kGlorot;
  Precision precision = Precision::kAuto;
  ValueTorso value = ValueTorso::kShared;
  bool normalize_value = false;  // PopArt
  Deviation deviation = Deviation::kNetwork;
  double initial_deviation = 1;  // where it is free
};

// kAdam, kRmsprop: as TensorFlow defines them.
enum class OptimizerKind : uint8_t { kAdam, kAdamTorch, kRmsprop, kRmspropTorch };
inline constexpr EnumName<OptimizerKind> kOptimizerKindNames[] = {
    {OptimizerKind::kAdam, "adam"},
    {OptimizerKind::kAdamTorch, "adam_torch"},
    {OptimizerKind::kRmsprop, "rmsprop"},
    {OptimizerKind::kRmspropTorch, "rmsprop_torch"}};
// Schedule of the learning rate. kLinear: to zero at `schedule_frames`.
enum class RateSchedule : uint8_t { kConstant, kLinear };
inline constexpr EnumName<RateSchedule> kRateScheduleNames[] = {
    {RateSchedule::kConstant, "constant"}, {RateSchedule::kLinear, "linear"}};

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdam;
  bool rmsprop() const {
    return kind == OptimizerKind::kRmsprop || kind == OptimizerKind::kRmspropTorch;
  }
  double learning_rate = 4.8e-4;
  double epsilon = 3.125e-7;
  double decay = 0.99;                // rmsprop: of the mean square
  double beta1 = 0.9, beta2 = 0.999;  // adam
  RateSchedule schedule = RateSchedule::kConstant;
  double schedule_frames = 1e9;
  double clip_norm = 0;  // of all gradients together, before the step; 0 = none
};

enum class LearnMode : uint8_t { kFree, kDeterministic };
inline constexpr EnumName<LearnMode> kLearnModeNames[] = {
    {LearnMode::kFree, "free"}, {LearnMode::kDeterministic, "deterministic"}};

struct LearnConfig {
  int64_t environments = 32;              // slots
  int64_t unroll = 20;                    // T, steps
  int64_t batch = 32;                     // unrolls an update
  RewardMode rewards = RewardMode::kRaw;  // as the learner sees them
  LearnMode mode = LearnMode::kFree;
  int64_t lag = 1;           // deterministic: rounds between acting and learning
  int64_t lag_max = 0;       // free: unrolls with an older first entry are dropped; 0 = none
  int64_t queue = 0;         // complete unrolls that may wait; 0 = one update's worth
  bool drop_oldest = false;  // when the queue is full: drop, instead of waiting
  // parts of slots and batches that share no computation but the mean of their gradients, which is
  // taken in a fixed tree: ranks have whole ones
  int64_t shards = 1;
  int64_t threads = 0;  // for the shards; 0 = as many as there are, at most one a core
  double entropy_cost = 0.00025;
  std::optional<double> entropy_target;  // nats; none: the cost is fixed
  double entropy_speed = 10;
  int64_t test_episodes = 30;  // of the agent at the end
  bool test_greedy = false;    // the most probable action, instead of a draw
  double evaluate_every = 0;   // frames between evaluations while it trains; 0 = none
  int64_t evaluate_episodes = 20;
  double frames = 1e6;  // budget; 0 = none
  int64_t updates = 0;  // budget; 0 = none

  bool deterministic() const { return mode == LearnMode::kDeterministic; }
};

struct InferenceKeys {
  int64_t batch = 0;      // rows at most; 0 = measured (batch_size.h), at most the environments
  double wait_ms = 5;     // that the oldest ready row waits at most
  double low_mark = 0.5;  // of the live slots: a batch runs once so many are ready
};

struct LearningConfig;

// Parameters that only one algorithm has.
class AlgorithmConfig {
 public:
  virtual ~AlgorithmConfig() = default;
  virtual std::unique_ptr<AlgorithmConfig> Clone() const = 0;
  virtual void Bind(ConfigTable& table) = 0;
  // Checks what no single row can, of these parameters and the common ones. kConfig.
  virtual Status Check(const LearningConfig& config) const = 0;
  // Entries of an unroll before those that are learned from.
  virtual int64_t overlap() const { return 0; }
};

struct LearningConfig {
  LearnConfig learn;
  InferenceKeys inference;
  AgentNetworkKeys network;
  std::string algorithm;        // its name in the registry
  Cloned<AlgorithmConfig> own;  // its parameters
  OptimizerConfig optimizer;
};
// REQUIRES: `config.own` is there, here and in Check.
void Bind(ConfigTable& table, LearningConfig& config);
// Refuses combinations that no single row can refuse. kConfig.
Status Check(const LearningConfig& config);
// Refuses learn.entropy_target, of algorithms without a policy whose entropy counts. kConfig.
Status CheckNoTargetEntropy(const LearningConfig& config);
// Parts that each of `learners` cuts its share of a batch into: learn.shards over all of them, and
// one each at least.
int64_t ShardsEach(const LearnConfig& learn, int64_t learners);

}  // namespace samara
