#include "play/rebuilt_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/log.h"
#include "core/parse_number.h"
#include "fleet/named_environment.h"
#include "play/initial_policy.h"
#include "play/saved_policy.h"

namespace samara {
namespace {

// For an algorithm that is asked for its state only.
class NoEvaluator : public Evaluator {
 public:
  explicit NoEvaluator(EnvironmentSpec spec) : spec_(std::move(spec)) {}
  const EnvironmentSpec& spec() const override { return spec_; }
  Status Play(const ParameterSource&, WorkSource&) override {
    return {Code::kInternal, "a rebuilt run plays no episodes"};
  }
  StageSeconds seconds() const override { return {}; }
  FleetCounters counters() const override { return {}; }

 private:
  const EnvironmentSpec spec_;
};

// The environment, where an archive of behaviours depends on it; nothing of it elsewhere, so that
// no process is started.
Result<EnvironmentSpec> SpecOf(const Path& run, const ExperimentConfig& config) {
  ExperimentConfig one = config;
  if (!one.evolution->DependsOnEnvironment()) return EnvironmentSpec();
  if (ChoosesCode(one.env)) RETURN_IF_ERROR(CheckOwn(run));
  one.fleet.actors = one.fleet.slots = 1;
  ASSIGN_OR_RETURN(const EnvironmentSetup setup, SetUpEvolution(one));
  return setup.environment;
}

// Number of members of the population that `played` records and `before` can rebuild; 0: none.
uint64_t Members(const EvolutionAlgorithm& before, const GenerationRecord& played) {
  const uint64_t members = before.MembersOfNext();
  // a batch of a least number of steps had more members than the state before it tells
  return members == 0 ? 0 : std::max<uint64_t>(members, played.fitness.size());
}

// Whether the state before `generation` is known: a journal that lost its end goes on later.
bool Precedes(const EvolutionAlgorithm& before, uint64_t generation) {
  return before.summary().generation + 1 == generation;
}

// A member of the population that the last of `records` played: a function of the state before it.
Result<FoundIndividual> FindMember(const RebuiltRun& rebuilt, const Path& run, uint64_t number,
                                   std::span<const GenerationRecord> records,
                                   const FoundGeneration& found) {
  const uint64_t generation = found.summary.generation;
  ASSIGN_OR_RETURN(const auto algorithm, rebuilt.At(records.first(records.size() - 1)));
  const uint64_t members = Members(*algorithm, records.back());
  if (!Precedes(*algorithm, generation))
    return Status(Code::kBadData,
                  fmt::format("--individual {}: generation {} of {} was lost with the end of its "
                              "journal, so that the members of generation {} cannot be rebuilt",
                              number, generation - 1, run.string(), generation));
  if (members == 0)
    return Status(Code::kUsage,
                  fmt::format("--individual {}: generation {} of {} has no numbered individuals; "
                              "'samara inspect {} --generation {}' lists those it has",
                              number, generation, run.string(), run.string(), generation));
  if (number >= members)
    return Status(Code::kUsage,
                  fmt::format("--individual {}: expected 0 to {}, generation {} of "
                              "{} has {} individuals",
                              number, members - 1, generation, run.string(), members));
  return FoundIndividual{algorithm->MemberOfNext(number),
                         fmt::format("individual {} of generation {}", number, generation),
                         found.reference};
}

}  // namespace

Result<std::unique_ptr<RebuiltRun>> RebuiltRun::Open(const Path& run) {
  ASSIGN_OR_RETURN(const auto folder, RunFolder::Open(run, RunFolder::Mode::kRead));
  std::unique_ptr<RebuiltRun> rebuilt(new RebuiltRun);
  ExperimentConfig& config = rebuilt->config_;
  config.ChooseAlgorithm(folder->config_toml());
  ConfigTable table = config.Table();
  RETURN_IF_ERROR(
      table.ParseToml(folder->config_toml(), "config.toml", ConfigTable::Origin::kRecorded)
          .Annotate(run.string()));
  if (config.Learns())
    return Status(Code::kConfig, run.string() +
                                     ": learns by gradients; expected a run of an "
                                     "evolution");
  ASSIGN_OR_RETURN(rebuilt->network_, NetworkOf(*folder));
  ASSIGN_OR_RETURN(rebuilt->initial_, InitialPolicyOf(*folder, rebuilt->network_));
  ASSIGN_OR_RETURN(EnvironmentSpec spec, SpecOf(run, config));
  rebuilt->nothing_ = std::make_unique<NoEvaluator>(std::move(spec));
  return rebuilt;
}

Result<std::unique_ptr<EvolutionAlgorithm>> RebuiltRun::At(
    std::span<const GenerationRecord> generations) const {
  auto algorithm = config_.evolution->Make(
      {static_cast<uint64_t>(config_.run.seed), network_, *nothing_, {}, initial()});
  if (generations.empty()) return algorithm;
  std::string archive;
  for (const GenerationRecord& record : generations) archive += record.archive;
  RETURN_IF_ERROR(algorithm->RestoreArchive(archive));
  RETURN_IF_ERROR(algorithm->RestoreState(generations.back().state));
  return algorithm;
}

Result<uint64_t> RebuiltRun::MembersOfLast(std::span<const GenerationRecord> generations) const {
  ASSIGN_OR_RETURN(const auto before, At(generations.first(generations.size() - 1)));
  ASSIGN_OR_RETURN(const EvolutionSummary last, generations.back().Describe());
  return Precedes(*before, last.generation) ? Members(*before, generations.back()) : 0;
}

Result<FoundIndividual> FindIndividual(const Path& run, const std::string& name,
                                       int64_t generation) {
  ASSIGN_OR_RETURN(FoundGeneration found, FindGeneration(run, generation));
  const std::string of = fmt::format(" of generation {}", found.summary.generation);
  if (name == "elite")
    return FoundIndividual{std::move(found.summary.best), name + of, std::move(found.reference)};
  ASSIGN_OR_RETURN(const auto rebuilt, RebuiltRun::Open(run));
  ASSIGN_OR_RETURN(const auto records,
                   ReadGenerations(run, static_cast<int64_t>(found.summary.generation)));
  if (const auto number = ParseNumber<uint64_t>(name))
    return FindMember(*rebuilt, run, *number, records, found);
  ASSIGN_OR_RETURN(const auto algorithm, rebuilt->At(records));
  std::vector<std::string> names = {"elite"};
  for (NamedCandidate& named : algorithm->Candidates()) {
    if (named.name == name)
      return FoundIndividual{std::move(named.candidate), name + of, std::move(found.reference)};
    if (named.name != "elite") names.push_back(named.name);
  }
  ASSIGN_OR_RETURN(const uint64_t members, rebuilt->MembersOfLast(records));
  if (members > 0) names.push_back(fmt::format("0 to {}", members - 1));
  constexpr size_t kNamesMax = 8;
  if (names.size() > kNamesMax) {
    names.erase(names.begin() + kNamesMax / 2, names.end() - kNamesMax / 2);
    names.insert(names.begin() + kNamesMax / 2, "...");
  }
  return Status(Code::kUsage, fmt::format("--individual {}: expected one of {} ('samara inspect "
                                          "{}' lists all)",
                                          Shown(name), fmt::join(names, ", "), run.string()));
}

}  // namespace samara
