#include <algorithm>

#include "core/rng.h"
#include "data/sources.h"

namespace samara {
namespace {

constexpr int kDigits = 10;
constexpr int kSide = 12;  // the least that shows a digit

// Which of the segments top, upper left, upper right, middle, lower left, lower right, bottom are
// lit, highest bit first.
constexpr uint8_t kSegments[kDigits] = {0b1110111, 0b0010010, 0b1011101, 0b1011011, 0b0111010,
                                        0b1101011, 0b1101111, 0b1010010, 0b1111111, 0b1111011};

// Whether (x, y), of a digit 1 wide and 2 high, is on a lit segment.
bool IsLit(int digit, double x, double y) {
  constexpr double kHalf = 0.13;  // of a segment's thickness
  // ends of each segment
  constexpr double kEnds[7][4] = {{0, 0, 1, 0}, {0, 0, 0, 1}, {1, 0, 1, 1}, {0, 1, 1, 1},
                                  {0, 1, 0, 2}, {1, 1, 1, 2}, {0, 2, 1, 2}};
  for (int s = 0; s < 7; ++s) {
    const double* e = kEnds[s];
    if ((kSegments[digit] >> (6 - s) & 1) == 1 && x >= e[0] - kHalf && x <= e[2] + kHalf &&
        y >= e[1] - kHalf && y <= e[3] + kHalf) {
      return true;
    }
  }
  return false;
}

class DigitSource : public ImageSource {
 public:
  DigitSource(const DrawnDigits& options, int64_t size, uint64_t split)
      : shape_(options.shape), size_(size), seed_(options.seed), split_(split) {
    CHECK(shape_.height >= kSide && shape_.width >= kSide && size > 0);
  }
  int64_t size() const override { return size_; }
  ImageShape shape() const override { return shape_; }
  int classes() const override { return kDigits; }

  Result<int> Read(int64_t index, int64_t, std::span<uint8_t> pixels) const override {
    CHECK(index >= 0 && index < size_ && pixels.size() == shape_.bytes());
    const CounterRng rng(
        DeriveKey(seed_, Purpose::kDrawnSample, split_, static_cast<uint64_t>(index)));
    uint64_t draws = 0;
    const auto uniform = [&](double low, double high) {
      return low + (high - low) * rng.Uniform(draws++);
    };
    const int digit = static_cast<int>(rng.UniformInt(draws++, kDigits));
    // pixels per unit, and where its upper left corner lies
    const double scale = uniform(0.25, 0.36) * std::min(shape_.height, shape_.width);
    const double left = uniform(0.2 * scale, shape_.width - 1.2 * scale),
                 top = uniform(0.2 * scale, shape_.height - 2.2 * scale);
    const double slant = uniform(-0.2, 0.2);
    constexpr uint64_t kNoise = 64;  // draws from here on are the noise, one for four pixels
    uint32_t noise = 0;
    size_t at = 0;
    for (int c = 0; c < shape_.channels; ++c) {
      const double lit = uniform(160, 255), dark = uniform(0, 80);
      for (int y = 0; y < shape_.height; ++y) {
        for (int x = 0; x < shape_.width; ++x) {
          const double v = (y - top) / scale, u = (x - left) / scale + slant * (v - 1);
          if (at % 4 == 0) noise = rng.Bits(kNoise + at / 4);
          const double value = (IsLit(digit, u, v) ? lit : dark) + (noise >> at % 4 * 8 & 63) - 32;
          pixels[at++] = static_cast<uint8_t>(std::clamp(value, 0.0, 255.0));
        }
      }
    }
    return digit;
  }

 private:
  const ImageShape shape_;
  const int64_t size_;
  const uint64_t seed_, split_;
};

}  // namespace

ImageSplits DrawDigits(const DrawnDigits& options) {
  return {std::make_shared<DigitSource>(options, options.train, 0),
          std::make_shared<DigitSource>(options, options.test, 1)};
}

}  // namespace samara
