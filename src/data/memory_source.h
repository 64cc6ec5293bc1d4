// Samples that lie in memory, and what varies them.
#pragma once

#include <string>
#include <vector>

#include "data/interface.h"

namespace samara {

// Sample i: the class labels[i] and the i-th `shape.bytes()` of `pixels`.
class MemorySource : public ImageSource {
 public:
  // REQUIRES: pixels.size() == labels.size() * shape.bytes()
  MemorySource(ImageShape shape, int classes, std::vector<uint8_t> labels, std::string pixels);
  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  ImageShape shape() const override { return shape_; }
  int classes() const override { return classes_; }
  Result<int> Read(int64_t index, int64_t epoch, std::span<uint8_t> pixels) const override;

 private:
  const ImageShape shape_;
  const int classes_;
  const std::vector<uint8_t> labels_;
  const std::string pixels_;
};

// Moves each sample by up to `pad` pixels each way, over black, and mirrors half of them.
class ShiftAndMirror : public ImageSource {
 public:
  ShiftAndMirror(std::shared_ptr<const ImageSource> source, int pad, uint64_t seed)
      : source_(std::move(source)), pad_(pad), seed_(seed) {}
  int64_t size() const override { return source_->size(); }
  ImageShape shape() const override { return source_->shape(); }
  int classes() const override { return source_->classes(); }
  Result<int> Read(int64_t index, int64_t epoch, std::span<uint8_t> pixels) const override;

 private:
  const std::shared_ptr<const ImageSource> source_;
  const int pad_;
  const uint64_t seed_;
};

}  // namespace samara
