// An actor process in C++: the life of python/samara/actor.py, with native environments.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/status.h"
#include "env/interface.h"

namespace samara {

using EnvironmentMaker =
    std::function<Result<std::unique_ptr<Environment>>(const std::string& environment_json)>;

// To be called in a process that the learner process's fleet started (ActorFleetOptions::program):
// builds one environment per slot from what the learner process sends, says Hello with their spec
// and serves commands until the learner process says leave or is gone. Neither pictures nor whole
// episodes. What `make` refuses is told to the learner process and returned; kConfig when the
// learner process speaks another protocol.
Status RunNativeActor(const EnvironmentMaker& make);

}  // namespace samara
