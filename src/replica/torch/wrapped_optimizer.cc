// torch's optimizers, stepped by a GradientReducer.
#include <memory>
#include <utility>
#include <vector>

#include "replica/torch/reducer.h"
#include "samara/replicator.h"

namespace samara {

WrappedOptimizer Replicator::WrapBase(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                      std::vector<torch::Tensor> buffers,
                                      const WrapOptions& options, Site site) {
  if (dynamic_cast<torch::optim::LBFGS*>(optimizer.get()) != nullptr)
    throw ReplicationError(
        78, "LBFGS evaluates its loss several times a step: expected an optimizer that does not");
  std::vector<torch::Tensor> parameters;
  std::vector<std::pair<size_t, size_t>> place;  // group, index within it
  for (size_t g = 0; g < optimizer->param_groups().size(); ++g) {
    for (const torch::Tensor& p : optimizer->param_groups()[g].params()) {
      place.emplace_back(g, parameters.size());
      parameters.push_back(p);
    }
  }
  // an update of some parameters: the optimizer has only these
  auto holder = std::make_shared<std::weak_ptr<GradientReducer>>();
  const auto update = [optimizer, place, parameters, holder](const std::vector<size_t>& used) {
    const auto reducer = holder->lock();
    std::vector<std::vector<torch::Tensor>> chosen(optimizer->param_groups().size());
    for (const size_t i : used)
      if (reducer->owner(i) == reducer->state().rank())
        chosen[place[i].first].push_back(parameters[i]);
    std::vector<std::vector<torch::Tensor>> before;
    for (size_t g = 0; g < chosen.size(); ++g) {
      before.push_back(optimizer->param_groups()[g].params());
      optimizer->param_groups()[g].params() = chosen[g];
    }
    optimizer->step();
    for (size_t g = 0; g < before.size(); ++g)
      optimizer->param_groups()[g].params() = std::move(before[g]);
  };
  auto reducer = GradientReducer::Make(*state_, std::move(parameters), std::move(buffers), options,
                                       update, site);
  *holder = reducer;
  return {std::move(reducer), std::move(optimizer)};
}

WrappedOptimizer::WrappedOptimizer(std::shared_ptr<GradientReducer> reducer,
                                   std::shared_ptr<torch::optim::Optimizer> optimizer)
    : reducer_(std::move(reducer)), optimizer_(std::move(optimizer)) {}
void WrappedOptimizer::zero_grad() { reducer_->ZeroGrad(); }
void WrappedOptimizer::step(Site site) { reducer_->Step(reducer_->state().current(), site); }
std::shared_ptr<void> WrappedOptimizer::NoSync() { return reducer_->NoSync(); }
double WrappedOptimizer::last_norm() const { return reducer_->last_norm(); }
int64_t WrappedOptimizer::skipped() const { return reducer_->skipped(); }
int64_t WrappedOptimizer::updates() const { return reducer_->updates(); }
std::string WrappedOptimizer::parameter_hash() const { return reducer_->ParameterHash(); }

}  // namespace samara
