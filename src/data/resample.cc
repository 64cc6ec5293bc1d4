#include "data/resample.h"

#include <algorithm>
#include <cmath>

namespace samara {
namespace {

// Weights of one output pixel over its row or column of the input.
struct Taps {
  int first = 0;
  std::vector<float> weights;  // sum to 1
};

std::vector<Taps> TapsOf(double begin, double length, int limit, int side) {
  std::vector<Taps> all(static_cast<size_t>(side));
  const double scale = length / side, reach = std::max(1.0, scale);
  for (int i = 0; i < side; ++i) {
    const double centre = begin + (i + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(std::floor(centre - reach + 0.5)));
    const int last = std::min(limit, static_cast<int>(std::floor(centre + reach + 0.5)));
    Taps& taps = all[static_cast<size_t>(i)];
    taps.first = first;
    std::vector<double> weights;
    double sum = 0;
    for (int x = first; x < last; ++x) {
      weights.push_back(std::max(0.0, 1 - std::abs((x + 0.5 - centre) / reach)));
      sum += weights.back();
    }
    for (const double w : weights) taps.weights.push_back(static_cast<float>(w / sum));
  }
  return all;
}

}  // namespace

void Resample(const RgbImage& image, const Box& box, int side, bool mirror,
              std::span<uint8_t> out) {
  CHECK(box.width > 0 && box.height > 0 && box.left >= 0 && box.top >= 0 &&
        box.left + box.width <= image.width + 1e-6 && box.top + box.height <= image.height + 1e-6);
  const auto n = static_cast<size_t>(side);
  CHECK_EQ(out.size(), 3 * n * n);
  const std::vector<Taps> columns = TapsOf(box.left, box.width, image.width, side);
  const std::vector<Taps> rows = TapsOf(box.top, box.height, image.height, side);
  // first along the rows that are needed
  const auto first = static_cast<size_t>(rows.front().first);
  const size_t last = static_cast<size_t>(rows.back().first) + rows.back().weights.size();
  std::vector<float> narrow((last - first) * n * 3);
  for (size_t y = first; y < last; ++y) {
    const uint8_t* line = image.pixels.data() + y * static_cast<size_t>(image.width) * 3;
    float* to = narrow.data() + (y - first) * n * 3;
    for (const Taps& taps : columns) {
      const uint8_t* from = line + static_cast<size_t>(taps.first) * 3;
      float sum[3] = {0, 0, 0};
      for (const float w : taps.weights)
        for (float& s : sum) s += w * static_cast<float>(*from++);
      for (const float s : sum) *to++ = s;
    }
  }
  // then along the columns
  std::vector<float> line(3 * n);
  for (size_t y = 0; y < n; ++y) {
    std::fill(line.begin(), line.end(), 0.0F);
    const Taps& taps = rows[y];
    for (size_t t = 0; t < taps.weights.size(); ++t) {
      const float* from =
          narrow.data() + (static_cast<size_t>(taps.first) - first + t) * line.size();
      for (size_t i = 0; i < line.size(); ++i) line[i] += taps.weights[t] * from[i];
    }
    for (size_t x = 0; x < n; ++x) {
      for (size_t c = 0; c < 3; ++c) {
        out[(c * n + y) * n + (mirror ? n - 1 - x : x)] =
            static_cast<uint8_t>(std::clamp(line[3 * x + c] + 0.5F, 0.0F, 255.0F));
      }
    }
  }
}

}  // namespace samara
