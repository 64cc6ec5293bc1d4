// The two-weight tasks of the safe-mutations paper (Lehman et al. 2018, arXiv 1712.06563): a model
// so badly conditioned that no mutation size suits both of its weights,
//
//   y0 = 100 w0 x0,   y1 = 0.1 w1 x1
//
// for the network `diagonal` (nn/layer_line.h), whose two weights multiply an observation each: the
// observation is (100 x0, 0.1 x1), the action is (y0, y1). An episode is one step for each state
// x; its return is minus the mean squared error over states and outputs, and 0.01 is the
// criterion. Nothing is drawn at random. Which targets the paper has it does not say; here
//
//   easy     x = (0, 1), y = (0, 1): only w1 matters
//   medium   x = (1, 1), y = (1, 1): w0 = 0.01, w1 = 10
//   washout  the same, and x = (-1, -1), y = (-1, -1): the states' gradients cancel
//
// With `render`, Render draws 80 x 240 pictures.
#pragma once

#include <memory>

#include "env/interface.h"

namespace samara {

enum class TwoWeightsTask { kEasy, kMedium, kWashout };

std::unique_ptr<Environment> MakeTwoWeights(TwoWeightsTask task, bool render);

}  // namespace samara
