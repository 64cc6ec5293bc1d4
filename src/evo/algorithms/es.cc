#include "evo/algorithms/es.h"

#include <fmt/format.h>

#include "core/bytes.h"
#include "core/clock.h"
#include "core/cpu.h"
#include "evo/algorithms/ascent.h"
#include "evo/algorithms/es_settings.h"
#include "evo/genome/decode.h"

namespace samara {
namespace {

// 1: without the number of steps, which was the generation
constexpr uint32_t kVersion = 2;

class EsConfig : public EvolutionConfig {
 public:
  EsSettings es;

  std::unique_ptr<EvolutionConfig> Clone() const override {
    return std::make_unique<EsConfig>(*this);
  }
  void Bind(ConfigTable& table) override {
    es.Bind(table);
    BindTest(table, "es", budget);
    BindBudget(table, "es", budget);
  }
  std::string table() const override { return "es"; }
  Status Check(const NetworkDescription& network) const override { return es.Check(network); }
  bool TakesInitialPolicy() const override { return true; }
  std::unique_ptr<EvolutionAlgorithm> Make(const EvolutionSetup& setup) const override;
};

struct EsState : EvolutionCounters {
  Centre centre;
  double centre_mean = 0;  // of its validation
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
  std::vector<uint64_t> NoiseKeys() const;  // of the pairs
  GenerationPlan Plan() const;

  const EvolutionBudget budget_;
  const EsSettings es_;
  const Noise& noise_;
  EsState state_;  // constant while episodes are played
};

EvolutionStrategy::EvolutionStrategy(const EsConfig& config, const EvolutionSetup& setup)
    : EvolutionAlgorithm(setup),
      budget_(config.budget),
      es_(config.es),
      noise_(GetNoise(config.es.noise)) {
  state_.centre = Centre(FirstParameters(), es_.ascent.kind);
}

// One generation; the numbers are those of doc/evolution-strategies.md.
Result<GenerationReport> EvolutionStrategy::Step(const StopToken& stop) {
  EsState next = state_;
  ++next.generation;
  GenerationReport report;

  // 1 every member plays
  const SteadyTime start = Now();
  const std::vector<uint64_t> keys = NoiseKeys();
  const MirroredMembers members(noise_, state_.centre.theta, es_.sigma, keys);
  GenerationPlayer::Running playing(player_, Plan(), members, EpisodesOfNext(), stop);
  RETURN_IF_ERROR(playing.Start());
  RETURN_IF_ERROR(playing.Population());
  RETURN_IF_ERROR(playing.Validation());  // which is none: the thread has ended
  report.fitness = playing.work().means().fitness;
  next.Count(playing.work().population());
  report.frames_reused = next.frames - state_.frames - playing.work().FramesPlayed();
  report.seconds_population = SecondsSince(start);

  // 2 the centre goes up the gradient of the shaped fitness
  const SteadyTime ascent = Now();
  const std::vector<double> weights = Shape(es_.shaping, report.fitness);
  const AscentReport moved = Ascend(noise_, keys, weights, es_.Divisor(), es_.ascent,
                                    es_.learning_rate, next.centre, Cores());
  const double seconds_update = SecondsSince(ascent);

  // 3 validation of the new centre
  const SteadyTime validation = Now();
  const FixedParameters centre(next.centre.theta);
  ASSIGN_OR_RETURN(const auto validated,
                   player_.Validate(centre, es_.members(),
                                    static_cast<size_t>(es_.validation_episodes), stop));
  next.Count(validated);
  EpisodeMeans mean;
  mean.Add(validated);
  next.centre_mean = mean.fitness[0];
  report.seconds_validation = SecondsSince(validation);

  // 4 test of the new centre on fresh episodes, not counted in frames
  const SteadyTime test = Now();
  ASSIGN_OR_RETURN(const auto tested,
                   player_.Test(centre, budget_.TestEpisodes(next.generation), stop));
  for (const auto& r : tested)
    report.test_returns.push_back(r.fitness), report.frames_test += r.frames;
  next.frames_test += report.frames_test;
  report.seconds_test = SecondsSince(test);

  // 5 the caller makes the new state durable before it reports the generation
  Sha256 hash;
  for (const double f : report.fitness) hash.UpdateU64(std::bit_cast<uint64_t>(f));
  hash.Update(std::as_bytes(std::span(next.centre.theta)));
  next.population_hash = hash.Finish();
  report.frames = next.frames - state_.frames;
  report.metrics = {{"update_ratio", moved.ratio()},
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
  const std::vector<uint64_t> keys = NoiseKeys();
  MirroredMembers(noise_, state_.centre.theta, es_.sigma, keys)
      .Write({static_cast<uint32_t>(i), 0}, parameters);
  return parameters;
}

std::vector<uint64_t> EvolutionStrategy::NoiseKeys() const {
  std::vector<uint64_t> keys;
  for (uint32_t j = 0; j < es_.pairs(); ++j) keys.push_back(player_.Key(Purpose::kMutation, j));
  return keys;
}

GenerationPlan EvolutionStrategy::Plan() const {
  GenerationPlan plan;
  plan.episodes = static_cast<size_t>(es_.episodes);
  for (uint32_t i = 0; i < es_.members(); ++i)
    for (uint64_t e = 0; e < plan.episodes; ++e)
      plan.population.push_back(player_.PopulationTask(i, e));
  return plan;
}

size_t EvolutionStrategy::EpisodesOfNext() const {
  return static_cast<size_t>(es_.population * es_.episodes + es_.validation_episodes) +
         budget_.TestEpisodes(state_.generation + 1);
}

Status EvolutionStrategy::RestoreState(std::string_view bytes) {
  ASSIGN_OR_RETURN(EsState state, EsState::Decode(bytes));
  if (!state.centre.Fits(network_.parameter_count, es_.ascent.kind))
    return {Code::kBadData, "the recorded state is of another network or optimizer"};
  state_ = std::move(state);
  player_.StartAfter(state_.generation, state_.frames);
  return Status::Ok();
}

// ---- state

std::string EsState::Encode() const {
  ByteWriter out;
  out.Put(kVersion).Put(generation).Put(frames).Put(frames_test).Put(steps).Put(episodes);
  centre.Put(out);
  out.Put(centre_mean).Put(population_hash);
  return out.Take();
}

Result<EsState> EsState::Decode(std::string_view bytes) {
  const Status damaged(Code::kBadData, "the recorded state of the evolution is damaged");
  ByteReader in(bytes);
  EsState s;
  const auto version = in.Get<uint32_t>();
  if (version < 1 || version > kVersion) return damaged;
  s.generation = in.Get<uint64_t>();
  s.frames = in.Get<uint64_t>();
  s.frames_test = in.Get<uint64_t>();
  s.steps = in.Get<uint64_t>();
  s.episodes = in.Get<uint64_t>();
  if (version == 1) {
    Centre& c = s.centre;
    if (!GetFloats(in, c.theta) || !GetFloats(in, c.m) || !GetFloats(in, c.v)) return damaged;
    c.steps = s.generation;
  } else if (!s.centre.Get(in)) {
    return damaged;
  }
  s.centre_mean = in.Get<double>();
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
