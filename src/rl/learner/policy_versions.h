// Acting with torch: versions of one network, and what it remembers of every slot.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/mutex.h"
#include "nn/torch/agent_network.h"
#include "nn/torch/dense_pass.h"
#include "nn/torch/device_graph.h"
#include "nn/torch/torch_device.h"
#include "rl/learner/action_values.h"
#include "rl/learner/agent.h"
#include "rl/learner/distribution.h"
#include "rl/learner/input_tensors.h"
#include "rl/learner/slot_memory.h"
#include "rl/learner/version_queue.h"

namespace samara {

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
  std::string SaveSlots() const { return slots_->Save(); }
  Status RestoreSlots(std::string_view saved) { return slots_->Restore(saved, share_); }
  const VersionQueue<AgentNetworkImpl>& versions() const { return versions_; }

 private:
  // Outputs of the rows of a batch, on the network's device and then on the CPU; undefined: not of
  // this kind of policy.
  struct RowOutputs {
    torch::Tensor index;              // int64: of discrete actions
    torch::Tensor samples, squashed;  // of continuous ones
    torch::Tensor behaviour, values;
  };
  // Computation for one number of rows, greedy or not: what is asked of the device at once.
  struct Computation {
    Computation(const torch::Device& device, bool record) : graph(device, record) {}
    DeviceGraph graph;
    RowInputs inputs;
    RowOutputs outputs;
  };
  Status Forward(InferenceBatch& batch);
  void ForwardByHand(const AgentNetworkImpl& network, InferenceBatch& batch);
  AgentNetworkImpl& NetworkOf(uint64_t& version);
  Computation& Compute(AgentNetworkImpl& network, int64_t rows, bool greedy);
  AgentNetwork MakeFrozen() const;  // one whose parameters have no gradients
  int64_t Padded(const InferenceBatch& batch) const;
  RowOutputs Values(const AgentNetworkImpl::Output& output) const;
  RowOutputs Draws(const AgentNetworkImpl::Output& output, const torch::Tensor& uniforms,
                   bool greedy) const;
  void Fetch(RowOutputs& outputs, KeptRows& kept);
  void Write(const RowOutputs& outputs, InferenceBatch& batch) const;
  void SetStatus(InferenceBatch& batch) const;
  void WriteKept(const KeptRows& kept, InferenceBatch& batch) const;

  const AgentNetworkConfig network_config_;
  const ActionDistribution distribution_;
  const std::optional<ActionValueRule> by_values_;
  const SlotShare share_;
  const uint32_t rows_max_;
  const PriorityStream stream_;
  ModelShape shape_;
  std::unique_ptr<SlotMemory> slots_;
  const bool by_hand_;  // where the network is dense
  DensePass dense_;
  DistributionRow row_;
  Download download_;
  AgentNetwork followed_;  // the version of the last batch
  AgentNetwork shown_;     // on a device: a copy of it, whose parameters computations read
  std::map<std::pair<int64_t, bool>, Computation> computations_;
  VersionQueue<AgentNetworkImpl> versions_;
  mutable Mutex mu_;
  std::vector<AgentNetwork> spare_ GUARDED_BY(mu_);
};

}  // namespace samara
