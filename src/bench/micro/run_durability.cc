// Measures the cost of durability: journal appends and full checkpoints on the disk of a given
// folder.
//
//   bench_run_durability [FOLDER]      default: the current folder
// Workloads: journal appends of 100 B, 4 kB, 64 kB; checkpoints of 64 kB, 1 MB, 16 MB, saved and
// read.
#include <fmt/format.h>

#include <algorithm>

#include "bench/micro/in_folder.h"
#include "core/clock.h"
#include "storage/checkpoint.h"
#include "storage/journal.h"

namespace samara {
namespace {

// "median 1.2 ms, worst 3.4 ms"
std::string Summary(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return fmt::format("median {:8.2f} ms, worst {:8.2f} ms", seconds[seconds.size() / 2] * 1e3,
                     seconds.back() * 1e3);
}

void BenchJournal(const Path& folder) {
  for (size_t bytes : {100, 4'096, 65'536}) {
    const Path path = folder / fmt::format("journal-{}.bin", bytes);
    const auto journal = Journal::Open(path, Journal::OnDamage::kRefuse, nullptr).ValueOrThrow();
    std::vector<double> seconds;
    for (int i = 0; i < 100; ++i) {
      const SteadyTime start = Now();
      ThrowIfError(journal->Append(1, std::string(bytes, 'x')));
      seconds.push_back(SecondsSince(start));
    }
    fmt::print("journal append {:>9} B   {}\n", bytes, Summary(seconds));
  }
}

void BenchCheckpoint(const Path& folder) {
  for (size_t bytes : {65'536, 1 << 20, 16 << 20}) {
    const Path checkpoints = folder / fmt::format("checkpoints-{}", bytes);
    ThrowIfError(CreateFolders(checkpoints));
    CheckpointWriter writer(checkpoints, {.keep_last = 3, .keep_hourly = false});
    const std::string state(bytes, 'x');
    const std::vector<CheckpointFile> files = {{"state.bin", state}};
    std::vector<double> save, read;
    for (uint64_t step = 1; step <= 12; ++step) {
      const SteadyTime start = Now();
      ThrowIfError(writer.Save({.step = step, .incarnation = 1}, files).status());
      save.push_back(SecondsSince(start));
      const SteadyTime saved = Now();
      ThrowIfError(LatestGoodCheckpoint(checkpoints, OnBadCheckpoint::kRefuse).status());
      read.push_back(SecondsSince(saved));
    }
    fmt::print("checkpoint save {:>8} B   {}\n", bytes, Summary(save));
    fmt::print("checkpoint read {:>8} B   {}\n", bytes, Summary(read));
  }
}

void Bench(const Path& folder) {
  BenchJournal(folder);
  BenchCheckpoint(folder);
}

}  // namespace
}  // namespace samara

int main(int argc, char** argv) {
  return samara::RunInFolder("bench_run_durability", argc, argv, samara::Bench);
}
