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
constexpr size_t kGroupsMax = 6;  // described one by one; the text stays within a frame

std::string Doing(const RankActivity& activity, bool left) {
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

std::string SilentText(int rank, std::chrono::milliseconds silence) {
  return fmt::format("rank {} has been silent for {} s", rank,
                     static_cast<double>(silence.count()) / 1000);
}

GroupJudge::GroupJudge(int size, std::chrono::milliseconds silence)
    : silence_(silence), ranks_(static_cast<size_t>(size)) {
  at(0).state = State::kHere;
}

void GroupJudge::Decide(const Status& failure) {
  // as every rank will read it: one line, and no longer than a frame holds
  if (failure_.ok())
    failure_ = {failure.code(), EscapeControl(failure.message()).substr(0, kFailureBytesMax)};
}

void GroupJudge::Come(int rank, Time now) { at(rank) = {State::kHere, now, {}}; }

void GroupJudge::Close(int rank) {
  if (!Is(rank)) return;
  Decide({Code::kUnavailable, fmt::format("rank {} died; {}", rank, Activities())});
  at(rank).state = State::kDead;
}

void GroupJudge::GiveUp(int rank, const Status& why) {
  // no activities: who gives up has said what it knows
  Decide(why.Annotate(fmt::format("rank {} gave up", rank)));
}

void GroupJudge::BreakProtocol(int rank) {
  Decide({Code::kConfig,
          fmt::format("rank {} sent what is no message of this version: expected the same program "
                      "on every rank",
                      rank)});
  at(rank).state = State::kDead;
}

void GroupJudge::JudgeSilence(Time now) {
  for (int rank = 1; rank < static_cast<int>(ranks_.size()); ++rank) {
    if (!Is(rank) || now - at(rank).heard < silence_) continue;
    Decide({Code::kUnavailable, SilentText(rank, silence_) + "; " + Activities()});
    return;
  }
}

void GroupJudge::StartTimedOut(std::chrono::milliseconds timeout) {
  Decide({Code::kUnavailable, fmt::format("{} did not come within {} s: were all of them started?",
                                          Awaited(), static_cast<double>(timeout.count()) / 1000)});
}

std::string GroupJudge::Awaited() const {
  std::vector<int> awaited;
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
    if (!HasCome(rank)) awaited.push_back(rank);
  return fmt::format("{} of {}", NameRanks(awaited), ranks_.size());
}

bool GroupJudge::Complete() const {
  return std::none_of(ranks_.begin(), ranks_.end(),
                      [](const Rank& rank) { return rank.state == State::kAwaited; });
}

bool GroupJudge::AllLeft() const {
  return std::none_of(ranks_.begin() + 1, ranks_.end(),
                      [](const Rank& rank) { return rank.state == State::kHere; });
}

GroupJudge::Time GroupJudge::Deadline() const {
  Time first = Time::max();
  for (size_t i = 1; i < ranks_.size(); ++i)
    if (ranks_[i].state == State::kHere) first = std::min<Time>(first, ranks_[i].heard + silence_);
  return first;
}

std::string GroupJudge::Activities() const {
  std::map<std::string, std::vector<int>> groups;
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
    if (HasCome(rank))
      groups[Doing(at(rank).activity, at(rank).state == State::kLeft)].push_back(rank);
  // small groups first: whoever differs from the rest is what one looks for
  std::vector<std::pair<std::string, std::vector<int>>> order(groups.begin(), groups.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  std::string text;
  for (size_t i = 0; i < order.size() && i < kGroupsMax; ++i)
    text += (i == 0 ? "" : ", ") + NameRanks(order[i].second) + " " + order[i].first;
  return order.size() > kGroupsMax ? text + ", ..." : text;
}

std::string GroupJudge::Describe(Time now) const {
  std::string text = Activities();
  for (int rank = 1; rank < static_cast<int>(ranks_.size()); ++rank) {
    const Time silent = now - at(rank).heard;
    if (Is(rank) && silent > silence_ / 2)
      text += fmt::format("; rank {} last heard {:.1f} s ago", rank,
                          std::chrono::duration<double>(silent).count());
  }
  return text;
}

}  // namespace samara
