#include "evo/algorithms/es.h"

#include <fmt/format.h>

#include <cmath>

#include "core/bytes.h"
#include "core/clock.h"
#include "evo/algorithms/ranking.h"
#include "evo/genome/decode.h"
#include "evo/genome/noise.h"

namespace samara {
namespace {

constexpr uint32_t kVersion = 1;
constexpr size_t kParametersMax = 20'000'000;  // three numbers each fit one record of the journal
constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;  // of Adam

enum class EsOptimizer { kAdam, kSgd };
constexpr EnumName<EsOptimizer> kOptimizers[] = {{EsOptimizer::kAdam, "adam"},
                                                 {EsOptimizer::kSgd, "sgd"}};

class EsConfig : public EvolutionConfig {
 public:
  int64_t pairs = 500;   // of a perturbation and its opposite
  int64_t episodes = 1;  // per fitness
  double sigma = 0.02;   // of the perturbations
  EsOptimizer optimizer = EsOptimizer::kAdam;
  double learning_rate = 0.01;
  double weight_decay = 0.005;
  int64_t validation_episodes = 30;  // of the centre

  std::unique_ptr<EvolutionConfig> Clone() const override {
    return std::make_unique<EsConfig>(*this);
  }
  void Bind(ConfigTable& table) override;
  std::string table() const override { return "es"; }
  Status Check(const NetworkDescription& network) const override;
  std::unique_ptr<EvolutionAlgorithm> Make(const EvolutionSetup& setup) const override;
};

struct EsState : EvolutionCounters {
  std::vector<float> centre;
  double centre_mean = 0;   // of its validation
  std::vector<float> m, v;  // of Adam: moving averages of the direction and of its square
  Digest population_hash{};

  EvolutionSummary Summary() const {
    return {EvolutionCounters(*this), population_hash, centre, centre_mean};
  }
  std::string Encode() const;
  static Result<EsState> Decode(std::string_view bytes);
};

class OpenAiEs : public EvolutionAlgorithm {
 public:
  OpenAiEs(const EsConfig& config, const EvolutionSetup& setup);
  Result<GenerationReport> Step(const StopToken& stop) override;
  size_t EpisodesOfNext() const override;
  std::string EncodeState() const override { return state_.Encode(); }
  Status RestoreState(std::string_view bytes) override;
  EvolutionSummary summary() const override { return state_.Summary(); }

 private:
  class Perturbed;
  uint32_t members() const { return static_cast<uint32_t>(2 * config_.pairs); }
  uint64_t NoiseKey(uint64_t pair) const { return player_.Key(Purpose::kMutation, pair); }
  GenerationPlan Plan() const;
  std::vector<float> Gradient(std::span<const double> fitness) const;
  double Ascend(std::span<const float> gradient, EsState& next) const;

  const EsConfig config_;
  const Noise& noise_ = GetNoise(NoiseKind::kNormal);
  EsState state_;  // constant while episodes are played
};

// Member 2 j plays centre + sigma e(j), member 2 j + 1 plays centre - sigma e(j).
class OpenAiEs::Perturbed : public ParameterSource {
 public:
  explicit Perturbed(const OpenAiEs& es) : es_(es) {}
  void Write(PolicyHandle policy, std::span<float> canonical) const override {
    const auto sigma = static_cast<float>(es_.config_.sigma);
    es_.noise_.Add(es_.NoiseKey(policy.id / 2), policy.id % 2 == 0 ? sigma : -sigma, 0,
                   es_.state_.centre, canonical);
  }

