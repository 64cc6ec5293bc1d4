#include "evo/algorithms/es.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/bytes.h"
#include "core/clock.h"
#include "core/cpu.h"
#include "evo/algorithms/generation_phases.h"
#include "evo/algorithms/mirrored_es.h"
#include "evo/algorithms/observation_statistics.h"
#include "evo/genome/decode.h"

namespace samara {
namespace {

class EsConfig : public StatisticsConfig {
 public:
  EsSettings es;

  EsConfig() : StatisticsConfig(0.01) {}
  std::unique_ptr<EvolutionConfig> Clone() const override {
    return std::make_unique<EsConfig>(*this);
  }
  void Bind(ConfigTable& table) override {
    es.Bind(table);
    es.BindBatch(table);
    BindObservationShare(table);
    BindTest(table, "es", budget);
    BindBudget(table, "es", budget);
  }
  std::string table() const override { return "es"; }
  std::vector<std::string> Settle() override { return es.Unused(); }
  Status Check(const NetworkDescription& network) const override { return es.Check(network); }
  bool TakesInitialPolicy() const override { return true; }
  Result<RecordKind> Records(const EnvironmentSpec& environment,
                             const NetworkDescription& network) const override {
    RETURN_IF_ERROR(es.CheckActions(environment));
    return StatisticsConfig::Records(environment, network);
  }
  std::unique_ptr<EvolutionAlgorithm> Make(const EvolutionSetup& setup) const override;
};

struct EsState : EvolutionCounters {
  // 1: without the optimizer's number of steps, which was the generation; 2: without the cut-off;
  // 3: without statistics of observations
  static constexpr uint32_t kVersion = 4;
  Centre centre;
  double centre_mean = 0;            // of its validation
  ObservationStatistics statistics;  // of a `normalize` layer; else of nothing
  int64_t cutoff = 0;  // steps of the next population's episodes; 0 = the environment's
  Digest population_hash{};

  EvolutionSummary Summary() const {
    return {EvolutionCounters(*this), population_hash, centre.theta, centre_mean};
  }
  std::string Encode() const;
  static Result<EsState> Decode(std::string_view bytes);
};

class EvolutionStrategy : public MirroredEs {
 public:
  EvolutionStrategy(const EsConfig& config, const EvolutionSetup& setup);
  Result<GenerationReport> Step(const StopToken& stop) override;
  size_t EpisodesOfNext() const override;
  std::string EncodeState() const override { return state_.Encode(); }
  Status RestoreState(std::string_view bytes) override;
  EvolutionSummary summary() const override { return state_.Summary(); }
  std::vector<NamedCandidate> Candidates() const override {
    return {{"centre", state_.centre.theta, state_.centre_mean}};
  }
  uint64_t MembersOfNext() const override { return es_.members(); }
  Candidate MemberOfNext(uint64_t i) const override {
    return Member(state_.centre.theta, es_.SigmaAfter(state_), i);
  }

