// When to save, and what to do when the disk refuses.
#pragma once

#include <functional>

#include "core/files.h"
#include "core/status.h"

namespace samara {

struct RetryLimits {
  double wait_seconds_min = 0.5;  // doubles after each failure
  double wait_seconds_max = 30;
  double give_up_seconds = 15 * 60;  // of failing in a row
};

// Repeats `attempt` while it fails with kIoError: for what cannot be done later, such as the
// journal. A file beyond the limit on file sizes (ulimit -f) is not tried again: waiting raises no
// limit. `wait` sleeps and returns true to stop waiting (WaitForStop). Returns the first success,
// any other failure, or after giving up the last kIoError.
Status RetryIo(const std::function<Status()>& attempt, const std::function<bool(double)>& wait,
               const RetryLimits& limits = {});

// When the next full checkpoint is due: every `interval_seconds`, less often when a save costs more
// than a hundredth of that; after a failure later and later, while the run goes on. Times are
// seconds of any one monotonic clock.
class CheckpointSchedule {
 public:
  explicit CheckpointSchedule(double interval_seconds = 60, RetryLimits limits = {})
      : interval_seconds_(interval_seconds), limits_(limits) {}

  bool Due(double now) const { return now >= due_; }
  void Saved(double now, double save_seconds);
  // Ok: go on and try again when Due. kIoError after too long a time of failing: end the run; the
  // message names `last_good`, which a resume will find.
  Status Failed(double now, const Status& why, const Path& last_good);

 private:
  const double interval_seconds_;
  const RetryLimits limits_;
  double due_ = 0;
  double failing_since_ = -1;  // negative: the last save went well
  double wait_seconds_ = 0;
};

}  // namespace samara
