// Safe mutations (Lehman, Chen, Clune and Stanley 2018, arXiv 1712.06563): noise scaled by what it
// does to the outputs of the network at states that the parent saw.
//
//   delta = power e(key), X the states, n of them, f_k(x) output k, J_x = df(x)/dw
//
//   plain          child = parent + delta
//   sm_r           child = parent + c delta/|delta|, where mean_x |f(x; child) - f(x; parent)|^2 =
//                  power; c > 0 is found by at most 15 evaluations on X
//   sm_g_sum       s_w = sqrt(sum_k (1/n sum_x J_x[k, w])^2)      (legacy_sum: without 1/n)
//   sm_g_abs       s_w = sqrt(sum_k (1/n sum_x |J_x[k, w]|)^2)
//   sm_g_so        s_w = sqrt(|(H v)_w|), v = delta/|delta|, H the second derivatives at the parent
//                  of mean_x |f(x) - f_parent(x)|^2. There the residual is 0, so H v = 2/n sum_x
//                  J_x^T (J_x v)
//   the last three: s = 1 where it is 0, then at least 0.01; child = parent + delta / s, each
//                  component of that clipped to [-clip, clip]
//
// Bits: fixed by (network, noise, mutation, parent, states); float32 except for sums over all
// parameters or states, which are float64 in index order. Thread safety: functions are pure.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/config.h"
#include "evo/evaluate/experience.h"
#include "evo/evaluate/generation_player.h"
#include "evo/genome/genome.h"
#include "nn/network.h"

namespace samara {

// Settings of mutations other than their size.
struct MutationRule {
  MutationKind kind = MutationKind::kPlain;
  double clip = 0;
  bool legacy_sum = false;
  // Adds the rows TABLE.mutation, TABLE.mutation_clip and TABLE.legacy_sum.
  void Bind(ConfigTable& table, const std::string& name);
  bool safe() const { return kind != MutationKind::kPlain; }
  // One line for each key of TABLE that has a value and that this kind of mutation does not use.
  std::vector<std::string> Unused(const std::string& name) const;
  // kConfig where safe mutations are asked for and what episodes see does not come back.
  Status Check(bool records) const;
  // kConfig where the derivatives of `network` are not known.
  Status Check(const NetworkDescription& network) const;
  // Makes `mutation` one of this rule, with states of this hash from the parent's episode.
  void Describe(uint64_t episode, uint64_t experience_hash, Mutation& mutation) const;
};

// child = parent and one mutation. REQUIRES: a state for safe mutations; null will do for plain
// ones. `child` may not be `parent`.
void Mutate(const NetworkDescription& network, NoiseKind noise, const Mutation& mutation,
            std::span<const float> parent, const Experience* experience, std::span<float> child);

// s of the sm_g_* variants, before it is bounded. `delta`: of sm_g_so.
std::vector<float> Sensitivity(MutationKind kind, const NetworkDescription& network,
                               std::span<const float> parent, const Experience& experience,
                               std::span<const float> delta);

// mean_x |f(x; child) - f(x; parent)|^2
double TEST_Divergence(const NetworkDescription& network, std::span<const float> parent,
                       std::span<const float> child, const Experience& experience);

// A parent as mutation needs it: its parameters, and for safe mutations its observations.
struct Breeder {
  Breeder() = default;
  Breeder(std::shared_ptr<const std::vector<float>> own, SharedExperience seen)
      : parameters(std::move(own)), experience(std::move(seen)) {
    if (experience) experience_hash = experience->Hash();
  }
  std::shared_ptr<const std::vector<float>> parameters;
  SharedExperience experience;
  uint64_t experience_hash = 0;
};

// Individuals from their genomes and the keys of their episodes, after a resume: the episodes of
// ancestors that had children by safe mutation are played again, those of one depth together, and
// so are the individuals' own where `with_experience`. kBadData when an episode does not show the
// states that a mutation names: the environment or the program is another. `initial`: as in
// genome/decode.h.
Result<std::vector<Breeder>> Rebuild(const NetworkDescription& network,
                                     std::span<const Genome> genomes,
                                     std::span<const uint64_t> episodes, bool with_experience,
                                     GenerationPlayer& player, const StopToken& stop,
                                     const InitialPolicy* initial = nullptr);

}  // namespace samara
