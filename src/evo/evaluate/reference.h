// The reference batch of virtual batch norm (Salimans et al. 2017, section 2.2) and of normalize
// layers: inputs of the network while random actions are played, collected once per run, from which
// the statistics of every policy are computed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "evo/evaluate/policy.h"
#include "fleet/fleet.h"

namespace samara {

// Inputs of a batch: the papers' 128 images; vectors are cheap.
inline size_t ReferenceInputs(const PolicyModel& model) {
  return model.kernel().network().height > 1 ? 128 : 1024;
}

// The first ReferenceInputs inputs of `model` in consecutive episodes of random actions, one after
// the other. A function of `seed`, the environment and the rule alone, on every kind of fleet. Uses
// one slot of `fleet`, which has no event pending before and after. kUnavailable when the fleet
// failed.
Result<std::vector<float>> CollectReference(const PolicyModel& model, const EpisodeRule& episodes,
                                            uint64_t seed, Fleet& fleet);

// Encodes the inputs for the run folder: a safetensors file with the tensor "inputs"
// [batch][rows][columns][channels], as bytes (times 1/255) where the observations are bytes.
std::string EncodeReference(const PolicyModel& model, std::span<const float> inputs);
// kBadData: damaged, or of another input.
Result<std::vector<float>> DecodeReference(const PolicyModel& model, std::string_view bytes);

}  // namespace samara
