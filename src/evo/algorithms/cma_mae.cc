#include "evo/algorithms/cma_mae.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/bytes.h"
#include "core/check.h"
#include "evo/algorithms/cell_grid.h"
#include "evo/algorithms/cma_search.h"
#include "evo/algorithms/generation_phases.h"
#include "evo/algorithms/novelty.h"
#include "evo/algorithms/ranking.h"

namespace samara {
namespace {

constexpr double kStepMin = 1e-11;  // of an emitter in its widest direction; below it restarts
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class CmaMaeConfig : public EvolutionConfig {
 public:
  GridSettings grid;
  int64_t emitters = 5, population = 36, episodes = 1;
  double sigma = 0.2, rate = 0.01, threshold = 0;
  NoiseKind noise = NoiseKind::kNormal;

  std::unique_ptr<EvolutionConfig> Clone() const override {
    return std::make_unique<CmaMaeConfig>(*this);
  }
  void Bind(ConfigTable& table) override {
    grid.Bind(table);
    table.Add("map.emitters", &emitters, {1, 1000}, "emitters", "number of searches side by side");
    table.Add("map.population", &population, {4, 100'000}, "members",
              "number of members of an emitter per generation");
    table.Add("map.episodes", &episodes, {1, 1000}, "episodes", "episodes per member");
    table.Add("map.sigma", &sigma, {1e-12, 1e6}, "", "first step size of an emitter");
    table.Add("map.threshold", &threshold, {-1e9, 1e9}, "",
              "threshold of an empty cell: what an improvement of it is counted from");
    table.Add("map.learning_rate", &rate, {0, 1}, "",
              "fraction by which a cell's threshold moves to a return above it");
    BindTest(table, "map", budget);
    BindBudget(table, "map", budget);
  }
  std::string table() const override { return "map"; }
  bool TakesInitialPolicy() const override { return true; }
  bool DependsOnEnvironment() const override { return true; }
  Result<RecordKind> Records(const EnvironmentSpec& environment,
                             const NetworkDescription&) const override {
    return grid.Records(environment);
  }
  Status Check(const NetworkDescription& network) const override;
  std::unique_ptr<EvolutionAlgorithm> Make(const EvolutionSetup& setup) const override;
};

Status CmaMaeConfig::Check(const NetworkDescription& network) const {
  if (network.evolved_count > kCmaParametersMax)
    return {
        Code::kConfig,
        fmt::format("{}: {} parameters; expected at most {} for cma-mae, whose covariances have "
                    "their square; map-elites takes any network",
                    network.name, network.evolved_count, kCmaParametersMax)};
  const auto n = static_cast<double>(network.evolved_count);
  const double bytes =
      static_cast<double>(emitters) *
      (4 * n * (n + 1) + 16 * n + 4 * static_cast<double>(network.parameter_count));
  if (bytes > kStateBytesMax)
    return {
        Code::kConfig,
        fmt::format("map.emitters={}: their covariances take {:.0f} MB, recorded each "
                    "generation; expected at most 240 MB, so fewer emitters or a smaller network",
                    emitters, bytes / 1e6)};
  const double all = static_cast<double>(emitters) * static_cast<double>(population) *
                     static_cast<double>(episodes);
  return CheckEpisodes(all, fmt::format("map.emitters={}, map.population={}, map.episodes={}",
                                        emitters, population, episodes));
}

// The best member that ended in a cell, and what a member must exceed to improve it.
struct Solution {
  double fitness = 0, threshold = 0;
  std::vector<float> position, parameters;
};
using Archive = std::map<uint64_t, Solution>;

void PutSolution(ByteWriter& out, uint64_t cell, const Solution& s) {
  out.Put(cell).Put(s.fitness);
  out.PutVector(s.position), out.PutVector(s.parameters);
}

Digest DigestOf(const Archive& archive) {
  ByteWriter bytes;
  for (const auto& [cell, solution] : archive) PutSolution(bytes, cell, solution);
  Sha256 hash;
  hash.Update(bytes.Take());
  return hash.Finish();
}

// An emitter: a search, and its generations since its last start.
struct Emitter {
  CmaDistribution distribution;
  uint64_t generation = 0;
};

struct CmaMaeState : EvolutionCounters {
  static constexpr uint32_t kVersion = 1;
  std::vector<Emitter> emitters;
  std::vector<double> thresholds;  // of the archive's cells, ascending
  uint64_t placed = 0;             // solutions that ever took a cell
  Digest archive{};
  std::vector<float> best;  // of all members; empty before the first generation
  double best_fitness = kNan;
  Digest population_hash{};

  EvolutionSummary Summary() const {
    return {EvolutionCounters(*this), population_hash, best, best_fitness};
  }
  std::string Encode() const {
    ByteWriter out;
    out.Put(kVersion);
    PutCounters(out, *this);
    out.Put(uint64_t{emitters.size()});
    for (const Emitter& emitter : emitters) {
      emitter.distribution.Put(out);
      out.Put(emitter.generation);
    }
    out.Put(uint64_t{thresholds.size()});
    for (const double threshold : thresholds) out.Put(threshold);
    out.Put(placed).Put(archive);
    out.PutVector(best);
    out.Put(best_fitness).Put(population_hash);
    return out.Take();
  }
  static Result<CmaMaeState> Decode(std::string_view bytes);
};

Result<CmaMaeState> CmaMaeState::Decode(std::string_view bytes) {
  const Status damaged(Code::kBadData, "the recorded state of the evolution is damaged");
  ByteReader in(bytes);
  CmaMaeState s;
  if (in.Get<uint32_t>() != kVersion) return damaged;
  static_cast<EvolutionCounters&>(s) = GetCounters(in);
  const auto emitters = in.Get<uint64_t>();
  for (uint64_t e = 0; e < emitters; ++e) {
    Emitter emitter;
    if (!emitter.distribution.Get(in)) return damaged;
    emitter.generation = in.Get<uint64_t>();
    s.emitters.push_back(std::move(emitter));
  }
  const auto cells = in.Get<uint64_t>();
  if (!in.ok() || cells > CellGrid::kCellsMax) return damaged;
  for (uint64_t i = 0; i < cells; ++i) s.thresholds.push_back(in.Get<double>());
  s.placed = in.Get<uint64_t>();
  s.archive = in.Get<Digest>();
  if (!in.GetVector(s.best)) return damaged;
  s.best_fitness = in.Get<double>();
  s.population_hash = in.Get<Digest>();
  if (!in.AtEnd()) return damaged;
  return s;
}

class CmaMae : public EvolutionAlgorithm {
 public:
  CmaMae(const CmaMaeConfig& config, const EvolutionSetup& setup)
      : EvolutionAlgorithm(setup),
        config_(config),
        grid_(config.grid.Grid(setup.evaluator.spec()).ValueOrThrow()),
        n_(setup.network.evolved_count) {
    for (int64_t e = 0; e < config.emitters; ++e) {
      searches_.emplace_back(static_cast<size_t>(config.population), n_, GetNoise(config.noise));
      state_.emitters.push_back({CmaDistribution(ZeroParameters(), n_, config.sigma)});
    }
    CHECK(Take(state_).ok());
  }

  Result<GenerationReport> Step(const StopToken& stop) override;
  size_t EpisodesOfNext() const override {
    return members() * static_cast<size_t>(config_.episodes) +
           config_.budget.TestEpisodes(state_.generation + 1);
  }
  std::string EncodeState() const override { return state_.Encode(); }
  Status RestoreState(std::string_view bytes) override;
  size_t ArchiveSize() const override { return state_.placed; }
  std::string EncodeArchive(size_t first) const override;
  Status RestoreArchive(std::string_view bytes) override;
  bool ArchiveOnlyGrows() const override { return false; }
  std::string ArchiveCsv() const override;
  EvolutionSummary summary() const override { return state_.Summary(); }
  std::vector<NamedCandidate> Candidates() const override;
  uint64_t MembersOfNext() const override { return members(); }
  Candidate MemberOfNext(uint64_t i) const override {
    return MemberOf(Members(*this, NoiseKeys(player_, i + 1)), i, network_.parameter_count);
  }

 private:
  class Members : public ParameterSource {
   public:
    Members(const CmaMae& mae, std::span<const uint64_t> keys) : mae_(mae), keys_(keys) {}
    void Write(PolicyHandle policy, std::span<float> canonical) const override {
      mae_.searches_[policy.id / mae_.population()].Write(keys_[policy.id], canonical);
    }

   private:
    const CmaMae& mae_;
    const std::span<const uint64_t> keys_;
  };

  size_t population() const { return static_cast<size_t>(config_.population); }
  size_t members() const { return static_cast<size_t>(config_.emitters) * population(); }
  // How far the member's return is above the threshold of the cell it ended in, which follows; the
  // member is placed there if it is the best. NaN: it ended nowhere.
  double Improve(double fitness, std::span<const EpisodeResult> episodes, uint32_t member,
                 const Members& source, CmaMaeState& next);
  // Returns the emitter after one update by `improvements`, or a restarted one when it has
  // converged.
  Emitter Move(size_t e, std::span<const double> improvements,
               std::span<const uint64_t> keys) const;
  Status Take(CmaMaeState state);

  const CmaMaeConfig config_;
  const CellGrid grid_;
  const size_t n_;                   // parameters that move, the first ones
  std::vector<CmaSearch> searches_;  // of state_.emitters
  Archive archive_;
  // cell by cell, what the last generation placed, and how many were placed before
  std::string placed_;
  uint64_t placed_before_ = 0;
  CmaMaeState state_;  // constant while episodes are played
};

// One generation; the numbers are those of doc/quality-diversity.md.
Result<GenerationReport> CmaMae::Step(const StopToken& stop) {
  CmaMaeState next = state_;
  ++next.generation;
  GenerationReport report;

  // 1 the members of every emitter play
  const auto episodes = static_cast<size_t>(config_.episodes);
  const std::vector<uint64_t> keys = NoiseKeys(player_, members());
  const Members source(*this, keys);
  ASSIGN_OR_RETURN(const auto played,
                   PlayMembers(player_, PopulationTasks(player_, members(), episodes), episodes,
                               source, EpisodesOfNext(), stop, next, report));
  report.fitness = MeanFitness(played, episodes);
  // 2 the best return so far is the elite; its test, not counted in frames
  const uint32_t best = RankDescending(report.fitness)[0];
  if (next.best.empty() || IsBetter(report.fitness[best], next.best_fitness)) {
    next.best.resize(network_.parameter_count);
    source.Write({best, 0}, next.best);
    next.best_fitness = report.fitness[best];
  }
  RETURN_IF_ERROR(TestPolicy(player_, next.best, config_.budget.TestEpisodes(next.generation), stop,
                             next, report));

  // 3 members in their order improve the archive
  placed_.clear(), placed_before_ = state_.placed;
  std::vector<double> improvements;
  for (uint32_t i = 0; i < members(); ++i)
    improvements.push_back(Improve(
        report.fitness[i], std::span(played).subspan(i * episodes, episodes), i, source, next));
  // 4 and each emitter moves to where they improved it
  uint64_t restarts = 0;
  for (size_t e = 0; e < searches_.size(); ++e) {
    next.emitters[e] = Move(e, std::span(improvements).subspan(e * population(), population()),
                            std::span(keys).subspan(e * population(), population()));
    restarts += next.emitters[e].generation == 0;
  }

  // 5 the caller makes the new state durable before it reports the generation
  double score = 0;
  next.thresholds.clear();
  for (const auto& [cell, solution] : archive_) {
    score += solution.fitness - config_.grid.offset;
    next.thresholds.push_back(solution.threshold);
  }
  next.archive = DigestOf(archive_);
  next.population_hash = HashOf(report.fitness, next.best);
  SetFrames(player_, next.frames - state_.frames, report);
  report.metrics = {
      {"archive_size", archive_.size()},
      {"archive_improved", next.placed - state_.placed},
      {"coverage", static_cast<double>(archive_.size()) / static_cast<double>(grid_.size())},
      {"qd_score", score},
      {"restarts", restarts}};
  report.note =
      fmt::format("{} of {} cells, QD score {:.5g}", archive_.size(), grid_.size(), score);
  if (archive_.empty()) report.note += ": no return is above map.threshold";
  RETURN_IF_ERROR(Take(std::move(next)));
  return report;
}

double CmaMae::Improve(double fitness, std::span<const EpisodeResult> episodes, uint32_t member,
                       const Members& source, CmaMaeState& next) {
  std::vector<float> position = MeanPosition(episodes);
  const auto cell = grid_.CellOf(position);
  if (!cell || !std::isfinite(fitness)) return kNan;
  const auto found = archive_.find(*cell);
  const bool empty = found == archive_.end();
  const double threshold = empty ? config_.threshold : found->second.threshold;
  const double improvement = fitness - threshold;
  if (improvement <= 0) return improvement;
  const double raised = (1 - config_.rate) * threshold + config_.rate * fitness;
  if (!empty) found->second.threshold = raised;
  if (!empty && !IsBetter(fitness, found->second.fitness)) return improvement;
  Solution solution{fitness, raised, std::move(position),
                    std::vector<float>(network_.parameter_count)};
  source.Write({member, 0}, solution.parameters);
  ByteWriter out;
  PutSolution(out, *cell, solution);
  placed_ += out.Take();
  archive_.insert_or_assign(*cell, std::move(solution));
  ++next.placed;
  return improvement;
}

Emitter CmaMae::Move(size_t e, std::span<const double> improvements,
                     std::span<const uint64_t> keys) const {
  const uint64_t generation = state_.emitters[e].generation + 1;
  const std::vector<uint32_t> order = RankDescending(improvements);
  const bool flat = !IsBetter(improvements[order.front()], improvements[order.back()]);
  if (!flat || archive_.empty()) {
    Emitter moved{searches_[e].Moved(improvements, keys, generation), generation};
    const double widest = std::sqrt(moved.distribution.WidestVariance());
    if (moved.distribution.sigma * widest >= kStepMin || archive_.empty()) return moved;
  }
  // from a solution of the archive, each as likely
  const CounterRng rng(player_.Key(Purpose::kCentreChoice, e));
  const auto from =
      std::next(archive_.begin(), static_cast<ptrdiff_t>(rng.UniformInt(0, archive_.size())));
  return {CmaDistribution(from->second.parameters, n_, config_.sigma)};
}

Status CmaMae::Take(CmaMaeState state) {
  for (size_t e = 0; e < searches_.size(); ++e)
    RETURN_IF_ERROR(searches_[e].Take(state.emitters[e].distribution));
  state_ = std::move(state);
  player_.StartAfter(state_.generation, state_.frames);
  return Status::Ok();
}

// ---- state

// Encodes what the last generation placed, or all that is held: replaced solutions have no use.
std::string CmaMae::EncodeArchive(size_t first) const {
  if (first == state_.placed) return {};
  if (first == placed_before_ && first > 0) return placed_;
  ByteWriter out;
  for (const auto& [cell, solution] : archive_) PutSolution(out, cell, solution);
  return out.Take();
}

Status CmaMae::RestoreArchive(std::string_view bytes) {
  ByteReader in(bytes);
  while (!in.AtEnd()) {
    const auto cell = in.Get<uint64_t>();
    Solution s;
    s.fitness = in.Get<double>();
    if (!in.GetVector(s.position) || !in.GetVector(s.parameters) ||
        s.position.size() != grid_.dimensions() ||
        s.parameters.size() != network_.parameter_count || grid_.CellOf(s.position) != cell)
      return {Code::kBadData, "the recorded archive is damaged, or of another grid or network"};
    archive_.insert_or_assign(cell, std::move(s));
  }
  return Status::Ok();
}

Status CmaMae::RestoreState(std::string_view bytes) {
  ASSIGN_OR_RETURN(CmaMaeState state, CmaMaeState::Decode(bytes));
  const auto fits = [&](const Emitter& emitter) {
    return emitter.distribution.Fits(network_.parameter_count, n_);
  };
  if (state.emitters.size() != searches_.size() || !std::ranges::all_of(state.emitters, fits) ||
      (!state.best.empty() && state.best.size() != network_.parameter_count))
    return {Code::kBadData, "the recorded state is of another network or other emitters"};
  if (state.thresholds.size() != archive_.size() ||
      (state.generation > 0 && state.archive != DigestOf(archive_)))
    return {Code::kBadData, "the recorded archive of solutions is not the one of the state"};
  size_t i = 0;
  for (auto& [cell, solution] : archive_) solution.threshold = state.thresholds[i++];
  placed_.clear(), placed_before_ = state.placed;
  return Take(std::move(state));
}

std::string CmaMae::ArchiveCsv() const {
  ArchiveTable table(grid_.dimensions(), "threshold");
  for (const auto& [cell, solution] : archive_)
    table.Add(cell, solution.position, solution.fitness, solution.threshold);
  return table.Take();
}

std::vector<NamedCandidate> CmaMae::Candidates() const {
  std::vector<NamedCandidate> candidates;
  if (!state_.best.empty()) candidates.push_back({"elite", state_.best, state_.best_fitness});
  size_t i = 0;
  for (const auto& [cell, solution] : archive_)
    candidates.push_back({fmt::format("parent:{}", i++), solution.parameters, solution.fitness});
  return candidates;
}

std::unique_ptr<EvolutionAlgorithm> CmaMaeConfig::Make(const EvolutionSetup& setup) const {
  return std::make_unique<CmaMae>(*this, setup);
}

}  // namespace

std::unique_ptr<EvolutionConfig> MakeCmaMaeConfig() { return std::make_unique<CmaMaeConfig>(); }

Result<EvolutionSummary> DescribeCmaMae(std::string_view state) {
  ASSIGN_OR_RETURN(const CmaMaeState s, CmaMaeState::Decode(state));
  return s.Summary();
}

}  // namespace samara
