// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "evo/genome.h"

#include <bit>
#include <cmath>

#include "evo/noise.h"

namespace samara {
namespace {

constexpr size_t kHeaderBytes = 16, kMutationBytes = 12;
constexpr uint8_t kVersion = 1;

template <typename T>
void Put(std::string& bytes, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>(value >> (8 * i));
}

// REQUIRES: the bytes are there.
template <typename T>
T Get(std::string_view bytes, size_t at) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(T{static_cast<uint8_t>(bytes[at + i])} << (8 * i));
  }
  return value;
}

Status Bad(const std::string& what) { return {Code::kBadData, "genome: " + what}; }

Status CheckHeader(std::string_view bytes) {
  if (bytes.size() < kHeaderBytes) {
    return Bad(std::to_string(bytes.size()) + " bytes, expected at least 16");
  }
  const auto version = Get<uint8_t>(bytes, 0), noise = Get<uint8_t>(bytes, 1);
  const auto init = Get<uint8_t>(bytes, 2), reserved = Get<uint8_t>(bytes, 3);
  if (version != kVersion) {
    return Bad("version " + std::to_string(version) + ", this samara reads version 1");
  }
  if (noise < 1 || noise > 3) return Bad("noise kind " + std::to_string(noise) + ", expected 1-3");
  if (init < 1 || init > 2) return Bad("init kind " + std::to_string(init) + ", expected 1 or 2");
  if (reserved != 0) return Bad("byte 3 is " + std::to_string(reserved) + ", expected 0");
  const size_t expected = kHeaderBytes + kMutationBytes * size_t{Get<uint32_t>(bytes, 4)};
  if (bytes.size() != expected) {
    return Bad(std::to_string(bytes.size()) + " bytes, its header says " +
               std::to_string(expected));
  }
  return Status::Ok();
}

Status CheckKey(uint64_t key, size_t parameter_count, const std::string& name) {
  if (parameter_count <= kNoiseTableSize && key <= kNoiseTableSize - parameter_count) {
    return Status::Ok();
  }
  return Bad(name + " is " + std::to_string(key) + ", expected an index of the noise table with " +
             std::to_string(parameter_count) + " values after it, at most 250000000 - " +
             std::to_string(parameter_count));
}

}  // namespace

std::string Genome::Encode() const {
  CHECK(mutations.size() <= UINT32_MAX);
  std::string bytes;
  bytes.reserve(kHeaderBytes + kMutationBytes * mutations.size());
  Put(bytes, kVersion);
  Put(bytes, static_cast<uint8_t>(noise));
  Put(bytes, static_cast<uint8_t>(init));
  Put(bytes, uint8_t{0});
  Put(bytes, static_cast<uint32_t>(mutations.size()));
  Put(bytes, initial);
  for (const Mutation& mutation : mutations) {
    Put(bytes, mutation.key);
    Put(bytes, std::bit_cast<uint32_t>(mutation.power));
  }
  return bytes;
}

Result<Genome> Genome::Decode(std::string_view bytes) {
  RETURN_IF_ERROR(CheckHeader(bytes));
  Genome genome{.noise = static_cast<NoiseKind>(bytes[1]),
                .init = static_cast<InitKind>(bytes[2]),
                .initial = Get<uint64_t>(bytes, 8),
                .mutations = {}};
  genome.mutations.reserve(Get<uint32_t>(bytes, 4));
  for (size_t at = kHeaderBytes; at < bytes.size(); at += kMutationBytes) {
    const auto power = std::bit_cast<float>(Get<uint32_t>(bytes, at + 8));
    if (!std::isfinite(power)) {
      return Bad("mutation " + std::to_string(genome.mutations.size()) + " has no finite power");
    }
    genome.mutations.push_back({Get<uint64_t>(bytes, at), power});
  }
  return genome;
}

void UpdateHash(Sha256& hash, const Genome& genome) { hash.Update(genome.Encode()); }

Status CheckKeys(const Genome& genome, size_t parameter_count) {
  if (genome.noise != NoiseKind::kTable) return Status::Ok();
  RETURN_IF_ERROR(CheckKey(genome.initial, parameter_count, "the initial index"));
  for (size_t i = 0; i < genome.mutations.size(); ++i) {
    RETURN_IF_ERROR(CheckKey(genome.mutations[i].key, parameter_count,
                             "the index of mutation " + std::to_string(i)));
  }
  return Status::Ok();
}

}  // namespace samara
