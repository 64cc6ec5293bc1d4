#include "evo/algorithms/schedule.h"

#include <fmt/format.h>

#include "core/math.h"

namespace samara {

double ScheduledValue(Schedule schedule, double first, double last, double t, double end) {
  if (schedule == Schedule::kConstant || t <= 0) return first;
  if (t >= end) return last;
  const double s = t / end;
  if (schedule == Schedule::kLinear) return first + (last - first) * s;
  return first > 0 && last > 0 ? first * Exp(s * (Log(last) - Log(first))) : 0;
}

Status CheckSchedule(std::string_view key, Schedule schedule, double first, double last) {
  if (schedule != Schedule::kExponential || (first > 0 && last > 0)) return Status::Ok();
  return {Code::kConfig,
          fmt::format("{0}={1:g} and its end {2:g} by an exponential schedule: expected both above "
                      "0, or a linear schedule",
                      key, first, last)};
}

}  // namespace samara
