#include "data/memory_source.h"

#include "core/rng.h"

namespace samara {

MemorySource::MemorySource(ImageShape shape, int classes, std::vector<uint8_t> labels,
                           std::string pixels)
    : shape_(shape), classes_(classes), labels_(std::move(labels)), pixels_(std::move(pixels)) {
  CHECK_EQ(pixels_.size(), labels_.size() * shape_.bytes());
}

Result<int> MemorySource::Read(int64_t index, int64_t, std::span<uint8_t> pixels) const {
  CHECK(index >= 0 && index < size() && pixels.size() == shape_.bytes());
  const auto i = static_cast<size_t>(index);
  std::memcpy(pixels.data(), pixels_.data() + i * pixels.size(), pixels.size());
  return int{labels_[i]};
}

Result<int> ShiftAndMirror::Read(int64_t index, int64_t epoch, std::span<uint8_t> pixels) const {
  std::vector<uint8_t> whole(pixels.size());
  ASSIGN_OR_RETURN(const int label, source_->Read(index, epoch, whole));
  const CounterRng rng(DeriveKey(seed_, Purpose::kAugmentation, static_cast<uint64_t>(epoch),
                                 static_cast<uint64_t>(index)));
  const auto shift = [&](uint64_t draw) {
    return static_cast<int>(rng.UniformInt(draw, 2 * static_cast<uint64_t>(pad_) + 1)) - pad_;
  };
  const int down = shift(0), right = shift(1);
  const bool mirror = rng.UniformInt(2, 2) == 1;
  const ImageShape s = shape();
  size_t at = 0;
  for (int c = 0; c < s.channels; ++c) {
    for (int y = 0; y < s.height; ++y) {
      for (int x = 0; x < s.width; ++x) {
        const int row = y - down, column = (mirror ? s.width - 1 - x : x) - right;
        const bool inside = row >= 0 && row < s.height && column >= 0 && column < s.width;
        const int from = (c * s.height + row) * s.width + column;
        pixels[at++] = inside ? whole[static_cast<size_t>(from)] : uint8_t{0};
      }
    }
  }
  return label;
}

}  // namespace samara
