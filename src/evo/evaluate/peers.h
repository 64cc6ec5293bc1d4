// The ranks that share one evolution, as the evaluator sees them. Their implementation and
// transport are in src/replica/.
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
  // Adds to a counter that all ranks share and that starts at 0. Returns the sum before.
  virtual Result<int64_t> Add(const std::string& counter, int64_t amount) = 0;
  // Returns the bytes of every rank in rank order; blocks until all have called. Called in the same
  // order everywhere.
  virtual Result<std::vector<std::string>> Exchange(const std::string& what, std::string mine) = 0;
  // The group is broken: Exchange fails. Asked once per step.
  virtual bool failed() const = 0;
};

// Plays the work of all ranks together: a free rank takes the next task from a counter, and when
// none is left every rank learns all results. All ranks call Play with equal work (the same tasks,
// the same results known) and see the same end: finished, stopped as soon as one of them is asked
// to, or failed, with the same reason. Seconds and counters are those of all ranks, as of the last
// exchange. `peers` outlives it.
std::unique_ptr<Evaluator> MakeSharedEvaluator(std::unique_ptr<Evaluator> own, Peers& peers);

}  // namespace samara
