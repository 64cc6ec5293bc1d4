#include "storage/retry.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/clock.h"
#include "core/log.h"

namespace samara {

namespace {

// IoError of core/files has the system's own words for it.
bool IsBeyondLimit(const Status& status) {
  return status.message().find(std::strerror(EFBIG)) != std::string::npos;
}

}  // namespace

Status RetryIo(const std::function<Status()>& attempt, const std::function<bool(double)>& wait,
               const RetryLimits& limits) {
  const SteadyTime start = Now();
  double wait_seconds = limits.wait_seconds_min;
  for (;;) {
    Status status = attempt();
    if (status.code() != Code::kIoError || IsBeyondLimit(status) ||
        SecondsSince(start) >= limits.give_up_seconds)
      return status;
    LogWarning(status.message() + "; trying again");
    if (wait(wait_seconds)) return status;
    wait_seconds = std::min(2 * wait_seconds, limits.wait_seconds_max);
  }
}

void CheckpointSchedule::Saved(double now, double save_seconds) {
  due_ = now + std::max(interval_seconds_, 100 * save_seconds);
  failing_since_ = -1;
}

Status CheckpointSchedule::Failed(double now, const Status& why, const Path& last_good) {
  if (failing_since_ < 0) {
    failing_since_ = now;
    wait_seconds_ = limits_.wait_seconds_min;
  }
  if (now - failing_since_ >= limits_.give_up_seconds) {
    const std::string last = last_good.empty() ? "none" : last_good.string();
    return {Code::kIoError, why.message() + "; giving up, last good checkpoint: " + last};
  }
  LogWarning(why.message() + "; continuing, next try in " +
             std::to_string(static_cast<int>(wait_seconds_ + 0.5)) + " s");
  due_ = now + wait_seconds_;
  wait_seconds_ = std::min(2 * wait_seconds_, limits_.wait_seconds_max);
  return Status::Ok();
}

}  // namespace samara
