// The bytes of a GaState, as journal records and checkpoints hold them.
#include <algorithm>
#include <cstring>

#include "core/bytes.h"
#include "evo/algorithms/ga.h"
#include "evo/algorithms/generation_phases.h"

namespace samara {
namespace {

constexpr uint64_t kParentsMax = 10'000'000;

}  // namespace

std::string GaState::Encode() const {
  ByteWriter out;
  const bool safe = std::ranges::any_of(parents, [](const Parent& p) { return p.episode != 0; }) ||
                    (elite && elite->episode != 0);
  const auto put = [&](const Parent& p) {
    out.PutBytes(p.genome.Encode()).Put(p.fitness).Put(p.frames);
    if (safe) out.Put(p.episode);
  };
  out.Put(safe ? kVersion : kPlainVersion);
  PutCounters(out, *this);
  out.Put(uint64_t{parents.size()});
  for (const Parent& parent : parents) put(parent);
  out.Put(uint8_t{elite.has_value()});
  if (elite) put(*elite);
  if (safe) out.PutVector(elite_parameters);
  out.Put(population_hash);
  return out.Take();
}

Result<GaState> GaState::Decode(std::string_view bytes) {
  const Status damaged(Code::kBadData, "the recorded state of the evolution is damaged");
  ByteReader in(bytes);
  GaState s;
  const auto version = in.Get<uint32_t>();
  if (in.ok() && (version < 1 || version > kVersion)) {
    return Status(Code::kBadData, "state version " + std::to_string(version) + ", expected " +
                                      std::to_string(kVersion) + ": use the build that wrote it");
  }
  const auto get = [&in, version]() -> Result<Parent> {
    Parent p;
    ASSIGN_OR_RETURN(p.genome, Genome::Decode(in.GetBytes()));
    p.fitness = in.Get<double>();
    if (version > 1) p.frames = in.Get<double>();
    if (version == kVersion) p.episode = in.Get<uint64_t>();
    return p;
  };
  static_cast<EvolutionCounters&>(s) = GetCounters(in);
  const auto parents = in.Get<uint64_t>();
  if (!in.ok() || parents > kParentsMax) return damaged;
  for (uint64_t i = 0; i < parents && in.ok(); ++i) {
    ASSIGN_OR_RETURN(Parent parent, get());
    s.parents.push_back(std::move(parent));
  }
  const auto has_elite = in.Get<uint8_t>();
  if (has_elite > 1) return damaged;
  if (has_elite == 1) {
    ASSIGN_OR_RETURN(s.elite, get());
  }
  if (version == kVersion) {
    if (!in.GetVector(s.elite_parameters)) return damaged;
  }
  s.population_hash = in.Get<Digest>();
  if (!in.AtEnd() || (s.elite && s.elite->genome.plain() != s.elite_parameters.empty()))
    return damaged;
  return s;
}

EvolutionSummary GaState::Summary() const {
  EvolutionSummary summary{EvolutionCounters(*this), population_hash, {}, 0};
  if (!elite) return summary;
  summary.best_mean = elite->fitness;
  if (elite_parameters.empty())
    summary.best = elite->genome;
  else
    summary.best = elite_parameters;
  return summary;
}

Result<EvolutionSummary> DescribeGa(std::string_view state) {
  ASSIGN_OR_RETURN(const GaState s, GaState::Decode(state));
  return s.Summary();
}

}  // namespace samara
