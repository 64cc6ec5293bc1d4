// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "evo/evaluate/experience.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/bytes.h"
#include "core/rng.h"
#include "core/sha256.h"

namespace samara {

uint64_t Experience::Hash() const {
  Sha256 hash;
  hash.UpdateU64(inputs.size());
  hash.Update(std::as_bytes(std::span(inputs)));
  hash.Update(std::as_bytes(std::span(begins)));
  const Digest digest = hash.Finish();
  uint64_t first = 0;
  std::memcpy(&first, &digest, sizeof first);
  return first;
}

std::string Experience::Encode() const {
  ByteWriter out;
  out.PutBytes({reinterpret_cast<const char*>(inputs.data()), inputs.size() * sizeof(float)});
  out.PutBytes({reinterpret_cast<const char*>(begins.data()), begins.size()});
  return out.Take();
}

Result<Experience> Experience::Decode(std::string_view bytes) {
  ByteReader in(bytes);
  const std::string_view floats = in.GetBytes(), begins = in.GetBytes();
  if (!in.AtEnd() || floats.size() % sizeof(float) != 0)
    return Status(Code::kBadData, "states of an episode are damaged");
  Experience experience;
  experience.inputs.resize(floats.size() / sizeof(float));
  if (!floats.empty()) std::memcpy(experience.inputs.data(), floats.data(), floats.size());
  experience.begins.assign(begins.begin(), begins.end());
  return experience;
}

void ExperienceRecorder::Start() {
  ring_.resize(kExperienceRing * input_);
  begins_.resize(kExperienceRing);
  seen_ = 0;
}

void ExperienceRecorder::See(const float* state, bool begins) {
  const size_t at = seen_++ % kExperienceRing;
  std::copy_n(state, input_, ring_.data() + at * input_);
  begins_[at] = begins ? 1 : 0;
}

Experience ExperienceRecorder::Draw(uint64_t key) const {
  const size_t held = std::min(seen_, kExperienceRing), count = std::min(held, kExperienceStates);
  const CounterRng rng(DeriveKey(key, Purpose::kSampleOrder));
  std::vector<size_t> chosen(held);  // by age, the oldest first
  std::iota(chosen.begin(), chosen.end(), size_t{0});
  if (held > count && recurrent_) {
    std::iota(chosen.begin(), chosen.end(), rng.UniformInt(0, held - count + 1));
  } else if (held > count) {
    for (size_t i = 0; i < count; ++i)
      std::swap(chosen[i], chosen[i + rng.UniformInt(i, held - i)]);
  }
  chosen.resize(count);
  std::ranges::sort(chosen);

  Experience experience;
  experience.inputs.reserve(count * input_);
  for (const size_t age : chosen) {
    const size_t at = (seen_ - held + age) % kExperienceRing;
    const float* state = ring_.data() + at * input_;
    experience.inputs.insert(experience.inputs.end(), state, state + input_);
    if (recurrent_) experience.begins.push_back(experience.begins.empty() ? 1 : begins_[at]);
  }
  return experience;
}

}  // namespace samara
