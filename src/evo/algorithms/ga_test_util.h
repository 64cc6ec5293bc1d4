// A Deep GA whose state a test reads and writes.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "evo/algorithms/ga.h"
#include "evo/evaluate/evaluate_test_util.h"

namespace samara {

class DeepGa {
 public:
  DeepGa(const GaConfig& config, uint64_t seed, const NetworkDescription& network,
         Evaluator& evaluator, const EpisodeRule& episodes)
      : ga_(config.Make({seed, network, evaluator, episodes})) {}
  EvolutionAlgorithm* operator->() { return ga_.get(); }
  Result<GenerationReport> Step(const StopToken& stop) { return ga_->Step(stop); }
  GaState state() const { return GaState::Decode(ga_->EncodeState()).ValueOrThrow(); }
  void Restore(const GaState& state) { EXPECT_TRUE(ga_->RestoreState(state.Encode()).ok()); }

 private:
  std::unique_ptr<EvolutionAlgorithm> ga_;
};

}  // namespace samara
