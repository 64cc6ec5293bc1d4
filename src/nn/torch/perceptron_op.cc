#include "nn/torch/perceptron_op.h"

#include <algorithm>

#include "core/check.h"
#include "nn/torch/autograd_node.h"

namespace samara {

using torch::Tensor;

PerceptronOp::PerceptronOp(Perceptron net, std::vector<Head> heads)
    : net_(std::make_shared<const Perceptron>(std::move(net))), heads_(std::move(heads)) {
  size_t at = 0;
  const std::vector<Layer>& layers = net_->network().layers;
  for (const Layer& layer : layers) {
    const auto in = static_cast<size_t>(layer.in), out = static_cast<size_t>(layer.out);
    const size_t row = PaddedRow(out);
    if (&layer != &layers.back()) {
      AddLayer(at, in, out, row, 0);
    } else {
      size_t column = 0;
      for (const Head& head : heads_) {
        const auto own = static_cast<size_t>(head.outputs), free = static_cast<size_t>(head.free);
        AddLayer(at + column, in, own, row, free);
        column += own + free;
      }
      CHECK_EQ(column, out);
    }
    at += (in + 1) * row;
    if (layer.norm != Norm::kLayer) continue;
    for (int i = 0; i < 2; ++i, at += row) places_.push_back({at, 1, out, row, /*weight=*/false});
  }
}

void PerceptronOp::AddLayer(size_t offset, size_t inputs, size_t outputs, size_t row, size_t free) {
  const size_t bias = offset + inputs * row;
  places_.push_back({offset, inputs, outputs, row, /*weight=*/true});
  places_.push_back({bias, 1, outputs, row, /*weight=*/false});
  if (free > 0) places_.push_back({bias + outputs, 1, free, row, /*weight=*/false});
}

std::vector<float> PerceptronOp::Pack(const std::vector<Tensor>& parameters) const {
  std::vector<float> packed(net_->size());
  Pack(parameters, packed);
  return packed;
}

void PerceptronOp::Pack(const std::vector<Tensor>& parameters, std::span<float> packed) const {
  CHECK_EQ(parameters.size(), places_.size());
  for (size_t i = 0; i < places_.size(); ++i) {
    const Place& p = places_[i];
    CHECK(parameters[i].is_contiguous());
    TransposeMatrix(parameters[i].data_ptr<float>(), p.columns, p.rows, p.rows,
                    packed.data() + p.offset, p.stride);
  }
}

void PerceptronOp::Unpack(std::span<const float> packed, std::span<const size_t> offsets,
                          std::span<float> to) const {
  CHECK_EQ(offsets.size(), places_.size());
  for (size_t i = 0; i < places_.size(); ++i) places_[i].Unpack(packed, to.data() + offsets[i]);
}

void PerceptronOp::Place::Unpack(std::span<const float> packed, float* to) const {
  TransposeMatrix(packed.data() + offset, rows, columns, stride, to, rows);
}

// Returns a free pass with room for `rows`; it is free again when its last owner drops it.
PerceptronOp::Pass PerceptronOp::TakePass(size_t rows) const {
  std::unique_ptr<PerceptronPass> pass;
  {
    const MutexLock lock(spare_->mu);
    const auto fits = std::ranges::find_if(spare_->passes, [&](const auto& free) {
      return free->input.size() >= rows * PaddedRow(net_->inputs());
    });
    if (fits != spare_->passes.end()) {
      pass = std::move(*fits);
      spare_->passes.erase(fits);
    } else if (!spare_->passes.empty()) {
      spare_->passes.pop_back();  // a larger one takes its place
    }
  }
  if (!pass) pass = std::make_unique<PerceptronPass>(net_->MakePass(rows));
  return {pass.release(), [spare = spare_](PerceptronPass* used) {
            const MutexLock lock(spare->mu);
            spare->passes.emplace_back(used);
          }};
}

std::vector<Tensor> PerceptronOp::Run(const Tensor& x, std::span<const float> packed,
                                      PerceptronPass& pass) const {
  const auto rows = static_cast<size_t>(x.size(0));
  const size_t inputs = net_->inputs(), row = PaddedRow(inputs);
  const Tensor dense = x.contiguous();
  CHECK_EQ(static_cast<size_t>(dense.numel()), rows * inputs);
  for (size_t i = 0; i < rows; ++i)
    std::copy_n(dense.data_ptr<float>() + i * inputs, inputs, pass.input.data() + i * row);
  if (rows > 0) net_->Forward(packed, rows, pass);
  std::vector<Tensor> outputs;
  size_t column = 0;
  for (const Head& head : heads_) {
    const auto size = static_cast<size_t>(head.outputs + head.free);
    outputs.push_back(torch::empty({x.size(0), head.outputs + head.free}));
    for (size_t i = 0; i < rows; ++i)
      std::ranges::copy(net_->Output(pass, i).subspan(column, size),
                        outputs.back().data_ptr<float>() + i * size);
    column += size;
  }
  return outputs;
}

std::vector<Tensor> PerceptronOp::Apply(const Tensor& x, std::span<const float> packed) const {
  return Run(x, packed, *TakePass(static_cast<size_t>(x.size(0))));
}

// Keeps what a graph needs of a forward pass.
class PerceptronOp::Backward : public torch::autograd::Node {
 public:
  Backward(const PerceptronOp& op, Pass pass, std::vector<float> packed)
      : net_(op.net_),
        heads_(op.heads_),
        places_(op.places_),
        pass_(std::move(pass)),
        packed_(std::move(packed)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    CHECK(pass_ != nullptr) << "a second backward pass";
    const size_t rows = pass_->rows, outputs = net_->outputs();
    std::vector<float> by_output(rows * outputs);
    size_t column = 0;
    for (size_t h = 0; h < heads_.size(); ++h) {
      const auto size = static_cast<size_t>(heads_[h].outputs + heads_[h].free);
      if (gradients[h].defined()) {
        const Tensor by_head = gradients[h].contiguous();
        for (size_t i = 0; i < rows; ++i)
          std::copy_n(by_head.data_ptr<float>() + i * size, size,
                      by_output.data() + i * outputs + column);
      }
      column += size;
    }
    std::vector<float> gradient(net_->size());
    net_->Backward(packed_, by_output, /*by_input=*/false, *pass_, gradient);
    torch::autograd::variable_list out;
    for (const Place& p : places_) {
      const auto rows_of = static_cast<int64_t>(p.rows), columns = static_cast<int64_t>(p.columns);
      Tensor by = p.weight ? torch::empty({columns, rows_of}) : torch::empty({columns});
      p.Unpack(gradient, by.data_ptr<float>());
      out.push_back(std::move(by));
    }
    return out;
  }
  void release_variables() override { pass_.reset(); }

 private:
  const std::shared_ptr<const Perceptron> net_;
  const std::vector<Head> heads_;
  const std::vector<Place> places_;
  Pass pass_;
  const std::vector<float> packed_;
};

std::vector<Tensor> PerceptronOp::Apply(const Tensor& x,
                                        const std::vector<Tensor>& parameters) const {
  CHECK(!x.requires_grad());
  std::vector<float> packed = Pack(parameters);
  const bool learns =
      torch::GradMode::is_enabled() &&
      std::ranges::any_of(parameters, [](const Tensor& p) { return p.requires_grad(); });
  if (!learns || x.size(0) == 0) return Apply(x, packed);
  Pass pass = TakePass(static_cast<size_t>(x.size(0)));
  std::vector<Tensor> outputs = Run(x, packed, *pass);
  const auto node = MakeAutogradNode<Backward>(*this, std::move(pass), std::move(packed));
  node->set_next_edges(torch::autograd::collect_next_edges(parameters));
  for (Tensor& output : outputs) torch::autograd::create_gradient_edge(output, node);
  return outputs;
}

}  // namespace samara
