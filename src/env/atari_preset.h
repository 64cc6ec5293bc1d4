// SPDX-License-Identifier: Apache-2.0 OR MIT
// Atari presets: the conventions under which published agents saw the same games, every row fixed.
//
// One preset answers each row of doc/atari.md; name, version and hash stand in
// the run header and in checkpoints. The actor receives the rows as its whole configuration
// besides the game, the learner process uses those of the frame stack, the no-ops and the learner.
// doc/atari.md explains every row. Rows that only the actor reads are words; python/samara/atari.py
// lists them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"
#include "env/interface.h"
#include "nn/frame_stack.h"

namespace samara {

enum class LifeLoss : uint8_t { kIgnored, kZeroDiscount, kEndsEpisode };
enum class RewardRule : uint8_t { kRaw, kClip, kSign };  // for learners; scores are always raw

struct AtariPreset {
  std::string name;
  int version = 1;
  std::string_view origin;  // the implementation whose behaviour this is

  // play, done by the actor
  double sticky = 0;  // probability per emulated frame of repeating the last action
  std::string_view actions = "minimal";  // minimal | full
  int32_t noops_min = 1,
          noops_max = 30;        // raw frames on reset, uniform, drawn by the learner process
  bool noops_less_fire = false;  // one fewer when the action set has FIRE
  // none | before-noops | after-noops | after-noops-each-life | then-up | then-up-each-life
  std::string_view fire = "none";
  int64_t repeat = 4;  // emulated frames per action
  LifeLoss life_loss = LifeLoss::kIgnored;
  int64_t frames_max = 108'000;    // the environment's own limit in emulated frames
  bool limit_counts_reset = true;  // no-op and FIRE frames count towards frames_max
  bool limit_is_end = false;       // reaching it is reported as terminated

  // pictures, done by the actor
  std::string_view pooling = "gray-max";  // gray-max | rgb-max | none
  std::string_view gray = "ale";          // ale | y-truncated | cvtcolor | y-float | y-unit | rgb
  // last-two | pooled-stale | slots-stale | alone | padded | pair-stale
  std::string_view end = "pooled-stale";
  bool pool_at_reset = false;        // the first observation pools two frames, even of no-ops
  std::string_view resize = "area";  // area | linear | pil | pil-float | aligned | none
  int64_t height = 84, width = 84;   // 0 = the screen's own
  std::string_view dtype = "uint8";  // uint8 | float32

  // at the learner process
  FrameStackRule stack;
  RewardRule reward = RewardRule::kRaw;

  // how the original resets, for the reader: samara resets by an explicit command
  std::string_view autoreset;
  std::string_view seeding;

  // Every row as (name, JSON value), in a fixed order: what the hash covers.
  std::vector<std::pair<std::string, std::string>> Rows() const;
  std::string Hash() const;      // SHA-256 over Rows()
  std::string Identity() const;  // "ale-v5 version 1, 0123456789ab"
  std::string ToJson() const;    // {"name": ..., "hash": ..., "rows": {...}}
  std::string ToText() const;    // one line a row, for the run header
};

// NAME or NAME:HEIGHTxWIDTH, with observations of another size than the convention's. kConfig with
// the nearest name when unknown.
Result<AtariPreset> FindAtariPreset(std::string_view name);
std::vector<std::string> AtariPresetNames();

// Returns the environment_json of MakeActorFleet: {"kind": "atari", "game": ..., "preset": {...}}.
std::string AtariEnvironmentJson(const AtariPreset& preset, std::string_view game);

// Whether the action set of the game holds FIRE.
bool HasFire(const EnvironmentSpec& spec);
// Number of no-op frames of one episode: uniform over the preset's range, a pure function of the
// episode's seed.
int32_t DrawNoops(const AtariPreset& preset, uint64_t episode_seed, bool has_fire);

}  // namespace samara
