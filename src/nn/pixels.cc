// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/pixels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "nn/pixels_ops.h"

namespace samara {
namespace {

constexpr size_t kIndices = 256;  // of a palette
using pixels::kPad;

// Input of one output position along one axis: `first` and one weight per source position.
struct TapWindow {
  int first = 0;
  std::vector<double> weights;
};
using Axis = std::vector<TapWindow>;

// OpenCV INTER_AREA: the share of each source cell in the output's cell; slivers below 1e-3 of a
// cell are left out.
Axis AreaAxis(int in, int out) {
  const double scale = static_cast<double>(in) / out;
  Axis axis(static_cast<size_t>(out));
  for (int i = 0; i < out; ++i) {
    const double begin = i * scale, end = begin + scale;
    const double cell = std::min(scale, in - begin);
    const int whole_end = std::min(static_cast<int>(std::floor(end)), in - 1);
    const int whole_begin = std::min(static_cast<int>(std::ceil(begin)), whole_end);
    TapWindow& w = axis[static_cast<size_t>(i)];
    w.first = whole_begin;
    if (whole_begin - begin > 1e-3) {
      w.first = whole_begin - 1;
      w.weights.push_back((whole_begin - begin) / cell);
    }
    for (int s = whole_begin; s < whole_end; ++s) w.weights.push_back(1.0 / cell);
    if (end - whole_end > 1e-3) {
      w.weights.push_back(std::min(std::min(end - whole_end, 1.0), cell) / cell);
    }
  }
  return axis;
}

// OpenCV INTER_LINEAR: pixel centres at half positions, edges repeated; the weight of the second
// position, in float32 as there.
Axis LinearAxis(int in, int out) {
  const double scale = static_cast<double>(in) / out;
  Axis axis(static_cast<size_t>(out));
  for (int i = 0; i < out; ++i) {
    auto at = static_cast<float>((i + 0.5) * scale - 0.5);
    int first = static_cast<int>(std::floor(at));
    float part = at - static_cast<float>(first);
    if (first < 0) first = 0, part = 0;
    if (first >= in - 1) first = in - 1, part = 0;
    axis[static_cast<size_t>(i)] = {first, {1.0F - part, part}};
  }
  return axis;
}

// Pillow BILINEAR: a triangle as wide as the reduction, normalised.
Axis PilAxis(int in, int out) {
  const double scale = static_cast<double>(in) / out, filter = std::max(scale, 1.0);
  Axis axis(static_cast<size_t>(out));
  for (int i = 0; i < out; ++i) {
    const double centre = (i + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(centre - filter + 0.5));
    const int last = std::min(in, static_cast<int>(centre + filter + 0.5));
    TapWindow& w = axis[static_cast<size_t>(i)];
    w.first = first;
    double sum = 0;
    for (int s = 0; s < last - first; ++s) {
      const double distance = std::abs((s + first - centre + 0.5) * (1.0 / filter));
      w.weights.push_back(distance < 1 ? 1 - distance : 0);
      sum += w.weights.back();
    }
    for (double& weight : w.weights) weight /= sum;
  }
  return axis;
}

// TensorFlow with aligned corners: source = i (in - 1) / (out - 1) in float32; the weight of the
// second position.
Axis AlignedAxis(int in, int out) {
  const float scale = out > 1 ? static_cast<float>(in - 1) / static_cast<float>(out - 1) : 0;
  Axis axis(static_cast<size_t>(out));
  for (int i = 0; i < out; ++i) {
    const float at = static_cast<float>(i) * scale;
    const int first = std::min(static_cast<int>(at), in - 1);
    const float part = at - static_cast<float>(first);
    axis[static_cast<size_t>(i)] = {first, {1.0F - part, part}};
  }
  return axis;
}

int32_t PilFixed(double weight) {
  return static_cast<int32_t>(std::floor(0.5 + weight * (1 << 22)));
}
int32_t LinearFixed(double weight) {
  return static_cast<int32_t>(std::nearbyint(static_cast<float>(weight) * 2048.0F));
}

}  // namespace

struct PixelKernel::Plan {
  PixelRule rule;
  const pixels::Ops* ops = nullptr;
  int shift = 1;                          // palette index >> shift is the entry of the tables below
  std::array<uint8_t, kIndices> table{};  // gray, or rank of a gray (y-unit), by entry
  std::vector<uint8_t> pair;              // rgb-max to bytes: [entries][entries]
  std::vector<float> pair_float;          // rgb-max to floats
  std::array<float, kIndices> value{};    // of a rank
  std::vector<uint8_t> plane;             // pooled gray of the screen, kPad bytes of slack
  std::vector<float> plane_float;
  pixels::Resize resize{};
  // what `resize` points to
  std::vector<uint16_t> column, base, first, count;
  std::vector<uint8_t> shuffle, gathered;
  std::vector<float> x_float, y_float;
  std::vector<double> x_double, y_double;
  std::vector<int32_t> x_int, y_int;
  std::vector<double> lines;

