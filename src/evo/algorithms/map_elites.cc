#include "evo/algorithms/map_elites.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/bytes.h"
#include "core/clock.h"
#include "evo/algorithms/cell_grid.h"
#include "evo/algorithms/novelty.h"
#include "evo/algorithms/ranking.h"
#include "evo/algorithms/truncation_ga.h"
#include "evo/genome/genome_set.h"

namespace samara {
namespace {

class MapElitesConfig : public GaConfig {
 public:
  GridSettings grid;

  MapElitesConfig() {
    validation_candidates = validation_episodes = 0;
    mutation_power = 0.1;
  }
  std::unique_ptr<EvolutionConfig> Clone() const override {
    return std::make_unique<MapElitesConfig>(*this);
  }
  void Bind(ConfigTable& table) override {
    BindRows(table, GaSelection::kByCell);
    grid.Bind(table);
  }
  // every elite is a parent
  std::vector<std::string> Settle() override { return mutation.Unused("ga"); }
  Result<RecordKind> Records(const EnvironmentSpec& environment,
                             const NetworkDescription& network) const override;
  bool DependsOnEnvironment() const override { return true; }
  std::unique_ptr<EvolutionAlgorithm> Make(const EvolutionSetup& setup) const override;
};

// With safe mutations the parameters of every elite are kept, and what it saw.
Result<RecordKind> MapElitesConfig::Records(const EnvironmentSpec& environment,
                                            const NetworkDescription& network) const {
  ASSIGN_OR_RETURN(const CellGrid cells, grid.Grid(environment));
  const double each = static_cast<double>(network.parameter_count) +
                      static_cast<double>(kExperienceStates * network.input_size());
  const double megabytes = static_cast<double>(cells.size() + 1) * each * sizeof(float) / (1 << 20);
  if (mutation.safe() && megabytes > static_cast<double>(cache_megabytes))
    return Status(
        Code::kConfig,
        fmt::format("ga.mutation: the elites of {} cells and what they saw take {:.0f} MB; "
                    "expected ga.cache_megabytes of at least that, or ga.mutation=plain",
                    cells.size(), megabytes));
  return grid.Records(environment);
}

// Where an elite ended.
struct Cell {
  uint64_t number = 0;
  std::vector<float> position;
};

// The state of the GA, whose parents are the elites, ascending by cell; and their cells. The bytes
// name each ancestor of the elites once.
struct MapElitesState {
  static constexpr uint32_t kVersion = 1;
  GaState ga;
  std::vector<Cell> cells;

  std::string Encode() const;
  static Result<MapElitesState> Decode(std::string_view bytes);
};

std::string MapElitesState::Encode() const {
  GaState rest = ga;
  std::vector<Genome> genomes;
  for (const Parent& parent : std::exchange(rest.parents, {})) genomes.push_back(parent.genome);
  ByteWriter out;
  out.Put(kVersion).PutBytes(rest.Encode()).Put(uint64_t{cells.size()});
  if (cells.empty()) return out.Take();
  out.PutBytes(EncodeGenomes(genomes));
  for (size_t i = 0; i < cells.size(); ++i) {
    const Parent& parent = ga.parents[i];
    out.Put(cells[i].number).Put(parent.fitness).Put(parent.frames).Put(parent.episode);
    out.PutVector(cells[i].position);
  }
  return out.Take();
}

Result<MapElitesState> MapElitesState::Decode(std::string_view bytes) {
  const Status damaged(Code::kBadData, "the recorded state of the evolution is damaged");
  ByteReader in(bytes);
  MapElitesState s;
  if (in.Get<uint32_t>() != kVersion) return damaged;
  ASSIGN_OR_RETURN(s.ga, GaState::Decode(in.GetBytes()));
  if (!s.ga.parents.empty()) return damaged;  // they are the cells'
  const auto cells = in.Get<uint64_t>();
  std::vector<Genome> genomes;
  if (cells > 0) {
    ASSIGN_OR_RETURN(genomes, DecodeGenomes(in.GetBytes()));
  }
  if (!in.ok() || cells != genomes.size()) return damaged;
  for (Genome& genome : genomes) {
    Cell cell{in.Get<uint64_t>(), {}};
    Parent parent{std::move(genome), in.Get<double>(), 0, 0};
    parent.frames = in.Get<double>(), parent.episode = in.Get<uint64_t>();
    if (!in.GetVector(cell.position)) return damaged;
    s.ga.parents.push_back(std::move(parent)), s.cells.push_back(std::move(cell));
  }
  if (!in.AtEnd()) return damaged;
  return s;
}

class MapElites : public TruncationGa {
 public:
  MapElites(const MapElitesConfig& config, const EvolutionSetup& setup)
      : TruncationGa(config, setup),
        grid_(config.grid.Grid(setup.evaluator.spec()).ValueOrThrow()),
        offset_(config.grid.offset) {}

