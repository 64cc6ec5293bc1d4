// Passes of perceptrons over rows of observations, as a replay and inference have them: in bytes.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "nn/perceptron.h"
#include "rl/learner/learning_config.h"

namespace samara {

// The products that the keys ask for. REQUIRES: HasBf16Products() where they are of bfloat16.
inline const kernel::Ops& OpsOf(const AgentNetworkKeys& keys) {
  return keys.precision == Precision::kBfloat16 ? KernelOpsWithBf16() : KernelOps(ActiveIsa());
}

// The row of a pass's input.
inline std::span<float> InputRow(const Perceptron& net, size_t row, PerceptronPass& pass) {
  return {pass.input.data() + row * PaddedRow(net.inputs()), net.inputs()};
}

// Outputs for `rows` observations, whose bytes are `observation`(row).
template <typename Observation>
void Evaluate(const Perceptron& net, std::span<const float> parameters, size_t rows,
              const Observation& observation, PerceptronPass& pass) {
  for (size_t i = 0; i < rows; ++i) {
    const std::span<const std::byte> bytes = observation(i);
    std::memcpy(InputRow(net, i, pass).data(), bytes.data(), bytes.size());
  }
  net.Forward(parameters, rows, pass);
}

// Writes the derivatives of a loss by the parameters to `gradient`, from those by the outputs of
// the last pass. Those by the observations, which are the first inputs of each row, are added to
// `by_observation`, [rows][floats of one], unless it is empty.
inline void BackwardToObservations(const Perceptron& net, std::span<const float> parameters,
                                   std::span<const float> by_output, PerceptronPass& pass,
                                   std::span<float> gradient, std::span<float> by_observation) {
  const bool wanted = !by_observation.empty();
  net.Backward(parameters, by_output, /*by_input=*/wanted, pass, gradient);
  if (!wanted) return;
  const size_t floats = by_observation.size() / pass.rows, row = PaddedRow(net.inputs());
  for (size_t i = 0; i < pass.rows; ++i)
    for (size_t k = 0; k < floats; ++k)
      by_observation[i * floats + k] += pass.input_delta.data()[i * row + k];
}

}  // namespace samara