  void SetColumns(const Axis& axis, int width, int32_t (*fixed)(double));
  void SetRows(const Axis& axis, int32_t (*fixed)(double));
  void SetShuffles(int width);
  void SetScratch();
  void SetGray(std::span<const uint8_t> palette, std::span<const uint8_t> gray);
  void SetRanks(const std::vector<double>& grays);
};

namespace {

size_t Longest(const Axis& axis) {
  size_t taps = 1;
  for (const TapWindow& w : axis) taps = std::max(taps, w.weights.size());
  return taps;
}

}  // namespace

void PixelKernel::Plan::SetColumns(const Axis& axis, int width, int32_t (*fixed)(double)) {
  const size_t out = axis.size(), padded = (out + kPad - 1) / kPad * kPad, taps = Longest(axis);
  column.assign(taps * padded, 0);
  x_float.assign(taps * padded, 0), x_double.assign(taps * padded, 0),
      x_int.assign(taps * padded, 0);
  for (size_t k = 0; k < taps; ++k) {
    for (size_t x = 0; x < padded; ++x) {
      const TapWindow& w = axis[std::min(x, out - 1)];
      const int at = std::min(w.first + static_cast<int>(k), width - 1);
      column[k * padded + x] = static_cast<uint16_t>(at);
      if (x >= out || k >= w.weights.size()) continue;
      x_float[k * padded + x] = static_cast<float>(w.weights[k]);
      x_double[k * padded + x] = w.weights[k];
      if (fixed != nullptr) x_int[k * padded + x] = fixed(w.weights[k]);
    }
  }
  resize.taps = {out,         padded,  taps,           column.data(),
                 nullptr,     nullptr, x_float.data(), x_double.data(),
                 x_int.data()};
  SetShuffles(width);
}

// Sixteen neighbouring outputs are picked by shuffles when they read at most 32 neighbouring bytes.
void PixelKernel::Plan::SetShuffles(int width) {
  auto& t = resize.taps;
  shuffle.assign(t.taps * t.padded, 0), base.assign(t.taps * t.padded / 16, 0);
  for (size_t group = 0; group < base.size(); ++group) {
    const auto begin = column.begin() + static_cast<ptrdiff_t>(16 * group);
    const uint16_t low = *std::min_element(begin, begin + 16);
    if (*std::max_element(begin, begin + 16) - low >= 32) return;
    base[group] = low;
    for (size_t x = 16 * group; x < 16 * group + 16; ++x) {
      shuffle[x] = static_cast<uint8_t>(column[x] - low);
    }
  }
  CHECK(width > 0);
  t.shuffle = shuffle.data(), t.base = base.data();
}

void PixelKernel::Plan::SetRows(const Axis& axis, int32_t (*fixed)(double)) {
  const size_t out = axis.size(), taps = Longest(axis);
  first.assign(out, 0), count.assign(out, 0);
  y_float.assign(out * taps, 0), y_double.assign(out * taps, 0), y_int.assign(out * taps, 0);
  for (size_t y = 0; y < out; ++y) {
    const TapWindow& w = axis[y];
    first[y] = static_cast<uint16_t>(w.first);
    count[y] = static_cast<uint16_t>(
        std::min(w.weights.size(), static_cast<size_t>(rule.height - w.first)));
    for (size_t k = 0; k < w.weights.size(); ++k) {
      y_float[y * taps + k] = static_cast<float>(w.weights[k]);
      y_double[y * taps + k] = w.weights[k];
      if (fixed != nullptr) y_int[y * taps + k] = fixed(w.weights[k]);
    }
  }
  if (rule.resize == "aligned") {  // one weight a position: that of the second row and column
    for (size_t y = 0; y < out; ++y) y_float[y] = static_cast<float>(axis[y].weights[1]);
    std::copy_n(x_float.begin() + static_cast<ptrdiff_t>(resize.taps.padded), resize.taps.padded,
                x_float.begin());
  }
  resize.rows = {out,         taps, first.data(), count.data(), y_float.data(), y_double.data(),
                 y_int.data()};
}

void PixelKernel::Plan::SetScratch() {
  const size_t padded = resize.taps.padded, screen = static_cast<size_t>(rule.height * rule.width);
  gathered.assign(padded, 0);
  lines.assign(padded * std::size(resize.line), 0);
  for (size_t i = 0; i < std::size(resize.line); ++i) resize.line[i] = lines.data() + i * padded;
  resize.gathered = gathered.data();
  resize.width = static_cast<size_t>(rule.width);
  plane.assign(screen + 2 * kPad, 0);
  if (!pair_float.empty()) plane_float.assign(screen, 0);
}

// The rule's gray of one RGB triple.
double Luminance(const std::string& gray, const std::array<double, 3>& rgb) {
  const auto [r, g, b] = rgb;
  if (gray == "y-truncated") return std::floor(r * 0.299 + g * 0.587 + b * (1 - (0.299 + 0.587)));
  if (gray == "cvtcolor") return std::floor((r * 9798 + g * 19235 + b * 3735 + 16384) / 32768);
  const float scale = gray == "y-unit" ? 1.0F / 255.0F : 1.0F;
  const float fr = static_cast<float>(r) * scale, fg = static_cast<float>(g) * scale,
              fb = static_cast<float>(b) * scale;
  return (fr * 0.299F + fg * 0.587F) + fb * 0.114F;
}

void PixelKernel::Plan::SetGray(std::span<const uint8_t> palette, std::span<const uint8_t> gray) {
  const auto same = [&](size_t i, size_t j) {
    return gray[i] == gray[j] && std::equal(&palette[3 * i], &palette[3 * i] + 3, &palette[3 * j]);
  };
  for (size_t i = 0; i < kIndices; i += 2) {
    if (!same(i, i + 1)) shift = 0;
  }
  const size_t entries = kIndices >> shift;
  const auto colour = [&](size_t entry, size_t c) -> double {
    return palette[3 * (entry << shift) + c];
  };
  if (rule.pooling == "gray-max") {
    std::vector<double> grays(entries);
    for (size_t i = 0; i < entries; ++i) {
      grays[i] = rule.gray == "ale"
                     ? gray[i << shift]
                     : Luminance(rule.gray, {colour(i, 0), colour(i, 1), colour(i, 2)});
    }
    SetRanks(grays);
    return;
  }
  const bool floats = rule.gray == "y-float";
  pair.assign(floats ? 0 : entries * entries, 0);
  pair_float.assign(floats ? entries * entries : 0, 0);
  for (size_t i = 0; i < entries; ++i) {
    for (size_t j = 0; j < entries; ++j) {
      const double y = Luminance(
          rule.gray, {std::max(colour(i, 0), colour(j, 0)), std::max(colour(i, 1), colour(j, 1)),
                      std::max(colour(i, 2), colour(j, 2))});
      if (floats) {
        pair_float[i * entries + j] = static_cast<float>(y);
      } else {
        pair[i * entries + j] = static_cast<uint8_t>(y);
        if (i == j) table[i] = static_cast<uint8_t>(y);
      }
    }
  }
}

// Bytes stay what they are. Floats become ranks, which fit a byte: the maximum of two grays is the
// gray of the higher rank.
void PixelKernel::Plan::SetRanks(const std::vector<double>& grays) {
  std::vector<double> sorted = grays;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < grays.size(); ++i) {
    value[i] = static_cast<float>(sorted[i]);
    const auto rank = std::lower_bound(sorted.begin(), sorted.end(), grays[i]) - sorted.begin();
    table[i] = static_cast<uint8_t>(rule.gray == "y-unit" ? static_cast<double>(rank) : grays[i]);
  }
}

