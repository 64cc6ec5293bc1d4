#include "rl/learner/learner_batch.h"

#include <gtest/gtest.h>

#include "core/rng.h"

namespace samara::learner_batch_test {
namespace {

constexpr int64_t kHeight = 3, kWidth = 2;

// Input of a network, as float32 [row][column][channel]: each channel has a stack of its own from
// nn/frame_stack.h, which evolution plays with.
class Seen {
 public:
  Seen(const FrameStackRule& rule, int64_t channels)
      : depth_(static_cast<size_t>(rule.depth)),
        stacks_(static_cast<size_t>(channels), FrameStack(rule, kHeight * kWidth)) {}

  std::vector<float> Next(const std::vector<uint8_t>& frame, bool first) {
    const size_t channels = stacks_.size();
    std::vector<float> input(frame.size() * depth_);
    for (size_t c = 0; c < channels; ++c) {
      std::vector<uint8_t> gray;
      for (size_t i = c; i < frame.size(); i += channels) gray.push_back(frame[i]);
      first ? stacks_[c].Reset(gray) : stacks_[c].Push(gray);
      const auto stacked = stacks_[c].input();
      for (size_t i = 0; i < stacked.size(); ++i) input[i * channels + c] = stacked[i];
    }
    return input;
  }

 private:
  size_t depth_;
  std::vector<FrameStack> stacks_;
};

std::vector<float> Input(const torch::Tensor& image) {
  const torch::Tensor whole = image.to(torch::kFloat32).contiguous() / 255;
  return {whole.data_ptr<float>(), whole.data_ptr<float>() + whole.numel()};
}

// One slot's episodes of 1 to 9 steps, every other one truncated, in unrolls of `length`.
void ExpectTheLearnerSeesWhatWasPlayed(const FrameStackRule& rule, int64_t channels,
                                       uint32_t length) {
  ObservationSpec spec{DType::kUint8, {kHeight, kWidth}};
  if (channels > 1) spec.shape.push_back(channels);
  const InputLayout layout = InputLayout::Make(spec, rule);
  ModelShape shape;
  shape.observation_bytes = spec.bytes(), shape.behaviour = 1;
  shape.history_bytes = static_cast<size_t>(rule.depth - 1) * spec.bytes();
  UnrollStore store({.observation_bytes = shape.observation_bytes,
                     .behaviour = 1,
                     .history_bytes = shape.history_bytes},
                    {.length = length, .buffers = 64});
  const CounterRng rng(9);
  uint64_t draw = 0;
  const auto noise = [&] {
    std::vector<uint8_t> frame(spec.bytes());
    for (uint8_t& x : frame) x = static_cast<uint8_t>(rng.Bits(draw++));
    return frame;
  };
  Seen seen(rule, channels);
  std::vector<std::vector<float>> inputs, finals;  // by entry; finals: empty where there is none
  std::vector<std::vector<uint8_t>> frames;        // of this episode
  uint32_t step = 0, episode_length = 9;
  bool truncated = false;
  for (uint32_t entry = 0; entry <= 12 * length; ++entry) {
    std::vector<uint8_t> final;
    finals.emplace_back();
    if (truncated) final = noise(), finals.back() = seen.Next(final, /*first=*/false);
    if (step == 0) frames.clear();
    const std::vector<uint8_t> frame = noise();
    inputs.push_back(seen.Next(frame, step == 0));
    std::vector<uint8_t> history;  // before the episode: what must not be seen
    for (size_t age = 1; age < static_cast<size_t>(rule.depth); ++age) {
      const auto& past = age <= frames.size() ? frames[frames.size() - age]
                                              : std::vector<uint8_t>(spec.bytes(), 0xA5);
      history.insert(history.end(), past.begin(), past.end());
    }
    frames.push_back(frame);
    const float behaviour = 0, value = 0;
    ASSERT_TRUE(store.Reserve(0));
    Entry given{.header = {},
                .observation = std::as_bytes(std::span(frame)),
                .final_observation = std::as_bytes(std::span(final)),
                .action_values = {},
                .behaviour = {&behaviour, 1},
                .values = {&value, 1},
                .state = {},
                .history = {}};
    given.header.episode_step = step;
    given.header.truncated = truncated;
    if (store.NeedsState(0)) given.history = std::as_bytes(std::span(history));
    store.Append(0, given);
    truncated = ++step == episode_length && episode_length % 2 == 1;
    if (step == episode_length) step = 0, episode_length = 1 + (episode_length * 5 + 2) % 9;
  }

  torch::Tensor kept;
  Upload upload(torch::kCPU);
  size_t finals_seen = 0;
  for (size_t k = 0; k < 12; ++k) {
    const auto unroll = store.Take(1);
    const Unroll* one = unroll[0].get();
    const LearnerBatch batch = MakeLearnerBatch({&one, 1}, layout, shape, false, kept);
    const LearnerBatch sent = MakeLearnerBatch({&one, 1}, layout, shape, false, upload);
    EXPECT_TRUE(sent.observation.equal(batch.observation)) << "unroll " << k;
    EXPECT_TRUE(sent.final_observation.equal(batch.final_observation)) << "unroll " << k;
    EXPECT_TRUE(sent.truncated.equal(batch.truncated) && sent.first.equal(batch.first));
    EXPECT_TRUE(sent.final_entry.equal(batch.final_entry));
    for (int64_t t = 0; t < batch.observation.size(0); ++t)
      EXPECT_EQ(Input(batch.observation[t][0]), inputs[k * length + static_cast<size_t>(t)])
          << "unroll " << k << " entry " << t;
    for (int64_t i = 0; i < batch.final_entry.size(0); ++i, ++finals_seen) {
      const auto at = static_cast<size_t>(batch.final_entry[i].item<int64_t>());
      EXPECT_EQ(Input(batch.final_observation[0][i]), finals[k * length + at]) << "unroll " << k;
    }
  }
  EXPECT_GT(finals_seen, 0U);
}

TEST(LearnerBatchTest, TheLearnerSeesWhatWasPlayed) {
  for (const int64_t channels : {1, 3, 4, 6}) {
    for (const int64_t depth : {1, 2, 4, 5}) {
      for (const StackReset reset : {StackReset::kRepeat, StackReset::kZeros, StackReset::kFront}) {
        for (const uint32_t length : {1U, 5U}) {
          SCOPED_TRACE(testing::Message() << channels << " channels, depth " << depth << ' '
                                          << Name(reset) << ", unrolls of " << length);
          ExpectTheLearnerSeesWhatWasPlayed({.depth = depth, .at_reset = reset}, channels, length);
        }
      }
      const FrameStackRule newest_first{.depth = depth, .order = StackOrder::kNewestFirst};
      ExpectTheLearnerSeesWhatWasPlayed(newest_first, channels, 5);
    }
  }
}

}  // namespace
}  // namespace samara::learner_batch_test
