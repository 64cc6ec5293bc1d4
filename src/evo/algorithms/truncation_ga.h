// Populations bred by selection and mutation alone, without crossover: what the Deep GA (ga.cc),
// its variant that selects by novelty (ga_ns.cc) and MAP-Elites (map_elites.cc) share.
#pragma once

#include <span>
#include <vector>

#include "evo/algorithms/ga.h"
#include "evo/genome/decode.h"

namespace samara {

// Thread safety: as EvolutionAlgorithm.
class TruncationGa : public EvolutionAlgorithm {
 public:
  size_t EpisodesOfNext() const override;
  std::string EncodeState() const override { return state_.Encode(); }
  Status RestoreState(std::string_view bytes) override;
  EvolutionSummary summary() const override { return state_.Summary(); }
  std::vector<NamedCandidate> Candidates() const override;
  std::vector<ScoredGenome> Genomes() const override;
  uint64_t MembersOfNext() const override {
    // what parents saw is not in the state
    return config_.mutation.safe() ? 0 : static_cast<uint64_t>(config_.population);
  }
  Candidate MemberOfNext(uint64_t i) const override { return Member(i); }

 protected:
  using Order = std::span<const uint32_t>;  // members, best first

  TruncationGa(const GaConfig& config, const EvolutionSetup& setup)
      : EvolutionAlgorithm(setup),
        config_(config),
        cache_(setup.network, static_cast<size_t>(config.cache_megabytes) << 20, setup.initial) {
    if (initial_ != nullptr) BeginFrom(*initial_);
  }

  // Parameters of the individuals that handles name, with the help of the kept ancestors.
  class Parameters : public ParameterSource {
   public:
    explicit Parameters(TruncationGa& ga) : ga_(ga) {}
    void Write(PolicyHandle policy, std::span<float> canonical) const override {
      ga_.WriteParameters(policy.id, canonical);
    }
    std::optional<Genome> GenomeOf(PolicyHandle policy) const override {
      return ga_.Individual(policy.id);
    }

   private:
    TruncationGa& ga_;
  };

  // Member i of the population that is playing. It is a function of the state, so a generation
  // holds no genomes but its parents', however many members and mutations it has.
  Genome Member(uint64_t i) const;
  Genome Individual(uint32_t i) const;  // a member, or, after the last one, the old elite
  Parent Played(const EpisodeMeans& played, uint32_t i) const {
    return {Individual(i), played.fitness[i], played.frames[i], EpisodeOf(i)};
  }
  // Key of the episode whose states the children of an individual look at; 0 without safe
  // mutations.
  uint64_t EpisodeOf(uint32_t individual) const;
  // Parents' parameters are at hand from now on, and, with safe mutations, what they saw.
  Status KeepParents(const StopToken& stop);
  // With safe mutations: the same of the parents and the elite of `next`.
  Status TakeParents(const GenerationWork& work, GaState& next, const StopToken& stop);
  GenerationPlan Plan() const;  // of the population alone
  virtual size_t ValidationEpisodes() const { return 0; }
  // The best single fitness so far is the elite.
  void KeepBestSingle(const EpisodeMeans& played, Order order, GaState& next) const;
  // Tests the new elite on fresh episodes.
  Status Test(GaState& next, const StopToken& stop, GenerationReport& report);
  // Goes on from `state`. kBadData: its genomes are of another network or noise table.
  Status Restore(GaState state);
  // Fills in what all report of a generation, and takes the state that follows.
  void Finish(const GenerationWork& work, GaState next, GenerationReport& report);

  const GaConfig config_;
  AncestorCache cache_;
  GaState state_;  // constant while episodes are played

 private:
  void BeginFrom(const InitialPolicy& policy);
  void WriteParameters(uint32_t individual, std::span<float> out);
  Result<Breeder> BreederOf(const Parent& chosen, const GenerationWork& work,
                            const StopToken& stop);
  bool BornOfParent(uint64_t i) const;
  const Parent& ParentOf(uint64_t i) const { return state_.parents[ParentNumber(i)]; }
  uint64_t ParentNumber(uint64_t i) const;
  Genome Mutate(const Parent& parent, uint64_t individual) const;
  uint64_t LastEpisode(uint64_t member) const;  // key of the one that it saw last
  uint64_t NoiseKey(Purpose purpose, uint64_t individual) const;
  double FramesExpected(uint64_t i) const;
  nlohmann::json Metrics(const GaState& next) const;
  void Become(GaState next);

  // With safe mutations, of state_.parents and of its elite; empty before the first step and after
  // RestoreState. The others: of the state that follows.
  std::vector<Breeder> breeders_, next_breeders_;
  Breeder elite_breeder_, next_elite_breeder_;
};

}  // namespace samara
