#include "evo/algorithms/ga_ns.h"

#include <fmt/format.h>

#include "core/bytes.h"
#include "core/clock.h"
#include "core/statistics.h"
#include "evo/algorithms/novelty.h"
#include "evo/algorithms/ranking.h"
#include "evo/algorithms/truncation_ga.h"

namespace samara {
namespace {

class GaNsConfig : public GaConfig {
 public:
  NoveltyRule novelty{.neighbours = 25};
  double archive_probability = 0.01;

  GaNsConfig() {
    validation_candidates = validation_episodes = 0;
    mutation_power = 0.005;
  }
  std::unique_ptr<EvolutionConfig> Clone() const override {
    return std::make_unique<GaNsConfig>(*this);
  }
  void Bind(ConfigTable& table) override {
    BindRows(table, GaSelection::kByNovelty);
    novelty.Bind(table);
    table.Add("novelty.archive_probability", &archive_probability, {0, 1}, "",
              "probability that a member's behaviour enters the archive");
  }
  Result<RecordKind> Records(const EnvironmentSpec& environment,
                             const NetworkDescription&) const override {
    if (novelty.kind != BehaviourKind::kRam) return novelty.Records(environment);
    return Status(Code::kConfig,
                  "novelty.behaviour=ram: ga-ns would compare all pairs of the population's "
                  "recordings; expected final_position or trajectory, or run.algorithm=ns-es");
  }
  bool DependsOnEnvironment() const override { return true; }
  std::unique_ptr<EvolutionAlgorithm> Make(const EvolutionSetup& setup) const override;
};

// The state of the GA, which names its archive.
struct GaNsState {
  static constexpr uint32_t kVersion = 1;
  std::string ga;  // GaState::Encode
  uint64_t archived = 0;
  Digest archive{};  // NoveltyArchive::digest

  std::string Encode() const {
    ByteWriter out;
    return out.Put(kVersion).PutBytes(ga).Put(archived).Put(archive).Take();
  }
  static Result<GaNsState> Decode(std::string_view bytes) {
    ByteReader in(bytes);
    GaNsState s;
    const auto version = in.Get<uint32_t>();
    s.ga = in.GetBytes(), s.archived = in.Get<uint64_t>(), s.archive = in.Get<Digest>();
    if (version == kVersion && in.AtEnd()) return s;
    return Status(Code::kBadData, "the recorded state of the evolution is damaged");
  }
};

class GaNs : public TruncationGa {
 public:
  GaNs(const GaNsConfig& config, const EvolutionSetup& setup)
      : TruncationGa(config, setup),
        rule_(config.novelty),
        archive_probability_(config.archive_probability),
        row_(rule_.RowBytes(setup.evaluator.spec())),
        archive_(rule_.kind, row_) {}

  Result<GenerationReport> Step(const StopToken& stop) override;

  std::string EncodeState() const override {
    return GaNsState{state_.Encode(), archive_.size(), archive_.digest()}.Encode();
  }
  Status RestoreState(std::string_view bytes) override;
  size_t ArchiveSize() const override { return archive_.size(); }
  std::string EncodeArchive(size_t first) const override { return archive_.Encode(first); }
  Status RestoreArchive(std::string_view bytes) override { return archive_.Append(bytes); }

 private:
  std::vector<Behaviour> Behaviours(std::span<const EpisodeResult> episodes) const;
  std::vector<double> Novelties(std::span<const Behaviour> behaviours) const;
  bool EntersArchive(uint64_t i) const {
    return CounterRng(player_.Key(Purpose::kArchive, i)).Uniform(0) < archive_probability_;
  }

