// An environment of one's own in C++: derive from Environment (or from SimulatedEnvironment, which
// keeps episodes, limits and saved states), register it by a name, and run the command.
//
//   samara::RegisterEnvironment("Corridor-v0", [](bool) { return std::make_unique<Corridor>(); });
//   return samara::RunCommandLine(argc, argv);
//
// `env.id=Corridor-v0` then trains, resumes, evaluates and reports like any other task. Links
// samara::evolution, or samara::learning for learning algorithms and several ranks; not both.
#pragma once

#include "env/interface.h"
#include "env/registry.h"
#include "env/simulated.h"
#include "samara/command.h"
