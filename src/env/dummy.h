// The template of a native environment: a game of guessing, written to be copied.
//
// Every step has a target drawn from the episode's key, and the reward says how near the action
// was. python/samara/dummy.py plays the same game with the same bits, so that tests can compare a
// native environment with one behind an actor process.
#pragma once

#include "env/interface.h"

namespace samara {

struct DummyOptions {
  bool bytes = false;       // observation: uint8 [84, 84] instead of float32 [4]
  bool discrete = true;     // 4 actions, or a box of 2 dimensions
  int64_t length = 20;      // an episode has between length / 2 and length steps
  bool not_finite = false;  // for tests: the reward of step 3 is not a number
};

// kConfig when length < 1.
Result<std::unique_ptr<Environment>> MakeDummyEnvironment(const DummyOptions& options);

}  // namespace samara
