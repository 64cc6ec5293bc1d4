// Whole runs in this process, in which every system call that changes a file fails once: a run ends
// well with all that it hands over on disk, or it fails, has no result, and a resume completes it.
// Built twice: without torch for evolutions, with it for learning runs.
#include <cerrno>

#include "config/presets.h"
#include "gtest/gtest.h"
#include "rl/algorithms/registry.h"
#include "storage/agent_state.h"
#include "storage/fsck.h"
#include "storage/storage_test_util.h"
#include "train/train.h"

namespace samara {
namespace {

using nlohmann::json;

struct Kind {
  const char* name;
  const char* preset;
  const char* hash;  // member of the result
  std::vector<std::string> keys;
  bool same_bits = true;  // a resume goes on with the same bits wherever it begins
};

std::vector<Kind> Kinds() {
  const std::vector<std::string> learning = {"learn.environments=4",  "learn.batch=4",
                                             "learn.unroll=4",        "learn.frames=48",
                                             "learn.test_episodes=1", "network.name=mlp-64-64-tanh",
                                             "inference.batch=4"};
  Kind evolution = {
      "evolution",
      "classic/cartpole-ga",
      "population_hash",
      {"ga.population=4", "ga.parents=2", "ga.generations=2", "ga.validation_candidates=1",
       "ga.validation_episodes=1", "ga.test_episodes=1", "run.final_test_episodes=1"}};
  Kind exact = {"deterministic", "classic/cartpole-vtrace", "parameter_hash", learning};
  Kind free = {"free", "classic/cartpole-vtrace", "parameter_hash", learning, false};
  exact.keys.push_back("learn.mode=deterministic");
  return HasAgents() ? std::vector<Kind>{exact, free} : std::vector<Kind>{evolution};
}

class TrainEndTest : public testing::TestWithParam<Kind> {
 protected:
  // The disk refuses for good: nothing is tried again.
  static Result<json> Run(const Path& out, const std::string& retry_seconds = "0") {
    const Kind& kind = GetParam();
    std::vector<std::string> keys = kind.keys;
    keys.insert(keys.end(), {"run.random_episodes=1", "fleet.threads=1", "run.seed=3",
                             "run.disk_retry_seconds=" + retry_seconds});
    ExperimentConfig config;
    const std::string toml = PresetText(kind.preset).ValueOrThrow();
    config.ChooseAlgorithm(toml, keys);
    ConfigTable table = config.Table();
    ThrowIfError(table.ParseToml(toml, kind.preset));
    for (const std::string& key : keys) ThrowIfError(table.Override(key));
    TrainOptions options;
    options.out = out;
    options.quiet = true;
    return Train(config, options);
  }
  static Result<json> Resume(const Path& run) {
    TrainOptions options;
    options.resume = run;
    options.quiet = true;
    ExperimentConfig config;
    TakeAlgorithm(config, options);
    return Train(config, options);
  }
  static std::string HashOf(const json& result) { return result[GetParam().hash]; }
  static bool HasResult(const Path& run) { return std::filesystem::exists(run / "result.json"); }

  void SetUp() override { testing::internal::CaptureStderr(); }  // the summaries of all runs
  void TearDown() override {
    ThrowIfError(AttachLogFile(folder_ / "last.txt"));  // not one of a folder that goes
    (void)testing::internal::GetCapturedStderr();
  }
  TempFolder folder_;
};

TEST_P(TrainEndTest, EveryCallMayFail) {
  const std::string hash = HashOf(Run(folder_ / "whole").ValueOrThrow());
  int failed = 0, unharmed = 0;
  for (int n = 1;; ++n) {
    const Path out = folder_ / ("run" + std::to_string(n));
    TEST_FailNthCall(n, n % 2 == 0 ? ENOSPC : EIO);
    const Result<json> ended = Run(out);
    if (TEST_FailurePending()) break;
    if (!ended.ok()) {
      ++failed;
      EXPECT_EQ(ended.status().code(), Code::kIoError) << n << ended.status().message();
      EXPECT_FALSE(HasResult(out)) << n << ": " << ended.status().message();
      if (!std::filesystem::exists(out)) continue;  // it failed before there was a run
    } else {
      ++unharmed;
      EXPECT_TRUE(HasResult(out)) << n;
      EXPECT_TRUE(Fsck(out)->status().ok()) << n << ": " << Fsck(out)->status().message();
    }
    const Result<json> resumed = Resume(out);
    ASSERT_TRUE(resumed.ok()) << n << ": " << resumed.status().message();
    if (GetParam().same_bits) {
      EXPECT_EQ(HashOf(*resumed), hash) << n;
    }
    if (ended.ok()) {
      EXPECT_EQ(HashOf(*resumed), HashOf(*ended)) << n;
    }
    EXPECT_TRUE(HasResult(out)) << n;
    const Status sound = Fsck(out)->status();
    EXPECT_TRUE(sound.ok()) << n << ": " << sound.message();
    std::filesystem::remove_all(out);
  }
  TEST_FailNthCall(0, 0);
  RecordProperty("failed", failed);
  RecordProperty("unharmed", unharmed);
  EXPECT_GT(failed, 25);
}

// One refusal is waited for: the run ends well, and all is there.
TEST_P(TrainEndTest, TheEndIsTriedAgain) {
  for (int n = 40;; n += 9) {  // after the folder is there
    const Path out = folder_ / ("run" + std::to_string(n));
    TEST_FailNthCall(n, ENOSPC);
    const Result<json> ended = Run(out, "60");
    if (TEST_FailurePending()) break;
    EXPECT_TRUE(ended.ok()) << n << ": " << ended.status().message();
    EXPECT_TRUE(Fsck(out)->status().ok()) << n << ": " << Fsck(out)->status().message();
  }
}

// Left by an earlier version: a result whose agent is not there.
TEST_P(TrainEndTest, AResultWithoutItsAgentIsCompleted) {
  if (GetParam().hash != std::string("parameter_hash")) return;  // a journal has all
  const Path out = folder_ / "run";
  const std::string hash = HashOf(Run(out).ValueOrThrow());
  for (const RootedPath& saved : ListCheckpoints(RootedPath::Root(out) / "checkpoints"))
    ASSERT_TRUE(RemoveTree(saved).ok());
  EXPECT_EQ(Fsck(out)->status().code(), Code::kBadData);
  const Result<json> resumed = Resume(out);
  ASSERT_TRUE(resumed.ok()) << resumed.status().message();
  if (GetParam().same_bits) {
    EXPECT_EQ(HashOf(*resumed), hash);
  }
  EXPECT_TRUE(Fsck(out)->status().ok()) << Fsck(out)->status().message();
  EXPECT_TRUE(std::filesystem::exists(out / "result.json.corrupt"));
}

INSTANTIATE_TEST_SUITE_P(All, TrainEndTest, testing::ValuesIn(Kinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace samara
