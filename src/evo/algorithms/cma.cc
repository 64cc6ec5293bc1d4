#include "evo/algorithms/cma.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/bytes.h"
#include "core/check.h"
#include "evo/algorithms/cma_search.h"
#include "evo/algorithms/generation_phases.h"
#include "evo/algorithms/separable.h"
#include "evo/genome/noise.h"

namespace samara {
namespace {

class CmaConfig : public SeparableConfig {
 public:
  double sigma = 0.1;  // of the first population

  CmaConfig() : SeparableConfig({.population = 32}) {}
  std::unique_ptr<EvolutionConfig> Clone() const override {
    return std::make_unique<CmaConfig>(*this);
  }
  void Bind(ConfigTable& table) override {
    BindMembers(table);
    table.Add("cma.sigma", &sigma, {1e-12, 1e6}, "", "first step size");
    BindTest(table, "cma", budget);
    BindBudget(table, "cma", budget);
  }
  std::string table() const override { return "cma"; }
  Status Check(const NetworkDescription& network) const override {
    if (network.evolved_count > kCmaParametersMax)
      return {Code::kConfig,
              fmt::format("{}: {} parameters; expected at most {} for cma-es, whose covariance has "
                          "their square; sep-cma-es has only its diagonal",
                          network.name, network.evolved_count, kCmaParametersMax)};
    return SeparableConfig::Check(network);
  }
  std::unique_ptr<EvolutionAlgorithm> Make(const EvolutionSetup& setup) const override;
};

struct CmaState : EvolutionCounters {
  static constexpr uint32_t kVersion = 2;  // 1: without statistics of observations
  CmaDistribution distribution;
  ObservationStatistics statistics;  // of a `normalize` layer; else of nothing
  double centre_mean = 0;
  Digest population_hash{};

  EvolutionSummary Summary() const {
    return {EvolutionCounters(*this), population_hash, distribution.mean, centre_mean};
  }
  std::string Encode() const {
    ByteWriter out;
    out.Put(kVersion);
    PutCounters(out, *this);
    distribution.Put(out);
    statistics.Put(out);
    out.Put(centre_mean).Put(population_hash);
    return out.Take();
  }
  static Result<CmaState> Decode(std::string_view bytes) {
    const Status damaged(Code::kBadData, "the recorded state of the evolution is damaged");
    ByteReader in(bytes);
    CmaState s;
    const auto version = in.Get<uint32_t>();
    if (version < 1 || version > kVersion) return damaged;
    static_cast<EvolutionCounters&>(s) = GetCounters(in);
    if (!s.distribution.Get(in)) return damaged;
    if (version > 1 && !s.statistics.Get(in)) return damaged;
    s.centre_mean = in.Get<double>();
    s.population_hash = in.Get<Digest>();
    if (!in.AtEnd()) return damaged;
    return s;
  }
};

class CmaEs : public EvolutionAlgorithm {
 public:
  CmaEs(const CmaConfig& config, const EvolutionSetup& setup)
      : EvolutionAlgorithm(WithoutRecording(setup)),
        config_(config),
        keeper_(config, setup.network),
        n_(setup.network.evolved_count),
        search_(static_cast<size_t>(config.members.population), n_,
                GetNoise(config.members.noise)) {
    state_.distribution = CmaDistribution(ZeroParameters(), n_, config.sigma);
    state_.statistics = keeper_.Begin(initial_, state_.distribution.mean);
    CHECK(search_.Take(state_.distribution).ok());
  }

