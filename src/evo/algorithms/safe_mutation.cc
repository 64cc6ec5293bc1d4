#include "evo/algorithms/safe_mutation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "core/check.h"
#include "core/log.h"
#include "core/math.h"
#include "evo/genome/decode.h"
#include "evo/genome/noise.h"
#include "nn/jacobian.h"

namespace samara {
namespace {

constexpr float kSensitivityMin = 0.01F;
constexpr int kSearchEvaluations = 15;
constexpr double kSearchTolerance = 1e-3;  // of the divergence, relative
constexpr double kSearchStepMax = 16;      // factor from one evaluation to the next

constexpr EnumName<MutationKind> kKinds[] = {{MutationKind::kPlain, "plain"},
                                             {MutationKind::kSmR, "sm_r"},
                                             {MutationKind::kSmGSum, "sm_g_sum"},
                                             {MutationKind::kSmGAbs, "sm_g_abs"},
                                             {MutationKind::kSmGSo, "sm_g_so"}};

// delta / |delta|
std::vector<float> Direction(std::span<const float> delta) {
  double squares = 0;
  for (const float d : delta) squares += double{d} * d;
  const double length = std::sqrt(squares);
  std::vector<float> v(delta.begin(), delta.end());
  for (float& d : v) d = length > 0 ? static_cast<float>(d / length) : 0;
  return v;
}

double MeanSquaredDistance(std::span<const float> a, std::span<const float> b, size_t states) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = double{a[i]} - b[i];
    sum += difference * difference;
  }
  return sum / static_cast<double>(states);
}

// to = parent + c v
void Along(std::span<const float> parent, double c, std::span<const float> v, std::span<float> to) {
  const auto step = static_cast<float>(c);
  for (size_t w = 0; w < to.size(); ++w) to[w] = parent[w] + step * v[w];
}

// sm_r. At first a divergence grows as the square of c, which says where to look next; between two
// values that bound the wanted one it is taken for a power of c. Where nothing changes the outputs,
// c ends where the search does.
void LineSearch(const NetworkDescription& network, std::span<const float> parent,
                const Experience& experience, std::span<const float> v, double wanted,
                std::span<float> child) {
  struct Point {
    double c, divergence;
  };
  const size_t states = experience.inputs.size() / network.input_size();
  const std::vector<float> old = Outputs(network, parent, experience.inputs, experience.begins);
  std::optional<Point> below, above;
  double c = std::sqrt(wanted), best = c, best_error = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kSearchEvaluations && best_error > kSearchTolerance; ++i) {
    Along(parent, c, v, child);
    const Point p{
        c, MeanSquaredDistance(Outputs(network, child, experience.inputs, experience.begins), old,
                               states)};
    const double error = std::abs(p.divergence / wanted - 1);
    if (error < best_error) best = c, best_error = error;
    (p.divergence < wanted ? below : above) = p;
    if (below && above && below->divergence > 0) {
      const double power = Log(above->divergence / below->divergence) / Log(above->c / below->c);
      const double at = Log(wanted / below->divergence) / power;
      c = below->c * Exp(at);
      if (i % 3 == 2 || !(c > below->c && c < above->c)) c = std::sqrt(below->c * above->c);
    } else if (below && above) {
      c = std::sqrt(below->c * above->c);
    } else {
      const double factor = p.divergence > 0 ? std::sqrt(wanted / p.divergence) : kSearchStepMax;
      c *= std::clamp(factor, 1 / kSearchStepMax, kSearchStepMax);
    }
  }
  Along(parent, best, v, child);
}

}  // namespace

void MutationRule::Bind(ConfigTable& table, const std::string& name) {
  table.Add(name + ".mutation", &kind, kKinds,
            "noise as it is, or scaled by its effect on the outputs (doc/safe-mutations.md)",
            OnResume::kMustMatchAdded);
  table.Add(name + ".mutation_clip", &clip, {0, 1e6}, "",
            "sm_g_*: largest change of a parameter; 0 = any", OnResume::kMustMatchAdded);
  table.Add(name + ".legacy_sum", &legacy_sum,
            "sm_g_sum: sum over states instead of their mean, as the 2018 program",
            OnResume::kMustMatchAdded);
}

std::vector<std::string> MutationRule::Unused(const std::string& name) const {
  std::vector<std::string> lines;
  const std::string_view chosen = NameOf(std::span<const EnumName<MutationKind>>(kKinds), kind);
  if (clip > 0 && (kind == MutationKind::kPlain || kind == MutationKind::kSmR))
    lines.push_back(fmt::format("{0}.mutation_clip={1} has no effect with {0}.mutation={2}", name,
                                clip, chosen));
  if (legacy_sum && kind != MutationKind::kSmGSum)
    lines.push_back(
        fmt::format("{0}.legacy_sum=true has no effect with {0}.mutation={1}", name, chosen));
  return lines;
}

