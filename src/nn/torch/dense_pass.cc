#include "nn/torch/dense_pass.h"

#include <algorithm>

#include "core/check.h"

namespace samara {

void DensePass::Run(const AgentNetworkImpl::Native& native, Part& part) const {
  const Perceptron& net = native.op.net();
  const size_t size = net.inputs(), padded = PaddedRow(size);
  if (!part.pass || part.pass->input.size() < rows_ * padded)
    part.pass.emplace(net.MakePass(rows_));
  for (size_t i = 0; i < rows_; ++i)
    std::copy_n(input_.data() + i * size, size, part.pass->input.data() + i * padded);
  if (native.frozen.empty()) {
    part.packed.resize(net.size());
    native.op.Pack(native.parameters, part.packed);
  }
  net.Forward(native.frozen.empty() ? part.packed : native.frozen, rows_, *part.pass);
}

std::span<float> DensePass::Rows(const AgentNetworkImpl& network, size_t rows) {
  CHECK(network.dense() && rows > 0);
  rows_ = rows;
  input_.resize(rows * network.native_policy_->op.net().inputs());
  return input_;
}

void DensePass::Forward(const AgentNetworkImpl& network, const float* observations,
                        std::span<const int64_t> rows) {
  const std::span<float> input = Rows(network, rows.size());
  const size_t size = input.size() / rows.size();
  for (size_t i = 0; i < rows.size(); ++i)
    std::copy_n(observations + static_cast<size_t>(rows[i]) * size, size, input.data() + i * size);
  Forward(network);
}

void DensePass::Forward(const AgentNetworkImpl& network) {
  const size_t n = rows_, size = input_.size() / n;
  for (size_t i = 0; i < n; ++i) {
    const std::span<float> row(input_.data() + i * size, size);
    network.Normalize(row.data(), row);
  }
  Run(*network.native_policy_, policy_part_);
  if (network.native_value_) Run(*network.native_value_, value_part_);

  const Perceptron& policy = network.native_policy_->op.net();
  const size_t outputs = policy.outputs() - (network.native_value_ ? 0 : 1);
  policy_.resize(n * outputs), by_policy_.resize(n * outputs);
  value_.resize(n), by_value_.resize(n);
  const auto [mean, deviation] = network.ValueStatistics();
  for (size_t i = 0; i < n; ++i) {
    const auto heads = policy.Output(*policy_part_.pass, i);
    std::ranges::copy(heads.first(outputs), policy_.begin() + static_cast<ptrdiff_t>(i * outputs));
    const float normalized = network.native_value_
                                 ? network.native_value_->op.net().Output(*value_part_.pass, i)[0]
                                 : heads[outputs];
    value_[i] = normalized * deviation + mean;
  }
}

void DensePass::RunBack(const AgentNetworkImpl::Native& native, Part& part,
                        std::span<float> gradient) const {
  const Perceptron& net = native.op.net();
  part.gradient.resize(net.size());
  net.Backward(part.packed, part.by_output, /*by_input=*/false, *part.pass, part.gradient);
  native.op.Unpack(part.gradient, native.places, gradient);
}

void DensePass::Backward(const AgentNetworkImpl& network, std::span<float> gradient) {
  const size_t n = rows_, outputs = policy_.size() / n;
  const float deviation = network.ValueStatistics().deviation;
  const bool separate = network.native_value_.has_value();
  const size_t row = outputs + (separate ? 0 : 1);
  policy_part_.by_output.resize(n * row), value_part_.by_output.resize(separate ? n : 0);
  for (size_t i = 0; i < n; ++i) {
    float* const to = policy_part_.by_output.data() + i * row;
    std::copy_n(by_policy_.data() + i * outputs, outputs, to);
    (separate ? value_part_.by_output[i] : to[outputs]) = by_value_[i] * deviation;
  }
  RunBack(*network.native_policy_, policy_part_, gradient);
  if (separate) RunBack(*network.native_value_, value_part_, gradient);
}

}  // namespace samara
