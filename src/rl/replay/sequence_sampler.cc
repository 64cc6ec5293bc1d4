#include "rl/replay/sequence_sampler.h"

#include "core/bytes.h"
#include "core/check.h"

namespace samara {

void SequenceSampler::Draw(const CounterRng& rng, size_t n, double all, double share) {
  drawn_.clear(), weights_.clear(), steps_.clear(), unrolls_.resize(n);
  for (size_t i = 0; i < n; ++i) {
    const Priorities::Drawn drawn = priorities_.Draw(rng, i, replay_.size(), all, share);
    drawn_.push_back(replay_.NumberAt(drawn.item));
    weights_.push_back(drawn.weight);
    steps_.push_back(replay_.Read(drawn_.back(), unrolls_[i]));
  }
}

std::vector<const Unroll*> SequenceSampler::unrolls() const {
  std::vector<const Unroll*> all;
  for (const Unroll& unroll : unrolls_) all.push_back(&unroll);
  return all;
}

void SequenceSampler::SetPriorities(std::span<const double> priorities) {
  CHECK_EQ(priorities.size(), drawn_.size());
  for (size_t i = 0; i < drawn_.size(); ++i)
    if (replay_.Has(drawn_[i])) priorities_.Set(replay_.PlaceOf(drawn_[i]), priorities[i]);
}

std::string SequenceSampler::Save() const {
  ByteWriter out;
  out.PutBytes(replay_.Save()).PutBytes(priorities_.Save(replay_.size()));
  return out.Take();
}

Status SequenceSampler::Restore(std::string_view saved, const PartSource& part) {
  ByteReader in(saved);
  const std::string_view sequences = in.GetBytes(), priorities = in.GetBytes();
  if (!in.AtEnd()) return {Code::kBadData, "the saved replay is damaged"};
  RETURN_IF_ERROR(replay_.Restore(sequences, part));
  return priorities_.Restore(priorities, replay_.size());
}

}  // namespace samara
