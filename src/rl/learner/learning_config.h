// Every parameter of a learning agent, torch-free: a plain struct a part, and the rows that bind
// them to keys.
#pragma once

#include <cstdint>
#include <string>

#include "core/config.h"

namespace samara {

// The network of agents (nn/torch/agent_network.h).
struct AgentNetworkKeys {
  std::string name = "mlp-64-64-tanh";
  int64_t lstm = 0;
  bool reward_input = false, action_input = false;
  std::string initializer = "glorot";  // or "orthogonal"
  std::string precision = "float32";   // or "bfloat16"
};

struct VtraceConfig {
  // "impala": the paper's, with lambda inside the traces c; "seed": generalised advantages, with
  // lambda in the policy's advantage too. They agree when lambda and all clips are 1.
  std::string form = "impala";
  double gamma = 0.99;  // per agent step
  double lambda = 1;
  double rho_clip = 1;         // of the importance weights in the value targets
  double rho_clip_policy = 1;  // of those in the policy's advantage
  double c_clip = 1;           // of the traces; "impala" only, at most rho_clip
  // "bootstrap": a truncated transition is worth gamma V(final observation) beyond its reward;
  // "ignore": it teaches nothing, its target is its own value
  std::string truncation = "bootstrap";
};

struct VtraceLossConfig {
  double value_cost = 0.5;
  double kl_cost = 0;         // of log mu - log pi
  std::string over = "mean";  // of the T x B entries: "mean", or "sum" as IMPALA's own code
};

struct OptimizerConfig {
  std::string kind = "adam";
  double learning_rate = 4.8e-4;
  double epsilon = 3.125e-7;
  double decay = 0.99;                // rmsprop: of the mean square
  double beta1 = 0.9, beta2 = 0.999;  // adam
  // "constant", or "linear": to zero at `schedule_frames`
  std::string schedule = "constant";
  double schedule_frames = 1e9;
  double clip_norm = 0;  // of all gradients together, before the step; 0 = none
};

struct LearnConfig {
  int64_t environments = 32;    // slots
  int64_t unroll = 20;          // T, steps
  int64_t batch = 32;           // unrolls an update
  std::string rewards = "raw";  // as the learner sees them
  std::string mode = "free";    // or "deterministic"
  int64_t lag = 1;              // deterministic: rounds between acting and learning
  int64_t lag_max = 0;          // free: unrolls with an older first entry are dropped; 0 = none
  int64_t queue = 0;            // complete unrolls that may wait; 0 = one update's worth
  bool drop_oldest = false;     // when the queue is full: drop, instead of waiting
  // parts of slots and batches that share no computation but the mean of their gradients, which is
  // taken in a fixed tree: ranks have whole ones
  int64_t shards = 1;
  int64_t threads = 0;  // for the shards; 0 = as many as there are, at most one a core
  double entropy_cost = 0.00025;
  std::string entropy_target = "none";  // nats, or "none": the cost is fixed
  double entropy_speed = 10;
  int64_t test_episodes = 30;  // of the agent at the end
  bool test_greedy = false;    // the most probable action, instead of a draw
  double frames = 1e6;         // budget; 0 = none
  int64_t updates = 0;         // budget; 0 = none
};

struct InferenceKeys {
  int64_t batch = 0;      // rows at most; 0 = measured (batch_size.h), at most the environments
  double wait_ms = 5;     // that the oldest ready row waits at most
  double low_mark = 0.5;  // of the live slots: a batch runs once so many are ready
};

struct LearningConfig {
  LearnConfig learn;
  InferenceKeys inference;
  AgentNetworkKeys network;
  VtraceConfig vtrace;
  VtraceLossConfig loss;
  OptimizerConfig optimizer;
};
void Bind(ConfigTable& table, LearningConfig& config);
// What no single row can refuse. kConfig.
Status Check(const LearningConfig& config);
// Parts that each of `learners` cuts its share of a batch into: learn.shards over all of them, and
// one each at least.
int64_t ShardsEach(const LearnConfig& learn, int64_t learners);

}  // namespace samara
