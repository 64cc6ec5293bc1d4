#include "rl/algorithms/registry.h"

#include <algorithm>
#include <vector>

#include "core/check.h"
#ifdef SAMARA_AGENTS
#include "rl/learner/algorithm.h"
#include "rl/learner/learner.h"
#endif

namespace samara {

LearningAlgorithm A2cRow();
LearningAlgorithm D4pgRow();
LearningAlgorithm DqnRow();
LearningAlgorithm PpoRow();
LearningAlgorithm R2d2Row();
LearningAlgorithm SacRow();
LearningAlgorithm Td3Row();
LearningAlgorithm VtraceRow();

namespace {

std::vector<LearningAlgorithm>& Rows() {
  static std::vector<LearningAlgorithm> rows = {VtraceRow(), A2cRow(),  PpoRow(), SacRow(),
                                                DqnRow(),    R2d2Row(), Td3Row(), D4pgRow()};
  return rows;
}

}  // namespace

std::span<const LearningAlgorithm> LearningAlgorithms() { return Rows(); }

const LearningAlgorithm* FindLearningAlgorithm(std::string_view name) {
  const auto row = std::ranges::find(Rows(), name, &LearningAlgorithm::name);
  return row == Rows().end() ? nullptr : &*row;
}

void RegisterLearningAlgorithm(LearningAlgorithm row) {
  CHECK(FindLearningAlgorithm(row.name) == nullptr) << "two learning algorithms named " << row.name;
  Rows().push_back(std::move(row));
}

void ChooseAlgorithm(LearningConfig& config, std::string_view name) {
  if (config.algorithm == name) return;
  const LearningAlgorithm* row = FindLearningAlgorithm(name);
  CHECK(row != nullptr) << "no learning algorithm " << name;
  config.algorithm = name;
  config.own = row->parameters();
}

#ifdef SAMARA_AGENTS

Result<std::unique_ptr<Agent>> MakeAgent(const AgentSetup& setup) {
  RETURN_IF_ERROR(Check(setup.config));
  const LearningAlgorithm* row = FindLearningAlgorithm(setup.config.algorithm);
  return row->agent != nullptr ? row->agent(setup) : MakeLearner(setup, row->make(setup.config));
}

bool HasAgents() { return true; }

#else

Result<std::unique_ptr<Agent>> MakeAgent(const AgentSetup&) {
  return Status(Code::kConfig,
                "this program was built without torch, which learning agents need: build with "
                "-DSAMARA_TORCH=ON");
}

bool HasAgents() { return false; }

#endif

}  // namespace samara
