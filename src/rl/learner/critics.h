// Critics of continuous actions: perceptrons of one shape that read an observation and, behind it,
// an action. Their parameters follow one another in a vector.
#pragma once

#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "rl/learner/perceptron_rows.h"
#include "rl/learner/replay_algorithm.h"

namespace samara {

// Thread safety: constant; a scratch is its thread's.
class Critics {
 public:
  struct Scratch {
    std::vector<PerceptronPass> passes;  // of each critic
    std::vector<float> by_value;         // [rows]
  };
  // `actions`: floats of an action, which are the last inputs of `net`.
  Critics(std::shared_ptr<const Perceptron> net, size_t count, size_t actions)
      : net_(std::move(net)), count_(count), actions_(actions) {}

  const Perceptron& net() const { return *net_; }
  size_t count() const { return count_; }
  Scratch MakeScratch(size_t rows_max) const {
    Scratch scratch{.passes = {}, .by_value = std::vector<float>(rows_max)};
    for (size_t j = 0; j < count_; ++j) scratch.passes.push_back(net_->MakePass(rows_max));
    return scratch;
  }
  template <typename T>
  std::span<T> Of(std::span<T> all, size_t j) const {
    return all.subspan(j * net_->size(), net_->size());
  }

  // Outputs of critic `j` for actions whose dimensions are `action`(row, dimension).
  template <typename Observation, typename Action>
  void EvaluateOne(size_t j, std::span<const float> all, size_t rows,
                   const Observation& observation, const Action& action, Scratch& s) const {
    const size_t first = net_->inputs() - actions_;
    for (size_t i = 0; i < rows; ++i) {
      const std::span<float> input = InputRow(*net_, i, s.passes[j]);
      for (size_t d = 0; d < actions_; ++d) input[first + d] = action(i, d);
    }
    samara::Evaluate(*net_, Of(all, j), rows, observation, s.passes[j]);
  }
  template <typename Observation, typename Action>
  void Evaluate(std::span<const float> all, size_t rows, const Observation& observation,
                const Action& action, Scratch& s) const {
    for (size_t j = 0; j < count_; ++j) EvaluateOne(j, all, rows, observation, action, s);
  }
  std::span<const float> Output(const Scratch& s, size_t j, size_t row) const {
    return net_->Output(s.passes[j], row);
  }
  float Value(const Scratch& s, size_t j, size_t row) const { return Output(s, j, row)[0]; }
  // Number of the critic with the least value.
  size_t Least(const Scratch& s, size_t row) const {
    size_t j = 0;
    for (size_t other = 1; other < count_; ++other)
      if (Value(s, other, row) < Value(s, j, row)) j = other;
    return j;
  }
  // Derivatives by the action of a row, after a backward pass of critic `j` to its inputs.
  std::span<const float> ByAction(const Scratch& s, size_t j, size_t row) const {
    const size_t inputs = net_->inputs();
    return {s.passes[j].input_delta.data() + row * PaddedRow(inputs) + inputs - actions_, actions_};
  }

  struct Loss {
    double loss = 0, values = 0;  // means over the rows: of the loss of all, of one's value
  };
  // The squared errors of all critics at the actions that were played, `action`(row, dimension).
  // Writes `gradient`, of all critics, and minibatch.errors: the mean of their absolute errors;
  // adds to minibatch.by_observation.
  template <typename Action>
  Loss SquaredErrors(const ReplayMinibatch& minibatch, std::span<const float> all,
                     const Action& action, std::span<const float> target, Scratch& s,
                     std::span<float> gradient) const;

 private:
  const std::shared_ptr<const Perceptron> net_;
  const size_t count_, actions_;
};

template <typename Action>
Critics::Loss Critics::SquaredErrors(const ReplayMinibatch& minibatch, std::span<const float> all,
                                     const Action& action, std::span<const float> target,
                                     Scratch& s, std::span<float> gradient) const {
  const auto steps = minibatch.steps;
  const size_t n = steps.size();
  const float mean = 1 / static_cast<float>(n);
  Loss sum;
  std::ranges::fill(minibatch.errors, 0.0F);
  for (size_t j = 0; j < count_; ++j) {
    EvaluateOne(
        j, all, n, [&](size_t i) { return steps[i].observation; }, action, s);
    for (size_t i = 0; i < n; ++i) {
      const float error = Value(s, j, i) - target[i], weight = minibatch.weights[i];
      sum.loss += static_cast<double>(weight) * error * error, sum.values += Value(s, j, i);
      s.by_value[i] = 2 * error * mean * weight;
      minibatch.errors[i] += std::abs(error) / static_cast<float>(count_);
    }
    BackwardToObservations(*net_, Of(all, j), std::span(s.by_value).first(n), s.passes[j],
                           Of(gradient, j), minibatch.by_observation);
  }
  const auto rows = static_cast<double>(n);
  return {sum.loss / rows, sum.values / (rows * static_cast<double>(count_))};
}

}  // namespace samara
