#include "rl/inference/model.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/rng.h"

namespace samara {

InferenceBatch::InferenceBatch(const ModelShape& shape, size_t rows_max)
    : status(rows_max, RowStatus::kOk),
      index(rows_max),
      actions(rows_max * shape.actions),
      action_values(rows_max * shape.action_values),
      behaviour(rows_max * shape.behaviour),
      values(rows_max * shape.values),
      state(rows_max * shape.state),
      history(rows_max * shape.history_bytes) {
  rows.reserve(rows_max);
}

RandomModel::RandomModel(const EnvironmentSpec& spec)
    : choices_(spec.action.discrete ? spec.action.n : 0),
      shape_{.observation_bytes = spec.observation.bytes()} {
  if (choices_ == 0) shape_.actions = shape_.action_values = static_cast<size_t>(spec.action.n);
}

Status RandomModel::Infer(InferenceBatch& batch) {
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    const InferenceRow& row = batch.rows[i];
    const CounterRng rng(row.key);
    if (choices_ > 0)
      batch.index[i] =
          static_cast<int32_t>(rng.UniformInt(row.step, static_cast<uint64_t>(choices_)));
    for (size_t d = 0; d < shape_.actions; ++d)
      batch.actions[i * shape_.actions + d] =
          static_cast<float>(2 * rng.Uniform(row.step * shape_.actions + d) - 1);
    batch.status[i] = InferenceBatch::RowStatus::kOk;
  }
  batch.version = 0;
  return Status::Ok();
}

NullModel::NullModel(size_t observation_bytes, size_t rows_max)
    : shape_{.observation_bytes = observation_bytes}, observations_(rows_max * observation_bytes) {}

Status NullModel::Infer(InferenceBatch& batch) {
  if (!observations_.empty()) {
    CHECK_LE(batch.rows.size() * shape_.observation_bytes, observations_.size());
    std::byte* out = observations_.data();
    for (const InferenceRow& row : batch.rows) {
      std::memcpy(out, row.observation.data(), shape_.observation_bytes);
      out += shape_.observation_bytes;
    }
  }
  std::fill_n(batch.status.begin(), batch.rows.size(), InferenceBatch::RowStatus::kOk);
  std::fill_n(batch.index.begin(), batch.rows.size(), 0);
  std::fill_n(batch.values.begin(), batch.rows.size(), 0.0f);
  batch.version = 0;
  return Status::Ok();
}

}  // namespace samara
