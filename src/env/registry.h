// The native environments by name: one explicit list, in registry.cc, and those of programs outside
// this tree.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "env/interface.h"
#include "env/map.h"

namespace samara {

// Returns the task of an id, "CartPole-v1" of "CartPole-v1?pixels=42".
std::string_view NativeTaskOf(std::string_view id);

// A factory of one task, by its name ("CartPole-v1"), which is Gymnasium's where Gymnasium has it.
// With "?pixels=N" behind it observations are N x N gray pixels of its pictures
// (pixel_observations.h).
// With `render` its instances draw pictures where the task can. What instances share (a compiled
// model) is loaded here, once; the factory may be called from any thread. kConfig for an unknown
// id, naming the nearest; for MuJoCo tasks also what LoadMujocoModel (mujoco/library.h) says.
Result<EnvironmentFactory> NativeEnvironment(std::string_view id, bool render = false);

// Every task that NativeEnvironment knows, in the order of the documentation.
std::vector<std::string> NativeEnvironmentIds();

// Description of such a task, without loading anything; nullopt for MuJoCo's and unknown ids.
std::optional<EnvironmentSpec> NativeSpec(std::string_view id, bool render = false);

// The ground plan of a task of this list in which positions mean something: a maze, a trap.
std::optional<EnvironmentMap> NativeMap(std::string_view id);

// Adds a task of a program outside this tree, before the program reads a configuration: env.id=`id`
// then names it everywhere. `make` may be called from any thread; with `render` its instances draw
// pictures where the task can. REQUIRES: no task has this id.
void RegisterEnvironment(std::string id,
                         std::function<std::unique_ptr<Environment>(bool render)> make);

}  // namespace samara
