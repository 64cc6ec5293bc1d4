// Bottleneck of a learning run: the stage that works for the largest share of its time.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace samara {

struct StageShare {
  std::string name;
  double share = 0;  // of the time that the stage's threads or processes had, 0 to 1
};

// The stages of a learning run over an interval. `seconds` looks up the names of doc/metrics.md,
// NaN where there is none: of a line, or sums over lines; `workers` is the threads or processes
// that step environments, 0 where that is not known. Left out is what cannot be said.
//   environment   stepping, over its workers
//   inference     the server's thread when it does not wait: the network, and all around it
//   learner       the learner's thread when it does not wait for unrolls
// Where there are fewer cores than threads at work, the time for which a thread waits for a core
// counts as work.
std::vector<StageShare> BusyShares(const std::function<double(const char*)>& seconds,
                                   double workers);

// Stages by the seconds of all their threads, as shares of the sum: where the work is. Empty when
// nothing was done yet.
std::vector<StageShare> WorkShares(std::vector<StageShare> seconds);

// The name of the largest; empty without stages.
std::string Bottleneck(const std::vector<StageShare>& stages);

}  // namespace samara
