// How long a learner stands still while a checkpoint of a full gigabyte of replay is saved, on the
// disk of a given folder: at once, or after its parts were written ahead between updates.
//
//   bench_replay_checkpoint [FOLDER]      default: the current folder
// Steps of the size of MuJoCo's Humanoid, an eighth of them in common with the next unroll. Between
// two checkpoints a hundredth of the replay is new.
#include <fmt/format.h>

#include "bench/micro/in_folder.h"
#include "core/clock.h"
#include "core/rng.h"
#include "rl/learner/replay_files.h"
#include "rl/replay/unroll_replay.h"
#include "storage/checkpoint.h"

namespace samara {
namespace {

constexpr uint32_t kLength = 8;
constexpr size_t kFloats = 376, kActions = 17;
constexpr uint64_t kBlocks = 75'000;

class FullReplay {
 public:
  FullReplay()
      : replays_{UnrollReplay({.capacity = kBlocks * kLength,
                               .length = kLength,
                               .observation_bytes = kFloats * sizeof(float),
                               .action_values = kActions})} {
    unroll_.entries = kLength + 1;
    unroll_.headers.resize(unroll_.entries);
    unroll_.action_values.resize(unroll_.entries * kActions);
    unroll_.observations.resize(unroll_.entries * kFloats * sizeof(float));
    Add(kBlocks + kBlocks / 3);
  }

  void Add(uint64_t blocks) {
    for (uint64_t block = 0; block < blocks; ++block) {
      const CounterRng rng(replays_[0].added());
      for (size_t i = 0; i < unroll_.observations.size(); i += 64)
        unroll_.observations[i] = static_cast<std::byte>(rng.Bits(i));
      replays_[0].Add(unroll_);
    }
  }

  // As AgentTrainer::SavePartsAhead.
  void WriteAhead(CheckpointWriter& writer, uint64_t step) const {
    double longest = 0, all = 0;
    int turns = 0;
    for (bool more = true; more; ++turns) {
      const SteadyTime start = Now();
      const auto parts = SaveNextParts(replays_, 0, writer.Kept({.step = step, .incarnation = 1}));
      for (const auto& [name, bytes] : parts) ThrowIfError(writer.WriteAhead(name, bytes));
      more = !parts.empty();
      longest = std::max(longest, SecondsSince(start)), all += SecondsSince(start);
    }
    fmt::print("ahead of {}: {:6.2f} s in {} turns, the longest {:5.2f} s\n", step, all, turns,
               longest);
  }

  // As AgentTrainer does, without the rest of an agent.
  void Save(CheckpointWriter& writer, uint64_t step) const {
    const SteadyTime start = Now();
    const CheckpointInfo info = {.step = step, .incarnation = 1};
    const std::set<std::string> kept = writer.Kept(info);
    std::map<std::string, std::string> contents;
    SaveReplays(replays_, 0, kept, contents);
    std::vector<CheckpointFile> files;
    uint64_t bytes = 0;
    for (const auto& [name, content] : contents) {
      files.push_back({name, content, name != kReplayFile && kept.contains(name)});
      bytes += content.size();
    }
    const double encode = SecondsSince(start);
    ThrowIfError(writer.Save(info, files).status());
    fmt::print("checkpoint {}: {:6.2f} s, of which {:5.2f} s to encode; {:4} MB in {} new files\n",
               step, SecondsSince(start), encode, bytes / 1'000'000,
               std::ranges::count(files, false, &CheckpointFile::kept));
  }

 private:
  std::vector<UnrollReplay> replays_;
  Unroll unroll_;
};

void Bench(const Path& folder) {
  FullReplay replay;
  uint64_t step = 0;
  for (const bool ahead : {false, true}) {
    CheckpointWriter writer(folder, {.keep_last = 3, .keep_hourly = false});
    for (int i = 0; i < 4; ++i) {
      ++step;
      if (ahead) replay.WriteAhead(writer, step);
      replay.Save(writer, step);
      replay.Add(kBlocks / 100);
    }
  }
}

}  // namespace
}  // namespace samara

int main(int argc, char** argv) {
  return samara::RunInFolder("bench_replay_checkpoint", argc, argv, samara::Bench);
}
