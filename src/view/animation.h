// The beginning of a video as an animated GIF, for viewers of pictures, such as TensorBoard's.
#pragma once

#include <string>

#include "core/files.h"
#include "core/status.h"

namespace samara {

struct Animation {
  std::string gif;
  int width = 0, height = 0;  // pixels
};

// Pictures of the first seconds of a video of VideoWriter, at its pace and no higher than 210
// pixels. kConfig: this build has no libav; kIoError, kBadData: the video cannot be read.
Result<Animation> AnimationOf(const RootedPath& video);

}  // namespace samara