PixelKernel::PixelKernel() : plan_(std::make_unique<Plan>()) {}
PixelKernel::~PixelKernel() = default;
bool PixelKernel::float_output() const { return plan_->rule.resize == "aligned"; }
const PixelRule& PixelKernel::rule() const { return plan_->rule; }

namespace {

Status Check(const PixelRule& rule) {
  const auto one_of = [](const std::string& word, std::initializer_list<const char*> words) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  const auto size = [](int n) { return n >= 2 && n <= 1024; };
  const std::string all = rule.pooling + " " + rule.gray + " " + rule.resize;
  if (!one_of(rule.pooling, {"gray-max", "rgb-max"}) ||
      !one_of(rule.gray, {"ale", "y-truncated", "cvtcolor", "y-float", "y-unit"}) ||
      !one_of(rule.resize, {"area", "linear", "pil", "pil-float", "aligned"})) {
    return {Code::kConfig, "pixel rule \"" + all + "\": unknown word"};
  }
  if ((rule.gray == "ale" || rule.gray == "y-unit") != (rule.pooling == "gray-max") ||
      (rule.gray == "y-unit") != (rule.resize == "aligned") ||
      (rule.gray == "y-float") != (rule.resize == "pil-float")) {
    return {Code::kConfig, "pixel rule \"" + all + "\": these do not go together"};
  }
  if (!size(rule.height) || !size(rule.width) || !size(rule.out_height) || !size(rule.out_width) ||
      rule.height > 6 * rule.out_height || rule.width > 6 * rule.out_width) {
    return {Code::kConfig, "pixel rule: sizes must be 2 to 1024, reduced at most sixfold"};
  }
  return Status::Ok();
}

const pixels::Ops& OpsOf(IsaLevel isa) {
#if defined(__x86_64__)
  if (isa == IsaLevel::kAvx512) return pixels::Avx512Ops();
  if (isa == IsaLevel::kAvx2) return pixels::Avx2Ops();
#endif
  (void)isa;
  return pixels::PortableOps();
}

}  // namespace

