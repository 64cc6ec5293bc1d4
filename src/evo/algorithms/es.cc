#include "evo/algorithms/es.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/bytes.h"
#include "core/clock.h"
#include "core/cpu.h"
#include "evo/algorithms/ascent.h"
#include "evo/algorithms/es_settings.h"
#include "evo/algorithms/generation_phases.h"
#include "evo/algorithms/observation_statistics.h"
#include "evo/genome/decode.h"

namespace samara {
namespace {

class EsConfig : public EvolutionConfig {
 public:
  EsSettings es;

  std::unique_ptr<EvolutionConfig> Clone() const override {
    return std::make_unique<EsConfig>(*this);
  }
  void Bind(ConfigTable& table) override {
    es.Bind(table);
    es.BindBatch(table);
    BindTest(table, "es", budget);
    BindBudget(table, "es", budget);
  }
  std::string table() const override { return "es"; }
  std::vector<std::string> Settle() override { return es.Unused(); }
  Status Check(const NetworkDescription& network) const override { return es.Check(network); }
  bool TakesInitialPolicy() const override { return true; }
  bool KeepsStatistics(const NetworkDescription& network) const override {
    return es.observation_share > 0 && Normalizes(network);
  }
  Result<RecordKind> Records(const EnvironmentSpec& environment,
                             const NetworkDescription& network) const override {
    if (es.action_noise > 0 && environment.action.discrete)
      return Status(Code::kConfig,
                    fmt::format("es.action_noise={}: the actions of {} are discrete; expected 0",
                                es.action_noise, environment.id));
    return KeepsStatistics(network) ? RecordKind::kObservations : RecordKind::kNothing;
  }
  std::unique_ptr<EvolutionAlgorithm> Make(const EvolutionSetup& setup) const override;
};

// Returns the smaller of two limits, where 0 means no limit.
int64_t Shorter(int64_t a, int64_t b) { return a == 0 || (b != 0 && b < a) ? b : a; }

struct EsState : EvolutionCounters {
  // 1: without the optimizer's number of steps, which was the generation; 2: without the cut-off;
  // 3: without statistics of observations
  static constexpr uint32_t kVersion = 4;
  Centre centre;
  double centre_mean = 0;            // of its validation
  ObservationStatistics statistics;  // of a `normalize` layer; else of nothing
  int64_t cutoff = 0;  // decisions of the next population's episodes; 0 = the environment's
  Digest population_hash{};

  EvolutionSummary Summary() const {
    return {EvolutionCounters(*this), population_hash, centre.theta, centre_mean};
  }
  std::string Encode() const;
  static Result<EsState> Decode(std::string_view bytes);
};

class EvolutionStrategy : public EvolutionAlgorithm {
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
  Candidate MemberOfNext(uint64_t i) const override;

 private:
  std::vector<uint64_t> NoiseKeys(uint64_t pairs) const;
  // Parameters of members under their noise.
  MirroredMembers Members(double sigma, std::span<const uint64_t> keys) const {
    return {noise_, state_.centre.theta, sigma, keys, network_.evolved_count};
  }
  // Episodes of members `first` to `end` - 1.
  std::vector<Task> Tasks(uint64_t first, uint64_t end) const;

