// Individuals of workloads that need different networks.
#pragma once

#include <optional>
#include <span>

#include "core/rng.h"
#include "evo/evaluate/policy.h"
#include "evo/genome/decode.h"

namespace samara::bench {

// Individual i.
inline Genome Individual(uint64_t i) {
  return {
      NoiseKind::kQuantile8, InitKind::kFanIn, DeriveKey(11, Purpose::kInitialGenome, 1, i), {}};
}

// Policy i is individual i.
class FreshGenomes : public ParameterSource {
 public:
  explicit FreshGenomes(const NetworkDescription& network) : network_(network) {}
  void Write(PolicyHandle policy, std::span<float> canonical) const override {
    DecodeParameters(Individual(policy.id), network_, canonical);
  }
  std::optional<Genome> GenomeOf(PolicyHandle policy) const override {
    return Individual(policy.id);
  }

 private:
  const NetworkDescription& network_;
};

}  // namespace samara::bench
