// Plays given actions from given states in a native environment, so that a script can compare it
// with another implementation of the same task.
//
//   env_trace ID FILE
//
// FILE holds rows of float64: restart (1 starts an episode at the row's state, 0 goes on), the
// state variables (classic control: Gymnasium's `state`; MuJoCo: qpos, qvel), the action (an index,
// or values of [-1, 1]). For each row one row of float64 goes to standard output: reward,
// terminated, truncated, the new state, the observation before the action, the observation after
// it.
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "core/files.h"
#include "env/registry.h"
#include "env/simulated.h"

namespace samara {
namespace {

class Trace {
 public:
  explicit Trace(SimulatedEnvironment& environment)
      : environment_(environment),
        states_(environment.CurrentState().size()),
        actions_(environment.spec().action.discrete
                     ? 1
                     : static_cast<size_t>(environment.spec().action.n)),
        bytes_(environment.spec().observation.bytes()) {}

  size_t columns() const { return 1 + states_ + actions_; }

  std::vector<double> Play(std::span<const double> row) {
    if (row[0] == 1) environment_.ResetTo(row.subspan(1, states_), bytes_);
    if (row[0] > 1) environment_.Reset({.seed = static_cast<uint64_t>(row[0])}, bytes_);
    const std::vector<double> state = environment_.CurrentState();
    const std::vector<double> before = Observation();
    const StepResult step = Act(row.subspan(1 + states_));
    std::vector<double> out = {step.reward, double(step.terminated), double(step.truncated)};
    out.insert(out.end(), state.begin(), state.end());
    for (const double s : environment_.CurrentState()) out.push_back(s);
    out.insert(out.end(), before.begin(), before.end());
    const std::vector<double> after = Observation();
    out.insert(out.end(), after.begin(), after.end());
    return out;
  }

 private:
  std::vector<double> Observation() const {
    const ObservationSpec& spec = environment_.spec().observation;
    if (spec.dtype == DType::kFloat32) {
      std::vector<float> values(spec.elements());
      std::memcpy(values.data(), bytes_.data(), bytes_.size());
      return {values.begin(), values.end()};
    }
    std::vector<double> values;
    for (const std::byte b : bytes_) values.push_back(std::to_integer<int>(b));
    return values;
  }

  StepResult Act(std::span<const double> action) {
    const std::vector<float> values(action.begin(), action.end());
    return environment_.Step({static_cast<int32_t>(action[0]), values}, bytes_);
  }

  SimulatedEnvironment& environment_;
  const size_t states_, actions_;
  std::vector<std::byte> bytes_;
};

void Run(const std::string& id, const std::string& file) {
  const auto owner = NativeEnvironment(id).ValueOrThrow()().ValueOrThrow();
  Trace trace(dynamic_cast<SimulatedEnvironment&>(*owner));
  const std::string input = ReadFile(file).ValueOrThrow();
  std::vector<double> rows(input.size() / sizeof(double));
  std::memcpy(rows.data(), input.data(), rows.size() * sizeof(double));
  if (rows.size() % trace.columns() != 0)
    throw Error(Code::kBadData,
                fmt::format("{}: rows of {} float64 expected", file, trace.columns()));
  for (size_t at = 0; at < rows.size(); at += trace.columns()) {
    const std::vector<double> out = trace.Play(std::span(rows).subspan(at, trace.columns()));
    std::fwrite(out.data(), sizeof(double), out.size(), stdout);
  }
}

}  // namespace
}  // namespace samara

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: env_trace ID FILE\n");
    return static_cast<int>(samara::Code::kUsage);
  }
  try {
    samara::Run(argv[1], argv[2]);
  } catch (const samara::Error& error) {
    fmt::print(stderr, "env_trace: {}\n", error.what());
    return static_cast<int>(error.status().code());
  }
}
