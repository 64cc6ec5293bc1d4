#include "env/pixel_observations.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/check.h"

namespace samara {
namespace {

class PixelObservations final : public Environment {
 public:
  PixelObservations(std::unique_ptr<Environment> inner, int64_t pixels, bool render)
      : inner_(std::move(inner)),
        spec_(PixelSpec(inner_->spec(), pixels, render)),
        seen_(inner_->spec().observation.bytes()),
        picture_(
            static_cast<size_t>(inner_->spec().render_height * inner_->spec().render_width * 3)),
        reducer_(inner_->spec().render_height, inner_->spec().render_width, pixels) {}

  const EnvironmentSpec& spec() const override { return spec_; }
  void Reset(const EpisodeSpec& episode, std::span<std::byte> observation) override {
    inner_->Reset(episode, seen_);
    Observe(observation);
  }
  StepResult Step(const Action& action, std::span<std::byte> observation) override {
    const StepResult result = inner_->Step(action, seen_);
    Observe(observation);
    return result;
  }
  bool Render(std::span<std::byte> picture) override {
    return spec_.render_height > 0 && inner_->Render(picture);
  }
  void Position(std::span<float> out) const override { inner_->Position(out); }
  std::string SaveState() const override { return inner_->SaveState(); }
  Status RestoreState(const std::string& state) override { return inner_->RestoreState(state); }

 private:
  void Observe(std::span<std::byte> observation) {
    CHECK(inner_->Render(picture_)) << spec_.id << " draws no pictures";
    reducer_.Reduce(picture_, observation);
  }

  const std::unique_ptr<Environment> inner_;
  const EnvironmentSpec spec_;
  std::vector<std::byte> seen_, picture_;
  PictureReducer reducer_;
};

// Calls add(part, weight) for the parts, of `parts` equal ones, that pixel `i` of `pixels` lies in,
// by how much of it: weights of a pixel add up to `parts`, those of a part to `pixels`.
template <typename Add>
void ForEachPart(int64_t i, int64_t pixels, int64_t parts, const Add& add) {
  for (int64_t begin = i * parts, end = begin + parts; begin < end;) {
    const int64_t part = begin / pixels, next = std::min(end, (part + 1) * pixels);
    add(static_cast<size_t>(part), static_cast<uint64_t>(next - begin));
    begin = next;
  }
}

}  // namespace

EnvironmentSpec PixelSpec(EnvironmentSpec spec, int64_t pixels, bool render) {
  spec.id += fmt::format("?pixels={}", pixels);
  spec.version += " pixels 1";
  spec.observation = {DType::kUint8, {pixels, pixels}};
  spec.goal = {};
  if (!render) spec.render_height = spec.render_width = spec.render_frames = 0;
  return spec;
}

std::unique_ptr<Environment> MakePixelObservations(std::unique_ptr<Environment> inner,
                                                   int64_t pixels, bool render) {
  CHECK(inner->spec().render_height > 0) << inner->spec().id << " was not made to render";
  return std::make_unique<PixelObservations>(std::move(inner), pixels, render);
}

PictureReducer::PictureReducer(int64_t height, int64_t width, int64_t pixels)
    : height_(height),
      width_(width),
      pixels_(pixels),
      sums_(static_cast<size_t>(pixels * pixels)),
      row_(static_cast<size_t>(pixels)) {}

void PictureReducer::Reduce(std::span<const std::byte> picture, std::span<std::byte> out) {
  CHECK_EQ(picture.size(), static_cast<size_t>(height_ * width_ * 3));
  CHECK_EQ(out.size(), sums_.size());
  std::ranges::fill(sums_, 0);
  const auto* rgb = reinterpret_cast<const uint8_t*>(picture.data());
  const auto pixels = static_cast<size_t>(pixels_);
  for (int64_t y = 0; y < height_; ++y) {
    std::ranges::fill(row_, 0);
    for (int64_t x = 0; x < width_; ++x, rgb += 3) {
      const uint64_t gray = 255U - ((77U * rgb[0] + 150U * rgb[1] + 29U * rgb[2]) >> 8U);
      ForEachPart(x, width_, pixels_,
                  [&](size_t column, uint64_t weight) { row_[column] += weight * gray; });
    }
    ForEachPart(y, height_, pixels_, [&](size_t row, uint64_t weight) {
      for (size_t column = 0; column < pixels; ++column)
        sums_[row * pixels + column] += weight * row_[column];
    });
  }
  const auto all = static_cast<uint64_t>(height_ * width_);
  for (size_t i = 0; i < sums_.size(); ++i)
    out[i] = static_cast<std::byte>((sums_[i] + all / 2) / all);
}

}  // namespace samara