  const EvolutionBudget budget_;
  const EsSettings es_;
  const Cutoff cutoff_;
  const bool keeps_statistics_;
  const int64_t frames_per_step_;
  const Noise& noise_;
  EsState state_;  // constant while episodes are played
};

// The player's episodes record nothing; Tasks says which do.
EvolutionSetup WithoutRecording(EvolutionSetup setup) {
  setup.episodes.record = RecordKind::kNothing;
  return setup;
}

EvolutionStrategy::EvolutionStrategy(const EsConfig& config, const EvolutionSetup& setup)
    : EvolutionAlgorithm(WithoutRecording(setup)),
      budget_(config.budget),
      es_(config.es),
      cutoff_(Cutoff::Parse(config.es.cutoff).ValueOrThrow()),
      keeps_statistics_(config.KeepsStatistics(setup.network)),
      frames_per_step_(setup.evaluator.spec().frames_per_step),
      noise_(GetNoise(config.es.noise)) {
  state_.centre = Centre(FirstParameters(es_.init), es_.ascent.kind);
  if (keeps_statistics_) {
    state_.statistics = initial_ == nullptr ? ObservationStatistics(network_.input_size())
                                            : ObservationStatistics(network_, initial_->parameters);
    WriteStatistics(state_.statistics, network_, state_.centre.theta);
  }
  state_.cutoff = cutoff_.start;
}

// One generation; the numbers are those of doc/evolution-strategies.md.
Result<GenerationReport> EvolutionStrategy::Step(const StopToken& stop) {
  EsState next = state_;
  ++next.generation;
  GenerationReport report;

  // 1 every member plays, and further pairs until they have made es.min_steps steps
  const double sigma = es_.SigmaAfter(state_);
  const auto episodes = static_cast<size_t>(es_.episodes);
  std::vector<uint64_t> keys = NoiseKeys(es_.members() / 2);
  const auto reduce = [this](EpisodeResult& result) {
    ReduceRecording(network_.input_size(), result);
  };
  ASSIGN_OR_RETURN(std::vector<EpisodeResult> played,
                   PlayMembers(player_, Tasks(0, es_.members()), episodes, Members(sigma, keys),
                               EpisodesOfNext(), stop, next, report, reduce));
  const SteadyTime further = Now();
  while (const uint32_t more = es_.FurtherPairs(keys.size(), next.steps - state_.steps)) {
    const std::vector<Task> tasks = Tasks(2 * keys.size(), 2 * (keys.size() + more));
    keys = NoiseKeys(keys.size() + more);
    ASSIGN_OR_RETURN(const auto results,
                     player_.PlayFurther(tasks, static_cast<uint32_t>(played.size()),
                                         Members(sigma, keys), stop, reduce));
    played.insert(played.end(), results.begin(), results.end());
    report.AddPopulation(results, episodes);
    next.Count(results);
  }
  report.seconds_population += SecondsSince(further);
  report.fitness = MeanFitness(played, episodes);
  report.fitness_is_return = !UsesSigns(es_.shaping);
  const auto capped = static_cast<uint64_t>(std::ranges::count_if(
      played, [this](const EpisodeResult& r) { return int64_t{r.steps} >= state_.cutoff; }));
  next.cutoff = cutoff_.Next(state_.cutoff, capped, played.size());

  for (const EpisodeResult& result : played)
    if (!AddRecording(result, next.statistics))
      return Status(Code::kBadData, "the recorded observations of an episode are damaged");

  // 2 the centre goes up the gradient of the shaped fitness
  const SteadyTime ascent = Now();
  const double rate = es_.LearningRateAfter(state_);
  const std::vector<double> weights = Shape(es_.shaping, report.fitness);
  const AscentReport moved = Ascend(noise_, keys, weights, es_.Divisor(weights.size(), sigma),
                                    es_.RuleFor(network_), rate, next.centre, Cores());
  if (keeps_statistics_) WriteStatistics(next.statistics, network_, next.centre.theta);
  const double seconds_update = SecondsSince(ascent);

  // 3 validation of the new centre; 4 its test on fresh episodes, not counted in frames
  ASSIGN_OR_RETURN(next.centre_mean,
                   ValidateAndTest(player_, next.centre.theta, es_.members(),
                                   static_cast<size_t>(es_.validation_episodes),
                                   budget_.TestEpisodes(next.generation), stop, next, report));

  // 5 the caller makes the new state durable before it reports the generation
  next.population_hash = HashOf(report.fitness, next.centre.theta);
  report.frames = next.frames - state_.frames;
  report.metrics = {{"members", report.fitness.size()},
                    {"sigma", sigma},
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

Candidate EvolutionStrategy::MemberOfNext(uint64_t i) const {
  std::vector<float> parameters(network_.parameter_count);
  const std::vector<uint64_t> keys = NoiseKeys(std::max<uint64_t>(es_.members() / 2, i / 2 + 1));
  Members(es_.SigmaAfter(state_), keys).Write({static_cast<uint32_t>(i), 0}, parameters);
  return parameters;
}

std::vector<uint64_t> EvolutionStrategy::NoiseKeys(uint64_t pairs) const {
  std::vector<uint64_t> keys;
  for (uint64_t j = 0; j < pairs; ++j) keys.push_back(player_.Key(Purpose::kMutation, j));
  return keys;
}

std::vector<Task> EvolutionStrategy::Tasks(uint64_t first, uint64_t end) const {
  std::vector<Task> tasks;
  const CounterRng draw(player_.Key(Purpose::kObservationStatistics, 0));
  for (uint64_t i = first; i < end; ++i) {
    for (int64_t e = 0; e < es_.episodes; ++e) {
      Task task = player_.PopulationTask(static_cast<uint32_t>(i), static_cast<uint64_t>(e));
      task.episode.frames_max = Shorter(task.episode.frames_max, state_.cutoff * frames_per_step_);
      task.episode.action_noise = static_cast<float>(es_.action_noise);
      task.episode.signs = UsesSigns(es_.shaping);
      const auto index = i * static_cast<uint64_t>(es_.episodes) + static_cast<uint64_t>(e);
      if (keeps_statistics_ && (index == 0 || draw.Uniform(index) < es_.observation_share))
        task.episode.record = RecordKind::kObservations;
      tasks.push_back(task);
    }
  }
  return tasks;
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
