// A value that changes over a run.
#pragma once

#include <string_view>

#include "core/enum_names.h"
#include "core/status.h"

namespace samara {

enum class Schedule { kConstant, kLinear, kExponential };
constexpr EnumName<Schedule> kScheduleNames[] = {{Schedule::kConstant, "constant"},
                                                 {Schedule::kLinear, "linear"},
                                                 {Schedule::kExponential, "exponential"}};

// The value at s = min(1, t / end): `first`; first + (last - first) s; or first (last / first)^s.
// From t = end on `last` exactly, unless it is constant. An exponential schedule from or to 0 is 0
// after its beginning. Equal bits everywhere. REQUIRES: end > 0.
double ScheduledValue(Schedule schedule, double first, double last, double t, double end);

// kConfig: an exponential schedule of `key` from or to 0, which is 0 at once.
Status CheckSchedule(std::string_view key, Schedule schedule, double first, double last);

}  // namespace samara