Result<std::unique_ptr<PixelKernel>> PixelKernel::Make(const PixelRule& rule,
                                                       std::span<const uint8_t> palette,
                                                       std::span<const uint8_t> gray,
                                                       IsaLevel isa) {
  RETURN_IF_ERROR(Check(rule));
  if (palette.size() != 768 || gray.size() != 256) {
    return Status(Code::kConfig, "palette: expected 256 x 3 colours and 256 grays");
  }
  std::unique_ptr<PixelKernel> kernel(new PixelKernel);
  Plan& plan = *kernel->plan_;
  plan.rule = rule;
  plan.ops = &OpsOf(isa);
  plan.SetGray(palette, gray);
  Axis (*axis)(int, int) = rule.resize == "area"      ? AreaAxis
                           : rule.resize == "linear"  ? LinearAxis
                           : rule.resize == "aligned" ? AlignedAxis
                                                      : PilAxis;
  int32_t (*fixed)(double) = rule.resize == "linear" ? LinearFixed
                             : rule.resize == "pil"  ? PilFixed
                                                     : nullptr;
  plan.SetColumns(axis(rule.width, rule.out_width), rule.width, fixed);
  plan.SetRows(axis(rule.height, rule.out_height), fixed);
  plan.SetScratch();
  return kernel;
}

void PixelKernel::Run(const uint8_t* a, const uint8_t* b, void* out) {
  Plan& p = *plan_;
  const auto n = static_cast<size_t>(p.rule.height * p.rule.width);
  auto* bytes = static_cast<uint8_t*>(out);
  if (!p.pair_float.empty()) {
    const size_t row = kIndices >> p.shift;
    for (size_t i = 0; i < n; ++i) {
      p.plane_float[i] =
          p.pair_float[static_cast<size_t>(a[i] >> p.shift) * row + (b[i] >> p.shift)];
    }
    p.ops->pil_float(p.resize, p.plane_float.data(), bytes);
    return;
  }
  const pixels::Lookup lookup{p.shift, p.table.data(), p.pair.data()};
  (p.pair.empty() ? p.ops->lookup_max : p.ops->lookup_pair)(lookup, a, b, n, p.plane.data());
  if (p.rule.resize == "area") return p.ops->area(p.resize, p.plane.data(), bytes);
  if (p.rule.resize == "linear") return p.ops->linear(p.resize, p.plane.data(), bytes);
  if (p.rule.resize == "pil") return p.ops->pil(p.resize, p.plane.data(), bytes);
  p.ops->aligned(p.resize, p.plane.data(), p.value.data(), static_cast<float*>(out));
}

}  // namespace samara
