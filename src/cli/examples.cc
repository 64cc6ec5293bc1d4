// Examples that `samara COMMAND --help` ends with.
#include "cli/command.h"

namespace samara {
namespace {

struct Example {
  std::string_view command;
  const char* line;
};

constexpr Example kExamples[] = {
    {"train", "samara train classic/cartpole-ga"},
    {"train", "samara train mujoco/hopper-ppo --seeds 0..4 --out runs/hopper"},
    {"train", "samara train classic/cartpole-ppo --sweep optimizer.learning_rate=0.0003,0.001"},
    {"train", "samara train --resume runs/cartpole-ga-01 ga.generations=60"},
    {"eval", "samara eval runs/cartpole-ga-01 --episodes 50"},
    {"eval", "samara eval elite.safetensors --random"},
    {"play", "samara play runs/cartpole-ga-01"},
    {"play", "samara play elite.safetensors --video elite.mp4"},
    {"report", "samara report runs/cartpole-ga-01"},
    {"report", "samara report runs/a/seed-* runs/b/seed-* --out both.html --curve both.svg"},
    {"list", "samara list presets"},
    {"list", "samara list presets cartpole"},
    {"check", "samara check LunarLander-v3"},
    {"check", "samara check my_package:MyTask-v0"},
    {"new", "samara new environment my_task"},
    {"new", "samara new algorithm my-search"},
    {"doctor", "samara doctor"},
    {"fsck", "samara fsck runs/cartpole-ga-01"},
    {"hash", "samara hash runs/cartpole-ga-01 --generation 10"},
    {"inspect", "samara inspect runs/cartpole-ga-01"},
    {"export", "samara export runs/cartpole-ga-01 elite.safetensors"},
    {"import", "samara import genome.json --out elite.safetensors"},
    {"launch", "samara launch -n 2 samara train classic/cartpole-vtrace"},
    {"act", "samara act elite.safetensors"},
    {"actor",
     "samara actor --connect learner:7000 --env atari/pong --ca ca.pem --token-file TOKEN"},
    {"token", "samara token TOKEN"},
    {"certificates", "samara certificates keys --host learner.example.org"},
    {"bench", "samara bench population --seconds 1"},
    {"completion", "source <(samara completion bash)"},
};

}  // namespace

std::string ExamplesOf(std::string_view command) {
  std::string text;
  for (const Example& example : kExamples)
    if (command == example.command) text += std::string("  ") + example.line + "\n";
  return text.empty() ? text : "Examples:\n" + text;
}

}  // namespace samara
