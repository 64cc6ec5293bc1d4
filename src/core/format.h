// SPDX-License-Identifier: Apache-2.0 OR MIT
// Numbers as people read them: in the report, the live display and the final summary.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace samara {

// "1,234,567" or "1,234.50"; an en dash for NaN.
std::string Grouped(double value, int decimals = 0);
// "1 episode", "2,000 episodes".
std::string CountText(double count, std::string_view noun);
// Three significant digits with k, M, B, T: "950", "12.3k", "3.21M", "1.00B".
std::string ShortNumber(double value);
// The same of bytes: "39.6MB", "3.07GB".
std::string ShortBytes(uint64_t bytes);
// A return: as many decimals as its size needs. "1,230", "65.2", "-20.7", "0.0312".
std::string ScoreText(double value);
// "45 s", "3:12 min", "2:05:09 h", "3 d 4 h"; an en dash for NaN, infinite or negative.
std::string DurationText(double seconds);
// & < > " ' as entities; control characters other than newline and tab as the replacement sign.
std::string EscapeHtml(std::string_view text);

}  // namespace samara
