#include "play/lineage.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "play/rebuilt_run.h"
#include "storage/evolution_journal.h"

namespace samara {
namespace {

double Norm(std::span<const float> a, std::span<const float> b = {}) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - (b.empty() ? 0.0 : static_cast<double>(b[i]));
    sum += d * d;
  }
  return std::sqrt(sum);
}

// Reads a run's generations in order; `visit` gets the algorithm before and after each.
using Visit = std::function<Status(const EvolutionAlgorithm& before,
                                   const EvolutionAlgorithm& after, const GenerationRecord&)>;
Status ForEachGeneration(const RebuiltRun& run, std::span<const GenerationRecord> records,
                         const Visit& visit) {
  ASSIGN_OR_RETURN(auto before, run.At({}));
  for (size_t i = 0; i < records.size(); ++i) {
    ASSIGN_OR_RETURN(auto after, run.At(records.first(i + 1)));
    RETURN_IF_ERROR(visit(*before, *after, records[i]));
    before = std::move(after);
  }
  return Status::Ok();
}

// The ancestors of one genome, found in the order of generations.
class GenomeLineage {
 public:
  explicit GenomeLineage(Genome elite) : elite_(std::move(elite)) {}

  // Adds the start of the run.
  void Begin(const EvolutionAlgorithm& algorithm) {
    for (const ScoredGenome& scored : algorithm.Genomes()) Note(scored.genome, {.generation = 0});
  }

  Status Visit(const EvolutionAlgorithm& before, const EvolutionAlgorithm& after,
               const GenerationRecord& record) {
    numbered_ = numbered_ || before.MembersOfNext() > 0;
    const EvolutionSummary summary = after.summary();
    for (const auto& [genome, fitness] : after.Genomes()) {
      if (!IsNew(genome)) continue;
      Ancestor found;
      found.generation = summary.generation, found.frames = summary.frames;
      found.fitness = fitness;
      if (const uint64_t previous = before.summary().generation; previous + 1 != summary.generation)
        return {Code::kBadData, fmt::format("generations {} to {} were lost with the end of the "
                                            "journal, so that ancestors cannot be rebuilt",
                                            previous + 1, summary.generation - 1)};
      found.individual = Find(before, genome);
      if (!found.individual && before.MembersOfNext() > 0)
        return {Code::kBadData,
                fmt::format("generation {}: its population, rebuilt from seeds, lacks the elite's "
                            "ancestor with {} mutations: the journal is another run's",
                            summary.generation, genome.mutations.size())};
      if (found.individual && *found.individual < record.fitness.size())
        found.fitness = record.fitness[*found.individual];
      Note(genome, found);
    }
    return Status::Ok();
  }

  // Oldest first, one of each length from the first parameters or the policy that the run began
  // from.
  Result<std::vector<Ancestor>> Take() const {
    std::vector<Ancestor> ancestors;
    const bool given = !by_length_.empty() && by_length_.begin()->second.generation == 0;
    const size_t last = elite_.mutations.size();
    for (size_t length = given ? by_length_.begin()->first : 0; length <= last; ++length) {
      if (const auto found = by_length_.find(length); found != by_length_.end())
        ancestors.push_back(found->second);
      else if (numbered_ || length == last)
        return Missing(length);
      else
        ancestors.push_back(WithSeeds({}, length));
    }
    return ancestors;
  }

 private:
  static Status Missing(size_t mutations) {
    return {Code::kBadData,
            fmt::format("the journal lacks the elite's ancestor with {} mutations", mutations)};
  }
  bool IsNew(const Genome& genome) const {
    return IsPrefix(genome, elite_) && !by_length_.contains(genome.mutations.size());
  }
  static std::optional<uint64_t> Find(const EvolutionAlgorithm& before, const Genome& genome) {
    for (uint64_t i = 0; i < before.MembersOfNext(); ++i)
      if (const Candidate member = before.MemberOfNext(i); member == Candidate(genome)) return i;
    return std::nullopt;
  }
  void Note(const Genome& genome, Ancestor ancestor) {
    if (!IsNew(genome)) return;
    by_length_[genome.mutations.size()] = WithSeeds(ancestor, genome.mutations.size());
  }
  // The ancestor with the first `length` mutations of the elite.
  Ancestor WithSeeds(Ancestor ancestor, size_t length) const {
    const Mutation* last = length == 0 ? nullptr : &elite_.mutations[length - 1];
    ancestor.mutations = length;
    ancestor.key = last == nullptr ? elite_.initial : last->key;
    ancestor.power = last == nullptr ? 0 : last->power;
    return ancestor;
  }

  const Genome elite_;
  bool numbered_ = false;
  std::map<size_t, Ancestor> by_length_;
};

Status ReadCentres(const RebuiltRun& run, std::span<const GenerationRecord> records,
                   Lineage& lineage) {
  std::vector<float> first, last;
  const auto note = [&](PastCentre centre, const Candidate& best) -> Status {
    ASSIGN_OR_RETURN(const auto parameters, ParametersOf(best, run.network(), run.initial()));
    centre.length = Norm(parameters);
    if (first.empty()) first = last = parameters;
    const bool follows =
        lineage.centres.empty() || lineage.centres.back().generation + 1 == centre.generation;
    if (follows) centre.step = Norm(parameters, last);
    centre.distance = Norm(parameters, first);
    last = parameters;
    lineage.centres.push_back(centre);
    return Status::Ok();
  };
  ASSIGN_OR_RETURN(const auto begin, run.At({}));
  for (const NamedCandidate& named : begin->Candidates()) {
    RETURN_IF_ERROR(note({}, named.candidate));
    break;  // the best
  }
  return ForEachGeneration(run, records, [&](const auto&, const auto& after, const auto&) {
    const EvolutionSummary s = after.summary();
    return note({.generation = s.generation, .frames = s.frames, .mean = s.best_mean}, s.best);
  });
}

}  // namespace

Result<Lineage> ReadLineage(const Path& path, int64_t generation) {
  ASSIGN_OR_RETURN(const std::vector<GenerationRecord> records, ReadGenerations(path, generation));
  ASSIGN_OR_RETURN(const auto run, RebuiltRun::Open(path));
  ASSIGN_OR_RETURN(const EvolutionSummary last, records.back().Describe());
  Lineage lineage{.algorithm = records.back().algorithm,
                  .generation = last.generation,
                  .best_mean = last.best_mean,
                  .ancestors = {},
                  .centres = {}};
  ASSIGN_OR_RETURN(const auto end, run->At(records));
  const std::vector<ScoredGenome> genomes = end->Genomes();
  if (genomes.empty()) {
    RETURN_IF_ERROR(ReadCentres(*run, records, lineage).Annotate(path.string()));
    return lineage;
  }
  GenomeLineage ancestors(genomes.front().genome);
  ASSIGN_OR_RETURN(const auto begin, run->At({}));
  ancestors.Begin(*begin);
  RETURN_IF_ERROR(ForEachGeneration(*run, records,
                                    [&](const auto& before, const auto& after, const auto& record) {
                                      return ancestors.Visit(before, after, record);
                                    })
                      .Annotate(path.string()));
  auto found = ancestors.Take();
  if (!found.ok()) return found.status().Annotate(path.string());
  lineage.ancestors = *std::move(found);
  return lineage;
}

}  // namespace samara
