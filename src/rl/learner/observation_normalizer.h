// The layer `normalize` in front of networks that learn from a replay: running statistics of the
// observations that were played, and vectors that are normalized by them (nn/network.h); of images
// ImageTorso normalizes stacks.
//
// Acting and learning use floats: n means, then n deviations (RunningStatistics::Floats).
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nn/safetensors.h"
#include "rl/inference/model.h"
#include "rl/learner/agent.h"
#include "rl/learner/running_statistics.h"
#include "rl/replay/unroll_replay.h"

namespace samara {

// Thread safety: none.
class ObservationNormalizer {
 public:
  // Takes a leading `normalize` out of the line of setup.config.network. Returns the numbers of an
  // observation, a frame of images; 0, and nothing has changed, where the line has none. kConfig: a
  // bad line.
  static Result<size_t> Split(AgentSetup& setup);

  // `bytes`: numbers are bytes / 255.
  ObservationNormalizer(size_t numbers, bool bytes);

  size_t numbers() const { return statistics_.numbers(); }
  std::span<const float> floats() const { return floats_; }

  // Sums over the entries of `unrolls` that were acted on, for Merge, as RunningStatistics has
  // them.
  std::vector<float> Moments(std::span<const UnrollStore::Loan> unrolls) const;
  void Merge(std::span<const float> moments);

  // Tensors of a weights file, [numbers] each.
  static std::map<std::string, Tensor> Tensors(std::span<const float> floats);
  // kBadData: one is missing or has another shape.
  Result<std::vector<float>> FromTensors(const std::map<std::string, Tensor>& tensors) const;
  // Whether a weights file has such tensors.
  static bool In(const std::map<std::string, Tensor>& tensors);

  std::string Save() const;
  // `saved`: of Save; null: as if some observations had been seen that have these statistics.
  // kBadData; nothing has changed then.
  Status Restore(std::vector<float> floats, const std::string* saved);

 private:
  bool bytes_;
  RunningStatistics statistics_;
  std::vector<float> floats_;
};

// Vectors after the layer. Thread safety: none.
class NormalizedObservations {
 public:
  NormalizedObservations(size_t numbers, size_t rows)
      : numbers_(numbers), values_(numbers * rows) {}

  // Both observations of each step become normalized ones: views, until the next call. REQUIRES:
  // two rows a step.
  void Replace(std::span<const float> floats, std::span<Transition> steps);

  // While this lives, the rows' observations are normalized ones.
  class Rows {
   public:
    Rows(NormalizedObservations& memory, std::span<const float> floats, InferenceBatch& batch);
    ~Rows();
    Rows(const Rows&) = delete;
    Rows& operator=(const Rows&) = delete;

   private:
    InferenceBatch& batch_;
    std::vector<std::span<const std::byte>>& given_;
  };

 private:
  std::span<const std::byte> Write(size_t row, std::span<const float> floats,
                                   std::span<const std::byte> observation);

  const size_t numbers_;
  std::vector<float> values_;                      // [rows][numbers]
  std::vector<std::span<const std::byte>> given_;  // to Rows
};

}  // namespace samara
