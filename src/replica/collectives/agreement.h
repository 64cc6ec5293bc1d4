// Which ranks hold another value than the others, where all should hold the same.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/status.h"

namespace samara {

// Names the ranks that differ from the value of more than half of them, "rank 2 differs from the
// other 3"; without such a majority, as with two ranks, names every group and says that it is not
// known which one is wrong. Empty when all values are equal.
std::string DescribeDisagreement(const std::map<int, std::string>& value_by_rank);
// Ok when all values are equal; else kInternal, in these words after `subject`.
Status CheckAgreement(const std::string& subject, const std::map<int, std::string>& value_by_rank);
// The same, of the values of ranks 0, 1, ...
Status CheckAgreement(const std::string& subject, const std::vector<std::string>& values);

}  // namespace samara
