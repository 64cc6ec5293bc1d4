// Catch-v0: move a paddle under a falling ball (Mnih et al. 2014, "Recurrent Models of Visual
// Attention"; the rules and the size of bsuite's `catch`).
//
// A board of 10 rows and 5 columns. The ball starts in the top row, in a column drawn uniformly,
// and falls a row a step; the paddle starts in the middle of the bottom row and moves left, not at
// all or right, within the board. Observation: the board row by row, 1 where the ball or the paddle
// is. The ninth step brings the ball to the bottom row and terminates: 1 if the paddle is there,
// else -1; all other steps pay 0.
#pragma once

#include <memory>

#include "env/interface.h"

namespace samara {

// With `render`, Render draws 200 x 100 pictures.
std::unique_ptr<Environment> MakeCatch(bool render);

}  // namespace samara
