// SAC for discrete actions, whose expectations over actions are sums. Christodoulou 2019 (arXiv
// 1910.07207), equations 10 to 12, with twin critics, their targets and an adjusted temperature as
// in sac.cc. Its networks are perceptrons, without torch.
#include <algorithm>
#include <cmath>
#include <optional>

#include "core/format.h"
#include "rl/algorithms/sac.h"
#include "rl/learner/flat_optimizer.h"
#include "rl/learner/log_sum_exp.h"
#include "rl/learner/perceptron_rows.h"

namespace samara {
namespace {

class DiscreteSac : public SacNetworks {
 public:
  static Result<std::unique_ptr<ReplayAlgorithm>> Make(const AgentSetup& setup) {
    const auto observations = static_cast<size_t>(setup.environment.observation.elements());
    const auto actions = static_cast<size_t>(setup.environment.action.n);
    const AgentNetworkKeys& keys = setup.config.network;
    ASSIGN_OR_RETURN(Perceptron net,
                     Perceptron::Make(keys.text(), observations, actions, OpsOf(keys)));
    return std::unique_ptr<ReplayAlgorithm>(
        new DiscreteSac(setup.config, std::make_shared<const Perceptron>(std::move(net))));
  }

  ModelShape shape() const override {
    return {.observation_bytes = net_->inputs() * sizeof(float), .values = 0};
  }
  std::unique_ptr<ReplayScratch> MakeScratch(size_t rows_max) const override;
  void Act(std::span<const float> acting, ReplayScratch& scratch,
           InferenceBatch& batch) const override;
  std::map<std::string, double> Gradient(const ReplayMinibatch& minibatch, ReplayScratch& scratch,
                                         std::span<float> gradient) const override;

 private:
  struct Scratch : ReplayScratch {
    PerceptronPass policy;
    std::vector<PerceptronPass> critics;
    std::vector<float> log_prob;   // [rows][actions], of the policy
    std::vector<float> target;     // [rows]
    std::vector<float> by_output;  // [rows][actions]
  };

  DiscreteSac(const LearningConfig& config, std::shared_ptr<const Perceptron> net)
      : SacNetworks(config, net, net), actions_(net->outputs()), net_(std::move(net)) {}

  // log pi(a | x), by the policy's outputs.
  void LogProbs(size_t rows, Scratch& s) const {
    for (size_t i = 0; i < rows; ++i) {
      const auto output = net_->Output(s.policy, i);
      const float log_sum = LogSumExp(output);
      for (size_t a = 0; a < actions_; ++a) s.log_prob[i * actions_ + a] = output[a] - log_sum;
    }
  }
  // The least value that the critics' passes give an action.
  float Least(const Scratch& s, size_t i, size_t a) const {
    float least = net_->Output(s.critics[0], i)[a];
    for (size_t j = 1; j < s.critics.size(); ++j)
      least = std::min(least, net_->Output(s.critics[j], i)[a]);
    return least;
  }

