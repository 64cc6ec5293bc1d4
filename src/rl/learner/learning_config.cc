#include "rl/learner/learning_config.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "core/cpu.h"
#include "rl/trajectory/reward_transform.h"

namespace samara {

void Bind(ConfigTable& table, LearningConfig& c) {
  const auto change = OnResume::kMayChange;
  const auto grow = OnResume::kMayGrow;
  LearnConfig& l = c.learn;
  table.Add("learn.environments", &l.environments, {1, 65'536}, "slots",
            "environments that play at once");
  table.Add("learn.unroll", &l.unroll, {1, 100'000}, "steps", "length of an unroll");
  table.Add("learn.batch", &l.batch, {1, 65'536}, "unrolls", "per update");
  table.Add("learn.rewards", &l.rewards, {"raw", "clip", "sign", "asymmetric"},
            "as the learner sees them; scores are raw");
  table.Add("learn.mode", &l.mode, {"free", "deterministic"},
            "as fast as it goes; or the same bits at any number of actors and kills");
  table.Add("learn.lag", &l.lag, {0, 100}, "rounds",
            "deterministic: an unroll is played while so many rounds before it are being learnt");
  table.Add("learn.lag_max", &l.lag_max, {0, 1e9}, "updates",
            "free: older unrolls are dropped; 0 = none", change);
  table.Add("learn.queue", &l.queue, {0, 1e6}, "unrolls",
            "complete ones that may wait; 0 = one update's worth", change);
  table.Add("learn.drop_oldest", &l.drop_oldest,
            "when the queue is full, drop unrolls instead of letting actors wait", change);
  table.Add("learn.shards", &l.shards, {1, 1024}, "",
            "equal parts of a batch, averaged in a fixed tree; deterministic: of the environments "
            "too, and any number of ranks that divides them has the same bits");
  table.Add("learn.threads", &l.threads, {0, 1024}, "threads", "for the shards; 0 = one each",
            change);
  table.Add("learn.entropy_cost", &l.entropy_cost, {0, 1000}, "", "of the policy's entropy");
  table.Add("learn.entropy_target", &l.entropy_target, {},
            "nats that the cost steers the entropy to; none = a fixed cost");
  table.Add("learn.entropy_speed", &l.entropy_speed, {1e-3, 1e3}, "", "of the steered cost");
  table.Add("learn.frames", &l.frames, {0, 1e15}, "frames", "budget; 0 = none", grow);
  table.Add("learn.updates", &l.updates, {0, 1e15}, "updates", "budget; 0 = none", grow);
  table.Add("learn.test_episodes", &l.test_episodes, {0, 1'000'000}, "episodes",
            "of the agent at the end, not counted in frames", change);
  table.Add("learn.test_greedy", &l.test_greedy,
            "test with the most probable action instead of a draw", change);
  table.Add("inference.batch", &c.inference.batch, {0, 65'536}, "rows",
            "at most; 0 = measured at the start, deterministic: one per environment", change);
  table.Add("inference.wait_ms", &c.inference.wait_ms, {0, 60'000}, "ms",
            "that the oldest ready row waits for others", change);
  table.Add("inference.low_mark", &c.inference.low_mark, {0, 1}, "of live slots",
            "a batch runs once so many are ready", change);
  table.Add("network.name", &c.network.name, {}, "`samara list networks`");
  table.Add("network.lstm", &c.network.lstm, {0, 65'536}, "units", "0 = none");
  table.Add("network.reward_input", &c.network.reward_input, "the last reward is an input");
  table.Add("network.action_input", &c.network.action_input, "the last action is an input");
  table.Add("network.initializer", &c.network.initializer, {"glorot", "orthogonal"},
            "kernels at first: Glorot uniform, or orthogonal with PPO's gains");
  table.Add("network.precision", &c.network.precision, {"float32", "bfloat16"},
            "of the torso's products; bfloat16 needs a processor with AVX512_BF16");
  table.Add("vtrace.form", &c.vtrace.form, {"impala", "seed"},
            "the paper's, or generalised advantages with importance weights");
  table.Add("vtrace.gamma", &c.vtrace.gamma, {0, 1}, "", "discount per agent step");
  table.Add("vtrace.lambda", &c.vtrace.lambda, {0, 1}, "", "of the traces");
  table.Add("vtrace.rho_clip", &c.vtrace.rho_clip, {0, 1e9}, "",
            "of the importance weights in value targets");
  table.Add("vtrace.rho_clip_policy", &c.vtrace.rho_clip_policy, {0, 1e9}, "",
            "of those in the policy's advantage");
  table.Add("vtrace.c_clip", &c.vtrace.c_clip, {0, 1e9}, "", "of the traces; impala only");
  table.Add("vtrace.truncation", &c.vtrace.truncation, {"bootstrap", "ignore"},
            "a cut episode goes on in its value, or teaches nothing at its end");
  table.Add("loss.value_cost", &c.loss.value_cost, {0, 1e6}, "", "of the value's error");
  table.Add("loss.kl_cost", &c.loss.kl_cost, {0, 1e6}, "", "of leaving the behaviour policy");
  table.Add("loss.over", &c.loss.over, {"mean", "sum"}, "the entries of a batch");
  table.Add("optimizer.kind", &c.optimizer.kind, {"adam", "adam_torch", "rmsprop", "rmsprop_torch"},
            "as TensorFlow or as PyTorch defines them");
  table.Add("optimizer.learning_rate", &c.optimizer.learning_rate, {0, 100}, "", "at the start");
  table.Add("optimizer.epsilon", &c.optimizer.epsilon, {0, 100}, "", "");
  table.Add("optimizer.decay", &c.optimizer.decay, {0, 1}, "", "rmsprop: of the mean square");
  table.Add("optimizer.beta1", &c.optimizer.beta1, {0, 1}, "", "adam");
  table.Add("optimizer.beta2", &c.optimizer.beta2, {0, 1}, "", "adam");
  table.Add("optimizer.schedule", &c.optimizer.schedule, {"constant", "linear"},
            "of the learning rate: linear reaches zero at schedule_frames");
  table.Add("optimizer.schedule_frames", &c.optimizer.schedule_frames, {1, 1e15}, "frames",
            "where the linear schedule ends; a resumed run may raise it with its budget", grow);
  table.Add("optimizer.clip_norm", &c.optimizer.clip_norm, {0, 1e9}, "",
            "of all gradients together; 0 = none");
}

Status Check(const LearningConfig& c) {
  if (c.vtrace.form == "impala" && c.vtrace.rho_clip < c.vtrace.c_clip)
    return {Code::kConfig, fmt::format("vtrace.rho_clip={:g}: expected at least vtrace.c_clip={:g}",
                                       c.vtrace.rho_clip, c.vtrace.c_clip)};
  if (c.learn.batch % c.learn.shards != 0)
    return {Code::kConfig, fmt::format("learn.shards={}: expected a divisor of learn.batch={}",
                                       c.learn.shards, c.learn.batch)};
  if (c.learn.mode == "deterministic" && c.learn.environments % c.learn.batch != 0)
    return {Code::kConfig,
            fmt::format("learn.mode=deterministic: learn.environments={} is no multiple of "
                        "learn.batch={}; a round has to make whole updates",
                        c.learn.environments, c.learn.batch)};
  if (c.network.precision == "bfloat16" && !HasBf16Products())
    return {Code::kConfig,
            "network.precision=bfloat16: this processor has no products of bfloat16 "
            "(AVX512_BF16); expected float32"};
  if (c.learn.entropy_target != "none") {
    char* end = nullptr;
    const double target = std::strtod(c.learn.entropy_target.c_str(), &end);
    if (c.learn.entropy_target.empty() || *end != '\0' || !std::isfinite(target))
      return {Code::kConfig, "learn.entropy_target=" + c.learn.entropy_target +
                                 ": expected a number of nats, or none"};
    if (c.learn.entropy_cost <= 0)
      return {Code::kConfig,
              "learn.entropy_target needs learn.entropy_cost above 0: it is where steering starts"};
  }
  if (c.learn.frames == 0 && c.learn.updates == 0)
    return {Code::kConfig, "learn.frames=0, learn.updates=0: expected a budget in one of them"};
  return Status::Ok();
}

int64_t ShardsEach(const LearnConfig& learn, int64_t learners) {
  return (learn.shards + learners - 1) / learners;
}

}  // namespace samara
