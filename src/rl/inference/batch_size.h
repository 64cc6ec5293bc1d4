// How many rows a batch of inference should hold at most: measured at the start of a run.
//
// The rule is moolib's batch-size finder: the size that minimises
// latency / 400 - ln(rows / latency), latency in milliseconds. Rows per second count by their
// logarithm, and each 4 ms that actors wait cost as much as one per cent of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "rl/inference/model.h"

namespace samara {

struct BatchPoint {
  uint32_t rows = 0;
  double milliseconds = 0;  // of the quickest call: what others do on the machine is not counted
};
double BatchCost(const BatchPoint& point);

struct BatchChoice {
  uint32_t rows = 0;
  std::vector<BatchPoint> curve;  // in the order of rows
};
// The point of least cost, the smaller one of two equals. REQUIRES: a point.
BatchChoice ChooseBatch(std::vector<BatchPoint> curve);

// Calls `model` with 1, 2, 4, ... rows and `rows_max`, each for about `seconds` and at least three
// times after a first call that does not count. The slots 0 .. rows_max - 1 are left as if an
// episode had begun there. REQUIRES: the model has them; no other thread uses the model meanwhile.
Result<BatchChoice> MeasureBatches(Model& model, uint32_t rows_max, double seconds);

// "32 rows (1: 0.14 ms, 8: 0.90 ms, 32: 3.10 ms)"
std::string ToText(const BatchChoice& choice);

}  // namespace samara
