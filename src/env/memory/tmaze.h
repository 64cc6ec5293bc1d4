// TMaze-v0: a sign at the start of a corridor says behind which arm of its far end the goal lies
// (Bakker 2002, "Reinforcement Learning with Long Short-Term Memory", without noise, corridor of
// length 10).
//
// Positions 0 (start) to 10 (junction). Observation: 011 at the start when the goal is north, 110
// when it is south, 101 in the corridor, 010 at the junction. Actions: north, east, south, west.
// East and west move along the corridor and pay 0; whatever the walls forbid stands still and pays
// -.1. At the junction north and south end the episode: 4 at the goal's side, -.1 at the other. The
// best return is 4, in 11 steps; a policy without memory expects at most 1.95. The limit of 200
// steps is this implementation's own.
//
// With `render`, Render draws 60 x 220 pictures.
#pragma once

#include <memory>

#include "env/interface.h"

namespace samara {

std::unique_ptr<Environment> MakeTMaze(bool render);

}  // namespace samara
