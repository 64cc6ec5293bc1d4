#include "evo/algorithms/ns_es.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/bytes.h"
#include "core/clock.h"
#include "core/cpu.h"
#include "core/statistics.h"
#include "evo/algorithms/ascent.h"
#include "evo/algorithms/generation_phases.h"
#include "evo/algorithms/mirrored_es.h"
#include "evo/algorithms/novelty.h"
#include "evo/algorithms/ranking.h"
#include "evo/algorithms/shaping.h"
#include "evo/genome/decode.h"

namespace samara {
namespace {

constexpr uint64_t kCentresMax = 1000;

enum class Follows { kNovelty, kNoveltyAndReward, kAdaptive };
enum class Pick { kNovelty, kRoundRobin };
constexpr EnumName<Pick> kPicks[] = {{Pick::kNovelty, "novelty"},
                                     {Pick::kRoundRobin, "round_robin"}};

class NsEsConfig : public EvolutionConfig {
 public:
  explicit NsEsConfig(Follows what) : follows(what) { es.validation_episodes = 5; }

  Follows follows;
  EsSettings es;
  NoveltyRule novelty{.neighbours = 10};
  int64_t centres = 5;
  Pick pick = Pick::kNovelty;
  // of the reward, NSRA-ES
  double weight = 1, weight_step = 0.05;
  int64_t patience = 50;

  std::unique_ptr<EvolutionConfig> Clone() const override {
    return std::make_unique<NsEsConfig>(*this);
  }
  void Bind(ConfigTable& table) override;
  std::string table() const override { return "es"; }
  std::vector<std::string> Settle() override { return es.Unused(); }
  Status Check(const NetworkDescription& network) const override;
  Result<RecordKind> Records(const EnvironmentSpec& environment,
                             const NetworkDescription&) const override {
    RETURN_IF_ERROR(es.CheckActions(environment));
    return novelty.Records(environment);
  }
  bool TakesInitialPolicy() const override { return true; }
  bool DependsOnEnvironment() const override { return true; }
  std::unique_ptr<EvolutionAlgorithm> Make(const EvolutionSetup& setup) const override;
};

// One policy of the meta-population.
struct MetaMember {
  Centre centre;
  uint64_t behaviour = 0;  // number of the archive's entry that it behaved as last
  double mean = std::numeric_limits<double>::quiet_NaN();  // return of those episodes
};

struct NsEsState : EvolutionCounters {
  static constexpr uint32_t kVersion = 2;  // 1: without the cut-off
  std::vector<MetaMember> members;
  std::vector<float> best;  // the centre with the best mean return so far
  double best_mean = 0;     // of its validation
  double weight = 1;        // of the reward
  uint64_t waited = 0;      // generations since a best mean or a change of the weight
  int64_t cutoff = 0;       // steps of the next population's episodes; 0 = the environment's
  uint64_t archived = 0;
  Digest archive{};  // NoveltyArchive::digest
  Digest population_hash{};

  EvolutionSummary Summary() const {
    return {EvolutionCounters(*this), population_hash, best, best_mean};
  }
  std::string Encode() const;
  static Result<NsEsState> Decode(std::string_view bytes);
};

class NoveltySearch : public MirroredEs {
 public:
  NoveltySearch(const NsEsConfig& config, const EvolutionSetup& setup);
  Result<GenerationReport> Step(const StopToken& stop) override;
  size_t EpisodesOfNext() const override;
  std::string EncodeState() const override { return state_.Encode(); }
  Status RestoreState(std::string_view bytes) override;
  EvolutionSummary summary() const override { return state_.Summary(); }
  std::vector<NamedCandidate> Candidates() const override;
  // Not of the first generation, whose archive is empty.
  uint64_t MembersOfNext() const override { return state_.generation == 0 ? 0 : es_.members(); }
  Candidate MemberOfNext(uint64_t i) const override;
  size_t ArchiveSize() const override { return archive_.size(); }
  std::string EncodeArchive(size_t first) const override { return archive_.Encode(first); }
  Status RestoreArchive(std::string_view bytes) override { return archive_.Append(bytes); }

