#include "evo/algorithms/separable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/bytes.h"
#include "core/cpu.h"
#include "evo/algorithms/generation_phases.h"

namespace samara {

// ---- settings

void SeparableConfig::BindMembers(ConfigTable& config) {
  SeparableSettings& m = members;
  config.Add(table() + ".population", &m.population, {4, 1'000'000}, "members",
             m.mirrored ? "number of members per generation, in pairs of opposite perturbations"
                        : "number of members per generation");
  config.Add(table() + ".episodes", &m.episodes, {1, 1000}, "episodes", "episodes per member");
  config.Add(table() + ".noise", &m.noise, kCounterNoiseNames,
             "kind of noise; quantile8 is faster");
  config.Add(table() + ".validation_episodes", &m.validation_episodes, {1, 100'000}, "episodes",
             "validation episodes of each new mean");
  BindObservationShare(config);
}

Status SeparableConfig::Check(const NetworkDescription& network) const {
  RETURN_IF_ERROR(CheckStateBytes(network, 4));
  const SeparableSettings& m = members;
  if (m.mirrored && m.population % 2 != 0)
    return {Code::kConfig,
            fmt::format("{}.population={}: members play in pairs; expected an even number", table(),
                        m.population)};
  const double all = static_cast<double>(m.population) *
                     static_cast<double>(std::max(m.episodes, m.validation_episodes));
  return CheckEpisodes(
      all, fmt::format("{0}.population={1}, {0}.episodes={2}, {0}.validation_episodes={3}", table(),
                       m.population, m.episodes, m.validation_episodes));
}

// ---- state

std::string SeparableState::Encode() const {
  ByteWriter out;
  out.Put(kVersion);
  PutCounters(out, *this);
  for (const auto* values : {&mean, &deviation, &path1, &path2}) out.PutVector(*values);
  statistics.Put(out);
  out.Put(scale).Put(centre_mean).Put(population_hash);
  return out.Take();
}

Result<SeparableState> SeparableState::Decode(std::string_view bytes) {
  const Status damaged(Code::kBadData, "the recorded state of the evolution is damaged");
  ByteReader in(bytes);
  SeparableState s;
  const auto version = in.Get<uint32_t>();
  if (version < 1 || version > kVersion) return damaged;
  static_cast<EvolutionCounters&>(s) = GetCounters(in);
  for (auto* values : {&s.mean, &s.deviation, &s.path1, &s.path2})
    if (!in.GetVector(*values)) return damaged;
  if (version > 1 && !s.statistics.Get(in)) return damaged;
  s.scale = in.Get<double>();
  s.centre_mean = in.Get<double>();
  s.population_hash = in.Get<Digest>();
  if (!in.AtEnd()) return damaged;
  return s;
}

Result<EvolutionSummary> DescribeSeparable(std::string_view state) {
  ASSIGN_OR_RETURN(const SeparableState s, SeparableState::Decode(state));
  return s.Summary();
}

// ---- the generation

class SeparableEvolution::Members : public ParameterSource {
 public:
  Members(const SeparableEvolution& evolution, std::span<const uint64_t> keys)
      : e_(evolution), keys_(keys) {}
  void Write(PolicyHandle policy, std::span<float> canonical) const override {
    const bool mirrored = e_.settings_.mirrored;
    const bool opposite = mirrored && policy.id % 2 == 1;
    const std::span<float> evolved = canonical.first(e_.parameters());
    e_.noise_.Fill(keys_[mirrored ? policy.id / 2 : policy.id], 0, evolved);
    const SeparableState& s = e_.state_;
    for (size_t i = 0; i < evolved.size(); ++i) {
      const double step = s.scale * s.deviation[i] * evolved[i];
      evolved[i] = static_cast<float>(opposite ? s.mean[i] - step : s.mean[i] + step);
    }
    std::copy(s.mean.begin() + static_cast<ptrdiff_t>(evolved.size()), s.mean.end(),
              canonical.begin() + static_cast<ptrdiff_t>(evolved.size()));
  }

 private:
  const SeparableEvolution& e_;
  const std::span<const uint64_t> keys_;
};

SeparableEvolution::SeparableEvolution(const SeparableConfig& config, const EvolutionSetup& setup,
                                       double deviation, size_t paths)
    : EvolutionAlgorithm(WithoutRecording(setup)),
      settings_(config.members),
      budget_(config.budget),
      keeper_(config, setup.network),
      noise_(GetNoise(config.members.noise)) {
  state_.mean = ZeroParameters();
  state_.statistics = keeper_.Begin(initial_, state_.mean);
  state_.deviation.assign(parameters(), static_cast<float>(deviation));
  if (paths > 0) state_.path1.resize(parameters());
  if (paths > 1) state_.path2.resize(parameters());
}

Result<GenerationReport> SeparableEvolution::Step(const StopToken& stop) {
  SeparableState next = state_;
  ++next.generation;
  GenerationReport report;

  // 1 every member plays
  const auto members = static_cast<uint32_t>(settings_.population);
  const auto episodes = static_cast<size_t>(settings_.episodes);
  const std::vector<uint64_t> keys = NoiseKeys(player_, settings_.mirrored ? members / 2 : members);
  std::vector<Task> tasks = PopulationTasks(player_, members, episodes);
  keeper_.Choose(player_, tasks);
  ASSIGN_OR_RETURN(const auto played,
                   PlayMembers(player_, std::move(tasks), episodes, Members(*this, keys),
                               EpisodesOfNext(), stop, next, report, keeper_.Reduce()));
  RETURN_IF_ERROR(keeper_.Add(played, next.statistics));
  report.fitness = MeanFitness(played, episodes);

  // 2 mean and deviations move
  report.metrics = Move(report.fitness, keys, next);
  keeper_.Write(next.statistics, next.mean);
  report.metrics["observations_seen"] = next.statistics.seen();
  double deviation = 0;
  for (const float d : next.deviation) deviation += next.scale * d;
  deviation /= static_cast<double>(parameters());
  report.metrics["deviation_mean"] = deviation;
  report.note = fmt::format("deviation {:.2g}", deviation);

  // 3 validation of the new mean; 4 its test
  ASSIGN_OR_RETURN(next.centre_mean,
                   ValidateAndTest(player_, next.mean, members,
                                   static_cast<size_t>(settings_.validation_episodes),
                                   budget_.TestEpisodes(next.generation), stop, next, report));

  // 5 the caller makes the new state durable before it reports the generation
  next.population_hash = HashOf(report.fitness, next.mean);
  SetFrames(player_, next.frames - state_.frames, report);
  state_ = std::move(next);
  player_.StartAfter(state_.generation, state_.frames);
  return report;
}

void SeparableEvolution::ForMoments(std::span<const uint64_t> keys, std::span<const double> a,
                                    std::span<const double> b, const Moments& body) const {
  ForBlocks(parameters(), static_cast<double>(parameters()) * static_cast<double>(keys.size()),
            Cores(), [&](size_t first, size_t size) {
              alignas(64) float noise[kAscentBlock];
              std::vector<double> of_a(size), of_b(size);
              const std::span<float> e(noise, size);
              for (size_t k = 0; k < keys.size(); ++k) {
                if (a[k] == 0 && b[k] == 0) continue;
                noise_.Fill(keys[k], first, e);
                for (size_t i = 0; i < size; ++i) {
                  const double value = e[i];
                  of_a[i] += a[k] * value, of_b[i] += b[k] * (value * value - 1);
                }
              }
              body(first, of_a, of_b);
            });
}

Candidate SeparableEvolution::MemberOfNext(uint64_t i) const {
  return MemberOf(Members(*this, NoiseKeys(player_, i + 1)), i, network_.parameter_count);
}

size_t SeparableEvolution::EpisodesOfNext() const {
  return static_cast<size_t>(settings_.population * settings_.episodes +
                             settings_.validation_episodes) +
         budget_.TestEpisodes(state_.generation + 1);
}

Status SeparableEvolution::RestoreState(std::string_view bytes) {
  ASSIGN_OR_RETURN(SeparableState state, SeparableState::Decode(bytes));
  if (state.mean.size() != state_.mean.size() || state.deviation.size() != parameters() ||
      state.path1.size() != state_.path1.size() || state.path2.size() != state_.path2.size() ||
      state.statistics.numbers() != state_.statistics.numbers())
    return {Code::kBadData, "the recorded state is of another network or algorithm"};
  state_ = std::move(state);
  player_.StartAfter(state_.generation, state_.frames);
  return Status::Ok();
}

}  // namespace samara
