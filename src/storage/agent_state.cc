#include "storage/agent_state.h"

#include <algorithm>
#include <optional>

#include "core/bytes.h"
#include "storage/sealed_json.h"

namespace samara {
namespace {

constexpr uint32_t kAgentStateVersion = 2;
// Its states of runs that were not solved ended after the returns.
constexpr uint32_t kWithoutBest = 1;

// Every number in one order, for writing and reading alike.
template <typename State, typename F>
void EachNumber(State& s, const F& f) {
  f(s.updates), f(s.frames), f(s.steps), f(s.episodes), f(s.seconds), f(s.return_sum);
  f(s.stale_unrolls), f(s.skipped_updates), f(s.rollbacks), f(s.dropped_unrolls);
  f(s.partial_unrolls), f(s.lost_episodes), f(s.not_finite_rows);
}

void Put(const AgentEvaluation& evaluation, ByteWriter& out) {
  out.Put(evaluation.frames).Put(evaluation.seconds).Put(evaluation.mean);
}

AgentEvaluation GetEvaluation(ByteReader& in) {
  AgentEvaluation evaluation;
  evaluation.frames = in.Get<uint64_t>(), evaluation.seconds = in.Get<double>();
  evaluation.mean = in.Get<double>();
  return evaluation;
}

}  // namespace

std::string AgentState::Encode() const {
  ByteWriter out;
  out.Put(kAgentStateVersion);
  EachNumber(*this, [&](const auto& number) { out.Put(number); });
  out.Put(uint64_t{last_returns.size()});
  for (const double value : last_returns) out.Put(value);
  for (const auto* evaluation : {&solved, &best}) {
    out.Put(uint8_t{evaluation->has_value()});
    if (*evaluation) Put(**evaluation, out);
  }
  return out.Take();
}

Result<AgentState> AgentState::Decode(std::string_view bytes) {
  ByteReader in(bytes);
  AgentState state;
  const auto version = in.Get<uint32_t>();
  const bool known = version == kAgentStateVersion || version == kWithoutBest;
  EachNumber(state, [&](auto& number) { number = in.Get<std::decay_t<decltype(number)>>(); });
  const auto returns = in.Get<uint64_t>();
  if (!known || !in.ok() || returns > kLastReturns)
    return Status(Code::kBadData, "state.bin: not a learning run's, or a later version's");
  for (uint64_t i = 0; i < returns; ++i) state.last_returns.push_back(in.Get<double>());
  uint8_t most = 0;  // of the flags
  if (version == kWithoutBest) {
    if (!in.AtEnd()) state.solved = GetEvaluation(in);
  } else {
    for (auto* evaluation : {&state.solved, &state.best}) {
      const auto flag = in.Get<uint8_t>();
      most = std::max(most, flag);
      if (flag == 1) *evaluation = GetEvaluation(in);
    }
  }
  if (most > 1 || !in.AtEnd()) return Status(Code::kBadData, "state.bin: damaged");
  return state;
}

Result<StoredCheckpoint> LatestAgent(const RunFolder& folder, OnBadCheckpoint on_bad) {
  const std::string run = folder.path().string(), resume = "'samara train --resume " + run + "'";
  auto found = LatestGoodCheckpoint(folder.checkpoints(), on_bad);
  if (found.status().code() == Code::kBadData)
    return Status(Code::kBadData,
                  found.status().message() + "; " + resume + " continues from the one before it");
  ASSIGN_OR_RETURN(std::optional<StoredCheckpoint> checkpoint, std::move(found));
  if (checkpoint) return std::move(*checkpoint);
  if (const size_t bad = ListCheckpoints(folder.checkpoints()).size(); bad > 0)
    return Status(Code::kBadData, run + ": every checkpoint is damaged, " + std::to_string(bad) +
                                      " of them; restore a copy, or start again");
  if (const std::string holder = folder.Holder(); !holder.empty())
    return Status(Code::kNoInput, run + ": holds no checkpoint yet: process " + holder +
                                      " trains it; wait for the first, or ask for one by 'kill "
                                      "-USR1 " +
                                      holder + "'");
  return Status(Code::kNoInput, run + ": holds no checkpoint yet: continue it by " + resume);
}

Result<std::string> ParameterHash(const CheckpointInfo& info, const RootedPath& checkpoint) {
  return TextMember(info.note, "parameter_hash", (checkpoint / "manifest.json").string());
}

}  // namespace samara
