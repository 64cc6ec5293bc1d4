#include "replica/liveness/failure_detector.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "core/log.h"
#include "replica/liveness/monitor_frame.h"

namespace samara {
namespace {

constexpr size_t kFailureBytesMax = MonitorFrame::kTextBytes - 1;
constexpr size_t kGroupsMax = 6;  // in a description, so that the text stays within a frame

std::string ActivityText(const RankActivity& activity, bool left) {
  if (left) return "left";
  const std::string what(activity.what, strnlen(activity.what, sizeof activity.what));
  if (activity.sequence == 0 && !activity.waiting && what.empty()) return "before any collective";
  return fmt::format("{} collective {}{}", activity.waiting ? "in" : "after", activity.sequence,
                     what.empty() ? "" : " (" + what + ")");
}

}  // namespace

RankActivity MakeActivity(uint64_t sequence, bool waiting, std::string_view what) {
  RankActivity activity{.sequence = sequence, .waiting = waiting};
  what.copy(activity.what, sizeof activity.what - 1);
  return activity;
}

std::string NameRanks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t first = 0; first < ranks.size();) {
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += fmt::format("{}{}", first == 0 ? "" : ", ", ranks[first]);
    if (last > first) text += fmt::format("-{}", ranks[last]);
    first = last + 1;
  }
  return text;
}

std::string SilentText(int rank, std::chrono::milliseconds timeout) {
  return fmt::format("rank {} has been silent for {} s", rank,
                     static_cast<double>(timeout.count()) / 1000);
}

FailureDetector::FailureDetector(int size, std::chrono::milliseconds heartbeat_timeout)
    : timeout_(heartbeat_timeout), ranks_(static_cast<size_t>(size)) {
  at(0).state = State::kAlive;
}

void FailureDetector::RecordFailure(const Status& failure) {
  // as every rank receives it: one line, no longer than a frame holds
  if (failure_.ok())
    failure_ = {failure.code(), EscapeControl(failure.message()).substr(0, kFailureBytesMax)};
}

void FailureDetector::Join(int rank, Time now) { at(rank) = {State::kAlive, now, {}}; }

void FailureDetector::ConnectionClosed(int rank) {
  if (!IsAlive(rank)) return;
  RecordFailure({Code::kUnavailable, fmt::format("rank {} died; {}", rank, Activities())});
  at(rank).state = State::kDead;
}

void FailureDetector::GiveUp(int rank, const Status& why) {
  // without activities: the rank that gives up has sent its reason
  RecordFailure(why.Annotate(fmt::format("rank {} gave up", rank)));
}

void FailureDetector::ProtocolError(int rank) {
  RecordFailure(
      {Code::kConfig,
       fmt::format("rank {} sent what is no message of this version: expected the same program "
                   "on every rank",
                   rank)});
  at(rank).state = State::kDead;
}

void FailureDetector::CheckTimeouts(Time now) {
  for (int rank = 1; rank < static_cast<int>(ranks_.size()); ++rank) {
    if (!IsAlive(rank) || now - at(rank).last_heartbeat < timeout_) continue;
    RecordFailure({Code::kUnavailable, SilentText(rank, timeout_) + "; " + Activities()});
    return;
  }
}

void FailureDetector::StartTimedOut(std::chrono::milliseconds timeout) {
  RecordFailure(
      {Code::kUnavailable, fmt::format("{} did not come within {} s: were all of them started?",
                                       Missing(), static_cast<double>(timeout.count()) / 1000)});
}

std::string FailureDetector::Missing() const {
  std::vector<int> missing;
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
    if (!HasJoined(rank)) missing.push_back(rank);
  return fmt::format("{} of {}", NameRanks(missing), ranks_.size());
}

bool FailureDetector::Complete() const {
  return std::none_of(ranks_.begin(), ranks_.end(),
                      [](const Rank& rank) { return rank.state == State::kMissing; });
}

bool FailureDetector::AllLeft() const {
  return std::none_of(ranks_.begin() + 1, ranks_.end(),
                      [](const Rank& rank) { return rank.state == State::kAlive; });
}

FailureDetector::Time FailureDetector::NextTimeout() const {
  Time first = Time::max();
  for (size_t i = 1; i < ranks_.size(); ++i)
    if (ranks_[i].state == State::kAlive)
      first = std::min<Time>(first, ranks_[i].last_heartbeat + timeout_);
  return first;
}

std::string FailureDetector::Activities() const {
  std::map<std::string, std::vector<int>> groups;
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
    if (HasJoined(rank))
      groups[ActivityText(at(rank).activity, at(rank).state == State::kLeft)].push_back(rank);
  // small groups first: the ranks that differ from the others are likely the cause
  std::vector<std::pair<std::string, std::vector<int>>> order(groups.begin(), groups.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  std::string text;
  for (size_t i = 0; i < order.size() && i < kGroupsMax; ++i)
    text += (i == 0 ? "" : ", ") + NameRanks(order[i].second) + " " + order[i].first;
  return order.size() > kGroupsMax ? text + ", ..." : text;
}

std::string FailureDetector::Describe(Time now) const {
  std::string text = Activities();
  for (int rank = 1; rank < static_cast<int>(ranks_.size()); ++rank) {
    const Time silent = now - at(rank).last_heartbeat;
    if (IsAlive(rank) && silent > timeout_ / 2)
      text += fmt::format("; rank {} last heard {:.1f} s ago", rank,
                          std::chrono::duration<double>(silent).count());
  }
  return text;
}

}  // namespace samara
