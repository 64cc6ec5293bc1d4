// The bytes of a GaState, as journal records and checkpoints hold them.
#include "core/bytes.h"
#include "evo/ga.h"

namespace samara {
namespace {

constexpr uint32_t kVersion = 2;  // 1: without the lengths of episodes, which are unknown then
constexpr uint64_t kParentsMax = 10'000'000;

}  // namespace

std::string GaState::Encode() const {
  ByteWriter out;
  out.Put(kVersion).Put(generation).Put(frames).Put(frames_test).Put(steps).Put(episodes);
  out.Put(uint64_t{parents.size()});
  for (size_t i = 0; i < parents.size(); ++i)
    out.PutBytes(parents[i].Encode()).Put(parent_fitness[i]).Put(parent_frames[i]);
  out.Put(uint8_t{has_elite});
  if (has_elite) out.PutBytes(elite.Encode()).Put(elite_mean).Put(elite_frames);
  out.Put(population_hash);
  return out.Take();
}

Result<GaState> GaState::Decode(std::string_view bytes) {
  const Status damaged(Code::kBadData, "the recorded state of the evolution is damaged");
  ByteReader in(bytes);
  GaState s;
  const auto version = in.Get<uint32_t>();
  if (in.ok() && version != kVersion && version != 1) {
    return Status(Code::kBadData, "state version " + std::to_string(version) + ", expected " +
                                      std::to_string(kVersion) + ": use the build that wrote it");
  }
  s.generation = in.Get<uint64_t>();
  s.frames = in.Get<uint64_t>();
  s.frames_test = in.Get<uint64_t>();
  s.steps = in.Get<uint64_t>();
  s.episodes = in.Get<uint64_t>();
  const auto parents = in.Get<uint64_t>();
  if (!in.ok() || parents > kParentsMax) return damaged;
  for (uint64_t i = 0; i < parents && in.ok(); ++i) {
    ASSIGN_OR_RETURN(Genome genome, Genome::Decode(in.GetBytes()));
    s.parents.push_back(std::move(genome));
    s.parent_fitness.push_back(in.Get<double>());
    s.parent_frames.push_back(version > 1 ? in.Get<double>() : 0);
  }
  const auto has_elite = in.Get<uint8_t>();
  if (has_elite > 1) return damaged;
  s.has_elite = has_elite == 1;
  if (s.has_elite) {
    ASSIGN_OR_RETURN(s.elite, Genome::Decode(in.GetBytes()));
    s.elite_mean = in.Get<double>();
    if (version > 1) s.elite_frames = in.Get<double>();
  }
  s.population_hash = in.Get<Digest>();
  if (!in.AtEnd()) return damaged;
  return s;
}

}  // namespace samara
