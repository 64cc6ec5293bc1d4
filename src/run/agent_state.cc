#include "run/agent_state.h"

#include "core/bytes.h"

namespace samara {
namespace {

constexpr uint32_t kVersion = 1;

// Every number in one order, for writing and reading alike.
template <typename State, typename F>
void EachNumber(State& s, const F& f) {
  f(s.updates), f(s.frames), f(s.steps), f(s.episodes), f(s.seconds), f(s.return_sum);
  f(s.stale_unrolls), f(s.skipped_updates), f(s.rollbacks), f(s.dropped_unrolls);
  f(s.partial_unrolls), f(s.lost_episodes), f(s.not_finite_rows);
}

}  // namespace

std::string AgentState::Encode() const {
  ByteWriter out;
  out.Put(kVersion);
  EachNumber(*this, [&](const auto& number) { out.Put(number); });
  out.Put(uint64_t{last_returns.size()});
  for (const double value : last_returns) out.Put(value);
  return out.Take();
}

Result<AgentState> AgentState::Decode(std::string_view bytes) {
  ByteReader in(bytes);
  AgentState state;
  const bool known = in.Get<uint32_t>() == kVersion;
  EachNumber(state, [&](auto& number) { number = in.Get<std::decay_t<decltype(number)>>(); });
  const auto returns = in.Get<uint64_t>();
  if (!known || !in.ok() || returns > kLastReturns)
    return Status(Code::kBadData, "state.bin: not a learning run's, or a later version's");
  for (uint64_t i = 0; i < returns; ++i) state.last_returns.push_back(in.Get<double>());
  if (!in.AtEnd()) return Status(Code::kBadData, "state.bin: damaged");
  return state;
}

}  // namespace samara
