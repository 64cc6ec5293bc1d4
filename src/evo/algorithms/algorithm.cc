#include "evo/algorithms/algorithm.h"

#include <fmt/format.h>

#include "evo/genome/decode.h"

namespace samara {

void EvolutionCounters::Count(std::span<const EpisodeResult> results) {
  for (const auto& r : results) frames += r.frames, steps += r.steps;
  episodes += results.size();
}

void GenerationReport::AddPopulation(std::span<const EpisodeResult> played, size_t episodes) {
  evaluations += played.size();
  for (size_t i = 0; i < played.size(); i += episodes)
    positions.insert(positions.end(), played[i].position.begin(), played[i].position.end());
}

Status EvolutionAlgorithm::RestoreArchive(std::string_view bytes) {
  if (bytes.empty()) return Status::Ok();
  return {Code::kBadData, "the recorded run has an archive that its algorithm does not know"};
}

Result<std::vector<float>> ParametersOf(const Candidate& candidate,
                                        const NetworkDescription& network,
                                        const InitialPolicy* initial) {
  std::vector<float> parameters(network.parameter_count);
  if (const auto* genome = std::get_if<Genome>(&candidate)) {
    if (!genome->plain())
      return Status(Code::kBadData,
                    "a genome with safe mutations, whose parameters depend on what its ancestors "
                    "saw; expected its parameters next to it");
    RETURN_IF_ERROR(CheckKeys(*genome, parameters.size(), initial));
    DecodeParameters(*genome, network, parameters, initial);
    return parameters;
  }
  const auto& given = std::get<std::vector<float>>(candidate);
  if (given.size() == parameters.size()) return given;
  return Status(Code::kBadData, fmt::format("{} parameters, expected {} for {}", given.size(),
                                            parameters.size(), network.name));
}

std::vector<NamedCandidate> EvolutionAlgorithm::Candidates() const {
  EvolutionSummary s = summary();
  return {{"elite", std::move(s.best), s.best_mean}};
}

std::vector<float> EvolutionAlgorithm::FirstParameters(InitKind init) const {
  if (initial_ != nullptr) return initial_->parameters;
  Genome fresh;
  fresh.init = init;
  fresh.initial = player_.Key(Purpose::kInitialGenome, 0);
  std::vector<float> parameters(network_.parameter_count);
  InitialParameters(fresh, network_, parameters);
  return parameters;
}

std::vector<float> EvolutionAlgorithm::ZeroParameters() const {
  std::vector<float> parameters = FirstParameters();
  if (initial_ == nullptr)
    std::fill_n(parameters.begin(), static_cast<ptrdiff_t>(network_.evolved_count), 0.0F);
  return parameters;
}

Result<std::vector<EpisodeResult>> EvolutionAlgorithm::PlayBest(Purpose purpose, size_t episodes,
                                                                const StopToken& stop) {
  ASSIGN_OR_RETURN(const std::vector<float> parameters,
                   ParametersOf(summary().best, network_, initial_));
  return player_.Play(FixedParameters(parameters), purpose, episodes, stop);
}

bool EvolutionBudget::Spent(const EvolutionCounters& counters) const {
  const auto reached = [](uint64_t value, int64_t budget) {
    return budget > 0 && value >= static_cast<uint64_t>(budget);
  };
  return reached(counters.generation, generations) || reached(counters.frames, frames) ||
         reached(counters.episodes, evaluations);
}

size_t EvolutionBudget::TestEpisodes(uint64_t generation) const {
  const bool due = test_every > 0 && generation % static_cast<uint64_t>(test_every) == 0;
  return due ? static_cast<size_t>(test_episodes) : 0;
}

Status CheckStateBytes(const NetworkDescription& network, double floats, std::string_view smaller) {
  const double bytes = sizeof(float) * floats * static_cast<double>(network.parameter_count);
  if (bytes <= kStateBytesMax) return Status::Ok();
  return {Code::kConfig,
          fmt::format(
              "{}: {} parameters, of which each generation records up to {:.0f} MB; expected at "
              "most {:.0f} MB, so a smaller network{}",
              network.name, network.parameter_count, bytes / 1e6, kStateBytesMax / 1e6, smaller)};
}

Status CheckEpisodes(double episodes, std::string_view keys) {
  if (episodes < 4e9) return Status::Ok();
  return {Code::kConfig, fmt::format("{}: numbers of episodes up to {:.3g}, at most 4e9; lower one "
                                     "of them",
                                     keys, episodes)};
}

void BindTest(ConfigTable& table, const std::string& name, EvolutionBudget& budget) {
  table.Add(name + ".test_episodes", &budget.test_episodes, {0, 1'000'000}, "episodes",
            "test episodes of the elite, not counted in frames");
  table.Add(name + ".test_every", &budget.test_every, {0, 1'000'000}, "generations",
            "generations between tests; 0 = only at the end");
}

void BindBudget(ConfigTable& table, const std::string& name, EvolutionBudget& budget) {
  table.Add(name + ".generations", &budget.generations, {0, 1e9}, "generations",
            "budget; 0 = unlimited", OnResume::kMayGrow);
  table.Add(name + ".frames", &budget.frames, {0, 1e15}, "frames",
            "budget, population and validation; 0 = unlimited", OnResume::kMayGrow);
}

}  // namespace samara