 private:
  size_t rollouts() const { return static_cast<size_t>(es_.validation_episodes); }
  size_t neighbours() const { return static_cast<size_t>(config_.novelty.neighbours); }
  // Behaviour and mean return of a centre's episodes without noise.
  struct Played {
    Behaviour behaviour;
    double mean = 0;
  };
  Result<Played> PlayCentre(std::span<const float> theta, uint32_t number, const StopToken& stop,
                            NsEsState& next);
  Status Begin(const StopToken& stop, NsEsState& next, NoveltyArchive& archive);
  size_t ChooseCentre(const NsEsState& now, const NoveltyArchive& archive) const;
  void Measure(const NoveltyArchive& archive, EpisodeResult& result) const;
  std::vector<double> Novelties(std::span<const EpisodeResult> episodes) const;
  std::vector<double> Weights(double reward, std::span<const double> fitness,
                              std::span<const double> novelty) const;
  void AdaptWeight(bool best, NsEsState& next) const;

  const NsEsConfig config_;
  NoveltyArchive archive_;  // constant while episodes are played
  NsEsState state_;         // the same
};

NoveltySearch::NoveltySearch(const NsEsConfig& config, const EvolutionSetup& setup)
    : MirroredEs(config.es, setup),
      config_(config),
      archive_(config.novelty.kind, config.novelty.RowBytes(setup.evaluator.spec())) {
  for (uint64_t m = 0; m < static_cast<uint64_t>(config.centres); ++m) {
    std::vector<float> theta = FirstParameters(es_.init);  // and fresh ones for the others
    Genome initial;
    initial.init = es_.init;
    initial.initial = player_.Key(Purpose::kInitialGenome, m);
    if (m > 0) InitialParameters(initial, network_, theta);
    state_.members.push_back({Centre(std::move(theta), es_.ascent.kind)});
  }
  state_.best_mean = std::numeric_limits<double>::quiet_NaN();
  state_.weight = config.follows == Follows::kNovelty            ? 0
                  : config.follows == Follows::kNoveltyAndReward ? 0.5
                                                                 : config.weight;
  state_.cutoff = cutoff_.start;
}

// One generation; the numbers are those of doc/novelty-search.md.
Result<GenerationReport> NoveltySearch::Step(const StopToken& stop) {
  NsEsState next = state_;
  ++next.generation;
  GenerationReport report;

  // 1 the archive begins with what the initial centres behave as
  const SteadyTime beginning = Now();
  NoveltyArchive first = archive_.Empty();
  const bool begins = state_.generation == 0;
  if (begins) RETURN_IF_ERROR(Begin(stop, next, first));
  NoveltyArchive& archive = begins ? first : archive_;
  report.seconds_validation = SecondsSince(beginning);

  // 2 one centre of the meta-population is chosen, the more novel the likelier
  const size_t chosen = ChooseCentre(next, archive);
  MetaMember& member = next.members[chosen];

  // 3 its perturbations play; how novel each behaves is measured against the archive
  const PlayRule rule{
      .sigma = es_.SigmaAfter(state_),
      .cutoff = state_.cutoff,
      .reduce = [this, &archive](EpisodeResult& result) { Measure(archive, result); }};
  ASSIGN_OR_RETURN(const Population population,
                   Play(state_.members[chosen].centre.theta, rule, stop, next, report));
  report.fitness = MeanFitness(population.episodes, static_cast<size_t>(es_.episodes));
  const std::vector<double> novelty = Novelties(population.episodes);
  next.cutoff = population.cutoff;

  // 4 the centre goes up the gradient of the ranks of novelty, of return, or of both
  const SteadyTime ascent = Now();
  const std::vector<double> weights = Weights(
      state_.weight, ShiftedFitness(report.fitness, population.episodes, es_.shift), novelty);
  const double rate = es_.LearningRateAfter(state_);
  const AscentReport moved =
      Ascend(noise_, population.keys, weights, es_.Divisor(weights.size(), rule.sigma),
             es_.RuleFor(network_), rate, member.centre, Cores());
  const double seconds_update = SecondsSince(ascent);

  // 5 what it behaves as now enters the archive
  const SteadyTime validation = Now();
  ASSIGN_OR_RETURN(Played played,
                   PlayCentre(member.centre.theta,
                              es_.members() + static_cast<uint32_t>(config_.centres), stop, next));
  const double centre_novelty = archive.MeanDistance(played.behaviour, neighbours());
  member.behaviour = archive.size(), member.mean = played.mean;
  report.seconds_validation += SecondsSince(validation);
  report.validated = rollouts();

  // 6 the best centre so far, and how much its return counts from now on (NSRA-ES)
  const bool best = IsBetter(played.mean, next.best_mean);
  if (best) next.best = member.centre.theta, next.best_mean = played.mean;
  if (config_.follows == Follows::kAdaptive) AdaptWeight(best, next);

  // 7 test of the best centre on fresh episodes, not counted in frames
  RETURN_IF_ERROR(TestPolicy(player_, next.best, config_.budget.TestEpisodes(next.generation), stop,
                             next, report));

  // 8 the caller makes the new state durable before it reports the generation
  archive.Add(std::move(played.behaviour));
  if (begins) archive_ = std::move(first);
  next.archived = archive_.size(), next.archive = archive_.digest();
  Sha256 hash;
  for (const double f : report.fitness) hash.UpdateU64(std::bit_cast<uint64_t>(f));
  for (const double n : novelty) hash.UpdateU64(std::bit_cast<uint64_t>(n));
  hash.Update(std::as_bytes(std::span(member.centre.theta)));
  next.population_hash = hash.Finish();
  SetFrames(player_, next.frames - state_.frames, report);
  report.metrics = {{"centre", chosen},
                    {"members", report.fitness.size()},
                    {"sigma", rule.sigma},
                    {"learning_rate", rate},
                    {"cutoff", state_.cutoff},
                    {"centre_mean", played.mean},
                    {"centre_novelty", centre_novelty},
                    {"novelty_mean", Mean(novelty)},
                    {"novelty_max", *std::ranges::max_element(novelty)},
                    {"archive_size", archive_.size()},
                    {"reward_weight", state_.weight},
                    {"update_ratio", moved.ratio()},
                    {"gradient_norm", moved.gradient},
                    {"centre_norm", moved.centre},
                    {"seconds_update", seconds_update}};
  report.note = fmt::format("centre {} novelty {:.3g}", chosen, centre_novelty);
  state_ = std::move(next);
  player_.StartAfter(state_.generation, state_.frames);
  return report;
}

// ---- centres

Result<NoveltySearch::Played> NoveltySearch::PlayCentre(std::span<const float> theta,
                                                        uint32_t number, const StopToken& stop,
                                                        NsEsState& next) {
  // as members are cut off at last, so that trajectories compare; es_distributed/nses.py does so
  ASSIGN_OR_RETURN(const auto episodes, player_.Validate(FixedParameters(theta), number, rollouts(),
                                                         stop, cutoff_.max * frames_per_step_));
  next.Count(episodes);
  EpisodeMeans mean;
  mean.Add(episodes);
  return Played{config_.novelty.BehaviourOf(episodes), mean.fitness[0]};
}

Status NoveltySearch::Begin(const StopToken& stop, NsEsState& next, NoveltyArchive& archive) {
  for (size_t m = 0; m < next.members.size(); ++m) {
    MetaMember& member = next.members[m];
    ASSIGN_OR_RETURN(
        Played played,
        PlayCentre(member.centre.theta, es_.members() + static_cast<uint32_t>(m), stop, next));
    member.behaviour = archive.size(), member.mean = played.mean;
    archive.Add(std::move(played.behaviour));
    if (!next.best.empty() && !IsBetter(played.mean, next.best_mean)) continue;
    next.best = member.centre.theta, next.best_mean = played.mean;
  }
  return Status::Ok();
}

// With the probability of its share of all centres' novelty; all alike when none is novel.
size_t NoveltySearch::ChooseCentre(const NsEsState& now, const NoveltyArchive& archive) const {
  const size_t count = now.members.size();
  if (config_.pick == Pick::kRoundRobin) return state_.generation % count;
  std::vector<double> novelty;
  for (const MetaMember& member : now.members)
    novelty.push_back(archive.MeanDistance(archive[member.behaviour], neighbours()));
  const double sum = std::accumulate(novelty.begin(), novelty.end(), 0.0);
  const CounterRng rng(player_.Key(Purpose::kCentreChoice, 0));
  if (!(sum > 0)) return rng.UniformInt(1, count);
  double left = rng.Uniform(0) * sum;
  for (size_t m = 0; m + 1 < count; ++m) {
    left -= novelty[m];
    if (left < 0) return m;
  }
  return count - 1;
}

// ---- members

// The thread that has played an episode measures it: its recording, which may be large, is neither
// kept nor sent.
void NoveltySearch::Measure(const NoveltyArchive& archive, EpisodeResult& result) const {
  const bool measured =
      config_.novelty.kind != BehaviourKind::kFinalPosition && result.recording.empty();
  if (measured) return;
  const Behaviour behaviour = config_.novelty.BehaviourOf({&result, 1});
  result.novelty = archive.MeanDistance(behaviour, neighbours());
  result.recording = {};
}

// Means over the episodes of each member.
std::vector<double> NoveltySearch::Novelties(std::span<const EpisodeResult> episodes) const {
  const auto each = static_cast<size_t>(es_.episodes);
  std::vector<double> novelty;
  for (size_t first = 0; first < episodes.size(); first += each) {
    double sum = 0;
    for (const EpisodeResult& episode : episodes.subspan(first, each)) sum += episode.novelty;
    novelty.push_back(sum / static_cast<double>(each));
  }
  return novelty;
}

// ---- weights

// `reward` is the part of the return's ranks, the rest that of the novelty's.
std::vector<double> NoveltySearch::Weights(double reward, std::span<const double> fitness,
                                           std::span<const double> novelty) const {
  const std::vector<double> of_fitness = CentredRanks(fitness), of_novelty = CentredRanks(novelty);
  std::vector<double> weights(fitness.size());
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] = reward * of_fitness[i] + (1 - reward) * of_novelty[i];
  return weights;
}

void NoveltySearch::AdaptWeight(bool best, NsEsState& next) const {
  if (best) {
    next.weight = std::min(1.0, next.weight + config_.weight_step);
    next.waited = 0;
  } else if (++next.waited >= static_cast<uint64_t>(config_.patience)) {
    next.weight = std::max(0.0, next.weight - config_.weight_step);
    next.waited = 0;
  }
}

std::vector<NamedCandidate> NoveltySearch::Candidates() const {
  std::vector<NamedCandidate> candidates;
  if (!state_.best.empty()) candidates.push_back({"best", state_.best, state_.best_mean});
  for (size_t m = 0; m < state_.members.size(); ++m)
    candidates.push_back(
        {fmt::format("centre:{}", m), state_.members[m].centre.theta, state_.members[m].mean});
  return candidates;
}

Candidate NoveltySearch::MemberOfNext(uint64_t i) const {
  const Centre& centre = state_.members[ChooseCentre(state_, archive_)].centre;
  return Member(centre.theta, es_.SigmaAfter(state_), i);
}

size_t NoveltySearch::EpisodesOfNext() const {
  const size_t centres = 1 + (state_.generation == 0 ? state_.members.size() : 0);
  return static_cast<size_t>(es_.population * es_.episodes) + centres * rollouts() +
         config_.budget.TestEpisodes(state_.generation + 1);
}

// ---- state

Status NoveltySearch::RestoreState(std::string_view bytes) {
  ASSIGN_OR_RETURN(NsEsState state, NsEsState::Decode(bytes));
  const auto fits = [&](const MetaMember& m) {
    return m.centre.Fits(network_.parameter_count, es_.ascent.kind) &&
           (state.generation == 0 || m.behaviour < state.archived);
  };
  if (state.members.size() != state_.members.size() || !std::ranges::all_of(state.members, fits))
    return {Code::kBadData,
            "the recorded state is of another network, optimizer or number of "
            "centres"};
  if (archive_.size() != state.archived || archive_.digest() != state.archive)
    return {Code::kBadData, "the recorded archive of behaviours is not the one of the state"};
  state_ = std::move(state);
  player_.StartAfter(state_.generation, state_.frames);
  return Status::Ok();
}

std::string NsEsState::Encode() const {
  ByteWriter out;
  out.Put(kVersion);
  PutCounters(out, *this);
  out.Put(uint64_t{members.size()});
  for (const MetaMember& member : members) {
    member.centre.Put(out);
    out.Put(member.behaviour).Put(member.mean);
  }
  out.PutVector(best);
  out.Put(best_mean).Put(weight).Put(waited).Put(archived).Put(archive).Put(population_hash);
  out.Put(cutoff);
  return out.Take();
}

Result<NsEsState> NsEsState::Decode(std::string_view bytes) {
  const Status damaged(Code::kBadData, "the recorded state of the evolution is damaged");
  ByteReader in(bytes);
  NsEsState s;
  const auto version = in.Get<uint32_t>();
  if (version < 1 || version > kVersion) return damaged;
  static_cast<EvolutionCounters&>(s) = GetCounters(in);
  const auto count = in.Get<uint64_t>();
  if (!in.ok() || count > kCentresMax) return damaged;
  for (uint64_t m = 0; m < count; ++m) {
    MetaMember& member = s.members.emplace_back();
    if (!member.centre.Get(in)) return damaged;
    member.behaviour = in.Get<uint64_t>(), member.mean = in.Get<double>();
  }
  if (!in.GetVector(s.best)) return damaged;
  s.best_mean = in.Get<double>(), s.weight = in.Get<double>(), s.waited = in.Get<uint64_t>();
  s.archived = in.Get<uint64_t>(), s.archive = in.Get<Digest>();
  s.population_hash = in.Get<Digest>();
  if (version > 1) s.cutoff = in.Get<int64_t>();
  if (!in.AtEnd()) return damaged;
  return s;
}

// ---- configuration

void NsEsConfig::Bind(ConfigTable& table) {
  es.Bind(table);
  es.BindBatch(table);
  BindTest(table, "es", budget);
  BindBudget(table, "es", budget);
  novelty.Bind(table);
  table.Add("novelty.centres", &centres, {1, static_cast<double>(kCentresMax)}, "policies",
            "size of the meta-population");
  table.Add("novelty.pick", &pick, kPicks,
            "how the next centre is chosen: with a probability by its novelty, or in turn");
  if (follows != Follows::kAdaptive) return;
  table.Add("novelty.reward_weight", &weight, {0, 1}, "",
            "weight of the return's ranks at the start; novelty has the rest");
  table.Add("novelty.weight_step", &weight_step, {0, 1}, "",
            "added to the weight at a best return, subtracted after novelty.patience");
  table.Add("novelty.patience", &patience, {1, 1e9}, "generations",
            "generations without a new best return until the weight falls");
}

Status NsEsConfig::Check(const NetworkDescription& network) const {
  RETURN_IF_ERROR(es.Check(network));
  if (es.shaping != Shaping::kCentredRank)
    return {Code::kConfig,
            "es.shaping: returns and novelty are mixed by their ranks; expected "
            "centered_rank"};
  return CheckStateBytes(network, 3 * static_cast<double>(centres) + 1,
                         fmt::format(" or fewer than novelty.centres={}", centres));
}

std::unique_ptr<EvolutionAlgorithm> NsEsConfig::Make(const EvolutionSetup& setup) const {
  return std::make_unique<NoveltySearch>(*this, setup);
}

}  // namespace

std::unique_ptr<EvolutionConfig> MakeNsEsConfig() {
  return std::make_unique<NsEsConfig>(Follows::kNovelty);
}
std::unique_ptr<EvolutionConfig> MakeNsrEsConfig() {
  return std::make_unique<NsEsConfig>(Follows::kNoveltyAndReward);
}
std::unique_ptr<EvolutionConfig> MakeNsraEsConfig() {
  return std::make_unique<NsEsConfig>(Follows::kAdaptive);
}

Result<EvolutionSummary> DescribeNsEs(std::string_view state) {
  ASSIGN_OR_RETURN(const NsEsState s, NsEsState::Decode(state));
  return s.Summary();
}

}  // namespace samara
