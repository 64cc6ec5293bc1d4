// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "evo/genome/genome_set.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "core/bytes.h"
#include "core/check.h"

namespace samara {
namespace {

constexpr uint8_t kSetVersion = 1;
constexpr uint32_t kNone = UINT32_MAX;
constexpr uint64_t kGenomesMax = 10'000'000;

// One ancestor: of the first generation (parent kNone, key its initial parameters), or a child of
// an earlier one.
struct Node {
  uint32_t parent;
  Mutation mutation;
};

void Put(ByteWriter& out, const Node& node) {
  const Mutation& m = node.mutation;
  out.Put(node.parent).Put(m.key).Put(m.power).Put(m.kind);
  if (!m.plain()) out.Put(m.clip).Put(m.episode).Put(m.experience);
}

Node Get(ByteReader& in) {
  Node node{in.Get<uint32_t>(), {}};
  Mutation& m = node.mutation;
  m.key = in.Get<uint64_t>();
  m.power = in.Get<float>();
  m.kind = in.Get<MutationKind>();
  if (m.plain()) return node;
  m.clip = in.Get<float>();
  m.episode = in.Get<uint64_t>();
  m.experience = in.Get<uint64_t>();
  return node;
}

}  // namespace

// version (u8), noise (u8), init (u8), nodes (u32), the nodes, genomes (u32), the node of each
std::string EncodeGenomes(std::span<const Genome> genomes) {
  std::map<std::tuple<uint32_t, uint64_t, float, MutationKind, float, uint64_t, uint64_t>, uint32_t>
      known;
  std::vector<Node> nodes;
  std::vector<uint32_t> ends;
  const auto find = [&](uint32_t parent, const Mutation& m) {
    const auto [at, is_new] =
        known.try_emplace({parent, m.key, m.power, m.kind, m.clip, m.episode, m.experience},
                          static_cast<uint32_t>(nodes.size()));
    if (is_new) nodes.push_back({parent, m});
    return at->second;
  };
  for (const Genome& genome : genomes) {
    CHECK(genome.noise == genomes[0].noise && genome.init == genomes[0].init);
    uint32_t at = find(kNone, {.key = genome.initial, .power = 0});
    for (const Mutation& m : genome.mutations) at = find(at, m);
    ends.push_back(at);
  }
  const Genome first = genomes.empty() ? Genome() : genomes[0];
  ByteWriter out;
  out.Put(kSetVersion).Put(first.noise).Put(first.init).Put(static_cast<uint32_t>(nodes.size()));
  for (const Node& node : nodes) Put(out, node);
  out.Put(static_cast<uint32_t>(ends.size()));
  for (const uint32_t end : ends) out.Put(end);
  return out.Take();
}

Result<std::vector<Genome>> DecodeGenomes(std::string_view bytes) {
  const Status damaged(Code::kBadData, "a recorded population is damaged");
  ByteReader in(bytes);
  if (in.Get<uint8_t>() != kSetVersion) return damaged;
  Genome empty;
  empty.noise = in.Get<NoiseKind>();
  empty.init = in.Get<InitKind>();
  const bool known = empty.noise >= NoiseKind::kNormal && empty.noise <= NoiseKind::kTable &&
                     empty.init >= InitKind::kFanIn && empty.init <= kInitKindMax;
  if (!in.ok() || !known) return damaged;
  std::vector<Node> nodes;
  for (auto left = in.Get<uint32_t>(); left > 0 && in.ok(); --left) {
    nodes.push_back(Get(in));
    const Node& node = nodes.back();
    if (node.parent != kNone && node.parent + 1 >= nodes.size()) return damaged;
    if (!std::isfinite(node.mutation.power) || !std::isfinite(node.mutation.clip) ||
        node.mutation.kind > MutationKind::kSmGSo)
      return damaged;
  }
  const auto count = in.Get<uint32_t>();
  if (!in.ok() || count > kGenomesMax) return damaged;
  std::vector<Genome> genomes;
  for (uint32_t i = 0; i < count && in.ok(); ++i) {
    Genome genome = empty;
    auto at = in.Get<uint32_t>();
    if (at >= nodes.size()) return damaged;
    for (; nodes[at].parent != kNone; at = nodes[at].parent)
      genome.mutations.push_back(nodes[at].mutation);
    std::reverse(genome.mutations.begin(), genome.mutations.end());
    genome.initial = nodes[at].mutation.key;
    genomes.push_back(std::move(genome));
  }
  if (!in.AtEnd()) return damaged;
  return genomes;
}

}  // namespace samara
