// Shared by the tests of fleets: fixed episodes and actions, a player that runs episodes to their
// end and again when they are lost, and records that compare bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/rng.h"
#include "fleet/actor_process.h"
#include "fleet/fleet.h"

namespace samara {

// The release build next to the sources holds the extension when this build (a sanitizer's) does
// not.
inline std::string PythonPathForTests() {
  const std::string beside = DefaultPythonPath();
  if (std::filesystem::exists(beside + "/samara/actor.py")) return beside;
  return std::string(SAMARA_SOURCE_DIR) + "/build/python";
}

#define REQUIRE_ACTORS()                                                            \
  if (!std::filesystem::exists(PythonPathForTests() + "/samara/actor.py"))          \
  GTEST_SKIP() << "SKIPPED LOUDLY: no Python extension in " << PythonPathForTests() \
               << "; build the release preset first (make build)"

inline ActorFleetOptions DummyActors(const std::string& environment) {
  ActorFleetOptions options;
  options.python = SAMARA_PYTHON;
  options.python_path = PythonPathForTests();
  options.environment_json = environment;
  return options;
}

// Episode `e` of a test: every third is cut by its limit of frames.
inline EpisodeSpec EpisodeOf(uint64_t e) {
  return {.seed = DeriveKey(17, Purpose::kEpisodeTest, 0, 0, e),
          .noops = static_cast<int32_t>(e % 5),
          .frames_max = e % 3 == 2 ? 40 : 0};
}

// The action of `step` in `episode`: a pure function, as a policy's should be.
class TestAction {
 public:
  TestAction(const ActionSpec& spec, uint64_t episode, uint32_t step) {
    const CounterRng rng(episode);
    if (spec.discrete) {
      index_ = static_cast<int32_t>(rng.UniformInt(step, static_cast<uint64_t>(spec.n)));
      return;
    }
    for (int64_t i = 0; i < spec.n; ++i)
      values_.push_back(
          static_cast<float>(rng.Uniform(step * 100 + static_cast<uint64_t>(i)) * 2 - 1));
  }
  Action get() const { return {.index = index_, .values = values_}; }

 private:
  int32_t index_ = 0;
  std::vector<float> values_;
};

// All that an episode showed, in the bits in which it showed it.
class PlayedEpisode {
 public:
  void Add(uint32_t step, const StepResult& r, std::span<const std::byte> observation) {
    steps_ = step;
    frames_ += r.frames;
    bytes_.append(reinterpret_cast<const char*>(&r.reward), sizeof(r.reward));
    bytes_ += static_cast<char>(r.terminated);
    bytes_ += static_cast<char>(r.truncated);
    bytes_ += static_cast<char>(r.life_lost);
    bytes_ += std::to_string(step) + "/" + std::to_string(r.frames);
    bytes_.append(reinterpret_cast<const char*>(observation.data()), observation.size());
  }
  uint32_t steps() const { return steps_; }
  uint64_t frames() const { return frames_; }
  bool operator==(const PlayedEpisode&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const PlayedEpisode& r) {
    return out << r.steps_ << " steps, bits " << std::hash<std::string>()(r.bytes_);
  }

 private:
  std::string bytes_;
  uint32_t steps_ = 0;
  uint64_t frames_ = 0;
};

inline SlotEvent WaitForOne(Fleet& fleet,
                            std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  SlotEvent event;
  EXPECT_EQ(fleet.Wait({&event, 1}, timeout), 1U) << "no event in time";
  return event;
}

inline std::vector<float> ReadFloats(std::span<const std::byte> bytes) {
  std::vector<float> result(bytes.size() / 4);
  std::memcpy(result.data(), bytes.data(), result.size() * 4);
  return result;
}

// Plays episodes 0..n-1 over all slots; an episode that is lost is begun again.
class Player {
 public:
  explicit Player(Fleet& fleet) : fleet_(fleet), running_(fleet.slots()) {}

  std::vector<PlayedEpisode> Play(uint64_t episodes,
                                  const std::function<void(const SlotEvent&)>& watch = nullptr) {
    std::vector<PlayedEpisode> records(episodes);
    uint64_t next = 0, done = 0;
    for (uint32_t s = 0; s < fleet_.slots() && next < episodes; ++s) Begin(s, next++);
    std::vector<SlotEvent> events(fleet_.slots());
    while (done < episodes) {
      const size_t n = fleet_.Wait(events, std::chrono::seconds(30));
      if (n == 0) {
        ADD_FAILURE() << "no event in 30 s: " << fleet_.status().message();
        break;
      }
      for (size_t i = 0; i < n; ++i) {
        const SlotEvent& event = events[i];
        if (watch) watch(event);
        if (event.kind == SlotEvent::Kind::kFailed) {
          ADD_FAILURE() << "kFailed: " << fleet_.status().message();
          return records;
        }
        Answer(event, records[event.episode]);
        if (event.kind != SlotEvent::Kind::kEnded) continue;
        ++done;
        if (next < episodes) Begin(event.slot, next++);
      }
    }
    return records;
  }

  // Events without a command: commands minus events must be zero for every slot.
  int surplus_events() {
    SlotEvent event;
    int surplus = static_cast<int>(fleet_.Wait({&event, 1}, std::chrono::milliseconds(5)));
    for (const auto& r : running_) surplus += r.owed != 0 ? 1 : 0;
    return surplus;
  }
  uint64_t lost() const { return lost_; }

 private:
  struct Running {
    uint64_t episode = 0;
    int owed = 0;
  };

  void Begin(uint32_t slot, uint64_t episode) {
    running_[slot].episode = episode;
    ++running_[slot].owed;
    fleet_.Begin(slot, episode, EpisodeOf(episode));
  }

  void Answer(const SlotEvent& event, PlayedEpisode& record) {
    Running& running = running_[event.slot];
    EXPECT_EQ(--running.owed, 0) << "one event per command";
    EXPECT_EQ(event.episode, running.episode);
    if (event.kind == SlotEvent::Kind::kLost) {
      ++lost_;
      record = {};
      return Begin(event.slot, event.episode);
    }
    if (event.step > 0) {
      EXPECT_EQ(event.step, record.steps() + 1);
    }
    record.Add(event.step, event.result, fleet_.observation(event.slot));
    if (event.kind != SlotEvent::Kind::kObservation) return;
    ++running.owed;
    fleet_.Act(event.slot, TestAction(fleet_.spec().action, event.episode, event.step + 1).get());
  }

  Fleet& fleet_;
  std::vector<Running> running_;
  uint64_t lost_ = 0;
};

}  // namespace samara
