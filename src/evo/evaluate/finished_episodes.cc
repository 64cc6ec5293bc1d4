#include "evo/evaluate/finished_episodes.h"

#include "core/bytes.h"

namespace samara {
namespace {

constexpr uint32_t kEpisodesVersion = 1;

}  // namespace

std::string FinishedEpisodes::Encode() const {
  ByteWriter out;
  out.Put(kEpisodesVersion).Put(generation).Put(phase).Put(uint64_t{results.size()});
  for (const auto& [index, r] : results) {
    out.Put(index).Put(r.fitness).Put(r.frames).Put(r.steps).Put(uint8_t{r.truncated});
  }
  return out.Take();
}

Result<FinishedEpisodes> FinishedEpisodes::Decode(std::string_view bytes) {
  const Status damaged(Code::kBadData, "a record of finished episodes is damaged");
  ByteReader in(bytes);
  FinishedEpisodes f;
  if (in.Get<uint32_t>() != kEpisodesVersion) return damaged;
  f.generation = in.Get<uint64_t>();
  const auto phase = in.Get<uint8_t>();
  if (phase == 2) return Status(Code::kBadData, "validation episodes of an older build");
  if (phase < 1 || phase > 4) return damaged;
  f.phase = static_cast<Phase>(phase);
  const auto count = in.Get<uint64_t>();
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    const auto index = in.Get<uint32_t>();
    EpisodeResult r;
    r.fitness = in.Get<double>();
    r.frames = in.Get<uint64_t>();
    r.steps = in.Get<uint32_t>();
    const auto truncated = in.Get<uint8_t>();
    if (truncated > 1) return damaged;
    r.truncated = truncated == 1;
    r.done = true;
    f.results[index] = r;
  }
  if (!in.AtEnd() || f.results.size() != count) return damaged;
  return f;
}

}  // namespace samara
