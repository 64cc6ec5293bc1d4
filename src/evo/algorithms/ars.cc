#include "evo/algorithms/ars.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/bytes.h"
#include "core/cpu.h"
#include "evo/algorithms/ascent.h"
#include "evo/algorithms/generation_phases.h"
#include "evo/algorithms/observation_statistics.h"
#include "evo/algorithms/ranking.h"

namespace samara {
namespace {

class ArsConfig : public StatisticsConfig {
 public:
  int64_t directions = 32, top = 4;  // N and b
  double step_size = 0.02;           // alpha
  double sigma = 0.03;               // nu
  double shift = 0;                  // subtracted from the reward of every step
  int64_t validation_episodes = 10;

  ArsConfig() : StatisticsConfig(1) {}
  std::unique_ptr<EvolutionConfig> Clone() const override {
    return std::make_unique<ArsConfig>(*this);
  }
  void Bind(ConfigTable& table) override {
    table.Add("ars.directions", &directions, {1, 1'000'000}, "directions",
              "number of directions per generation; each plays with both signs");
    table.Add("ars.top", &top, {1, 1'000'000}, "directions",
              "number of best directions that the update uses");
    table.Add("ars.step_size", &step_size, {0, 1000}, "", "step size");
    table.Add("ars.sigma", &sigma, {1e-12, 1000}, "", "standard deviation of the perturbations");
    table.Add("ars.shift", &shift, {-1e6, 1e6}, "",
              "subtracted from the reward of each step of a member: the bonus of staying alive");
    table.Add("ars.validation_episodes", &validation_episodes, {1, 100'000}, "episodes",
              "validation episodes of each new centre");
    BindObservationShare(table);
    BindTest(table, "ars", budget);
    BindBudget(table, "ars", budget);
  }
  std::string table() const override { return "ars"; }
  bool TakesInitialPolicy() const override { return true; }
  std::vector<std::string> Settle() override {
    if (top <= directions) return {};
    const auto warning = fmt::format("ars.top={} is clamped to ars.directions={}", top, directions);
    top = directions;
    return {warning};
  }
  Status Check(const NetworkDescription& network) const override {
    return CheckStateBytes(network, 3);
  }
  std::unique_ptr<EvolutionAlgorithm> Make(const EvolutionSetup& setup) const override;
};

struct ArsState : EvolutionCounters {
  static constexpr uint32_t kVersion = 2;  // 1: without statistics of observations
  Centre centre;
  ObservationStatistics statistics;  // of a `normalize` layer; else of nothing
  double centre_mean = 0;
  Digest population_hash{};

  EvolutionSummary Summary() const {
    return {EvolutionCounters(*this), population_hash, centre.theta, centre_mean};
  }
  std::string Encode() const {
    ByteWriter out;
    out.Put(kVersion);
    PutCounters(out, *this);
    centre.Put(out);
    statistics.Put(out);
    out.Put(centre_mean).Put(population_hash);
    return out.Take();
  }
  static Result<ArsState> Decode(std::string_view bytes) {
    const Status damaged(Code::kBadData, "the recorded state of the evolution is damaged");
    ByteReader in(bytes);
    ArsState s;
    const auto version = in.Get<uint32_t>();
    if (version < 1 || version > kVersion) return damaged;
    static_cast<EvolutionCounters&>(s) = GetCounters(in);
    if (!s.centre.Get(in)) return damaged;
    if (version > 1 && !s.statistics.Get(in)) return damaged;
    s.centre_mean = in.Get<double>();
    s.population_hash = in.Get<Digest>();
    if (!in.AtEnd()) return damaged;
    return s;
  }
};

class Ars : public EvolutionAlgorithm {
 public:
  Ars(const ArsConfig& config, const EvolutionSetup& setup)
      : EvolutionAlgorithm(WithoutRecording(setup)),
        config_(config),
        keeper_(config, setup.network) {
    state_.centre = Centre(ZeroParameters(), AscentKind::kSgd);
    state_.statistics = keeper_.Begin(initial_, state_.centre.theta);
  }

