#include "bench/spans.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <filesystem>

namespace samara::bench {

namespace {

int64_t Nanoseconds(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

void SortByTime(std::vector<Span>& spans) {
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
}

}  // namespace

int64_t MonotonicNs() { return Nanoseconds(CLOCK_MONOTONIC); }
int64_t ThreadCpuNs() { return Nanoseconds(CLOCK_THREAD_CPUTIME_ID); }

void PinThread(uint32_t core) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  uint32_t left = core % static_cast<uint32_t>(CPU_COUNT(&allowed));
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || left-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
    return;
  }
}

Result<std::vector<Span>> ReadSpans(const Path& folder) {
  std::vector<Span> spans;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".spans") continue;
    ASSIGN_OR_RETURN(const std::string bytes, ReadFile(entry.path()));
    if (bytes.size() % sizeof(Span) != 0)
      return Status(Code::kBadData, entry.path().string() + ": ends within a record");
    const size_t n = bytes.size() / sizeof(Span);
    spans.resize(spans.size() + n);
    std::memcpy(static_cast<void*>(spans.data() + spans.size() - n), bytes.data(), bytes.size());
  }
  SortByTime(spans);
  return spans;
}

void FillGaps(std::vector<Span>& spans) {
  std::vector<Span> last;  // per core
  std::vector<Span> gaps;
  for (const Span& span : spans) {
    const auto core = static_cast<size_t>(span.core);
    if (core >= last.size()) last.resize(core + 1, Span{.kind = SpanKind::kLastStep});
    const Span& before = last[core];
    if (before.kind != SpanKind::kLastStep && span.kind != SpanKind::kReset)
      gaps.push_back({span.core, SpanKind::kInference, before.end, span.begin, before.cpu_end,
                      span.cpu_begin});
    last[core] = span;
  }
  spans.insert(spans.end(), gaps.begin(), gaps.end());
  SortByTime(spans);
}

double Schedule::FramesPerSecond(double frames_per_step) const {
  const auto steps = std::count_if(spans.begin(), spans.end(), [this](const Span& s) {
    const bool step = s.kind == SpanKind::kStep || s.kind == SpanKind::kLastStep;
    return step && s.end > begin && s.end <= end;
  });
  return 1e9 * frames_per_step * static_cast<double>(steps) / static_cast<double>(end - begin);
}

double Schedule::Share(bool inference) const {
  double sum = 0;
  for (const Span& s : spans) {
    // the part of the span that lies in the window
    const int64_t inside = std::min(s.end, end) - std::max(s.begin, begin);
    if (s.inference() == inference && inside > 0)
      sum += static_cast<double>(s.cpu_end - s.cpu_begin) * static_cast<double>(inside) /
             static_cast<double>(s.end - s.begin);
  }
  return sum / (static_cast<double>(end - begin) * cores);
}

}  // namespace samara::bench
