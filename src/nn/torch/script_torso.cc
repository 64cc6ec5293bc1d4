#include "nn/torch/script_torso.h"

#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <set>
#include <sstream>
#include <stdexcept>

#include "core/first_line.h"

namespace samara {
namespace {

using torch::Tensor;

Status Refused(const std::string& why, Code code = Code::kConfig) {
  return {code, "network.module: " + why};
}

// The error itself of what TorchScript says of one: what comes before it is the module's source. An
// exception that the source raises is the last line.
std::string Reason(const std::string& text) {
  for (const std::string_view begin : {"RuntimeError: ", "builtins."})
    if (const size_t error = text.rfind(begin); error != std::string::npos)
      return FirstLine(text.substr(error + begin.size()));
  return FirstLine(text);
}

std::string Text(at::IntArrayRef sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

// The parameters of `from`, by name and as the same tensors.
void Adopt(const torch::jit::Module& from, torch::nn::Module& to) {
  for (const auto& parameter : from.named_parameters(/*recurse=*/false))
    to.register_parameter(parameter.name, parameter.value, parameter.value.requires_grad());
  for (const auto& child : from.named_children()) {
    const auto inner = std::make_shared<torch::nn::Module>();
    Adopt(child.value, *inner);
    to.register_module(child.name, inner);
  }
}

Status CheckParameters(const torch::jit::Module& module) {
  std::set<const void*> seen;
  bool learns = false;
  for (const auto& [name, tensor] : module.named_parameters()) {
    if (tensor.scalar_type() != torch::kFloat32)
      return Refused("parameter " + name + " is " + c10::toString(tensor.scalar_type()) +
                     "; expected float32");
    if (tensor.numel() > 0 && !seen.insert(tensor.data_ptr()).second)
      return Refused("parameter " + name + " is another one too; expected each once");
    learns |= tensor.requires_grad() && tensor.numel() > 0;
  }
  return learns ? Status::Ok() : Refused("no parameters that require a gradient; expected some");
}

// Batch norm's statistics would stay what they are in the file.
Status CheckBuffers(const torch::jit::Module& module) {
  for (const auto& attribute : module.named_attributes()) {
    const std::string& name = attribute.name;
    if (attribute.value.isTensor() && name.substr(name.rfind('.') + 1).starts_with("running_"))
      return Refused(name +
                     ": running statistics are not learned here; expected a layer without "
                     "them, such as LayerNorm or GroupNorm");
  }
  return Status::Ok();
}

// Observations [3][...] that differ from each other: images within [0, 1], vectors within [-1, 1].
Tensor Examples(at::IntArrayRef input) {
  std::vector<int64_t> shape = input.vec();
  shape.insert(shape.begin(), 3);
  const Tensor numbers = torch::arange(c10::multiply_integers(shape), torch::kFloat32);
  const Tensor spread = (numbers * 0.618034F).frac().view(shape);
  return input.size() > 1 ? spread : 2 * spread - 1;
}

// Number of features, by a few calls.
Result<int64_t> Features(const ScriptTorso& torso, at::IntArrayRef input) {
  const Tensor x = Examples(input);
  {
    const torch::AutoGradMode with_gradient(true);
    if (!torso.forward(x).requires_grad())
      return Refused(
          "gives features that no parameter has a gradient of; expected a function of its "
          "parameters, without detach and no_grad");
  }
  const torch::NoGradGuard no_gradient;
  const Tensor features = torso.forward(x).clone();
  if (features.dim() != 2 || features.size(0) != x.size(0) || features.size(1) == 0 ||
      features.scalar_type() != torch::kFloat32)
    return Refused("gives " + std::string(c10::toString(features.scalar_type())) + " " +
                   Text(features.sizes()) + " for observations " + Text(x.sizes()) +
                   "; expected Float [" + std::to_string(x.size(0)) + ", features]");
  if (!features.isfinite().all().item<bool>())
    return Refused("gives features that are not finite; expected numbers");
  if (!x.equal(Examples(input)))
    return Refused(
        "changes the observations that it reads; expected no operation in place on them");
  if (!torso.forward(x).equal(features))
    return Refused(
        "gives other features for the same observations again; expected a function, "
        "without state and random draws");
  if (!torso.forward(x.narrow(0, 1, 1)).allclose(features.narrow(0, 1, 1), 1e-3, 1e-4))
    return Refused(
        "gives other features for one observation than for it in a batch; expected "
        "each row by itself, for batches of any size");
  return features.size(1);
}

}  // namespace

ScriptTorso::ScriptTorso(torch::jit::Module module) : module_(std::move(module)) {
  module_.eval();
  Adopt(module_, *this);
}

Tensor ScriptTorso::forward(const Tensor& x) const {
  c10::IValue result;
  try {
    result = module_.get_method("forward")({x});
  } catch (const std::exception& e) {
    throw std::runtime_error("network.module: fails for observations " + Text(x.sizes()) + ": " +
                             Reason(e.what()));
  }
  if (!result.isTensor())
    throw std::runtime_error("network.module: gives " + result.tagKind() +
                             "; expected one tensor of features (network.lstm or network.gru "
                             "adds a recurrent core)");
  return result.toTensor();
}

std::shared_ptr<ScriptTorso> TorsoFile::Open() const {
  // With it later calls run another graph than the first ones, whose bits need not be the same.
  torch::jit::getProfilingMode() = false;
  std::istringstream in(*bytes_);
  return std::shared_ptr<ScriptTorso>(new ScriptTorso(torch::jit::load(in, torch::kCPU)));
}

Result<std::shared_ptr<const TorsoFile>> TorsoFile::Make(std::shared_ptr<const std::string> bytes,
                                                         at::IntArrayRef input) {
  const std::shared_ptr<TorsoFile> file(new TorsoFile(std::move(bytes)));
  std::shared_ptr<ScriptTorso> torso;
  try {
    torso = file->Open();
  } catch (const std::exception& e) {
    return Refused(
        "no TorchScript (" + Reason(e.what()) + "); expected a file that torch.jit.save wrote",
        Code::kBadData);
  }
  if (!torso->module_.find_method("forward"))
    return Refused(
        "no method forward(x) in it; expected one of a batch of observations, without "
        "recurrent state, which network.lstm or network.gru adds");
  RETURN_IF_ERROR(CheckParameters(torso->module_));
  RETURN_IF_ERROR(CheckBuffers(torso->module_));
  try {
    ASSIGN_OR_RETURN(file->features_, Features(*torso, input));
  } catch (const std::exception& e) {
    return Status(Code::kConfig, e.what());
  }
  return std::shared_ptr<const TorsoFile>(file);
}

}  // namespace samara
