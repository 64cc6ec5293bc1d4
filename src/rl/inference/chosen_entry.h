// Step that a row of an inference batch adds to its slot's unroll.
#pragma once

#include <cstddef>
#include <span>

#include "rl/inference/model.h"
#include "rl/trajectory/unroll_store.h"

namespace samara {

// The row's observation and what was chosen for it; views into `batch`. The caller adds the final
// observation of an episode that ended.
inline Entry ChosenEntry(const EntryHeader& header, const InferenceBatch& batch, size_t row,
                         const ModelShape& shape) {
  const auto part = [row](const auto& all, size_t size) {
    return std::span(all).subspan(row * size, size);
  };
  const bool keeps = batch.rows[row].keeps;
  return {.header = header,
          .observation = batch.rows[row].observation,
          .final_observation = {},
          .action_values = part(batch.action_values, shape.action_values),
          .behaviour = part(batch.behaviour, shape.behaviour),
          .values = part(batch.values, shape.values),
          .state = part(batch.state, keeps ? shape.state : 0),
          .history = part(batch.history, keeps ? shape.history_bytes : 0)};
}

}  // namespace samara