  // One iteration of the paper's algorithm 1. Its version 2 normalises observations by the mean and
  // deviation of all that the members have seen: the network's first layer is `normalize`.
  Result<GenerationReport> Step(const StopToken& stop) override {
    ArsState next = state_;
    ++next.generation;
    GenerationReport report;

    // 1 every direction plays with both signs
    const auto directions = static_cast<uint32_t>(config_.directions);
    const std::vector<uint64_t> keys = NoiseKeys(player_, directions);
    std::vector<Task> tasks = PopulationTasks(player_, 2 * directions, 1);
    keeper_.Choose(player_, tasks);
    ASSIGN_OR_RETURN(const auto played,
                     PlayMembers(player_, std::move(tasks), 1, Members(keys), EpisodesOfNext(),
                                 stop, next, report, keeper_.Reduce()));
    RETURN_IF_ERROR(keeper_.Add(played, next.statistics));
    report.fitness = MeanFitness(played, 1);

    // 2 returns of the best directions, 0 of the others; their deviation divides the step
    std::vector<double> returns = ShiftedFitness(report.fitness, played, config_.shift);
    for (double& r : returns)
      if (!std::isfinite(r)) r = 0;  // such a direction is not among the best
    const Weights weights = Best(report.fitness, returns);
    const double deviation = Deviation(weights);
    const auto b = static_cast<double>(std::min(config_.top, config_.directions));
    AscentReport moved;
    if (deviation > 0)
      moved = Ascend(noise_, keys, weights.values, b * deviation,
                     {.kind = AscentKind::kSgd, .evolved = network_.evolved_count},
                     config_.step_size, next.centre, Cores());
    keeper_.Write(next.statistics, next.centre.theta);

    // 3 validation of the new centre; 4 its test
    ASSIGN_OR_RETURN(
        next.centre_mean,
        ValidateAndTest(player_, next.centre.theta, 2 * directions,
                        static_cast<size_t>(config_.validation_episodes),
                        config_.budget.TestEpisodes(next.generation), stop, next, report));

    // 5 the caller makes the new state durable before it reports the generation
    next.population_hash = HashOf(report.fitness, next.centre.theta);
    SetFrames(player_, next.frames - state_.frames, report);
    report.metrics = {{"returns_deviation", deviation},
                      {"observations_seen", next.statistics.seen()},
                      {"gradient_norm", moved.gradient}};
    report.note = fmt::format("deviation of the returns {:.3g}", deviation);
    state_ = std::move(next);
    player_.StartAfter(state_.generation, state_.frames);
    return report;
  }

  size_t EpisodesOfNext() const override {
    return static_cast<size_t>(2 * config_.directions + config_.validation_episodes) +
           config_.budget.TestEpisodes(state_.generation + 1);
  }
  std::string EncodeState() const override { return state_.Encode(); }
  Status RestoreState(std::string_view bytes) override {
    ASSIGN_OR_RETURN(ArsState state, ArsState::Decode(bytes));
    if (!state.centre.Fits(network_.parameter_count, AscentKind::kSgd) ||
        state.statistics.numbers() != state_.statistics.numbers())
      return {Code::kBadData, "the recorded state is of another network"};
    state_ = std::move(state);
    player_.StartAfter(state_.generation, state_.frames);
    return Status::Ok();
  }
  EvolutionSummary summary() const override { return state_.Summary(); }
  std::vector<NamedCandidate> Candidates() const override {
    return {{"centre", state_.centre.theta, state_.centre_mean}};
  }
  uint64_t MembersOfNext() const override { return 2 * static_cast<uint64_t>(config_.directions); }
  Candidate MemberOfNext(uint64_t i) const override {
    return MemberOf(Members(NoiseKeys(player_, i / 2 + 1)), i, network_.parameter_count);
  }

 private:
  MirroredMembers Members(std::span<const uint64_t> keys) const {
    return {noise_, state_.centre.theta, config_.sigma, keys, network_.evolved_count};
  }

  struct Weights {
    std::vector<double> values;  // by member; 0 where the direction is not used
    std::vector<double> used;
  };

  // The directions whose better sign ranks highest.
  Weights Best(std::span<const double> fitness, std::span<const double> returns) const {
    std::vector<double> better(fitness.size() / 2);
    for (size_t k = 0; k < better.size(); ++k) {
      const bool finite = std::isfinite(fitness[2 * k]) && std::isfinite(fitness[2 * k + 1]);
      better[k] = finite ? std::max(returns[2 * k], returns[2 * k + 1])
                         : std::numeric_limits<double>::quiet_NaN();
    }
    Weights weights{std::vector<double>(fitness.size()), {}};
    const std::vector<uint32_t> order = RankDescending(better);
    for (size_t place = 0; place < static_cast<size_t>(config_.top) && place < order.size();
         ++place) {
      const uint32_t k = order[place];
      if (std::isnan(better[k])) break;
      for (const size_t member : {2 * k, 2 * k + 1}) {
        weights.values[member] = returns[member];
        weights.used.push_back(returns[member]);
      }
    }
    return weights;
  }

  static double Deviation(const Weights& weights) {
    const auto n = static_cast<double>(weights.used.size());
    double mean = 0, variance = 0;
    for (const double r : weights.used) mean += r / n;
    for (const double r : weights.used) variance += (r - mean) * (r - mean) / n;
    return std::sqrt(variance);
  }

  const ArsConfig config_;
  const StatisticsKeeper keeper_;
  const Noise& noise_ = GetNoise(NoiseKind::kNormal);
  ArsState state_;  // constant while episodes are played
};

std::unique_ptr<EvolutionAlgorithm> ArsConfig::Make(const EvolutionSetup& setup) const {
  return std::make_unique<Ars>(*this, setup);
}

}  // namespace

std::unique_ptr<EvolutionConfig> MakeArsConfig() { return std::make_unique<ArsConfig>(); }

Result<EvolutionSummary> DescribeArs(std::string_view state) {
  ASSIGN_OR_RETURN(const ArsState s, ArsState::Decode(state));
  return s.Summary();
}

}  // namespace samara
