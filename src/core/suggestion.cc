// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/suggestion.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <utility>

namespace samara {
namespace {

std::string Lower(std::string_view text) {
  std::string out;
  for (char c : text) out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row.back();
}

// "ga.population" -> "population"
std::string_view LastPart(std::string_view name) {
  return name.substr(name.find_last_of("/.") + 1);
}

// {whether neither begins the other, edit distance}: a name that was cut short, or carries too
// much, is nearer than any misspelt one. Without the first parts of a name, its last part stands
// for it.
std::pair<bool, size_t> DistanceOf(std::string_view word, std::string_view candidate) {
  constexpr size_t kWordMin = 3, kOtherTable = 2;
  const auto distance = [](std::string_view a, std::string_view b) {
    const bool begins =
        !a.empty() && (b.starts_with(a) || (b.size() >= kWordMin && a.starts_with(b)));
    return std::pair{!begins, EditDistance(a, b)};
  };
  auto last = distance(LastPart(word), LastPart(candidate));
  // a known name of another table is far enough for a slip in the table's name to be nearer
  if (LastPart(word) != word) last = {true, last.second + kOtherTable};
  return std::min(distance(word, candidate), last);
}

struct OtherName {
  std::string_view name;
  std::vector<std::string_view> keys;  // ours or how ours end; the first that there is
};

// Names of Stable-Baselines3, CleanRL, RLlib and others.
const std::vector<OtherName>& OtherNames() {
  static const std::vector<OtherName> names = {
      {"lr", {"optimizer.learning_rate", ".learning_rate"}},
      {"learning_rate", {"optimizer.learning_rate", ".learning_rate"}},
      {"total_timesteps", {".frames"}},
      {"timesteps", {".frames"}},
      {"total_steps", {".frames"}},
      {"n_envs", {"learn.environments", "fleet.slots"}},
      {"num_envs", {"learn.environments", "fleet.slots"}},
      {"batch_size", {"replay.batch", "learn.batch"}},
      {"n_steps", {"learn.unroll"}},
      {"num_steps", {"learn.unroll"}},
      {"n_epochs", {"learn.epochs"}},
      {"update_epochs", {"learn.epochs"}},
      {"num_minibatches", {"learn.minibatches"}},
      {"ent_coef", {"learn.entropy_cost"}},
      {"clip_range", {".clip"}},
      {"clip_coef", {".clip"}},
      {"gae_lambda", {".lambda"}},
      {"discount", {".gamma"}},
      {"max_grad_norm", {"optimizer.clip_norm"}},
      {"pop_size", {".population"}},
      {"popsize", {".population"}},
      {"population_size", {".population"}},
      {"num_workers", {"fleet.actors"}},
      {"n_jobs", {"fleet.threads"}},
      {"env", {"env.id"}},
      {"env_id", {"env.id"}},
      {"env_name", {"env.id"}},
      {"algo", {"run.algorithm"}},
      {"seed", {"run.seed"}},
      {"device", {"run.device"}},
  };
  return names;
}

}  // namespace

std::string Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  word = word.substr(0, 100);  // longer than any name
  std::string best;
  std::pair<bool, size_t> best_distance{true, SIZE_MAX};
  for (const auto& candidate : candidates) {
    const auto distance = DistanceOf(Lower(word), Lower(candidate));
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  return best;
}

std::string Suggestion(std::string_view word, const std::vector<std::string>& candidates) {
  word = word.substr(0, 100);
  std::string nearest = Nearest(word, candidates);
  const std::string given = Lower(word), meant = Lower(nearest);
  const auto near = [](std::string_view a, std::string_view b) {
    return 2 * EditDistance(a, b) <= a.size();
  };
  const bool begins = !DistanceOf(given, meant).first;
  constexpr size_t kTellsMuch = 4;  // letters of a last part
  const std::string_view last = LastPart(given);
  const bool ends = last.size() >= kTellsMuch && near(last, LastPart(meant));
  return begins || ends || near(given, meant) ? nearest : "";
}

std::string SuggestedKey(std::string_view word, const std::vector<std::string>& keys) {
  const auto other = std::ranges::find(OtherNames(), Lower(word), &OtherName::name);
  if (other == OtherNames().end()) return Suggestion(word, keys);
  for (const std::string_view ending : other->keys) {
    const auto key = std::ranges::find_if(keys, [ending](const std::string& k) {
      return k == ending || (ending[0] == '.' && k.ends_with(ending));
    });
    if (key != keys.end()) return *key;
  }
  return {};
}

}  // namespace samara
