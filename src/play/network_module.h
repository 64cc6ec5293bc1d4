// The module of a learner's network (network.module): a file that the user names; in a run, and in
// what is saved of it, "sha256:" and the digest of its bytes, which the run folder keeps.
#pragma once

#include <string>

#include "rl/learner/learning_config.h"
#include "storage/run_folder.h"

namespace samara {

// Takes the bytes of the file that the key names, and makes the key their digest. Nothing to do
// where there is none, or they are there. kNoInput; kConfig: a digest whose bytes are not there.
Status TakeModule(AgentNetworkKeys& keys);
// Takes the bytes that a run keeps. kBadData: damaged.
Status TakeModule(const RunFolder& run, AgentNetworkKeys& keys);

// The torso as people read it: its name, its line of layers, or "module-0123abcd".
std::string TorsoName(const AgentNetworkKeys& keys);

}  // namespace samara
