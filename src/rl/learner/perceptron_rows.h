// Passes of perceptrons over rows of observations, as a replay and inference have them: in bytes.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "nn/perceptron.h"

namespace samara {

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

// Adds derivatives by the first inputs of each row, which a backward pass has left, to
// `by_observation`, [rows][numbers]; nothing where it is empty.
inline void AddByObservation(const Perceptron& net, size_t rows, const PerceptronPass& pass,
                             std::span<float> by_observation) {
  const size_t numbers = by_observation.size() / rows, row = PaddedRow(net.inputs());
  for (size_t i = 0; i < rows; ++i)
    for (size_t k = 0; k < numbers; ++k)
      by_observation[i * numbers + k] += pass.input_delta.data()[i * row + k];
}

}  // namespace samara
