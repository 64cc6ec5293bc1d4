#include "rl/learner/policy_versions.h"

#include <gtest/gtest.h>

#include "core/rng.h"

namespace samara::policy_versions_test {
namespace {

// Channels go pixel by pixel, of each plane in turn; element by element here.
TEST(ActingTest, AnInputHoldsThePlanesAlongTheChannels) {
  struct Case {
    DType dtype;
    std::vector<int64_t> shape;
    int64_t depth;
  };
  std::vector<Case> cases = {{DType::kUint8, {1100, 1000}, 4}};  // beyond the fast path
  for (const DType dtype : {DType::kUint8, DType::kFloat32}) {
    for (const int64_t depth : {1, 2, 4, 5}) {
      cases.push_back({dtype, {5, 3}, depth});
      for (const int64_t channels : {1, 2, 3, 4, 7})
        cases.push_back({dtype, {5, 3, channels}, depth});
    }
  }
  const CounterRng rng(5);
  uint64_t draw = 0;
  for (const auto& [dtype, shape, depth] : cases) {
    const ObservationSpec spec{dtype, shape};
    const InputLayout layout = InputLayout::Make(spec, FrameStackRule{.depth = depth});
    const size_t channels = shape.size() == 3 ? static_cast<size_t>(shape[2]) : 1;
    const size_t count = static_cast<size_t>(depth), size = SizeOf(dtype);
    ASSERT_EQ(layout.channels, static_cast<int64_t>(count * channels));
    ASSERT_EQ(MakeInputs(layout, 1).nbytes(), count * spec.bytes());
    ASSERT_EQ(layout.stacked ? layout.input_bytes() : count * spec.bytes(), count * spec.bytes());
    std::vector<std::vector<std::byte>> planes(count, std::vector<std::byte>(spec.bytes()));
    for (auto& plane : planes)
      for (std::byte& b : plane) b = static_cast<std::byte>(rng.Bits(draw++));
    const size_t absent = count > 1 ? count / 2 : count;
    std::vector<const std::byte*> given;
    for (size_t p = 0; p < count; ++p) given.push_back(p == absent ? nullptr : planes[p].data());
    if (absent < count) planes[absent].assign(spec.bytes(), std::byte{0});

    std::vector<std::byte> expected;
    for (size_t pixel = 0; pixel < spec.elements() / channels; ++pixel)
      for (const auto& plane : planes)
        for (size_t b = 0; b < channels * size; ++b)
          expected.push_back(plane[pixel * channels * size + b]);
    std::vector<std::byte> input(expected.size(), std::byte{0xA5});
    layout.WriteInput(given, input.data());
    EXPECT_TRUE(input == expected)
        << channels << " channels of " << size << " bytes, depth " << depth;
  }
}

}  // namespace
}  // namespace samara::policy_versions_test
