// An evolution algorithm of one's own: the (1+1)-ES. Parent and mutated child play the same number
// of episodes; the better of them is the next parent.
//
//   my-hill-climber train my.toml run.seed=2    resume, report, eval and the rest as with samara
#include <memory>

#include "core/bytes.h"
#include "samara/evolution.h"

namespace {

using namespace samara;

constexpr uint32_t kVersion = 1;  // of the state's bytes

class OneConfig : public EvolutionConfig {
 public:
  double sigma = 0.1;
  int64_t episodes = 10;  // per fitness

  std::unique_ptr<EvolutionConfig> Clone() const override {
    return std::make_unique<OneConfig>(*this);
  }
  std::string table() const override { return "one"; }
  void Bind(ConfigTable& table) override {
    table.Add("one.sigma", &sigma, {0, 100}, "", "standard deviation of a mutation");
    table.Add("one.episodes", &episodes, {1, 1000}, "episodes", "per fitness");
    BindBudget(table, "one", budget);
  }
  Status Check(const NetworkDescription&) const override { return Status::Ok(); }
  std::unique_ptr<EvolutionAlgorithm> Make(const EvolutionSetup& setup) const override;
};

class OnePlusOne : public EvolutionAlgorithm, private ParameterSource {
 public:
  OnePlusOne(const OneConfig& config, const EvolutionSetup& setup)
      : EvolutionAlgorithm(setup), config_(config), parent_(network_.parameter_count) {}

  Result<GenerationReport> Step(const StopToken& stop) override {
    GenerationPlan plan;
    plan.episodes = static_cast<size_t>(config_.episodes);
    for (uint32_t i = 0; i < 2; ++i)
      for (uint64_t e = 0; e < plan.episodes; ++e)
        plan.population.push_back(player_.PopulationTask(i, e));
    GenerationPlayer::Running playing(player_, plan, *this, EpisodesOfNext(), stop);
    RETURN_IF_ERROR(playing.Start());
    RETURN_IF_ERROR(playing.Population());
    RETURN_IF_ERROR(playing.Validation());  // waits for the end of the last episode
    GenerationReport report;
    report.fitness = playing.work().means().fitness;
    const uint64_t frames = counters_.frames;
    counters_.Count(playing.work().population());
    report.frames = counters_.frames - frames;
    const bool better = report.fitness[1] >= report.fitness[0];
    if (better) {
      std::vector<float> child(parent_.size());
      Write({1, 0}, child);
      parent_ = std::move(child);
    }
    mean_ = report.fitness[better ? 1 : 0];
    ++counters_.generation;
    player_.StartAfter(counters_.generation, counters_.frames);
    return report;
  }
  size_t EpisodesOfNext() const override { return 2 * static_cast<size_t>(config_.episodes); }

  std::string EncodeState() const override {
    ByteWriter out;
    out.Put(kVersion).Put(counters_.generation).Put(counters_.frames).Put(counters_.steps);
    out.Put(counters_.episodes).Put(mean_).Put(uint64_t{parent_.size()});
    for (const float value : parent_) out.Put(value);
    return out.Take();
  }
  Status RestoreState(std::string_view bytes) override {
    ASSIGN_OR_RETURN(const EvolutionSummary state, Describe(bytes));
    auto parent = std::get<std::vector<float>>(state.best);
    if (parent.size() != parent_.size())
      return {Code::kBadData, "the recorded state is of another network"};
    parent_ = std::move(parent), counters_ = state, mean_ = state.best_mean;
    player_.StartAfter(counters_.generation, counters_.frames);
    return Status::Ok();
  }
  EvolutionSummary summary() const override { return Summarise(counters_, parent_, mean_); }

  static Result<EvolutionSummary> Describe(std::string_view bytes) {
    const Status damaged(Code::kBadData, "the recorded state is damaged");
    ByteReader in(bytes);
    if (in.Get<uint32_t>() != kVersion) return damaged;
    EvolutionCounters counters;
    counters.generation = in.Get<uint64_t>(), counters.frames = in.Get<uint64_t>();
    counters.steps = in.Get<uint64_t>(), counters.episodes = in.Get<uint64_t>();
    const auto mean = in.Get<double>();
    const auto size = in.Get<uint64_t>();
    std::vector<float> parent;
    for (uint64_t i = 0; i < size && in.ok(); ++i) parent.push_back(in.Get<float>());
    if (!in.AtEnd()) return damaged;
    return Summarise(counters, parent, mean);
  }

 private:
  static EvolutionSummary Summarise(const EvolutionCounters& counters,
                                    const std::vector<float>& parent, double mean) {
    Sha256 hash;
    hash.Update(std::as_bytes(std::span(parent)));
    return {counters, hash.Finish(), parent, mean};
  }
  // Individual 0 is the parent, 1 its child: a function of the state, so nothing of it is stored.
  void Write(PolicyHandle policy, std::span<float> parameters) const override {
    std::copy(parent_.begin(), parent_.end(), parameters.begin());
    if (policy.id == 0) return;
    const CounterRng rng(player_.Key(Purpose::kMutation, 0));
    for (size_t i = 0; i < parameters.size(); ++i)
      parameters[i] += static_cast<float>(config_.sigma * rng.Normal(i));
  }

  const OneConfig config_;
  std::vector<float> parent_;
  EvolutionCounters counters_;
  double mean_ = 0;
};

std::unique_ptr<EvolutionAlgorithm> OneConfig::Make(const EvolutionSetup& setup) const {
  return std::make_unique<OnePlusOne>(*this, setup);
}

}  // namespace

int main(int argc, char** argv) {
  RegisterEvolutionAlgorithm(
      {.name = "my-hill-climber",
       .about = "a parent and its mutated child; the better one survives",
       .paper = "(1+1)-ES (Rechenberg 1973)",
       .config = [] { return std::unique_ptr<EvolutionConfig>(std::make_unique<OneConfig>()); },
       .describe = OnePlusOne::Describe});
  return RunCommandLine(argc, argv);
}