  const NoveltyRule rule_;
  const double archive_probability_;
  const size_t row_;        // bytes of a behaviour's row
  NoveltyArchive archive_;  // constant while episodes are played
};

// One generation; the numbers are those of doc/novelty-search.md.
Result<GenerationReport> GaNs::Step(const StopToken& stop) {
  GaState next = state_;
  ++next.generation;
  GenerationReport report;

  // 1 every member plays: a mutated copy of a parent, which is one of the most novel
  RETURN_IF_ERROR(KeepParents(stop));
  const SteadyTime start = Now();
  const Parameters individuals(*this);
  GenerationPlayer::Running playing(player_, Plan(), individuals, EpisodesOfNext(), stop);
  RETURN_IF_ERROR(playing.Play());
  const EpisodeMeans& played = playing.work().means();
  next.Count(playing.work().population());
  report.seconds_population = SecondsSince(start);

  // 2 novelty: mean squared distance to the nearest others and to the nearest of the archive
  std::vector<Behaviour> behaviours = Behaviours(playing.work().population());
  const std::vector<double> novelty = Novelties(behaviours);

  // 3 the most novel members are the next parents, whatever their returns
  const std::vector<uint32_t> most_novel = RankDescending(novelty);
  next.parents.clear();
  for (size_t i = 0; i < static_cast<size_t>(config_.parents); ++i)
    next.parents.push_back(Played(played, most_novel[i]));

  // 4 the elite is the best return so far, apart from selection
  KeepBestSingle(played, RankDescending(played.fitness), next);

  // 5 test of the elite on fresh episodes, not counted in frames
  RETURN_IF_ERROR(TakeParents(playing.work(), next, stop));
  RETURN_IF_ERROR(Test(next, stop, report));

  // 6 some members' behaviours enter the archive
  for (uint64_t i = 0; i < behaviours.size(); ++i)
    if (EntersArchive(i)) archive_.Add(std::move(behaviours[i]));
  report.metrics = {{"novelty_mean", Mean(novelty)},
                    {"novelty_max", novelty[most_novel[0]]},
                    {"archive_size", archive_.size()}};
  report.note = fmt::format("novelty {:.3g}, archive {}, ", Mean(novelty), archive_.size());
  Finish(playing.work(), std::move(next), report);
  return report;
}

std::vector<Behaviour> GaNs::Behaviours(std::span<const EpisodeResult> episodes) const {
  const auto each = static_cast<size_t>(config_.episodes);
  std::vector<Behaviour> behaviours;
  for (size_t first = 0; first < episodes.size(); first += each)
    behaviours.push_back(rule_.BehaviourOf(episodes.subspan(first, each)));
  return behaviours;
}

std::vector<double> GaNs::Novelties(std::span<const Behaviour> behaviours) const {
  std::vector<double> novelty;
  for (size_t i = 0; i < behaviours.size(); ++i) {
    NearestDistances nearest(static_cast<size_t>(rule_.neighbours));
    for (size_t j = 0; j < behaviours.size(); ++j)
      if (j != i)
        nearest.Offer(
            SquaredDistance(rule_.kind, row_, behaviours[i], behaviours[j], nearest.bound()));
    archive_.OfferAll(behaviours[i], nearest);
    novelty.push_back(nearest.MeanSquared());
  }
  return novelty;
}

Status GaNs::RestoreState(std::string_view bytes) {
  ASSIGN_OR_RETURN(const GaNsState state, GaNsState::Decode(bytes));
  if (archive_.size() != state.archived || archive_.digest() != state.archive)
    return {Code::kBadData, "the recorded archive of behaviours is not the one of the state"};
  return TruncationGa::RestoreState(state.ga);
}

std::unique_ptr<EvolutionAlgorithm> GaNsConfig::Make(const EvolutionSetup& setup) const {
  GaNsConfig settled = *this;
  settled.Settle();
  return std::make_unique<GaNs>(settled, setup);
}

}  // namespace

std::unique_ptr<EvolutionConfig> MakeGaNsConfig() { return std::make_unique<GaNsConfig>(); }

Result<EvolutionSummary> DescribeGaNs(std::string_view state) {
  ASSIGN_OR_RETURN(const GaNsState s, GaNsState::Decode(state));
  return DescribeGa(s.ga);
}

}  // namespace samara