  const size_t actions_;
  const std::shared_ptr<const Perceptron> net_;  // the policy's shape, and the critics'
};

std::unique_ptr<ReplayScratch> DiscreteSac::MakeScratch(size_t rows_max) const {
  auto scratch = std::make_unique<Scratch>();
  scratch->policy = net_->MakePass(rows_max);
  for (int64_t j = 0; j < config_.critics; ++j)
    scratch->critics.push_back(net_->MakePass(rows_max));
  scratch->log_prob.resize(rows_max * actions_), scratch->by_output.resize(rows_max * actions_);
  scratch->target.resize(rows_max);
  return scratch;
}

void DiscreteSac::Act(std::span<const float> acting, ReplayScratch& scratch,
                      InferenceBatch& batch) const {
  auto& s = dynamic_cast<Scratch&>(scratch);
  const size_t rows = batch.rows.size();
  if (rows == 0) return;
  Evaluate(
      *net_, acting, rows, [&](size_t i) { return batch.rows[i].observation; }, s.policy);
  LogProbs(rows, s);
  for (size_t i = 0; i < rows; ++i) {
    const InferenceRow& row = batch.rows[i];
    const std::span<const float> log_prob(s.log_prob.data() + i * actions_, actions_);
    size_t action = 0;
    if (row.greedy) {
      action = static_cast<size_t>(std::ranges::max_element(log_prob) - log_prob.begin());
    } else {
      double left = CounterRng(row.key).Uniform(row.step);
      while (action + 1 < actions_ && (left -= std::exp(log_prob[action])) >= 0) ++action;
    }
    batch.index[i] = static_cast<int32_t>(action);
    batch.status[i] = AllFinite(log_prob) ? InferenceBatch::RowStatus::kOk
                                          : InferenceBatch::RowStatus::kNotFinite;
  }
}

std::map<std::string, double> DiscreteSac::Gradient(const ReplayMinibatch& minibatch,
                                                    ReplayScratch& scratch,
                                                    std::span<float> gradient) const {
  auto& s = dynamic_cast<Scratch&>(scratch);
  const auto steps = minibatch.steps;
  const size_t n = steps.size(), critics = s.critics.size();
  const auto rows = static_cast<double>(n);
  const float mean = 1 / static_cast<float>(n);
  const auto policy = minibatch.learned.first(net_->size());
  const auto alpha = static_cast<float>(temperature_.At(minibatch.learned[temperature_at_]));
  const auto now = [&](size_t i) { return steps[i].observation; };
  const auto next = [&](size_t i) { return steps[i].next_observation; };
  const auto next_learned = [&](size_t i) { return minibatch.NextLearned(i); };
  const std::span<float> by_output = std::span(s.by_output).first(n * actions_);

  // 1 soft values of what follows, by the targets (equation 10)
  Evaluate(*net_, policy, n, next_learned, s.policy);
  LogProbs(n, s);
  for (size_t j = 0; j < critics; ++j)
    Evaluate(*net_, Critic(minibatch.targets, j), n, next, s.critics[j]);
  for (size_t i = 0; i < n; ++i) {
    float soft = 0;
    for (size_t a = 0; a < actions_; ++a) {
      const float log_prob = s.log_prob[i * actions_ + a];
      soft += std::exp(log_prob) * (Least(s, i, a) - alpha * log_prob);
    }
    s.target[i] = steps[i].reward + (steps[i].discount > 0 ? steps[i].discount * soft : 0);
  }

  // 2 critics: the squared error of each at the action played
  double critic_loss = 0, values = 0;
  std::ranges::fill(minibatch.errors, 0.0F);
  for (size_t j = 0; j < critics; ++j) {
    const auto critic = Critic(CriticsOf(minibatch.learned), j);
    Evaluate(*net_, critic, n, now, s.critics[j]);
    std::ranges::fill(by_output, 0.0F);
    for (size_t i = 0; i < n; ++i) {
      const auto action = static_cast<size_t>(steps[i].action[0]);
      const float value = net_->Output(s.critics[j], i)[action], error = value - s.target[i];
      const float weight = minibatch.weights[i];
      critic_loss += static_cast<double>(weight) * error * error, values += value;
      by_output[i * actions_ + action] = 2 * error * mean * weight;
      minibatch.errors[i] += std::abs(error) / static_cast<float>(critics);
    }
    BackwardToObservations(*net_, critic, by_output, s.critics[j], Critic(CriticsOf(gradient), j),
                           minibatch.by_observation);
  }

  // 3 policy: the mean over actions of alpha log pi - min Q (equation 12), by its logits
  Evaluate(*net_, policy, n, now, s.policy);
  LogProbs(n, s);
  double policy_loss = 0, entropy = 0;
  for (size_t i = 0; i < n; ++i) {
    float loss = 0;
    for (size_t a = 0; a < actions_; ++a) {
      const float log_prob = s.log_prob[i * actions_ + a], prob = std::exp(log_prob);
      loss += prob * (alpha * log_prob - Least(s, i, a));
      entropy -= static_cast<double>(prob) * log_prob;
    }
    policy_loss += loss;
    for (size_t a = 0; a < actions_; ++a) {
      const float log_prob = s.log_prob[i * actions_ + a];
      by_output[i * actions_ + a] =
          mean * std::exp(log_prob) * (alpha * log_prob - Least(s, i, a) - loss);
    }
  }
  net_->Backward(policy, by_output, /*by_input=*/false, s.policy, gradient.first(net_->size()));

  // 4 temperature (equation 11)
  critic_loss /= rows, policy_loss /= rows, entropy /= rows;
  const auto temperature = temperature_.LossAt(minibatch.learned[temperature_at_], entropy);
  gradient[temperature_at_] = temperature.by_parameter;
  return {{"loss", critic_loss + policy_loss + temperature.value},
          {"policy_loss", policy_loss},
          {"value_loss", critic_loss},
          {"entropy", entropy},
          {"q_mean", values / (rows * static_cast<double>(critics))}};
}

}  // namespace

Result<std::unique_ptr<ReplayAlgorithm>> MakeDiscreteSac(const AgentSetup& setup) {
  if (!setup.environment.action.sizes.empty())
    return Status(Code::kConfig,
                  "run.algorithm=sac: the environment's actions have several discrete parts; "
                  "expected one, or continuous actions");
  const std::optional<double> nats = setup.config.learn.entropy_target;
  const double most = std::log(static_cast<double>(setup.environment.action.n));
  if (nats && (*nats < 0 || *nats >= most)) {
    const std::string actions = std::to_string(setup.environment.action.n);
    return Status(Code::kConfig,
                  "learn.entropy_target=" + ScoreText(*nats) +
                      (*nats < 0 ? ": for continuous actions, and this environment's are discrete"
                                 : ": more than " + actions + " actions can have") +
                      "; expected none" +
                      (most > 0 ? ", or nats from 0 to below " + std::to_string(most) : ""));
  }
  return DiscreteSac::Make(setup);
}

}  // namespace samara
