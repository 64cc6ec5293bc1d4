// Contents of a learning run's checkpoint other than its agent's files.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "core/status.h"
#include "storage/checkpoint.h"
#include "storage/run_folder.h"

namespace samara {

// An evaluation of the agent while it trains.
struct AgentEvaluation {
  uint64_t frames = 0;
  double seconds = 0;
  double mean = 0;  // return of its episodes
};

struct AgentState {
  static constexpr size_t kLastReturns = 100;
  // File of a checkpoint: the agent of `best`, in the form of the agent's weights.
  static constexpr char kBestWeights[] = "best.safetensors";

  uint64_t updates = 0;
  uint64_t frames = 0, steps = 0, episodes = 0;  // of the unrolls that the learner took
  double seconds = 0;                            // running time, summed over resumes
  double return_sum = 0;                         // over all episodes
  std::deque<double> last_returns;               // at most kLastReturns
  std::optional<AgentEvaluation> solved;         // the first that reached run.stop_at
  std::optional<AgentEvaluation> best;           // the first of the highest mean
  // ever, by reason
  uint64_t stale_unrolls = 0, skipped_updates = 0, rollbacks = 0;
  uint64_t dropped_unrolls = 0, partial_unrolls = 0, lost_episodes = 0, not_finite_rows = 0;

  std::string Encode() const;
  static Result<AgentState> Decode(std::string_view bytes);  // kBadData
};

// The latest checkpoint of a learning run, for readers. kNoInput: none was saved yet. kBadData: the
// latest is damaged (kRefuse), or all are (kSkip).
Result<StoredCheckpoint> LatestAgent(const RunFolder& folder, OnBadCheckpoint on_bad);
// The SHA-256 over its parameters, as stored with them. kBadData: none is stored.
Result<std::string> ParameterHash(const CheckpointInfo& info, const RootedPath& checkpoint);

}  // namespace samara