Status MutationRule::Check(const NetworkDescription& network) const {
  if (!safe() || !network.needs_reference()) return Status::Ok();
  return {Code::kConfig, "ga.mutation: safe mutations of " + Shown(network.name) +
                             ", whose normalization depends on a reference batch; expected layers "
                             "without vbn and normalize, or ga.mutation=plain"};
}

Status MutationRule::Check(bool records) const {
  if (!safe() || records) return Status::Ok();
  return {Code::kConfig,
          "ga.mutation: actors that play whole episodes do not send back what they see; expected "
          "fleet.inference=engine, or ga.mutation=plain"};
}

void MutationRule::Describe(uint64_t episode, uint64_t experience_hash, Mutation& mutation) const {
  mutation.kind = kind == MutationKind::kSmGSum && legacy_sum ? MutationKind::kSmGSumLegacy : kind;
  mutation.clip = static_cast<float>(clip);
  mutation.episode = episode;
  mutation.experience = experience_hash;
}

std::vector<float> Sensitivity(MutationKind kind, const NetworkDescription& network,
                               std::span<const float> parent, const Experience& experience,
                               std::span<const float> delta) {
  const Jacobians jacobians(network, parent, experience.inputs, experience.begins);
  const auto states = static_cast<float>(jacobians.states());
  std::vector<float> s(network.parameter_count), sum(network.parameter_count);
  if (kind == MutationKind::kSmGSo) {
    jacobians.TransposedTimes(jacobians.Times(Direction(delta)), s);
    for (float& w : s) w = std::sqrt(std::abs(w * (2 / states)));
    return s;
  }
  const float scale = kind == MutationKind::kSmGSumLegacy ? 1 : 1 / states;
  for (size_t k = 0; k < network.output_size(); ++k) {
    if (kind == MutationKind::kSmGAbs)
      jacobians.SumAbs(k, sum);
    else
      jacobians.Sum(k, sum);
    for (size_t w = 0; w < s.size(); ++w) {
      const float mean = sum[w] * scale;
      s[w] += mean * mean;
    }
  }
  for (float& w : s) w = std::sqrt(w);
  return s;
}

void Mutate(const NetworkDescription& network, NoiseKind noise, const Mutation& mutation,
            std::span<const float> parent, const Experience* experience, std::span<float> child) {
  if (mutation.plain()) {
    const size_t evolved = network.evolved_count;
    GetNoise(noise).Add(mutation.key, mutation.power, 0, parent.first(evolved),
                        child.first(evolved));
    std::ranges::copy(parent.subspan(evolved), child.subspan(evolved).begin());
    return;
  }
  CHECK(experience != nullptr && !experience->inputs.empty());
  std::vector<float> delta(network.parameter_count);
  GetNoise(noise).Fill(mutation.key, 0, delta);
  for (float& d : delta) d *= mutation.power;
  if (mutation.kind == MutationKind::kSmR)
    return LineSearch(network, parent, *experience, Direction(delta), mutation.power, child);
  const std::vector<float> s = Sensitivity(mutation.kind, network, parent, *experience, delta);
  const float bound = mutation.clip > 0 ? mutation.clip : std::numeric_limits<float>::infinity();
  for (size_t w = 0; w < child.size(); ++w) {
    const float scale = s[w] == 0 ? 1 : std::max(s[w], kSensitivityMin);
    child[w] = parent[w] + std::clamp(delta[w] / scale, -bound, bound);
  }
}

double TEST_Divergence(const NetworkDescription& network, std::span<const float> parent,
                       std::span<const float> child, const Experience& experience) {
  return MeanSquaredDistance(Outputs(network, child, experience.inputs, experience.begins),
                             Outputs(network, parent, experience.inputs, experience.begins),
                             experience.inputs.size() / network.input_size());
}

// ---- after a resume

namespace {

// The ancestors of some individuals: what they share is there once.
struct Ancestor {
  size_t parent = SIZE_MAX;  // an earlier one
  Mutation mutation;         // from it
  const Genome* genome;      // one that begins with this ancestor
  size_t depth = 0;
  std::shared_ptr<std::vector<float>> parameters;
  std::map<uint64_t, SharedExperience> seen;  // by the key of its episode
};

class Ancestry {
 public:
  explicit Ancestry(std::span<const Genome> genomes) {
    for (const Genome& genome : genomes) {
      size_t at = Find(SIZE_MAX, {.key = genome.initial, .power = 0}, genome, 0);
      for (size_t i = 0; i < genome.mutations.size(); ++i) {
        const Mutation& m = genome.mutations[i];
        if (!m.plain()) all_[at].seen[m.episode] = nullptr;
        at = Find(at, m, genome, i + 1);
      }
      ends_.push_back(at);
    }
  }

