// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "env/atari_preset.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/parse_number.h"
#include "core/rng.h"
#include "core/sha256.h"
#include "core/suggestion.h"

namespace samara {
namespace {

std::string_view Name(LifeLoss rule) {
  switch (rule) {
    case LifeLoss::kIgnored:
      return "ignored";
    case LifeLoss::kZeroDiscount:
      return "zero-discount";
    case LifeLoss::kEndsEpisode:
      return "ends-episode";
  }
  return "?";
}

std::string_view Name(RewardRule rule) {
  switch (rule) {
    case RewardRule::kRaw:
      return "raw";
    case RewardRule::kClip:
      return "clip";
    case RewardRule::kSign:
      return "sign";
  }
  return "?";
}

constexpr FrameStackRule kRepeatFirst{4, StackOrder::kOldestFirst, StackReset::kRepeat};
constexpr FrameStackRule kZerosFirst{4, StackOrder::kOldestFirst, StackReset::kZeros};
constexpr FrameStackRule kZerosNewestFirst{4, StackOrder::kNewestFirst, StackReset::kZeros};
constexpr FrameStackRule kFromFront{4, StackOrder::kOldestFirst, StackReset::kFront};
constexpr FrameStackRule kNone{1, StackOrder::kOldestFirst, StackReset::kRepeat};

// ---- the presets, one function each: rows not named keep the defaults of the struct

AtariPreset AleV5() {
  AtariPreset p;
  p.name = "ale-v5";
  p.origin = "Gymnasium ALE/X-v5 with frameskip 1, AtariPreprocessing, FrameStackObservation";
  p.sticky = 0.25;
  p.stack = kRepeatFirst;
  p.autoreset = "none";
  p.seeding = "seed sequence; a seed loads the ROM again";
  return p;
}

AtariPreset AleV5Raw() {
  AtariPreset p = AleV5();
  p.name = "ale-v5-raw";
  p.origin = "Gymnasium ALE/X-v5 as it is";
  p.noops_min = p.noops_max = 0;
  p.pooling = "none", p.gray = "rgb", p.end = "last-two", p.resize = "none";
  p.height = p.width = 0;
  p.stack = kNone;
  return p;
}

AtariPreset AleVector() {
  AtariPreset p;
  p.name = "ale-vector";
  p.origin = "ale-py 0.12 AtariVectorEnv";
  p.sticky = 0.25;
  p.noops_min = 0, p.noops_max = 29, p.noops_less_fire = true;
  p.fire = "before-noops";
  p.limit_counts_reset = false;
  p.stack = kZerosFirst;
  p.reward = RewardRule::kClip;
  p.autoreset = "next step";
  p.seeding = "seed + environment index";
  return p;
}

AtariPreset Envpool() {
  AtariPreset p;
  p.name = "envpool";
  p.origin = "EnvPool X-v5";
  p.noops_less_fire = true;
  p.fire = "after-noops";
  p.end = "alone";
  p.limit_counts_reset = false;  // 27,000 steps of 4 frames
  p.stack = kRepeatFirst;
  p.autoreset = "next step, its action discarded";
  p.seeding = "seed + environment index";
  return p;
}

AtariPreset EnvpoolLives() {
  AtariPreset p = Envpool();
  p.name = "envpool-lives";
  p.origin = "EnvPool X-v5 with lives that end and begin for a learner";
  p.fire = "after-noops-each-life";
  p.life_loss = LifeLoss::kZeroDiscount;
  return p;
}

AtariPreset Cleanba() {
  AtariPreset p = Envpool();
  p.name = "cleanba";
  p.origin = "Cleanba on EnvPool";
  p.sticky = 0.25;
  p.actions = "full";
  p.noops_min = p.noops_max = 1;
  p.reward = RewardRule::kSign;
  return p;
}

AtariPreset Seed() {
  AtariPreset p;
  p.name = "seed";
  p.origin = "seed_rl R2D2";
  p.actions = "full";
  p.end = "slots-stale", p.resize = "linear";
  p.limit_is_end = true;
  p.stack = kZerosNewestFirst;
  p.autoreset = "same step, no final observation";
  p.seeding = "task id";
  return p;
}

AtariPreset SeedSticky() {
  AtariPreset p = Seed();
  p.name = "seed-sticky";
  p.sticky = 0.25;
  return p;
}

AtariPreset DqnZoo() {
  AtariPreset p;
  p.name = "dqn-zoo";
  p.origin = "DQN Zoo (papers of DeepMind)";
  p.life_loss = LifeLoss::kZeroDiscount;
  p.pooling = "rgb-max", p.gray = "y-truncated", p.end = "padded", p.resize = "pil";
  p.stack = kFromFront;
  p.reward = RewardRule::kClip;
  p.autoreset = "next step, its action discarded";
  p.seeding = "given";
  return p;
}

AtariPreset R2d2Paper() {
  AtariPreset p = DqnZoo();
  p.name = "r2d2-paper";
  p.actions = "full";
  p.life_loss = LifeLoss::kIgnored;
  p.reward = RewardRule::kRaw;
  return p;
}

AtariPreset Dopamine() {
  AtariPreset p;
  p.name = "dopamine";
  p.origin = "Dopamine";
  p.sticky = 0.25;
  p.noops_min = p.noops_max = 0;
  p.end = "slots-stale";
  p.frames_max = 100'000;
  p.stack = kZerosFirst;
  p.reward = RewardRule::kClip;
  p.autoreset = "by the runner";
  p.seeding = "given";
  return p;
}

AtariPreset DqnNoFrameskipV4() {
  AtariPreset p;
  p.name = "dqn-noframeskip-v4";
  p.origin = "OpenAI Baselines wrappers on XNoFrameskip-v4";
  p.fire = "then-up-each-life";
  p.life_loss = LifeLoss::kEndsEpisode;
  p.frames_max = 400'000;
  p.pooling = "rgb-max", p.gray = "cvtcolor", p.end = "pair-stale";
  p.stack = kRepeatFirst;
  p.reward = RewardRule::kSign;
  p.autoreset = "by the caller";
  p.seeding = "given";
  return p;
}

AtariPreset DeepGa() {
  AtariPreset p;
  p.name = "deepga";
  p.origin = "Uber deep-neuroevolution, distributed Python";
  p.fire = "then-up";
  p.frames_max = 400'000;
  p.pooling = "rgb-max", p.gray = "y-float", p.end = "last-two", p.resize = "pil-float";
  p.stack = kRepeatFirst;
  p.autoreset = "by the caller";
  p.seeding = "none (time)";
  return p;
}

AtariPreset DeepGaGpu() {
  AtariPreset p;
  p.name = "deepga-gpu";
  p.origin = "Uber deep-neuroevolution, TensorFlow op";
  p.fire = "then-up";
  p.frames_max = 400'000;
  p.limit_counts_reset = false;
  p.gray = "y-unit", p.end = "last-two", p.resize = "aligned";
  p.pool_at_reset = true;
  p.dtype = "float32";
  p.stack = kZerosFirst;
  p.autoreset = "by the caller";
  p.seeding = "none (time)";
  return p;
}

AtariPreset AleSticky() {
  AtariPreset p;
  p.name = "ale-sticky";
  p.origin = "samara: the evaluation protocol of Machado et al. 2018";
  p.sticky = 0.25;
  p.actions = "full";
  p.noops_min = p.noops_max = 0;
  p.end = "last-two";
  p.limit_counts_reset = false;
  p.stack = kRepeatFirst;
  p.autoreset = "final observation apart";
  p.seeding = "key of the episode";
  return p;
}

const std::vector<AtariPreset>& Presets() {
  static const std::vector<AtariPreset> presets = {
      AleV5(),      AleVector(), Envpool(),  EnvpoolLives(),     Seed(),
      SeedSticky(), DqnZoo(),    Dopamine(), DqnNoFrameskipV4(), DeepGa(),
      DeepGaGpu(),  AleV5Raw(),  Cleanba(),  R2d2Paper(),        AleSticky()};
  return presets;
}

// `size`: HEIGHTxWIDTH.
Status Resize(AtariPreset& preset, std::string_view size) {
  constexpr int64_t kSmallest = 16, kLargest = 256;
  const auto bad = [&](std::string_view expected) {
    return Status(Code::kConfig, fmt::format("env.preset={}:{}: {}", preset.name, size, expected));
  };
  if (preset.resize == "none") return bad("this preset does not resize; give it without a size");
  const size_t x = std::min(size.find('x'), size.size());
  const int64_t height = ParseNumber<int64_t>(size.substr(0, x)).value_or(0),
                width = ParseNumber<int64_t>(size.substr(std::min(x + 1, size.size()))).value_or(0);
  for (const int64_t of : {height, width})
    if (of < kSmallest || of > kLargest)
      return bad("expected HEIGHTxWIDTH of 16 to 256 pixels, such as 42x42");
  preset.height = height, preset.width = width;
  preset.name += fmt::format(":{}x{}", height, width);
  return {};
}

std::string Quote(std::string_view text) { return fmt::format("\"{}\"", text); }
std::string Bool(bool value) { return value ? "true" : "false"; }

}  // namespace

std::vector<std::pair<std::string, std::string>> AtariPreset::Rows() const {
  return {{"origin", Quote(origin)},
          {"sticky", fmt::format("{}", sticky)},
          {"actions", Quote(actions)},
          {"noops_min", std::to_string(noops_min)},
          {"noops_max", std::to_string(noops_max)},
          {"noops_less_fire", Bool(noops_less_fire)},
          {"fire", Quote(fire)},
          {"repeat", std::to_string(repeat)},
          {"life_loss", Quote(Name(life_loss))},
          {"frames_max", std::to_string(frames_max)},
          {"limit_counts_reset", Bool(limit_counts_reset)},
          {"limit_is_end", Bool(limit_is_end)},
          {"pooling", Quote(pooling)},
          {"gray", Quote(gray)},
          {"end", Quote(end)},
          {"pool_at_reset", Bool(pool_at_reset)},
          {"resize", Quote(resize)},
          {"height", std::to_string(height)},
          {"width", std::to_string(width)},
          {"dtype", Quote(dtype)},
          {"stack_depth", std::to_string(stack.depth)},
          {"stack_order", Quote(Name(stack.order))},
          {"stack_reset", Quote(Name(stack.at_reset))},
          {"reward", Quote(Name(reward))},
          {"autoreset", Quote(autoreset)},
          {"seeding", Quote(seeding)}};
}

std::string AtariPreset::Hash() const {
  std::string text = fmt::format("{} {}\n", name, version);
  for (const auto& [row, value] : Rows()) text += fmt::format("{}={}\n", row, value);
  return Sha256Hex(text);
}

std::string AtariPreset::Identity() const {
  return fmt::format("{} version {}, {}", name, version, Hash().substr(0, 12));
}

std::string AtariPreset::ToJson() const {
  std::string rows;
  for (const auto& [row, value] : Rows()) {
    rows += fmt::format("{}\"{}\": {}", rows.empty() ? "" : ", ", row, value);
  }
  return fmt::format(R"({{"name": "{}", "version": {}, "hash": "{}", "rows": {{{}}}}})", name,
                     version, Hash(), rows);
}

std::string AtariPreset::ToText() const {
  std::string text = fmt::format("preset {}\n", Identity());
  for (auto [row, value] : Rows()) {
    std::erase(value, '"');
    text += fmt::format("  {:<18} {}\n", row, value);
  }
  return text;
}

std::vector<std::string> AtariPresetNames() {
  std::vector<std::string> names;
  for (const auto& preset : Presets()) names.push_back(preset.name);
  return names;
}

Result<AtariPreset> FindAtariPreset(std::string_view name) {
  const size_t colon = std::min(name.find(':'), name.size());
  const std::string_view convention = name.substr(0, colon), size = name.substr(colon);
  const auto& presets = Presets();
  const auto found = std::ranges::find(presets, convention, &AtariPreset::name);
  if (found == presets.end())
    return Status(Code::kConfig, fmt::format("env.preset={}: no such Atari preset; nearest is {}",
                                             name, Nearest(convention, AtariPresetNames())));
  AtariPreset preset = *found;
  if (!size.empty()) RETURN_IF_ERROR(Resize(preset, size.substr(1)));
  return preset;
}

std::string AtariEnvironmentJson(const AtariPreset& preset, std::string_view game) {
  std::string safe;  // a game's name comes from the user: keep the JSON well-formed
  for (const char c : game) {
    if (c == '"' || c == '\\') safe += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) safe += c;
  }
  return fmt::format(R"({{"kind": "atari", "game": "{}", "preset": {}}})", safe, preset.ToJson());
}

bool HasFire(const EnvironmentSpec& spec) {
  return std::ranges::find(spec.action_names, "FIRE") != spec.action_names.end();
}

int32_t DrawNoops(const AtariPreset& preset, uint64_t episode_seed, bool has_fire) {
  const auto range = static_cast<uint64_t>(preset.noops_max - preset.noops_min + 1);
  const CounterRng rng(DeriveKey(episode_seed, Purpose::kNoops));
  const int32_t drawn = preset.noops_min + static_cast<int32_t>(rng.UniformInt(0, range));
  return std::max(0, drawn - static_cast<int32_t>(preset.noops_less_fire && has_fire));
}

}  // namespace samara
