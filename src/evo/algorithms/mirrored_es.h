// Antithetic pairs around a centre: how a generation of evolution strategies (es.cc) and of novelty
// searches by them (ns_es.cc) plays.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "evo/algorithms/ascent.h"
#include "evo/algorithms/es_settings.h"

namespace samara {

// Thread safety: as EvolutionAlgorithm.
class MirroredEs : public EvolutionAlgorithm {
 protected:
  // A generation's episodes, member by member. Members 2 j and 2 j + 1 are the pair of key j.
  struct Population {
    std::vector<uint64_t> keys{};
    std::vector<EpisodeResult> episodes{};
    int64_t cutoff = 0;  // of the next generation
  };
  struct PlayRule {
    double sigma = 0;
    int64_t cutoff = 0;                             // steps of an episode; 0: the environment's
    std::function<void(uint64_t, Task&)> adjust{};  // episode `index` of the population, or none
    std::function<void(EpisodeResult&)> reduce{};   // as GenerationPlan::reduce
  };

  MirroredEs(const EsSettings& es, const EvolutionSetup& setup);
  // Every member plays, and further pairs until they have made es.min_steps steps. Adds them to
  // `next` and `report`. kTryAgain: stopped.
  Result<Population> Play(std::span<const float> centre, const PlayRule& rule,
                          const StopToken& stop, EvolutionCounters& next, GenerationReport& report);
  // Parameters of member i around `centre`.
  std::vector<float> Member(std::span<const float> centre, double sigma, uint64_t i) const;

  const EsSettings es_;
  const Cutoff cutoff_;
  const Noise& noise_;
  const int64_t frames_per_step_;

 private:
  // Episodes of members `first` to `end` - 1.
  std::vector<Task> Tasks(const PlayRule& rule, uint64_t first, uint64_t end) const;
};

}  // namespace samara
