// Watching a policy: one episode, every picture of it handed to a sink (a video file, a terminal).
#pragma once

#include <functional>
#include <span>

#include "play/saved_policy.h"

namespace samara {

struct PictureFormat {
  int height = 0, width = 0;  // RGB, row-major
  double per_second = 0;      // pictures a second of the simulated time
  double pixel_aspect = 1;    // width of a shown pixel over its height
};

// Called once with the format, then with each picture and the sums of the episode so far; false
// ends the episode early.
struct PictureSink {
  std::function<Status(const PictureFormat&)> start;
  std::function<bool(std::span<const uint8_t> rgb, const EpisodeResult& so_far)> picture;
};

// Plays episode `seed` of `policy`; the result is not `done` when the sink had enough. kConfig when
// the environment has no pictures.
Result<EpisodeResult> Watch(const Policy& policy, uint64_t seed, const PictureSink& sink);

// Records it as an mp4 with the score in each picture; at most `seconds_max` of simulated time.
Result<EpisodeResult> RecordVideo(const Policy& policy, uint64_t seed, const RootedPath& file,
                                  double seconds_max = 300);

}  // namespace samara
