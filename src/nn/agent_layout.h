// SPDX-License-Identifier: Apache-2.0 OR MIT
// The parameters of learners' networks in the layout of PyTorch's modules, and back. Torch-free.
//
//   learner (nn/torch/agent_network.h)   exported
//   conv1_weight, conv1_bias             conv1.weight, conv1.bias; equal values
//   fc_weight                            fc.weight; its columns are the torso's map flattened rows,
//                                        columns, channels here and channels, rows, columns there
//   lstm_input, lstm_recurrent           lstm.weight_ih, lstm.weight_hh of nn.LSTMCell
//   lstm_bias                            lstm.bias_ih, and zeros as lstm.bias_hh; their sum
//   gru_input, gru_recurrent             gru.weight_ih, gru.weight_hh of nn.GRUCell
//   gru_bias                             gru.bias_ih, and as gru.bias_hh zeros for r and z and its
//                                        last quarter for n; r and z of both are summed
//   normalize_mean                       normalize.mean, as evolution's networks have it
//   normalize_deviation                  normalize.std, likewise
//   torso.NAME, value_torso.NAME         the same: parameters of a user's module
#pragma once

#include <map>
#include <string>

#include "core/status.h"
#include "nn/safetensors.h"

namespace samara {

using NamedTensors = std::map<std::string, Tensor>;

// kBadData: a tensor that is not float32, a dense layer that does not fit its map, or biases of a
// core that do not fit each other.
Result<NamedTensors> AgentToTorch(const NamedTensors& learner);
Result<NamedTensors> AgentFromTorch(const NamedTensors& exported);

}  // namespace samara
