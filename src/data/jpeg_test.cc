// JPEG files that libjpeg writes here: whole ones, cut ones, changed ones; the box that resampling
// takes; samples by number whatever the threads.
#include "data/jpeg.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "core/rng.h"
#include "data/jpeg_test_util.h"
#include "data/resample.h"
#include "data/workers.h"

namespace samara {
namespace {

#ifdef SAMARA_JPEG

RgbImage Gradient(int width, int height) {
  RgbImage image{width, height, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      image.pixels.push_back(static_cast<uint8_t>(255 * x / width));
      image.pixels.push_back(static_cast<uint8_t>(255 * y / height));
      image.pixels.push_back(static_cast<uint8_t>(64 + x % 2));
    }
  }
  return image;
}

std::string Encode(const RgbImage& image, bool progressive) {
  return EncodeJpeg(image, {.progressive = progressive});
}

TEST(JpegTest, PixelsComeBack) {
  const RgbImage image = Gradient(37, 21);
  for (const bool progressive : {false, true}) {
    const RgbImage back = DecodeJpeg(Encode(image, progressive)).ValueOrThrow();
    ASSERT_EQ(back.width, 37);
    ASSERT_EQ(back.height, 21);
    ASSERT_EQ(back.pixels.size(), image.pixels.size());
    for (size_t i = 0; i < image.pixels.size(); ++i)
      EXPECT_NEAR(back.pixels[i], image.pixels[i], 12) << i;
  }
}

TEST(JpegTest, CutAnywhereIsRefused) {
  for (const bool progressive : {false, true}) {
    const std::string whole = Encode(Gradient(37, 21), progressive);
    for (size_t n = 0; n < whole.size(); ++n) {
      // in memory of its own: reading beyond it is found by the sanitizer
      const std::vector<char> part(whole.begin(), whole.begin() + static_cast<long>(n));
      const auto image = DecodeJpeg({part.data(), n});
      EXPECT_EQ(image.status().code(), Code::kBadData) << n << " of " << whole.size();
    }
  }
}

TEST(JpegTest, ChangedBytesGiveAnErrorOrAnImage) {
  const CounterRng rng(3);
  int refused = 0;
  for (const bool progressive : {false, true}) {
    const std::string whole = Encode(Gradient(37, 21), progressive);
    for (uint64_t i = 0; i < 3000; ++i) {
      std::string bytes = whole;
      for (uint64_t k = 0; k < 1 + i % 4; ++k)
        bytes[rng.UniformInt(20 * i + 2 * k, bytes.size())] =
            static_cast<char>(rng.UniformInt(20 * i + 2 * k + 1, 256));
      const auto image = DecodeJpeg(bytes);
      if (image.ok()) {
        EXPECT_EQ(image->pixels.size(),
                  static_cast<size_t>(image->width) * static_cast<size_t>(image->height) * 3);
      } else {
        EXPECT_EQ(image.status().code(), Code::kBadData);
        EXPECT_EQ(image.status().message().find('\n'), std::string::npos);
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 500);
}

// Four inks, written inverted: what a pixel shows is c * k / 255.
TEST(JpegTest, InksBecomeColours) {
  RgbImage inks{16, 16, {}};
  for (int i = 0; i < 16 * 16; ++i)
    for (const int value : {200, 120, 40, 10 * (i / 16) + 60})
      inks.pixels.push_back(static_cast<uint8_t>(value));
  for (const J_COLOR_SPACE stored : {JCS_CMYK, JCS_YCCK}) {
    const RgbImage image =
        DecodeJpeg(EncodeJpeg(inks, {.given = JCS_CMYK, .stored = stored})).ValueOrThrow();
    ASSERT_EQ(image.pixels.size(), 3U * 16 * 16);
    for (size_t i = 0; i < image.pixels.size(); ++i) {
      const size_t at = i / 3 * 4;
      EXPECT_NEAR(image.pixels[i], inks.pixels[at + i % 3] * inks.pixels[at + 3] / 255, 8) << i;
    }
  }
}

TEST(JpegTest, AnImageLargerThanItsLimitIsRefusedByItsHeader) {
  std::string file = Encode(Gradient(37, 21), false);
  const size_t frame = file.find("\xff\xc0");  // then length, precision, height, width
  ASSERT_NE(frame, std::string::npos);
  file.replace(frame + 5, 4, std::string("\x40\0\x40\0", 4));
  const Status status = DecodeJpeg(file).status();
  EXPECT_EQ(status.code(), Code::kBadData);
  EXPECT_EQ(status.message(),
            "not a whole JPEG file: Maximum supported image dimension is 134217728 pixels");
}

TEST(JpegTest, ARestartMarkerOutOfTurnIsRefused) {
  std::string file = EncodeJpeg(Gradient(64, 64), {.restart_rows = 1});
  ASSERT_TRUE(DecodeJpeg(file).ok());
  const size_t second = file.find("\xff\xd1");
  ASSERT_NE(second, std::string::npos);
  file[second + 1] = '\xd5';
  EXPECT_EQ(DecodeJpeg(file).status().code(), Code::kBadData);
}

#else
TEST(JpegTest, SaysWhatIsMissing) {
  EXPECT_EQ(DecodeJpeg("").status().code(), Code::kConfig);
  GTEST_SKIP() << "built without libjpeg";
}
#endif

// A linear gradient stays one, whatever the box and the size: the resampled values are those of the
// box's own coordinates.
TEST(ResampleTest, TakesTheBox) {
  RgbImage image{64, 48, {}};
  for (int y = 0; y < 48; ++y) {
    for (int x = 0; x < 64; ++x) {
      image.pixels.push_back(static_cast<uint8_t>(3 * x));
      image.pixels.push_back(static_cast<uint8_t>(5 * y));
      image.pixels.push_back(77);
    }
  }
  for (const int side : {5, 7, 40, 200}) {
    const Box box{.left = 10, .top = 8, .width = 30, .height = 20};
    const auto n = static_cast<size_t>(side);
    std::vector<uint8_t> plain(3 * n * n), mirrored(3 * n * n);
    Resample(image, box, side, false, plain);
    Resample(image, box, side, true, mirrored);
    for (size_t y = 0; y < n; ++y) {
      for (size_t x = 0; x < n; ++x) {
        const double column = 10 + (static_cast<double>(x) + 0.5) * 30 / side - 0.5,
                     row = 8 + (static_cast<double>(y) + 0.5) * 20 / side - 0.5;
        EXPECT_NEAR(plain[y * n + x], 3 * column, 1.1);
        EXPECT_NEAR(plain[(n + y) * n + x], 5 * row, 1.1);
        EXPECT_EQ(plain[(2 * n + y) * n + x], 77);
        EXPECT_EQ(plain[y * n + x], mirrored[y * n + n - 1 - x]);
      }
    }
  }
}

TEST(WorkersTest, EveryIndexOnceForEveryCaller) {
  for (const int threads : {0, 1, 3}) {
    Workers workers(threads);
    std::vector<std::thread> callers;
    std::vector<std::vector<std::atomic<int>>> counts(4);
    for (size_t c = 0; c < counts.size(); ++c) {
      counts[c] = std::vector<std::atomic<int>>(700);
      callers.emplace_back([&workers, &mine = counts[c]] {
        for (int repeat = 0; repeat < 5; ++repeat)
          workers.Run(mine.size(), [&](size_t i) { ++mine[i]; });
        workers.Run(0, [](size_t) { FAIL(); });
      });
    }
    for (auto& caller : callers) caller.join();
    for (const auto& mine : counts)
      for (const auto& count : mine) EXPECT_EQ(count, 5);
  }
}

}  // namespace
}  // namespace samara