  std::vector<Ancestor>& all() { return all_; }
  Ancestor& end(size_t genome) { return all_[ends_[genome]]; }

 private:
  size_t Find(size_t parent, const Mutation& m, const Genome& genome, size_t depth) {
    const auto [found, is_new] = known_.try_emplace(
        {parent, m.key, m.power, m.kind, m.clip, m.episode, m.experience}, all_.size());
    if (is_new)
      all_.push_back({.parent = parent,
                      .mutation = m,
                      .genome = &genome,
                      .depth = depth,
                      .parameters = nullptr,
                      .seen = {}});
    return found->second;
  }

  std::vector<Ancestor> all_;
  std::vector<size_t> ends_;  // by genome
  std::map<std::tuple<size_t, uint64_t, float, MutationKind, float, uint64_t, uint64_t>, size_t>
      known_;
};

// Parameters by the number of a task.
class Played : public ParameterSource {
 public:
  explicit Played(std::vector<const std::vector<float>*> parameters)
      : parameters_(std::move(parameters)) {}
  void Write(PolicyHandle policy, std::span<float> canonical) const override {
    std::ranges::copy(*parameters_[policy.id], canonical.begin());
  }

 private:
  std::vector<const std::vector<float>*> parameters_;
};

Status PlayAgain(const std::vector<Ancestor*>& ancestors, GenerationPlayer& player,
                 const StopToken& stop) {
  std::vector<const std::vector<float>*> parameters;
  std::vector<uint64_t> keys;
  std::vector<SharedExperience*> to;
  for (Ancestor* ancestor : ancestors)
    for (auto& [key, experience] : ancestor->seen)
      parameters.push_back(ancestor->parameters.get()), keys.push_back(key),
          to.push_back(&experience);
  if (keys.empty()) return Status::Ok();
  ASSIGN_OR_RETURN(const auto seen, player.Replay(Played(std::move(parameters)), keys, stop));
  for (size_t i = 0; i < to.size(); ++i) *to[i] = seen[i];
  return Status::Ok();
}

}  // namespace

Result<std::vector<Breeder>> Rebuild(const NetworkDescription& network,
                                     std::span<const Genome> genomes,
                                     std::span<const uint64_t> episodes, bool with_experience,
                                     GenerationPlayer& player, const StopToken& stop,
                                     const InitialPolicy* initial) {
  Ancestry ancestry(genomes);
  size_t depth = 0;
  for (size_t i = 0; i < genomes.size(); ++i) {
    if (with_experience) ancestry.end(i).seen[episodes[i]] = nullptr;
    depth = std::max(depth, genomes[i].mutations.size());
  }
  std::vector<std::vector<Ancestor*>> levels(depth + 1);
  for (Ancestor& ancestor : ancestry.all()) levels[ancestor.depth].push_back(&ancestor);

  std::vector<Breeder> breeders(genomes.size());
  for (size_t level = 0; level <= depth; ++level) {
    for (Ancestor* a : levels[level]) {
      a->parameters = std::make_shared<std::vector<float>>(network.parameter_count);
      if (level == 0) {
        InitialParameters(*a->genome, network, *a->parameters, initial);
        continue;
      }
      const Ancestor& parent = ancestry.all()[a->parent];
      const SharedExperience seen =
          a->mutation.plain() ? nullptr : parent.seen.at(a->mutation.episode);
      if (seen && seen->Hash() != a->mutation.experience)
        return Status(Code::kBadData,
                      "an ancestor's episode does not show the states that its child's mutation "
                      "used: the environment or the program is not the one of this run");
      Mutate(network, a->genome->noise, a->mutation, *parent.parameters, seen.get(),
             *a->parameters);
    }
    RETURN_IF_ERROR(PlayAgain(levels[level], player, stop));
    for (size_t i = 0; i < genomes.size(); ++i) {
      if (genomes[i].mutations.size() != level) continue;
      Ancestor& end = ancestry.end(i);
      breeders[i] = {end.parameters, with_experience ? end.seen.at(episodes[i]) : nullptr};
    }
    if (level > 0)
      for (Ancestor* a : levels[level - 1]) a->parameters.reset(), a->seen.clear();
  }
  return breeders;
}

}  // namespace samara
