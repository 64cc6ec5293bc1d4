// How much of the cores' time other processes took: whether a figure was measured on a quiet
// machine.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "bench/bench.h"

namespace samara::bench {

namespace {

// Busy time of all cores since the machine started, from the first line of /proc/stat; its unit is
// a tick.
double BusySeconds() {
  std::ifstream file("/proc/stat");
  std::string cpu;
  double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, softirq = 0, steal = 0;
  file >> cpu >> user >> nice >> system >> idle >> wait >> irq >> softirq >> steal;
  return (user + nice + system + irq + softirq + steal) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// Time of this process and of its children that have ended.
double OwnSeconds() {
  double sum = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used{};
    getrusage(who, &used);
    for (const timeval& t : {used.ru_utime, used.ru_stime})
      sum += static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  }
  return sum;
}

}  // namespace

OthersShare::OthersShare() : start_(Now()), busy_(BusySeconds()), own_(OwnSeconds()) {}

double OthersShare::Of(double busy, double own, double seconds, uint32_t cores) {
  return std::clamp((busy - own) / (seconds * cores), 0.0, 1.0);
}

double OthersShare::get() const {
  return Of(BusySeconds() - busy_, OwnSeconds() - own_, SecondsSince(start_), Cores());
}

}  // namespace samara::bench
