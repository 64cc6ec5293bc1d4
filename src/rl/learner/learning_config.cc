#include "rl/learner/learning_config.h"

#include <fmt/format.h>

#include "nn/layer_line.h"
#include "rl/trajectory/reward_transform.h"

namespace samara {

void Bind(ConfigTable& table, LearningConfig& c) {
  const auto change = OnResume::kMayChange;
  const auto grow = OnResume::kMayGrow;
  LearnConfig& l = c.learn;
  table.Add("learn.environments", &l.environments, {1, 65'536}, "slots",
            "number of environments that play at once");
  table.Add("learn.unroll", &l.unroll, {1, 100'000}, "steps", "length of an unroll");
  table.Add("learn.batch", &l.batch, {1, 65'536}, "unrolls", "number of unrolls per update");
  table.Add("learn.rewards", &l.rewards, kRewardModeNames,
            "transform of rewards for the learner; scores are raw");
  table.Add(
      "learn.mode", &l.mode, kLearnModeNames,
      "asynchronous; or lock-step, with the same bits for any number of actors and after kills");
  table.Add("learn.lag", &l.lag, {0, 100}, "rounds",
            "deterministic: policy lag, in rounds of unrolls");
  table.Add("learn.lag_max", &l.lag_max, {0, 1e9}, "updates",
            "free: unrolls with a larger policy lag are dropped; 0 = no limit", change);
  table.Add("learn.queue", &l.queue, {0, 1e6}, "unrolls",
            "maximum number of complete unrolls in the queue; 0 = those of one update", change);
  table.Add("learn.drop_oldest", &l.drop_oldest,
            "when the queue is full, drop the oldest unroll instead of blocking actors", change);
  table.Add("learn.shards", &l.shards, {1, 1024}, "",
            "number of equal parts of a batch, reduced in a fixed tree; deterministic: also of the "
            "environments, and any number of ranks that divides it gives the same bits");
  table.Add("learn.threads", &l.threads, {0, 1024}, "threads",
            "number of threads for the shards; 0 = one per shard, at most one per core", change);
  table.Add("learn.entropy_cost", &l.entropy_cost, {0, 1000}, "",
            "weight of the policy's entropy in the loss");
  table.Add("learn.entropy_target", &l.entropy_target, {-1e4, 1e4}, "nats",
            "entropy that the cost is adjusted to reach; none = fixed cost");
  table.Add("learn.entropy_speed", &l.entropy_speed, {1e-3, 1e3}, "",
            "adjustment speed of the entropy cost");
  table.Add("learn.frames", &l.frames, {0, 1e15}, "frames", "budget; 0 = unlimited", grow);
  table.Add("learn.updates", &l.updates, {0, 1e15}, "updates", "budget; 0 = unlimited", grow);
  table.Add("learn.test_episodes", &l.test_episodes, {0, 1'000'000}, "episodes",
            "test episodes of the agent at the end, not counted in frames", change);
  table.Add("learn.test_greedy", &l.test_greedy,
            "test with the most probable action instead of a sample", change);
  table.Add("learn.evaluate_every", &l.evaluate_every, {0, 1e15}, "frames",
            "frames between evaluations during training, whose best agent is kept; 0 = none",
            change);
  table.Add("learn.evaluate_episodes", &l.evaluate_episodes, {1, 1'000'000}, "episodes",
            "number of episodes of an evaluation, not counted in frames", change);
  table.Add("inference.batch", &c.inference.batch, {0, 65'536}, "rows",
            "maximum batch size; 0 = measured at the start, deterministic: one per environment",
            change);
  table.Add("inference.wait_ms", &c.inference.wait_ms, {0, 60'000}, "ms",
            "maximum time that a ready row waits for others", change);
  table.Add("inference.low_mark", &c.inference.low_mark, {0, 1}, "of live slots",
            "fraction of live slots whose readiness starts a batch", change);
  table.Add("network.name", &c.network.name, {}, "name of the network; `samara list networks`");
  table.Add("network.layers", &c.network.layers, {}, kLayersHelp, OnResume::kMustMatchAdded);
  table.Add("network.module", &c.network.module, {},
            "file of a torch.nn.Module as TorchScript, in place of the layers; empty: none",
            OnResume::kMustMatchAdded);
  table.Add("network.lstm", &c.network.lstm, {0, 65'536}, "units",
            "size of an LSTM behind the network; 0 = none");
  table.Add("network.reward_input", &c.network.reward_input, "the last reward is an input");
  table.Add("network.action_input", &c.network.action_input, "the last action is an input");
  table.Add("network.initializer", &c.network.initializer, kInitializerNames,
            "initial weights: Glorot uniform, orthogonal with PPO's gains, or LeCun normal");
  table.Add("network.precision", &c.network.precision, kPrecisionNames,
            "number format of the torso's products; bfloat16 needs AVX512_BF16 or a GPU; auto: "
            "bfloat16 on a GPU that has it, else float32; fastest: on a CPU that has it, too");
  table.AddFormerDefault("network.precision", "\"float32\"");
  const auto added = OnResume::kMustMatchAdded;
  table.Add("network.value", &c.network.value, kValueTorsoNames,
            "torso of the value's head: the policy's, or one of its own", added);
  table.Add("network.normalize_value", &c.network.normalize_value,
            "the value's head predicts returns less their mean, by their deviation (PopArt)",
            added);
  table.Add(
      "network.deviation", &c.network.deviation, kDeviationNames,
      "standard deviation of continuous actions: an output of the network, or parameters that "
      "do not depend on the observation",
      added);
  table.Add("network.gru", &c.network.gru, {0, 65'536}, "units",
            "size of a GRU behind the network; 0 = none", added);
  table.Add("network.head", &c.network.head, {0, 65'536}, "units",
            "size of a relu layer in front of the policy's and the value's head; 0 = none", added);
  table.Add("network.initial_deviation", &c.network.initial_deviation, {0.01, 100}, "",
            "first standard deviation of continuous actions, where it is a parameter", added);
  c.own->Bind(table);
  table.Add("optimizer.kind", &c.optimizer.kind, kOptimizerKindNames,
            "the optimizer; _torch: as PyTorch defines it, otherwise as TensorFlow does");
  table.Add("optimizer.learning_rate", &c.optimizer.learning_rate, {0, 100}, "",
            "initial learning rate");
  table.Add("optimizer.epsilon", &c.optimizer.epsilon, {0, 100}, "",
            "added to the root of the mean square (rmsprop: to the mean square) before the "
            "division by it");
  table.Add("optimizer.decay", &c.optimizer.decay, {0, 1}, "", "rmsprop: decay of the mean square");
  table.Add("optimizer.beta1", &c.optimizer.beta1, {0, 0.9999999}, "",
            "adam: decay of the mean gradient");
  table.Add("optimizer.beta2", &c.optimizer.beta2, {0, 0.9999999}, "",
            "adam: decay of the mean square");
  table.Add("optimizer.schedule", &c.optimizer.schedule, kRateScheduleNames,
            "schedule of the learning rate: linear reaches 0 at schedule_frames");
  table.Add("optimizer.schedule_frames", &c.optimizer.schedule_frames, {1, 1e15}, "frames",
            "where the linear schedule ends; a resumed run may raise it with its budget", grow);
  table.Add("optimizer.clip_norm", &c.optimizer.clip_norm, {0, 1e9}, "",
            "maximum norm of the gradient, of each part's where they learn apart; 0 = no clipping");
}

Status CheckNoTargetEntropy(const LearningConfig& c) {
  if (!c.learn.entropy_target) return Status::Ok();
  return {Code::kConfig, "learn.entropy_target: " + c.algorithm +
                             " has no policy whose entropy counts; expected none"};
}

Status Check(const LearningConfig& c) {
  if (c.network.lstm > 0 && c.network.gru > 0)
    return {Code::kConfig, fmt::format("network.lstm={} with network.gru={}: a network has one "
                                       "recurrent core; expected 0 in one of them",
                                       c.network.lstm, c.network.gru)};
  RETURN_IF_ERROR(c.own->Check(c));
  if (c.learn.batch % c.learn.shards != 0)
    return {Code::kConfig, fmt::format("learn.shards={}: expected a divisor of learn.batch={}",
                                       c.learn.shards, c.learn.batch)};
  if (c.learn.deterministic() && c.learn.environments % c.learn.batch != 0)
    return {Code::kConfig,
            fmt::format("learn.mode=deterministic: learn.environments={} is no multiple of "
                        "learn.batch={}; a round has to make whole updates",
                        c.learn.environments, c.learn.batch)};
  if (c.network.deviation != Deviation::kFree &&
      c.network.initial_deviation != AgentNetworkKeys().initial_deviation)
    return {
        Code::kConfig,
        "network.initial_deviation: has an effect only with network.deviation=free; expected it "
        "left out"};
  if (!c.network.module.empty() && c.network.precision == Precision::kBfloat16)
    return {Code::kConfig,
            "network.precision=bfloat16: of the layers of samara's own torsos; expected float32 "
            "with network.module"};
  if (c.learn.entropy_target && c.learn.entropy_cost <= 0)
    return {Code::kConfig,
            "learn.entropy_target needs learn.entropy_cost above 0: it is where steering starts"};
  if (c.learn.frames == 0 && c.learn.updates == 0)
    return {Code::kConfig, "learn.frames=0, learn.updates=0: expected a budget in one of them"};
  return Status::Ok();
}

int64_t ShardsEach(const LearnConfig& learn, int64_t learners) {
  return (learn.shards + learners - 1) / learners;
}

}  // namespace samara
