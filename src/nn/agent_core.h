// SPDX-License-Identifier: Apache-2.0 OR MIT
// The recurrent core of a learner's network, between its torso and its heads
// (nn/torch/agent_network.h). Torch-free.
#pragma once

#include <cstdint>
#include <string>

namespace samara {

struct AgentCore {
  enum class Kind : uint8_t { kLstm, kGru };  // PyTorch's nn.LSTMCell, nn.GRUCell
  int64_t units = 0;                          // 0 = no core
  Kind kind = Kind::kLstm;

  bool gru() const { return kind == Kind::kGru; }
  explicit operator bool() const { return units > 0; }
  // "lstm": the end of its key, the beginning of its parameters' names.
  std::string name() const { return gru() ? "gru" : "lstm"; }
  int64_t gates() const { return gru() ? 3 : 4; }
  // Numbers of a state: h, and then an LSTM's c.
  int64_t state_size() const { return gru() ? units : 2 * units; }
};

}  // namespace samara
