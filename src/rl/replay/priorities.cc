#include "rl/replay/priorities.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/bytes.h"

namespace samara {
namespace {

// An item without an error may be drawn too; one whose error is not finite is not learned from.
constexpr double kPriorityMin = 1e-6, kPriorityMax = 1e30;

}  // namespace

SumTree::SumTree(uint64_t items)
    : items_(items), leaves_(std::bit_ceil(std::max<uint64_t>(1, items))), nodes_(2 * leaves_) {}

void SumTree::Set(uint64_t item, double weight) {
  uint64_t node = leaves_ + item;
  nodes_[node] = weight;
  while (node > 1) {
    node /= 2;
    nodes_[node] = nodes_[2 * node] + nodes_[2 * node + 1];
  }
}

uint64_t SumTree::Find(double at) const {
  uint64_t node = 1;
  while (node < leaves_) {
    node *= 2;
    // rounding may lead past the last weight: never into a part without any
    if (at >= nodes_[node] && nodes_[node + 1] > 0) at -= nodes_[node++];
  }
  return node - leaves_;
}

Priorities::Priorities(uint64_t items, double alpha, double beta)
    : alpha_(alpha), beta_(beta), items_(items) {}

uint64_t Priorities::Bytes(uint64_t items, double alpha) {
  return alpha > 0 ? 2 * std::bit_ceil(items) * sizeof(double) : 0;
}

void Priorities::Set(uint64_t item, double priority) {
  if (uniform()) return;
  if (!(priority > kPriorityMin && priority < kPriorityMax)) priority = kPriorityMin;
  largest_ = std::max(largest_, priority);
  if (!tree_) tree_.emplace(items_);
  tree_->Set(item, std::pow(priority, alpha_));
}

Priorities::Drawn Priorities::Draw(const CounterRng& rng, uint64_t i, uint64_t size, double all,
                                   double share) const {
  if (uniform()) return {rng.UniformInt(i, size), 1};
  const uint64_t item = tree_->Find(rng.Uniform(i) * tree_->total());
  if (beta_ == 0) return {item, 1};
  const double probability = share * tree_->Get(item) / tree_->total();
  return {item, static_cast<float>(std::pow(1 / (all * probability), beta_))};
}

std::string Priorities::Save(uint64_t size) const {
  ByteWriter out;
  std::vector<double> weights;
  if (!uniform())
    for (uint64_t item = 0; item < size; ++item) weights.push_back(tree_->Get(item));
  out.Put(largest_).PutVector(weights);
  return out.Take();
}

Status Priorities::Restore(std::string_view saved, uint64_t size) {
  ByteReader in(saved);
  const auto largest = in.Get<double>();
  std::vector<double> weights;
  const bool good = in.GetVector(weights) && in.AtEnd() && largest > 0 && std::isfinite(largest) &&
                    weights.size() == (uniform() ? 0 : size) &&
                    std::ranges::all_of(weights, [](double x) { return x > 0 && x < 1e300; });
  if (!good) return {Code::kBadData, "the saved priorities have another shape than this run's"};
  largest_ = largest;
  tree_.reset();
  if (!weights.empty()) tree_.emplace(items_);
  for (uint64_t item = 0; item < weights.size(); ++item) tree_->Set(item, weights[item]);
  return Status::Ok();
}

}  // namespace samara
