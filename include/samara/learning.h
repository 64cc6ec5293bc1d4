// A learning algorithm of one's own: derive from Algorithm (its loss, with torch) and from
// AlgorithmConfig (its parameters as keys), register a row, and run the command. Links
// samara::learning. ActorCritic has the parts of losses of policies and values.
#pragma once

#include "rl/algorithms/registry.h"
#include "rl/learner/actor_critic.h"
#include "rl/learner/algorithm.h"
#include "samara/command.h"
