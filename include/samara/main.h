// Turns a program for one device into a replicated one in three lines: this include, after all
// others, and two words in the loop.
//
//   #include <samara/main.h>
//   ...
//   auto optimizer = samara::Wrap(torch::optim::SGD(net->parameters(), 0.1));
//   ...
//   const torch::Tensor loss = samara::RunMean(step, batch);
//
// The file's own `main`, with or without arguments, then runs once a rank: in this process under a
// launcher or alone, and on n threads with [SAMARA_THREADS=n]. It ends with a `return`, and its
// globals are shared by ranks that are threads.
#pragma once

#include <functional>
#include <utility>

#include "samara/replicator.h"

namespace samara {

// Replicator's functions, of the one that this thread's program has.
template <typename Optimizer>
WrappedOptimizer Wrap(Optimizer&& optimizer, const WrapOptions& options = {},
                      Site site = std::source_location::current()) {
  return Replicator::Current().Wrap(std::forward<Optimizer>(optimizer), options, site);
}
template <typename Optimizer>
WrappedOptimizer Wrap(Optimizer&& optimizer, torch::nn::Module& module,
                      const WrapOptions& options = {},
                      Site site = std::source_location::current()) {
  return Replicator::Current().Wrap(std::forward<Optimizer>(optimizer), module, options, site);
}
// Runs the step on every replica's share of the batch, and gives the mean of the results, weighted
// by their samples: what the step would have given for the whole batch.
template <typename Step, typename Batch>
auto RunMean(Step&& step, const Batch& whole, Site site = std::source_location::current()) {
  Replicator& replicator = Replicator::Current();
  return replicator.Mean(replicator.Run(step, whole), site);
}

// Runs a program's `main` once a rank; the process's exit code.
int RunMain(const std::function<int()>& program);
inline int RunMain(int (*program)(), int, char**) { return RunMain(program); }
inline int RunMain(int (*program)(int, char**), int argc, char** argv) {
  return RunMain([=] { return program(argc, argv); });
}

}  // namespace samara

// a `main` may end without a return, what it becomes here may not
#pragma GCC diagnostic error "-Wreturn-type"
#define main(...)                                                                          \
  SamaraProgram(__VA_ARGS__);                                                              \
  int(main)(int argc, char** argv) { return samara::RunMain(&SamaraProgram, argc, argv); } \
  int SamaraProgram(__VA_ARGS__)
