// SPDX-License-Identifier: Apache-2.0 OR MIT
// Suggests the name that a misspelt one was meant to be, where that can be told.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace samara {

// The candidate that `word` begins, or its last part (behind '/' or '.'), or that begins `word`;
// else the one with the least edit distance of the whole or of the last part. Case does not count.
// Empty when `candidates` is.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

// Nearest, but empty when the candidate and `word` have little in common: neither begins the other,
// and the edit distance is more than half of the length of `word`.
std::string Suggestion(std::string_view word, const std::vector<std::string>& candidates);

// The key of `keys` that other libraries call `word` ("lr", "total_timesteps"), else Suggestion.
std::string SuggestedKey(std::string_view word, const std::vector<std::string>& keys);

}  // namespace samara