  Result<GenerationReport> Step(const StopToken& stop) override {
    CmaState next = state_;
    ++next.generation;
    GenerationReport report;

    // 1 every member plays mean + sigma A z
    const auto members = static_cast<uint32_t>(config_.members.population);
    const auto episodes = static_cast<size_t>(config_.members.episodes);
    const std::vector<uint64_t> keys = NoiseKeys(player_, members);
    std::vector<Task> tasks = PopulationTasks(player_, members, episodes);
    keeper_.Choose(player_, tasks);
    ASSIGN_OR_RETURN(const auto played,
                     PlayMembers(player_, std::move(tasks), episodes, Members(search_, keys),
                                 EpisodesOfNext(), stop, next, report, keeper_.Reduce()));
    RETURN_IF_ERROR(keeper_.Add(played, next.statistics));
    report.fitness = MeanFitness(played, episodes);

    // 2 mean, paths, covariance and step size move
    next.distribution = search_.Moved(report.fitness, keys, next.generation);
    keeper_.Write(next.statistics, next.distribution.mean);

    // 3 validation of the new mean; 4 its test
    ASSIGN_OR_RETURN(
        next.centre_mean,
        ValidateAndTest(player_, next.distribution.mean, members,
                        static_cast<size_t>(config_.members.validation_episodes),
                        config_.budget.TestEpisodes(next.generation), stop, next, report));

    // 5 the caller makes the new state durable before it reports the generation
    next.population_hash = HashOf(report.fitness, next.distribution.mean);
    SetFrames(player_, next.frames - state_.frames, report);
    report.metrics = {{"step_size", next.distribution.sigma},
                      {"observations_seen", next.statistics.seen()}};
    report.note = fmt::format("step size {:.2g}", next.distribution.sigma);
    RETURN_IF_ERROR(Take(std::move(next)));
    return report;
  }

  size_t EpisodesOfNext() const override {
    const SeparableSettings& m = config_.members;
    return static_cast<size_t>(m.population * m.episodes + m.validation_episodes) +
           config_.budget.TestEpisodes(state_.generation + 1);
  }
  std::string EncodeState() const override { return state_.Encode(); }
  Status RestoreState(std::string_view bytes) override {
    ASSIGN_OR_RETURN(CmaState state, CmaState::Decode(bytes));
    if (!state.distribution.Fits(network_.parameter_count, n_) ||
        state.statistics.numbers() != state_.statistics.numbers())
      return {Code::kBadData, "the recorded state is of another network"};
    return Take(std::move(state));
  }
  EvolutionSummary summary() const override { return state_.Summary(); }
  std::vector<NamedCandidate> Candidates() const override {
    return {{"centre", state_.distribution.mean, state_.centre_mean}};
  }
  uint64_t MembersOfNext() const override {
    return static_cast<uint64_t>(config_.members.population);
  }
  Candidate MemberOfNext(uint64_t i) const override {
    return MemberOf(Members(search_, NoiseKeys(player_, i + 1)), i, network_.parameter_count);
  }

 private:
  class Members : public ParameterSource {
   public:
    Members(const CmaSearch& search, std::span<const uint64_t> keys)
        : search_(search), keys_(keys) {}
    void Write(PolicyHandle policy, std::span<float> canonical) const override {
      search_.Write(keys_[policy.id], canonical);
    }

   private:
    const CmaSearch& search_;
    const std::span<const uint64_t> keys_;
  };

  Status Take(CmaState state) {
    RETURN_IF_ERROR(search_.Take(state.distribution));
    state_ = std::move(state);
    player_.StartAfter(state_.generation, state_.frames);
    return Status::Ok();
  }

  const CmaConfig config_;
  const StatisticsKeeper keeper_;
  const size_t n_;    // parameters that move, the first ones
  CmaSearch search_;  // of state_.distribution
  CmaState state_;    // constant while episodes are played
};

std::unique_ptr<EvolutionAlgorithm> CmaConfig::Make(const EvolutionSetup& setup) const {
  return std::make_unique<CmaEs>(*this, setup);
}

}  // namespace

std::unique_ptr<EvolutionConfig> MakeCmaConfig() { return std::make_unique<CmaConfig>(); }

Result<EvolutionSummary> DescribeCma(std::string_view state) {
  ASSIGN_OR_RETURN(const CmaState s, CmaState::Decode(state));
  return s.Summary();
}

}  // namespace samara