 private:
  const OpenAiEs& es_;
};

OpenAiEs::OpenAiEs(const EsConfig& config, const EvolutionSetup& setup)
    : EvolutionAlgorithm(setup), config_(config) {
  state_.centre.resize(network_.parameter_count);
  Genome initial;
  initial.initial = player_.Key(Purpose::kInitialGenome, 0);
  InitialParameters(initial, network_, state_.centre);
  if (config_.optimizer == EsOptimizer::kAdam)
    state_.m = state_.v = std::vector<float>(network_.parameter_count);
}

// One generation; the numbers are those of doc/evolution-strategies.md.
Result<GenerationReport> OpenAiEs::Step(const StopToken& stop) {
  EsState next = state_;
  ++next.generation;
  GenerationReport report;

  // 1 every member plays
  const SteadyTime start = Now();
  const Perturbed perturbed(*this);
  GenerationPlayer::Running playing(player_, Plan(), perturbed, EpisodesOfNext(), stop);
  RETURN_IF_ERROR(playing.Start());
  RETURN_IF_ERROR(playing.Population());
  RETURN_IF_ERROR(playing.Validation());  // which is none: the thread has ended
  report.fitness = playing.work().means().fitness;
  next.Count(playing.work().population());
  report.frames_reused = next.frames - state_.frames - playing.work().FramesPlayed();
  report.seconds_population = SecondsSince(start);

  // 2 the centre goes up the gradient of the ranks
  const std::vector<float> gradient = Gradient(report.fitness);
  const double step = Ascend(gradient, next);

  // 3 validation of the new centre
  const SteadyTime validation = Now();
  const FixedParameters centre(next.centre);
  ASSIGN_OR_RETURN(
      const auto validated,
      player_.Validate(centre, members(), static_cast<size_t>(config_.validation_episodes), stop));
  next.Count(validated);
  EpisodeMeans mean;
  mean.Add(validated);
  next.centre_mean = mean.fitness[0];
  report.seconds_validation = SecondsSince(validation);

  // 4 test of the new centre on fresh episodes, not counted in frames
  const SteadyTime test = Now();
  ASSIGN_OR_RETURN(const auto tested,
                   player_.Test(centre, config_.budget.TestEpisodes(next.generation), stop));
  for (const auto& r : tested)
    report.test_returns.push_back(r.fitness), report.frames_test += r.frames;
  next.frames_test += report.frames_test;
  report.seconds_test = SecondsSince(test);

  // 5 the caller makes the new state durable before it reports the generation
  Sha256 hash;
  for (const double f : report.fitness) hash.UpdateU64(std::bit_cast<uint64_t>(f));
  hash.Update(std::as_bytes(std::span(next.centre)));
  next.population_hash = hash.Finish();
  report.frames = next.frames - state_.frames;
  report.metrics = {{"update_ratio", step}};
  report.note = fmt::format("update ratio {:.2g}", step);
  state_ = std::move(next);
  player_.StartAfter(state_.generation, state_.frames);
  return report;
}

GenerationPlan OpenAiEs::Plan() const {
  GenerationPlan plan;
  plan.episodes = static_cast<size_t>(config_.episodes);
  for (uint32_t i = 0; i < members(); ++i)
    for (uint64_t e = 0; e < plan.episodes; ++e)
      plan.population.push_back(player_.PopulationTask(i, e));
  return plan;
}

// g = 1/N sum over pairs (u+ - u-) e, without 1/sigma, as the released program has it.
std::vector<float> OpenAiEs::Gradient(std::span<const double> fitness) const {
  const std::vector<double> u = CentredRanks(fitness);
  std::vector<float> gradient(network_.parameter_count);
  for (size_t j = 0; j < u.size() / 2; ++j) {
    const double weight = (u[2 * j] - u[2 * j + 1]) / static_cast<double>(u.size());
    noise_.Add(NoiseKey(j), static_cast<float>(weight), 0, gradient, gradient);
  }
  return gradient;
}

// One step of the optimizer against d = -g + weight_decay * centre. Returns the length of the step
// by that of the centre.
double OpenAiEs::Ascend(std::span<const float> gradient, EsState& next) const {
  double beta1 = 1, beta2 = 1;  // to the power of the step's number
  for (uint64_t t = 0; t < next.generation; ++t) beta1 *= kBeta1, beta2 *= kBeta2;
  const double rate = config_.optimizer == EsOptimizer::kAdam
                          ? config_.learning_rate * std::sqrt(1 - beta2) / (1 - beta1)
                          : config_.learning_rate;
  double steps = 0, lengths = 0;  // squared
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double theta = next.centre[i], d = config_.weight_decay * theta - gradient[i];
    double direction = d;
    if (config_.optimizer == EsOptimizer::kAdam) {
      const double m = kBeta1 * next.m[i] + (1 - kBeta1) * d;
      const double v = kBeta2 * next.v[i] + (1 - kBeta2) * d * d;
      next.m[i] = static_cast<float>(m), next.v[i] = static_cast<float>(v);
      direction = m / (std::sqrt(v) + kEpsilon);
    }
    next.centre[i] = static_cast<float>(theta - rate * direction);
    steps += rate * direction * rate * direction, lengths += theta * theta;
  }
  return std::sqrt(steps / lengths);
}

size_t OpenAiEs::EpisodesOfNext() const {
  return static_cast<size_t>(members() * config_.episodes + config_.validation_episodes) +
         config_.budget.TestEpisodes(state_.generation + 1);
}

Status OpenAiEs::RestoreState(std::string_view bytes) {
  ASSIGN_OR_RETURN(EsState state, EsState::Decode(bytes));
  if (state.centre.size() != state_.centre.size() || state.m.size() != state_.m.size() ||
      state.v.size() != state_.v.size())
    return {Code::kBadData, "the recorded state is of another network or optimizer"};
  state_ = std::move(state);
  player_.StartAfter(state_.generation, state_.frames);
  return Status::Ok();
}

// ---- state

std::string EsState::Encode() const {
  ByteWriter out;
  out.Put(kVersion).Put(generation).Put(frames).Put(frames_test).Put(steps).Put(episodes);
  for (const auto* values : {&centre, &m, &v})
    out.PutBytes({reinterpret_cast<const char*>(values->data()), values->size() * sizeof(float)});
  out.Put(centre_mean).Put(population_hash);
  return out.Take();
}

Result<EsState> EsState::Decode(std::string_view bytes) {
  const Status damaged(Code::kBadData, "the recorded state of the evolution is damaged");
  ByteReader in(bytes);
  EsState s;
  if (in.Get<uint32_t>() != kVersion) return damaged;
  s.generation = in.Get<uint64_t>();
  s.frames = in.Get<uint64_t>();
  s.frames_test = in.Get<uint64_t>();
  s.steps = in.Get<uint64_t>();
  s.episodes = in.Get<uint64_t>();
  for (auto* values : {&s.centre, &s.m, &s.v}) {
    const std::string_view part = in.GetBytes();
    if (part.size() % sizeof(float) != 0) return damaged;
    values->resize(part.size() / sizeof(float));
    if (!part.empty()) std::memcpy(values->data(), part.data(), part.size());
  }
  s.centre_mean = in.Get<double>();
  s.population_hash = in.Get<Digest>();
  if (!in.AtEnd()) return damaged;
  return s;
}

// ---- configuration

void EsConfig::Bind(ConfigTable& table) {
  table.Add("es.pairs", &pairs, {1, 5'000'000}, "pairs",
            "a perturbation and its opposite; the population is twice as many");
  table.Add("es.episodes", &episodes, {1, 1000}, "episodes", "per fitness");
  table.Add("es.sigma", &sigma, {0, kMutationPowerMax}, "", "of the perturbations");
  table.Add("es.optimizer", &optimizer, kOptimizers, "that moves the centre");
  table.Add("es.learning_rate", &learning_rate, {0, 1000}, "", "of the optimizer");
  table.Add("es.weight_decay", &weight_decay, {0, 1}, "",
            "part of the centre that the gradient loses");
  table.Add("es.validation_episodes", &validation_episodes, {1, 100'000}, "episodes",
            "of each new centre");
  BindTest(table, "es", budget);
  BindBudget(table, "es", budget);
}

Status EsConfig::Check(const NetworkDescription& network) const {
  if (network.parameter_count > kParametersMax)
    return {Code::kConfig, fmt::format("{}: {} parameters; expected at most {} for evolution "
                                       "strategies, which record all of them each generation",
                                       network.name, network.parameter_count, kParametersMax)};
  const double all = 2.0 * static_cast<double>(pairs) *
                     static_cast<double>(std::max(episodes, validation_episodes));
  if (all < 4e9) return Status::Ok();
  return {Code::kConfig,
          fmt::format("es.pairs={}, es.episodes={}, es.validation_episodes={}: numbers of episodes "
                      "up to {:.3g}, at most 4e9; lower one of them",
                      pairs, episodes, validation_episodes, all)};
}

std::unique_ptr<EvolutionAlgorithm> EsConfig::Make(const EvolutionSetup& setup) const {
  return std::make_unique<OpenAiEs>(*this, setup);
}

}  // namespace

std::unique_ptr<EvolutionConfig> MakeEsConfig() { return std::make_unique<EsConfig>(); }

Result<EvolutionSummary> DescribeEs(std::string_view state) {
  ASSIGN_OR_RETURN(const EsState s, EsState::Decode(state));
  return s.Summary();
}

std::vector<double> CentredRanks(std::span<const double> fitness) {
  const std::vector<uint32_t> order = RankDescending(fitness);
  const size_t n = order.size();
  std::vector<double> ranks(n);
  for (size_t first = 0, end = 0; first < n; first = end) {
    while (end < n && !IsBetter(fitness[order[first]], fitness[order[end]])) ++end;
    // places first to end - 1 from the best, n - 1 - place from the worst
    const double rank = static_cast<double>(n - 1) - static_cast<double>(first + end - 1) / 2;
    for (size_t i = first; i < end; ++i) ranks[order[i]] = rank / static_cast<double>(n - 1) - 0.5;
  }
  return ranks;
}

}  // namespace samara
