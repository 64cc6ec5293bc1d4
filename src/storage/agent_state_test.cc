#include "storage/agent_state.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "core/bytes.h"
#include "storage/checkpoint.h"
#include "storage/storage_test_util.h"

namespace samara {
namespace {

AgentState SomeAgent() {
  AgentState state;
  state.updates = 7, state.frames = 1000, state.seconds = 2.5;
  state.last_returns = {1, -2.5};
  return state;
}

TEST(AgentStateTest, DecodesWhatWasEncoded) {
  AgentState state = SomeAgent();
  for (int i = 0; i < 4; ++i) {
    const bool solved = i % 2 != 0, best = i / 2 != 0;
    state.solved.reset(), state.best.reset();
    if (solved) state.solved = AgentEvaluation{.frames = 900, .seconds = 2, .mean = 475};
    if (best) state.best = AgentEvaluation{.frames = 800, .seconds = 1.5, .mean = 480};
    const std::string bytes = state.Encode();
    const AgentState back = AgentState::Decode(bytes).ValueOrThrow();
    EXPECT_EQ(back.Encode(), bytes);
    EXPECT_EQ(back.updates, 7U);
    EXPECT_EQ(back.seconds, 2.5);
    EXPECT_EQ(std::vector(back.last_returns.begin(), back.last_returns.end()),
              (std::vector<double>{1, -2.5}));
    EXPECT_EQ(back.solved.has_value(), solved);
    EXPECT_EQ(back.best.has_value(), best);
    EXPECT_EQ(back.best.value_or(AgentEvaluation()).mean, best ? 480 : 0);
  }
}

// Version 1 has no best evaluation, and ends after the returns where the run was not solved.
TEST(AgentStateTest, DecodesTheFirstVersion) {
  AgentState state = SomeAgent();
  std::string bytes = state.Encode();
  bytes[0] = 1;
  bytes.resize(bytes.size() - 2);
  EXPECT_FALSE(AgentState::Decode(bytes)->solved);
  const AgentState solved =
      AgentState::Decode(bytes + ByteWriter().Put(uint64_t{900}).Put(2.0).Put(475.0).Take())
          .ValueOrThrow();
  EXPECT_EQ(solved.solved->frames, 900U);
  EXPECT_EQ(solved.solved->mean, 475);
  EXPECT_FALSE(solved.best);
  for (const size_t more : {1, 23, 25})  // of the 24 bytes of what solved it
    EXPECT_EQ(AgentState::Decode(bytes + std::string(more, '\1')).status().message(),
              "state.bin: damaged");
}

TEST(AgentStateTest, DamageIsRefused) {
  const std::string bytes = SomeAgent().Encode();
  const auto message = [](const std::string& read) {
    const Status status = AgentState::Decode(read).status();
    EXPECT_EQ(status.code(), Code::kBadData);
    return status.message();
  };
  const std::string other = "state.bin: not a learning run's, or a later version's";
  std::string later = bytes;
  later[0] = 3;
  EXPECT_EQ(message(later), other);
  // up to the number of returns, then up to their end
  const size_t numbers = bytes.size() - 2 - 2 * sizeof(double);
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_EQ(message(bytes.substr(0, size)), size < numbers ? other : "state.bin: damaged")
        << size;
  EXPECT_EQ(message(bytes + '\0'), "state.bin: damaged");
  for (const size_t flag : {1, 2}) {  // whether there is an evaluation
    std::string wrong = bytes;
    wrong[bytes.size() - flag] = 2;
    EXPECT_EQ(message(wrong + std::string(24, '\0')), "state.bin: damaged") << flag;
  }
  std::string many = bytes;
  many.replace(numbers - sizeof(uint64_t), 1, "\xff");  // more returns than are kept
  EXPECT_EQ(message(many), other);
}

class LatestAgentTest : public testing::Test {
 protected:
  LatestAgentTest()
      : run_(RunFolder::Create(folder_ / "run", "x", "[run]\n", {{"seed", 1}}, 0).ValueOrThrow()) {}
  Path Save(uint64_t update) const {
    const std::vector<CheckpointFile> files = {{"weights.safetensors", "weights"}};
    return CheckpointWriter(run_->checkpoints())
        .Save({.step = update, .incarnation = 1, .note = {{"parameter_hash", "ab"}}}, files)
        .ValueOrThrow()
        .path();
  }
  void ExpectRefused(OnBadCheckpoint on_bad, Code code, const std::string& message) const {
    const Status status = LatestAgent(*run_, on_bad).status();
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(status.message(), message);
  }
  std::string Advice(const std::string& then = "") const {
    return "'samara train --resume " + (folder_ / "run").string() + "'" + then;
  }

  TempFolder folder_;
  std::unique_ptr<RunFolder> run_;
};

TEST_F(LatestAgentTest, IsThatOfTheLastGoodCheckpoint) {
  const std::string run = (folder_ / "run").string(), pid = std::to_string(::getpid());
  ExpectRefused(OnBadCheckpoint::kSkip, Code::kNoInput,
                run + ": holds no checkpoint yet: process " + pid +
                    " trains it; wait for the first, or ask for one by 'kill -USR1 " + pid + "'");
  const auto reader = RunFolder::Open(run, RunFolder::Mode::kRead).ValueOrThrow();
  run_.reset();
  EXPECT_EQ(LatestAgent(*reader, OnBadCheckpoint::kSkip).status().message(),
            run + ": holds no checkpoint yet: continue it by " + Advice());
  run_ = RunFolder::Open(run, RunFolder::Mode::kWrite).ValueOrThrow();
  Save(3);
  const Path last = Save(5);
  const StoredCheckpoint found = LatestAgent(*run_, OnBadCheckpoint::kRefuse).ValueOrThrow();
  EXPECT_EQ(found.info.step, 5U);
  EXPECT_EQ(ParameterHash(found.info, found.path).ValueOrThrow(), "ab");
  Overwrite(last / "weights.safetensors", "weightz");
  EXPECT_EQ(LatestAgent(*run_, OnBadCheckpoint::kSkip)->info.step, 3U);
  EXPECT_TRUE(LatestAgent(*run_, OnBadCheckpoint::kRefuse)
                  .status()
                  .message()
                  .ends_with("; " + Advice(" continues from the one before it")));
  for (const auto& entry : std::filesystem::directory_iterator(run_->checkpoints().path()))
    Overwrite(entry.path() / "weights.safetensors", "weightz");
  ExpectRefused(OnBadCheckpoint::kSkip, Code::kBadData,
                (folder_ / "run").string() +
                    ": every checkpoint is damaged, 2 of them; restore a copy, or start again");
}

}  // namespace
}  // namespace samara
