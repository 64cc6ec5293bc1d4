// RGB frames as an mp4 file (H.264, yuv420p: what browsers and phones play), through libav.
//
// Compiled only where libav is found at configure time; elsewhere Open returns kConfig with the
// packages to install. Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/files.h"
#include "core/status.h"

namespace samara {

struct VideoOptions {
  int width = 0, height = 0;  // of the frames given to AddFrame, pixels
  double fps = 60;
  double pixel_aspect = 1;  // width of a pixel over its height, for players
  // Each pixel becomes scale x scale; 0 chooses the factor that brings the height near 420 (so
  // 160x210 doubles). H.264 needs even sizes: an odd result is stretched by one pixel.
  int scale = 0;
  int quality = 20;  // constant rate factor of x264: lower is better, 18 is visually lossless
};

// Writes next to `path` under a temporary name; the video appears at `path`, complete and on disk,
// when Close succeeds. Destruction without Close removes the temporary.
class VideoWriter {
 public:
  static Result<std::unique_ptr<VideoWriter>> Open(const RootedPath& path,
                                                   const VideoOptions& options);
  virtual ~VideoWriter() = default;
  VideoWriter(const VideoWriter&) = delete;
  VideoWriter& operator=(const VideoWriter&) = delete;

  // Row-major RGB, height * width * 3 bytes. kIoError when the disk is full.
  virtual Status AddFrame(std::span<const uint8_t> rgb) = 0;
  virtual Status Close() = 0;  // REQUIRES: called once; no AddFrame after it
  virtual int64_t frames() const = 0;

 protected:
  VideoWriter() = default;
};

}  // namespace samara
