// GIFs taken apart by the format's own rules (GIF89a), of videos that VideoWriter made.
#include "view/animation.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "view/video.h"

#ifdef SAMARA_LIBAV

namespace samara {
namespace {

struct Parsed {
  int width = 0, height = 0;
  std::vector<int> delays;  // of each picture, 1/100 s
};

// Walks the blocks: extensions (0x21), pictures (0x2c) with their sub-blocks, the trailer (0x3b).
Parsed Parse(const std::string& gif) {
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(gif.at(at)); };
  const auto word = [&](size_t at) { return byte(at) + 256 * byte(at + 1); };
  const auto table = [](int flags) { return flags & 0x80 ? size_t{6} << (flags & 7) : 0; };
  EXPECT_EQ(gif.substr(0, 6), "GIF89a");
  Parsed found{.width = word(6), .height = word(8), .delays = {}};
  size_t at = 13 + table(byte(10));
  while (byte(at) != 0x3b) {
    if (byte(at) == 0x21) {
      if (byte(at + 1) == 0xf9) found.delays.push_back(word(at + 4));
      at += 2;
    } else {
      EXPECT_EQ(byte(at), 0x2c);
      at += 11 + table(byte(at + 9));
    }
    while (byte(at) != 0) at += 1 + byte(at);
    ++at;
  }
  EXPECT_EQ(at + 1, gif.size());
  return found;
}

class AnimationTest : public testing::Test {
 protected:
  AnimationTest() { std::filesystem::create_directories(folder_); }
  ~AnimationTest() override { std::filesystem::remove_all(folder_); }

  // A film in which a bar moves down.
  RootedPath Film(int width, int height, double fps, int frames) {
    const RootedPath path(folder_ / "film.mp4");
    auto writer =
        VideoWriter::Open(path, {.width = width, .height = height, .fps = fps}).ValueOrThrow();
    for (int f = 0; f < frames; ++f) {
      std::vector<uint8_t> rgb(size_t{3} * width * height, 20);
      std::fill_n(rgb.begin() + 3 * width * (f % height), 3 * width, 220);
      EXPECT_TRUE(writer->AddFrame(rgb).ok());
    }
    EXPECT_TRUE(writer->Close().ok());
    return path;
  }

  const Path folder_ = Path(testing::TempDir()) / ("animation_test_" + std::to_string(::getpid()));
};

TEST_F(AnimationTest, KeepsThePaceOfTheFilm) {
  const auto made = AnimationOf(Film(160, 210, 60, 180));
  ASSERT_TRUE(made.ok()) << made.status().message();
  const Parsed parsed = Parse(made->gif);
  EXPECT_EQ(std::pair(parsed.width, parsed.height), std::pair(160, 210));
  EXPECT_EQ(std::pair(made->width, made->height), std::pair(160, 210));
  ASSERT_EQ(parsed.delays.size(), 15U);  // of three seconds
  for (size_t i = 0; i + 1 < parsed.delays.size(); ++i) EXPECT_EQ(parsed.delays[i], 20) << i;
}

TEST_F(AnimationTest, EndsWithTheFirstSeconds) {
  const auto made = AnimationOf(Film(300, 200, 20, 400));
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(Parse(made->gif).delays.size(), 50U);  // of twenty seconds
}

TEST_F(AnimationTest, RefusesWhatIsNoVideo) {
  EXPECT_EQ(AnimationOf(RootedPath(folder_ / "none.mp4")).status().code(), Code::kIoError);
  ASSERT_TRUE(WriteFileAtomic(RootedPath(folder_ / "text.mp4"), "no video").ok());
  EXPECT_FALSE(AnimationOf(RootedPath(folder_ / "text.mp4")).ok());
}

}  // namespace
}  // namespace samara

#endif
