#include "rl/algorithms/registry.h"

#include <algorithm>
#include <vector>

#include "core/check.h"
#include "core/cpu.h"
#ifdef SAMARA_AGENTS
#include "nn/torch/torch_device.h"
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

namespace {

// Refuses what the setup's devices cannot do. kConfig.
Status CheckDevices(const AgentSetup& setup, bool native) {
  const bool gpus = setup.learns_on.cuda && setup.infers_on.cuda;
  if (native && (setup.learns_on.cuda || setup.infers_on.cuda))
    return {Code::kConfig, "run.device=" + setup.learns_on.text() + ": " + setup.config.algorithm +
                               " computes its perceptrons on the CPU; expected auto or cpu"};
  if (setup.config.network.precision == Precision::kBfloat16 && !gpus && !HasBf16Products())
    return {Code::kConfig,
            "network.precision=bfloat16: this processor has no products of bfloat16 "
            "(AVX512_BF16); expected float32"};
  return Status::Ok();
}

#ifdef SAMARA_AGENTS
constexpr bool kTorch = true;
Result<std::unique_ptr<Agent>> MakeTorchAgent(const AgentSetup& setup, MakeAlgorithm* make) {
  return MakeLearner(setup, make(setup.config));
}
#else
constexpr bool kTorch = false;
Result<std::unique_ptr<Agent>> MakeTorchAgent(const AgentSetup& setup, MakeAlgorithm* /*make*/) {
  return Status(Code::kConfig, "this program was built without torch, which agents of " +
                                   setup.config.algorithm + " need: build with -DSAMARA_TORCH=ON");
}
#endif

}  // namespace

Precision PrecisionOf(const AgentSetup& setup) {
  const AgentNetworkKeys& keys = setup.config.network;
  if (keys.precision == Precision::kFloat32 || keys.precision == Precision::kBfloat16)
    return keys.precision;
  if (!keys.module.empty()) return Precision::kFloat32;
  if (!setup.learns_on.cuda && !setup.infers_on.cuda)
    return keys.precision == Precision::kFastest && HasBf16Products() ? Precision::kBfloat16
                                                                      : Precision::kFloat32;
  if (!setup.learns_on.cuda || !setup.infers_on.cuda) return Precision::kFloat32;
  const GpuList gpus = FindGpus();
  const bool bfloat16 =
      HasBf16Products(setup.learns_on, gpus) && HasBf16Products(setup.infers_on, gpus);
  return bfloat16 ? Precision::kBfloat16 : Precision::kFloat32;
}

Result<std::unique_ptr<Agent>> MakeAgent(const AgentSetup& given) {
  AgentSetup setup = given;
  setup.config.network.precision = PrecisionOf(given);
  RETURN_IF_ERROR(Check(setup.config));
  const LearningAlgorithm* row = FindLearningAlgorithm(setup.config.algorithm);
  RETURN_IF_ERROR(CheckDevices(setup, row->agent != nullptr));
  return row->agent != nullptr ? row->agent(setup) : MakeTorchAgent(setup, row->make);
}

bool HasAgents(std::string_view algorithm) {
  const LearningAlgorithm* row = FindLearningAlgorithm(algorithm);
  return kTorch || (row != nullptr && row->agent != nullptr);
}

#ifdef SAMARA_AGENTS
bool AgentsUseGpus() { return TorchUsesGpus(); }
#else
bool AgentsUseGpus() { return false; }
#endif

}  // namespace samara
