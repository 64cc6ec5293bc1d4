#include "env/pixel_observations.h"

#include <gtest/gtest.h>

#include <string>

#include "core/rng.h"
#include "env/registry.h"

namespace samara::pixel_observations_test {
namespace {

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

// 2 rows of 3 gray pixels, of which the middle one belongs to both columns: (2 * 10 + 40) / 3,
// (40 + 2 * 100) / 3; 5 / 3 and 7 / 3 rounded, all of it 255 less.
TEST(PictureReducerTest, ACaseComputedByHand) {
  PictureReducer reducer(2, 3, 2);
  std::vector<std::byte> out(4);
  reducer.Reduce(Bytes({10, 10, 10, 40, 40, 40, 100, 100, 100, 0, 0, 0, 5, 5, 5, 1, 1, 1}), out);
  EXPECT_EQ(out, Bytes({235, 175, 253, 253}));
}

TEST(PictureReducerTest, ColoursCountByTheirBrightness) {
  PictureReducer reducer(1, 1, 1);
  std::vector<std::byte> out(1);
  reducer.Reduce(Bytes({200, 0, 0}), out);
  EXPECT_EQ(out, Bytes({255 - 200 * 77 / 256}));
  reducer.Reduce(Bytes({0, 200, 100}), out);
  EXPECT_EQ(out, Bytes({255 - (200 * 150 + 100 * 29) / 256}));
}

// Each pixel of the picture cut into parts that lie in one pixel of the result each.
TEST(PictureReducerTest, IsTheMeanOverEachPart) {
  constexpr size_t kHeight = 7, kWidth = 5, kPixels = 3;
  std::vector<std::byte> picture;
  const CounterRng rng(1);
  for (size_t i = 0; i < kHeight * kWidth; ++i)
    picture.insert(picture.end(), 3, static_cast<std::byte>(rng.UniformInt(i, 256)));
  std::vector<std::byte> out(kPixels * kPixels);
  PictureReducer(kHeight, kWidth, kPixels).Reduce(picture, out);
  for (size_t row = 0; row < kPixels; ++row)
    for (size_t column = 0; column < kPixels; ++column) {
      double sum = 0;
      for (size_t y = 0; y < kHeight; ++y)
        for (size_t x = 0; x < kWidth; ++x)
          sum += std::to_integer<int>(picture[3 * ((row * kHeight + y) / kPixels * kWidth +
                                                   (column * kWidth + x) / kPixels)]);
      EXPECT_EQ(std::to_integer<int>(out[row * kPixels + column]),
                static_cast<int>(255 - sum / (kHeight * kWidth) + 0.5));
    }
}

TEST(PixelObservationsTest, AreThePicturesOfTheTask) {
  const auto seen = NativeEnvironment("Pendulum-v1?pixels=20").ValueOrThrow()().ValueOrThrow();
  const auto plain =
      NativeEnvironment("Pendulum-v1", /*render=*/true).ValueOrThrow()().ValueOrThrow();
  const EnvironmentSpec& spec = seen->spec();
  EXPECT_EQ(spec.id, plain->spec().id + "?pixels=20");
  EXPECT_EQ(spec.observation.shape, (std::vector<int64_t>{20, 20}));
  EXPECT_EQ(spec.observation.dtype, DType::kUint8);
  EXPECT_EQ(spec.render_height, 0);
  EXPECT_EQ(spec.action.n, plain->spec().action.n);

  std::vector<std::byte> pixels(400), numbers(plain->spec().observation.bytes()), expected(400);
  std::vector<std::byte> picture(
      static_cast<size_t>(plain->spec().render_height * plain->spec().render_width * 3));
  PictureReducer reducer(plain->spec().render_height, plain->spec().render_width, 20);
  const EpisodeSpec episode{.seed = 5};
  seen->Reset(episode, pixels), plain->Reset(episode, numbers);
  const float push = 1;
  for (int step = 0; step < 30; ++step) {
    ASSERT_TRUE(plain->Render(picture));
    reducer.Reduce(picture, expected);
    ASSERT_EQ(pixels, expected) << step;
    const Action action{.values = {&push, 1}};
    EXPECT_EQ(seen->Step(action, pixels).reward, plain->Step(action, numbers).reward);
  }
}

TEST(PixelObservationsTest, RefusesOtherNumbers) {
  for (const char* id :
       {"Pendulum-v1?pixels=", "Pendulum-v1?pixels=7", "Pendulum-v1?pixels=257",
        "Pendulum-v1?pixels=4x", "Pendulum-v1?pixels=-42", "Pendulum-v1?pixels=4 "})
    EXPECT_EQ(NativeEnvironment(id).status().message(),
              std::string(id) + ": expected pixels=8 to 256, such as Pendulum-v1?pixels=42");
}

}  // namespace
}  // namespace samara::pixel_observations_test