 private:
  const EvolutionBudget budget_;
  const StatisticsKeeper keeper_;
  EsState state_;  // constant while episodes are played
};

EvolutionStrategy::EvolutionStrategy(const EsConfig& config, const EvolutionSetup& setup)
    : MirroredEs(config.es, WithoutRecording(setup)),
      budget_(config.budget),
      keeper_(config, setup.network) {
  state_.centre = Centre(FirstParameters(es_.init), es_.ascent.kind);
  state_.statistics = keeper_.Begin(initial_, state_.centre.theta);
  state_.cutoff = cutoff_.start;
}

// One generation; the numbers are those of doc/evolution-strategies.md.
Result<GenerationReport> EvolutionStrategy::Step(const StopToken& stop) {
  EsState next = state_;
  ++next.generation;
  GenerationReport report;

  // 1 every member plays, and further pairs until they have made es.min_steps steps
  const PlayRule rule{.sigma = es_.SigmaAfter(state_),
                      .cutoff = state_.cutoff,
                      .adjust =
                          [this](uint64_t index, Task& task) {
                            task.episode.signs = UsesSigns(es_.shaping);
                            keeper_.Choose(player_, index, task);
                          },
                      .reduce = keeper_.Reduce()};
  ASSIGN_OR_RETURN(const Population population,
                   Play(state_.centre.theta, rule, stop, next, report));
  report.fitness = MeanFitness(population.episodes, static_cast<size_t>(es_.episodes));
  report.fitness_is_return = !UsesSigns(es_.shaping);
  next.cutoff = population.cutoff;
  RETURN_IF_ERROR(keeper_.Add(population.episodes, next.statistics));

  // 2 the centre goes up the gradient of the shaped fitness
  const SteadyTime ascent = Now();
  const double rate = es_.LearningRateAfter(state_);
  const std::vector<double> weights =
      Shape(es_.shaping, ShiftedFitness(report.fitness, population.episodes, es_.shift));
  const AscentReport moved =
      Ascend(noise_, population.keys, weights, es_.Divisor(weights.size(), rule.sigma),
             es_.RuleFor(network_), rate, next.centre, Cores());
  keeper_.Write(next.statistics, next.centre.theta);
  const double seconds_update = SecondsSince(ascent);

  // 3 validation of the new centre; 4 its test on fresh episodes, not counted in frames
  ASSIGN_OR_RETURN(next.centre_mean,
                   ValidateAndTest(player_, next.centre.theta, es_.members(),
                                   static_cast<size_t>(es_.validation_episodes),
                                   budget_.TestEpisodes(next.generation), stop, next, report));

  // 5 the caller makes the new state durable before it reports the generation
  next.population_hash = HashOf(report.fitness, next.centre.theta);
  SetFrames(player_, next.frames - state_.frames, report);
  report.metrics = {{"members", report.fitness.size()},
                    {"sigma", rule.sigma},
                    {"learning_rate", rate},
                    {"cutoff", state_.cutoff},
                    {"observations_seen", next.statistics.seen()},
                    {"update_ratio", moved.ratio()},
                    {"gradient_norm", moved.gradient},
                    {"centre_norm", moved.centre},
                    {"seconds_update", seconds_update}};
  report.note = fmt::format("update ratio {:.2g}", moved.ratio());
  state_ = std::move(next);
  player_.StartAfter(state_.generation, state_.frames);
  return report;
}

size_t EvolutionStrategy::EpisodesOfNext() const {
  return static_cast<size_t>(es_.population * es_.episodes + es_.validation_episodes) +
         budget_.TestEpisodes(state_.generation + 1);
}

Status EvolutionStrategy::RestoreState(std::string_view bytes) {
  ASSIGN_OR_RETURN(EsState state, EsState::Decode(bytes));
  if (!state.centre.Fits(network_.parameter_count, es_.ascent.kind) ||
      state.statistics.numbers() != state_.statistics.numbers())
    return {Code::kBadData, "the recorded state is of another network or optimizer"};
  state_ = std::move(state);
  player_.StartAfter(state_.generation, state_.frames);
  return Status::Ok();
}

// ---- state

std::string EsState::Encode() const {
  ByteWriter out;
  out.Put(kVersion);
  PutCounters(out, *this);
  centre.Put(out);
  statistics.Put(out);
  out.Put(centre_mean).Put(cutoff).Put(population_hash);
  return out.Take();
}

Result<EsState> EsState::Decode(std::string_view bytes) {
  const Status damaged(Code::kBadData, "the recorded state of the evolution is damaged");
  ByteReader in(bytes);
  EsState s;
  const auto version = in.Get<uint32_t>();
  if (version < 1 || version > kVersion) return damaged;
  static_cast<EvolutionCounters&>(s) = GetCounters(in);
  if (version == 1) {
    Centre& c = s.centre;
    if (!in.GetVector(c.theta) || !in.GetVector(c.m) || !in.GetVector(c.v)) return damaged;
    c.steps = s.generation;
  } else if (!s.centre.Get(in)) {
    return damaged;
  }
  if (version > 3 && !s.statistics.Get(in)) return damaged;
  s.centre_mean = in.Get<double>();
  if (version > 2) s.cutoff = in.Get<int64_t>();
  s.population_hash = in.Get<Digest>();
  if (!in.AtEnd()) return damaged;
  return s;
}

std::unique_ptr<EvolutionAlgorithm> EsConfig::Make(const EvolutionSetup& setup) const {
  return std::make_unique<EvolutionStrategy>(*this, setup);
}

}  // namespace

std::unique_ptr<EvolutionConfig> MakeEsConfig() { return std::make_unique<EsConfig>(); }

Result<EvolutionSummary> DescribeEs(std::string_view state) {
  ASSIGN_OR_RETURN(const EsState s, EsState::Decode(state));
  return s.Summary();
}

}  // namespace samara
