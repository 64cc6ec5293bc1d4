#include "replica/collectives/agreement.h"

#include <fmt/format.h>

#include <algorithm>

#include "replica/liveness/failure_detector.h"

namespace samara {

std::string DescribeDisagreement(const std::map<int, std::string>& value_by_rank) {
  std::map<std::string, std::vector<int>> by_value;
  for (const auto& [rank, value] : value_by_rank) by_value[value].push_back(rank);
  if (by_value.size() < 2) return {};
  std::vector<std::vector<int>> groups;
  groups.reserve(by_value.size());
  for (auto& [value, ranks] : by_value) groups.push_back(std::move(ranks));
  std::sort(groups.begin(), groups.end());
  const auto largest =
      std::max_element(groups.begin(), groups.end(),
                       [](const auto& a, const auto& b) { return a.size() < b.size(); });
  if (2 * largest->size() > value_by_rank.size()) {
    std::vector<int> minority;
    for (auto group = groups.begin(); group != groups.end(); ++group)
      if (group != largest) minority.insert(minority.end(), group->begin(), group->end());
    std::sort(minority.begin(), minority.end());
    return fmt::format("{} {} from the other {}", NameRanks(minority),
                       minority.size() == 1 ? "differs" : "differ", largest->size());
  }
  std::string names;
  for (const auto& group : groups) names += (names.empty() ? "" : " | ") + NameRanks(group);
  return names + " differ, and without a majority it is not known which is wrong";
}

Status CheckAgreement(const std::string& subject, const std::map<int, std::string>& value_by_rank) {
  const std::string ranks = DescribeDisagreement(value_by_rank);
  if (ranks.empty()) return Status::Ok();
  return {Code::kInternal,
          fmt::format("{} is not the same on all ranks: {}: memory that has changed "
                      "a bit, unequal machines or builds, or a program that "
                      "changes it on some ranks only",
                      subject, ranks)};
}

Status CheckAgreement(const std::string& subject, const std::vector<std::string>& values) {
  std::map<int, std::string> value_by_rank;
  for (const std::string& value : values)
    value_by_rank.emplace(static_cast<int>(value_by_rank.size()), value);
  return CheckAgreement(subject, value_by_rank);
}

}  // namespace samara
