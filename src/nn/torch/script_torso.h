// A torch.nn.Module of the user, as TorchScript, for the torso of a learner's network: a batch of
// observations to features.
//
// It is used as a function: in evaluation mode, of each row by itself, without state and random
// draws. Its parameters keep the names that they have in Python; buffers are constants of the file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/status.h"
#include "nn/torch/torch.h"

namespace samara {

// Thread safety: that of torch::nn::Module.
class ScriptTorso : public torch::nn::Module {
 public:
  // [N][...] float32 to [N][features]. Throws what the module throws, as one line.
  torch::Tensor forward(const torch::Tensor& x) const;
  using torch::nn::Module::to;
  // Buffers too, which are no parameters here.
  void to(torch::Device device, bool non_blocking) override { module_.to(device, non_blocking); }

 private:
  friend class TorsoFile;
  explicit ScriptTorso(torch::jit::Module module);
  torch::jit::Module module_;
};

// The file of such a module, found to be good for inputs of one shape. Immutable.
class TorsoFile {
 public:
  // `bytes`: what torch.jit.save wrote. `input`: shape of one observation, as the module receives
  // it: [numbers], or [channels][rows][columns]. kBadData: no TorchScript; kConfig: a module that
  // cannot be the torso.
  static Result<std::shared_ptr<const TorsoFile>> Make(std::shared_ptr<const std::string> bytes,
                                                       at::IntArrayRef input);

  int64_t features() const { return features_; }
  // A module of its own, with the parameters of the file.
  std::shared_ptr<ScriptTorso> Open() const;

 private:
  explicit TorsoFile(std::shared_ptr<const std::string> bytes) : bytes_(std::move(bytes)) {}
  const std::shared_ptr<const std::string> bytes_;
  int64_t features_ = 0;
};

}  // namespace samara
