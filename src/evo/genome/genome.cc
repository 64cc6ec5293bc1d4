// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "evo/genome/genome.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/bytes.h"
#include "evo/genome/noise.h"

namespace samara {
namespace {

constexpr uint8_t kPlainVersion = 1, kVersion = 2;
constexpr size_t MutationBytes(uint8_t version) { return version == kPlainVersion ? 12 : 36; }

Status Bad(const std::string& what) { return {Code::kBadData, "genome: " + what}; }

struct Header {
  uint8_t version, noise, init, reserved;
  uint32_t mutations;
  uint64_t initial;
};

Result<Header> ReadHeader(ByteReader& reader, size_t bytes) {
  const auto header = reader.Get<Header>();
  if (!reader.ok()) return Bad(std::to_string(bytes) + " bytes, expected at least 16");
  const auto [version, noise, init, reserved, mutations, initial] = header;
  if (version != kPlainVersion && version != kVersion) {
    return Bad("version " + std::to_string(version) + ", this samara reads versions 1 and 2");
  }
  if (noise < 1 || noise > 3) return Bad("noise kind " + std::to_string(noise) + ", expected 1-3");
  if (init < 1 || init > static_cast<uint8_t>(kInitKindMax))
    return Bad("init kind " + std::to_string(init) + ", expected 1-7");
  if (reserved != 0) return Bad("byte 3 is " + std::to_string(reserved) + ", expected 0");
  const size_t expected = sizeof(Header) + MutationBytes(version) * size_t{mutations};
  if (bytes != expected) {
    return Bad(std::to_string(bytes) + " bytes, its header says " + std::to_string(expected));
  }
  return header;
}

Status CheckKey(uint64_t key, size_t parameter_count, const std::string& name) {
  if (parameter_count <= kNoiseTableSize && key <= kNoiseTableSize - parameter_count) {
    return Status::Ok();
  }
  return Bad(name + " is " + std::to_string(key) + ", expected an index of the noise table with " +
             std::to_string(parameter_count) + " values after it, at most 250000000 - " +
             std::to_string(parameter_count));
}

// -0.0 is a power of its own: added to 0.0 it leaves another zero.
bool SameBits(const Mutation& a, const Mutation& b) {
  return a == b && std::bit_cast<uint32_t>(a.power) == std::bit_cast<uint32_t>(b.power);
}

Mutation GetMutation(ByteReader& reader, uint8_t version) {
  Mutation m;
  m.key = reader.Get<uint64_t>();
  if (version == kPlainVersion) {
    m.power = reader.Get<float>();
    return m;
  }
  m.episode = reader.Get<uint64_t>();
  m.experience = reader.Get<uint64_t>();
  m.power = reader.Get<float>();
  m.clip = reader.Get<float>();
  m.kind = static_cast<MutationKind>(std::min(reader.Get<uint32_t>(), 255U));
  return m;
}

}  // namespace

bool Genome::plain() const {
  return std::ranges::all_of(mutations, [](const Mutation& m) { return m.plain(); });
}

std::string Genome::Encode() const {
  static_assert(sizeof(Header) == 16);
  CHECK(mutations.size() <= UINT32_MAX);
  const uint8_t version = plain() ? kPlainVersion : kVersion;
  ByteWriter writer;
  writer.Put(Header{version, static_cast<uint8_t>(noise), static_cast<uint8_t>(init), 0,
                    static_cast<uint32_t>(mutations.size()), initial});
  for (const Mutation& m : mutations) {
    writer.Put(m.key);
    if (version != kPlainVersion) writer.Put(m.episode).Put(m.experience);
    writer.Put(m.power);
    if (version != kPlainVersion) writer.Put(m.clip).Put(static_cast<uint32_t>(m.kind));
  }
  return writer.Take();
}

Result<Genome> Genome::Decode(std::string_view bytes) {
  ByteReader reader(bytes);
  ASSIGN_OR_RETURN(const Header header, ReadHeader(reader, bytes.size()));
  Genome genome{.noise = static_cast<NoiseKind>(header.noise),
                .init = static_cast<InitKind>(header.init),
                .initial = header.initial,
                .mutations = {}};
  genome.mutations.reserve(header.mutations);
  for (uint32_t i = 0; i < header.mutations; ++i) {
    const Mutation mutation = GetMutation(reader, header.version);
    if (!std::isfinite(mutation.power) || !std::isfinite(mutation.clip)) {
      return Bad("mutation " + std::to_string(i) + " has no finite power");
    }
    if (mutation.kind > MutationKind::kSmGSo) {
      return Bad("mutation " + std::to_string(i) + " is of kind " +
                 std::to_string(static_cast<int>(mutation.kind)) + ", expected 0-5");
    }
    genome.mutations.push_back(mutation);
  }
  if (genome.plain() != (header.version == kPlainVersion))
    return Bad("version 2 without a safe mutation");
  return genome;
}

bool IsPrefix(const Genome& prefix, const Genome& genome) {
  return prefix.noise == genome.noise && prefix.init == genome.init &&
         prefix.initial == genome.initial && prefix.mutations.size() <= genome.mutations.size() &&
         std::equal(prefix.mutations.begin(), prefix.mutations.end(), genome.mutations.begin(),
                    SameBits);
}

void UpdateHash(Sha256& hash, const Genome& genome) { hash.Update(genome.Encode()); }

InitialPolicy MakeInitialPolicy(std::vector<float> parameters, std::optional<Genome> genome) {
  Sha256 hash;
  const Digest digest = hash.Update(std::as_bytes(std::span(parameters))).Finish();
  uint64_t key = 0;
  for (size_t i = sizeof(key); i-- > 0;) key = key << 8 | digest[i];
  return {std::move(parameters), key, std::move(genome)};
}

Status CheckKeys(const Genome& genome, size_t parameter_count, const InitialPolicy* initial) {
  if (genome.begins_from_policy()) {
    const bool here = initial != nullptr && initial->key == genome.initial &&
                      initial->parameters.size() == parameter_count;
    if (!here) return Bad("begins from a policy that is stored in its run's folder only");
  }
  if (genome.noise != NoiseKind::kTable) return Status::Ok();
  if (!genome.begins_from_policy())
    RETURN_IF_ERROR(CheckKey(genome.initial, parameter_count, "the initial index"));
  for (size_t i = 0; i < genome.mutations.size(); ++i) {
    RETURN_IF_ERROR(CheckKey(genome.mutations[i].key, parameter_count,
                             "the index of mutation " + std::to_string(i)));
  }
  return Status::Ok();
}

}  // namespace samara
