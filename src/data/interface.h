// Labelled images by number, whatever file they come from.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/status.h"

namespace samara {

struct ImageShape {
  int channels = 1, height = 1, width = 1;
  size_t bytes() const {
    return static_cast<size_t>(channels) * static_cast<size_t>(height) * static_cast<size_t>(width);
  }
  bool operator==(const ImageShape&) const = default;
};

class ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual int64_t size() const = 0;
  virtual ImageShape shape() const = 0;  // of every sample
  virtual int classes() const = 0;
  // Writes sample `index` into `pixels`, one plane of bytes a channel, and gives its class: a
  // function of its arguments and of nothing else. Sources that vary their samples do so by epoch.
  // Called from any number of threads. REQUIRES: 0 <= index < size(), pixels.size() ==
  // shape().bytes().
  virtual Result<int> Read(int64_t index, int64_t epoch, std::span<uint8_t> pixels) const = 0;
};

struct ImageSplits {
  std::shared_ptr<const ImageSource> train, test;  // of one shape and one number of classes
};

}  // namespace samara
