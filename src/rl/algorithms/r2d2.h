// R2D2's targets, for its loss and its tests.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace samara {

// h(x) = sgn(x) (sqrt(|x| + 1) - 1) + epsilon x, and its inverse in a form that does not cancel
// (Kapturowski et al. 2019, section 2.3). epsilon = 0: x itself, both.
double Rescale(double x, double epsilon);
double RescaleInverse(double x, double epsilon);

// Consecutive steps t = 0 ... T-1 of a sequence.
struct ValueSteps {
  std::vector<float> reward;
  std::vector<uint8_t> terminated, truncated;  // how the step ended its episode, if it did
  // rescaled value of the observation that the step led to; of the episode's last where truncated
  std::vector<float> next_value;
};

// y_t = h(sum over i < m of gamma^i r_{t+i} + gamma^m h^-1(v)) with v the value after those m
// steps: `steps` of them, or fewer at the end of the sequence or of an episode; where that
// terminated v counts nothing.
std::vector<float> MultiStepTargets(const ValueSteps& of, int64_t steps, double gamma,
                                    double epsilon);

// eta max |error| + (1 - eta) mean |error|.
double SequencePriority(std::span<const float> errors, double eta);

}  // namespace samara