  Result<GenerationReport> Step(const StopToken& stop) override;

  std::string EncodeState() const override { return MapElitesState{state_, cells_}.Encode(); }
  Status RestoreState(std::string_view bytes) override;
  std::string ArchiveCsv() const override;

 private:
  const CellGrid grid_;
  const double offset_;
  std::vector<Cell> cells_;  // of state_.parents; constant while episodes are played
};

// One generation; the numbers are those of doc/quality-diversity.md.
Result<GenerationReport> MapElites::Step(const StopToken& stop) {
  GaState next = state_;
  ++next.generation;
  GenerationReport report;

  // 1 every member plays: a mutated copy of an elite of the archive, each as likely
  RETURN_IF_ERROR(KeepParents(stop));
  const SteadyTime start = Now();
  const Parameters individuals(*this);
  GenerationPlayer::Running playing(player_, Plan(), individuals, EpisodesOfNext(), stop);
  RETURN_IF_ERROR(playing.Play());
  const EpisodeMeans& played = playing.work().means();
  next.Count(playing.work().population());
  report.seconds_population = SecondsSince(start);

  // 2 a member takes the cell that it ends in, when that is empty or its return is better
  std::map<uint64_t, std::pair<Parent, Cell>> archive;
  for (size_t i = 0; i < cells_.size(); ++i)
    archive.emplace(cells_[i].number, std::pair(state_.parents[i], cells_[i]));
  const auto each = static_cast<size_t>(config_.episodes);
  uint64_t improved = 0;
  for (uint32_t i = 0; i < played.fitness.size(); ++i) {
    std::vector<float> position = MeanPosition(playing.work().population().subspan(i * each, each));
    const auto cell = grid_.CellOf(position);
    if (!cell || !std::isfinite(played.fitness[i])) continue;
    const auto found = archive.find(*cell);
    if (found != archive.end() && !IsBetter(played.fitness[i], found->second.first.fitness))
      continue;
    archive.insert_or_assign(*cell, std::pair(Played(played, i), Cell{*cell, std::move(position)}));
    ++improved;
  }
  std::vector<Cell> cells;
  double score = 0;
  next.parents.clear();
  for (auto& [number, held] : archive) {
    score += held.first.fitness - offset_;
    next.parents.push_back(std::move(held.first)), cells.push_back(std::move(held.second));
  }

  // 3 the elite is the best return so far
  KeepBestSingle(played, RankDescending(played.fitness), next);

  // 4 test of the elite on fresh episodes, not counted in frames
  RETURN_IF_ERROR(TakeParents(playing.work(), next, stop));
  RETURN_IF_ERROR(Test(next, stop, report));

  const double coverage = static_cast<double>(cells.size()) / static_cast<double>(grid_.size());
  report.metrics = {{"archive_size", cells.size()},
                    {"archive_improved", improved},
                    {"coverage", coverage},
                    {"qd_score", score}};
  report.note = fmt::format("{} of {} cells, QD score {:.5g}, ", cells.size(), grid_.size(), score);
  cells_ = std::move(cells);
  Finish(playing.work(), std::move(next), report);
  return report;
}

Status MapElites::RestoreState(std::string_view bytes) {
  ASSIGN_OR_RETURN(MapElitesState state, MapElitesState::Decode(bytes));
  for (const Cell& cell : state.cells)
    if (cell.position.size() != grid_.dimensions() || grid_.CellOf(cell.position) != cell.number)
      return {Code::kBadData, "the recorded archive is of another grid"};
  for (size_t i = 1; i < state.cells.size(); ++i)
    if (state.cells[i - 1].number >= state.cells[i].number)
      return {Code::kBadData, "the recorded archive is damaged"};
  RETURN_IF_ERROR(Restore(std::move(state.ga)));
  cells_ = std::move(state.cells);
  return Status::Ok();
}

std::string MapElites::ArchiveCsv() const {
  ArchiveTable table(grid_.dimensions(), "mutations");
  for (size_t i = 0; i < cells_.size(); ++i)
    table.Add(cells_[i].number, cells_[i].position, state_.parents[i].fitness,
              static_cast<double>(state_.parents[i].genome.mutations.size()));
  return table.Take();
}

std::unique_ptr<EvolutionAlgorithm> MapElitesConfig::Make(const EvolutionSetup& setup) const {
  return std::make_unique<MapElites>(*this, setup);
}

}  // namespace

std::unique_ptr<EvolutionConfig> MakeMapElitesConfig() {
  return std::make_unique<MapElitesConfig>();
}

Result<EvolutionSummary> DescribeMapElites(std::string_view state) {
  ASSIGN_OR_RETURN(const MapElitesState s, MapElitesState::Decode(state));
  return s.ga.Summary();
}

}  // namespace samara
