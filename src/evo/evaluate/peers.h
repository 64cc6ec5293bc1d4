// The ranks that share one evolution, as the evaluator sees them. What they are and how they speak
// to each other lies elsewhere.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "evo/evaluate/evaluator.h"

namespace samara {

// Thread safety: Add and failed from any thread, Exchange from one at a time.
class Peers {
 public:
  virtual ~Peers() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  // Of a counter that all ranks share and that starts at 0: the sum before `amount` was added.
  virtual Result<int64_t> Add(const std::string& counter, int64_t amount) = 0;
  // What every rank gives, in rank order, once all have come. Called in the same order everywhere.
  virtual Result<std::vector<std::string>> Exchange(const std::string& what, std::string mine) = 0;
  // The group is broken: Exchange fails. Asked once per step.
  virtual bool failed() const = 0;
};

// Plays the work of all ranks together: who is free takes the next task from a counter, and when
// none is left every rank learns all results. All ranks call Play with equal work (the same tasks,
// the same results known) and see the same end: finished, stopped as soon as one of them is asked
// to, or failed, with the same reason. Seconds and counters are those of all ranks, as of the last
// exchange. `peers` outlives it.
std::unique_ptr<Evaluator> MakeSharedEvaluator(std::unique_ptr<Evaluator> own, Peers& peers);

}  // namespace samara
