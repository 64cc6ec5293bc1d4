// Recall: name a cue that was shown once, long before the question. The smallest task that cannot
// be solved without memory; nothing happens in between, so what is tested is keeping, not ignoring.
//
// Observation: one number per cue, then the query flag. First the cue (one-hot), then `delay` times
// nothing, then the flag alone. Actions name cues. What is answered before the flag is ignored and
// pays 0; the answer to the flag pays 1 if it names the cue and -1 otherwise, and terminates: delay
// + 2 steps an episode. With n cues, drawn uniformly, a policy without memory expects 2/n - 1 at
// most. A policy that sees its own last action may use its ignored answers as memory.
//
// With `render`, Render draws 120 x 40 (n + 1) pictures.
#pragma once

#include <memory>
#include <string_view>

#include "env/interface.h"

namespace samara {

struct RecallOptions {
  int64_t delay = 10;  // observations between cue and flag, at least 0
  int64_t cues = 4;    // at least 2
};

std::unique_ptr<Environment> MakeRecall(std::string_view id, const RecallOptions& options,
                                        bool render);

}  // namespace samara
