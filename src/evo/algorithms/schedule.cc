#include "evo/algorithms/schedule.h"

#include "core/math.h"

namespace samara {

double ScheduledValue(Schedule schedule, double first, double last, double t, double end) {
  if (schedule == Schedule::kConstant || t <= 0) return first;
  if (t >= end) return last;
  const double s = t / end;
  if (schedule == Schedule::kLinear) return first + (last - first) * s;
  return first > 0 && last > 0 ? first * Exp(s * (Log(last) - Log(first))) : 0;
}

}  // namespace samara
