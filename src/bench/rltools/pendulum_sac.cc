// RLtools' SAC on its Pendulum until 20 fresh episodes have a mean return of SCORE: a rival of
// `samara bench time-to-score`; time_to_score_rltools.py compiles it with the headers of the Python
// package rltools.
//
//   pendulum_sac SEED SCORE
//
// The settings are those of RLtools' own example, whose sizes classic/pendulum-sac has too: two
// hidden layers of 64, minibatches of 100, a step on one for each step of the environment. Every
// 1,000 steps, five episodes, 20 fresh ones are played with the most probable action. Prints
// {"seconds", "frames", "mean", "curve"}: null where 20,000 steps were not enough; curve: [seconds,
// frames, mean].

// these headers need this order
// clang-format off
#include <rl_tools/operations/cpu_mux.h>
#include <rl_tools/nn/optimizers/adam/instance/operations_generic.h>
#include <rl_tools/nn/operations_cpu_mux.h>
#include <rl_tools/nn/layers/sample_and_squash/operations_generic.h>
#include <rl_tools/rl/environments/pendulum/operations_cpu.h>
#include <rl_tools/nn_models/mlp/operations_generic.h>
#include <rl_tools/nn_models/sequential/operations_generic.h>
#include <rl_tools/nn_models/random_uniform/operations_generic.h>
#include <rl_tools/nn/optimizers/adam/operations_generic.h>
#include <rl_tools/rl/algorithms/sac/loop/core/config.h>
#include <rl_tools/rl/loop/steps/evaluation/config.h>
#include <rl_tools/rl/algorithms/sac/loop/core/operations_generic.h>
#include <rl_tools/rl/loop/steps/evaluation/operations_generic.h>
// clang-format on

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

namespace rlt = rl_tools;

using Device = rlt::devices::DEVICE_FACTORY<>;
using Index = Device::index_t;
using Random = Device::SPEC::RANDOM::ENGINE<>;
using Numbers = rlt::numeric_types::Policy<float>;
using Task = rlt::rl::environments::Pendulum<rlt::rl::environments::pendulum::Specification<
    float, Index, rlt::rl::environments::pendulum::DefaultParameters<float>>>;

struct Parameters : rlt::rl::algorithms::sac::loop::core::DefaultParameters<Numbers, Index, Task> {
  struct SAC_PARAMETERS
      : rlt::rl::algorithms::sac::DefaultParameters<Numbers, Index, Task::ACTION_DIM> {
    static constexpr Index ACTOR_BATCH_SIZE = 100, CRITIC_BATCH_SIZE = 100;
  };
  static constexpr Index STEP_LIMIT = 20000, REPLAY_BUFFER_CAP = STEP_LIMIT;
};
using Core = rlt::rl::algorithms::sac::loop::core::Config<Numbers, Index, Random, Task, Parameters>;
constexpr Index kInterval = 1000;
struct Fresh : rlt::rl::loop::steps::evaluation::Parameters<Numbers, Index, Core, 20, kInterval> {};
using Loop = rlt::rl::loop::steps::evaluation::Config<Core, Fresh>;

}  // namespace

int main(int /*argc*/, char** argv) {
  const auto seed = std::strtoul(argv[1], nullptr, 10);
  const double score = std::strtod(argv[2], nullptr);
  Device device;
  Loop::State<Loop> state;
  rlt::malloc(device, state);
  rlt::init(device, state, static_cast<Index>(seed));
  const auto started = std::chrono::steady_clock::now();
  std::string curve, reached = R"("seconds": null, "frames": null, "mean": null)";
  for (bool over = false; !over;) {
    const Index steps = state.step;  // a step begins with the evaluation that is due
    over = rlt::step(device, state);
    if (steps == 0 || steps % kInterval != 0) continue;
    const double mean = rlt::get(state.evaluation_results, 0, steps / kInterval).returns_mean;
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - started;
    curve += (curve.empty() ? "[" : ", [") + std::to_string(passed.count()) + ", " +
             std::to_string(steps) + ", " + std::to_string(mean) + "]";
    if (mean < score) continue;
    reached = "\"seconds\": " + std::to_string(passed.count()) +
              ", \"frames\": " + std::to_string(steps) + ", \"mean\": " + std::to_string(mean);
    break;
  }
  std::printf("{%s, \"curve\": [%s]}\n", reached.c_str(), curve.c_str());
  rlt::free(device, state);
}
