// What a program without torch has of agents: nothing, said plainly.
#include "rl/learner/agent.h"

namespace samara {

Result<std::unique_ptr<Agent>> MakeVtraceAgent(const AgentSetup&) {
  return Status(Code::kConfig,
                "this program was built without torch, which learning agents need: build with "
                "-DSAMARA_TORCH=ON");
}

bool HasAgents() { return false; }

}  // namespace samara
