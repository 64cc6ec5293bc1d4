#include "evo/evaluate/finished_episodes.h"

#include "core/bytes.h"

namespace samara {
namespace {

constexpr uint32_t kEpisodesVersion = 2;  // 1: without what an episode records
enum Parts : uint8_t {
  kTruncated = 1,
  kPosition = 2,
  kRecording = 4,
  kNovelty = 8,
  kAllParts = 15
};

}  // namespace

std::string FinishedEpisodes::Encode() const {
  ByteWriter out;
  out.Put(kEpisodesVersion).Put(generation).Put(phase).Put(uint64_t{results.size()});
  for (const auto& [index, r] : results) {
    const int parts = (r.truncated ? kTruncated : 0) | (r.position.empty() ? 0 : kPosition) |
                      (r.recording.empty() ? 0 : kRecording) | (r.novelty == 0 ? 0 : kNovelty);
    out.Put(index).Put(r.fitness).Put(r.frames).Put(r.steps).Put(static_cast<uint8_t>(parts));
    if ((parts & kPosition) != 0) out.PutVector(r.position);
    if ((parts & kRecording) != 0) out.PutVector(r.recording);
    if ((parts & kNovelty) != 0) out.Put(r.novelty);
  }
  return out.Take();
}

Result<FinishedEpisodes> FinishedEpisodes::Decode(std::string_view bytes) {
  const Status damaged(Code::kBadData, "a record of finished episodes is damaged");
  ByteReader in(bytes);
  FinishedEpisodes f;
  const auto version = in.Get<uint32_t>();
  if (version < 1 || version > kEpisodesVersion) return damaged;
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
    const auto parts = in.Get<uint8_t>();
    if (parts > (version == 1 ? kTruncated : kAllParts)) return damaged;
    r.truncated = (parts & kTruncated) != 0;
    if ((parts & kPosition) != 0 && (!in.GetVector(r.position) || r.position.empty()))
      return damaged;
    if ((parts & kRecording) != 0 && (!in.GetVector(r.recording) || r.recording.empty()))
      return damaged;
    if ((parts & kNovelty) != 0) r.novelty = in.Get<double>();
    r.done = true;
    f.results[index] = std::move(r);
  }
  if (!in.AtEnd() || f.results.size() != count) return damaged;
  return f;
}

}  // namespace samara
