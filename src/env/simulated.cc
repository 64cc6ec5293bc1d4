#include "env/simulated.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace samara {
namespace {

// The environment's own limit always holds; an episode may only ask for less.
int64_t StepLimit(int64_t own, int64_t asked) {
  if (own == 0 || asked == 0) return std::max(own, asked);
  return std::min(own, asked);
}

void AppendBytes(std::string& out, const void* data, size_t size) {
  out.append(static_cast<const char*>(data), size);
}

}  // namespace

double Rescale(float value, double low, double high) {
  const double middle = 0.5 * (low + high), half = 0.5 * (high - low);
  if (std::isnan(value)) return middle;
  return middle + half * std::clamp(static_cast<double>(value), -1.0, 1.0);
}

int64_t Index(double variable, int64_t size) {
  const bool sound = variable >= 0 && variable < static_cast<double>(size);
  return sound ? static_cast<int64_t>(variable) : 0;
}

void SimulatedEnvironment::Reset(const EpisodeSpec& episode, std::span<std::byte> observation) {
  Draw(CounterRng(DeriveKey(episode.seed, Purpose::kEnvironmentReset)), start_);
  Place(start_);
  Begin(StepLimit(spec_.steps_max, episode.frames_max), observation);
}

void SimulatedEnvironment::ResetTo(std::span<const double> start,
                                   std::span<std::byte> observation) {
  CHECK_EQ(start.size(), start_.size()) << spec_.id;
  Place(start);
  Begin(spec_.steps_max, observation);
}

void SimulatedEnvironment::Begin(int64_t limit, std::span<std::byte> observation) {
  steps_ = 0;
  limit_ = limit;
  Write(observation);
}

StepResult SimulatedEnvironment::Step(const Action& action, std::span<std::byte> observation) {
  const Outcome outcome = Advance(action);
  ++steps_;
  Write(observation);
  StepResult result;
  result.reward = outcome.reward;
  result.terminated = outcome.terminated;
  result.truncated = !outcome.terminated && limit_ > 0 && steps_ >= limit_;
  result.frames = 1;
  result.new_sequence = outcome.new_sequence;
  return result;
}

void SimulatedEnvironment::Write(std::span<std::byte> observation) const {
  DCHECK(observation.size() == spec_.observation.bytes()) << observation.size();
  if (spec_.observation.dtype == DType::kUint8) return ObserveBytes(observation);
  // spans of slots are aligned for the widest observation type
  Observe({reinterpret_cast<float*>(observation.data()), spec_.observation.elements()});
}

// A saved state is a line that names its environment, then steps_, limit_ and the doubles of Save
// in the machine's byte order.
std::string SimulatedEnvironment::SaveState() const {
  const std::vector<double> state = Save();
  std::string out = spec_.id + " " + spec_.version + "\n";
  AppendBytes(out, &steps_, sizeof steps_);
  AppendBytes(out, &limit_, sizeof limit_);
  AppendBytes(out, state.data(), state.size() * sizeof(double));
  return out;
}

Status SimulatedEnvironment::RestoreState(const std::string& saved) {
  const std::string header = spec_.id + " " + spec_.version + "\n";
  if (saved.compare(0, header.size(), header) != 0)
    return {Code::kBadData, fmt::format("{}: the saved state is of another environment or version "
                                        "(expected one that starts with '{} {}')",
                                        spec_.id, spec_.id, spec_.version)};
  std::vector<double> state(Save().size());
  const size_t bytes = sizeof steps_ + sizeof limit_ + state.size() * sizeof(double);
  if (saved.size() != header.size() + bytes)
    return {Code::kBadData, fmt::format("{}: the saved state has {} bytes, expected {}", spec_.id,
                                        saved.size(), header.size() + bytes)};
  const char* at = saved.data() + header.size();
  std::memcpy(&steps_, at, sizeof steps_);
  std::memcpy(&limit_, at + sizeof steps_, sizeof limit_);
  std::memcpy(state.data(), at + sizeof steps_ + sizeof limit_, state.size() * sizeof(double));
  Load(state);
  return Status::Ok();
}

}  // namespace samara
