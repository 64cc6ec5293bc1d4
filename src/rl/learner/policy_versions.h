// Acting with torch: versions of one network, and what it remembers of every slot.
#pragma once

#include <memory>
#include <string>

#include "core/mutex.h"
#include "nn/torch/agent_network.h"
#include "rl/learner/action_values.h"
#include "rl/learner/agent.h"
#include "rl/learner/distribution.h"
#include "rl/learner/version_queue.h"

namespace samara {

inline constexpr int64_t kDepthMax = 64;  // of a frame stack

// How the environment's observations become a network's input.
struct InputLayout {
  bool stacked = false;                         // `stack.depth` observations make an input
  FrameStackRule stack;                         // where they do
  int64_t height = 1, width = 1, channels = 1;  // of the input
  bool bytes = false;                           // uint8, else float32
  size_t plane_bytes = 0;                       // of one observation
  size_t pixel_bytes = 0;                       // of one of its pixels

  // `stack` as in AgentSetup. REQUIRES: none but for images.
  static InputLayout Make(const ObservationSpec& spec, const std::optional<FrameStackRule>& stack);
  size_t depth() const { return stacked ? static_cast<size_t>(stack.depth) : 1; }
  // Memory of whole inputs, [rows][h][w][c].
  torch::Tensor MakeInputs(int64_t rows) const;
  size_t input_bytes() const { return depth() * plane_bytes; }
  // One input from its planes, `depth` observations (null: zeros): all of a pixel stand together.
  void WriteInput(std::span<const std::byte* const> planes, std::byte* input) const;
};

ActionDistribution MakeDistribution(const ActionSpec& action);

// Thread safety: Infer on one thread; Publish and Has from any.
class Acting {
 public:
  // `values`: the network gives values of actions and acts by this rule; else it draws from a
  // distribution.
  Acting(const AgentSetup& setup, const AgentNetworkConfig& network, const InputLayout& layout,
         const std::optional<ActionValueRule>& values = std::nullopt);

  const ModelShape& shape() const { return shape_; }
  Status Infer(InferenceBatch& batch);
  bool Has(uint64_t version) const { return versions_.Has(version); }
  // A copy of `network` becomes the newest version.
  void Publish(uint64_t version, const AgentNetworkImpl& network);

  // Encodes the memory of slots; REQUIRES: no Infer is running.
  std::string SaveSlots() const;
  Status RestoreSlots(std::string_view saved);  // kBadData
  const VersionQueue<AgentNetworkImpl>& versions() const { return versions_; }

 private:
  Status Forward(InferenceBatch& batch);
  void ActByValues(const AgentNetworkImpl::Output& output, InferenceBatch& batch) const;
  void ActByDistribution(const AgentNetworkImpl::Output& output, int64_t rows,
                         InferenceBatch& batch) const;
  void TakeFrame(const InferenceRow& row, std::byte* input, std::byte* history);
  std::byte* Plane(uint32_t slot, int64_t frame);

  const InputLayout layout_;
  const AgentNetworkConfig network_config_;
  const ActionDistribution distribution_;
  const std::optional<ActionValueRule> by_values_;
  const SlotShare share_;
  ModelShape shape_;
  // by slot
  torch::Tensor
      planes_;  // uint8 [slots][depth][plane_bytes]: the last frames, frame f in f % depth
  std::vector<int64_t> frames_;  // since the stack began; the newest frame's number
  torch::Tensor states_;         // [slots][state]
  // by row
  torch::Tensor inputs_, rewards_, actions_, first_, entering_, uniforms_;
  VersionQueue<AgentNetworkImpl> versions_;
  mutable Mutex mu_;
  std::vector<AgentNetwork> spare_ GUARDED_BY(mu_);
};

}  // namespace samara
