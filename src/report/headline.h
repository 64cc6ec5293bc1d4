// The heading of a page about runs, as plain text.
#pragma once

#include <string>

#include "report/report_sections.h"

namespace samara {

// "CartPole-v1: 500 after 61,440 frames and 1.2 s; a random policy gets 22.3"
std::string Headline(const RunData& run);
// "5 runs: CartPole-v1 by classic/cartpole-ga"
std::string Headline(std::span<const RunData> runs);
// The command line that plays the same run again; empty where run.json has none.
std::string CommandLine(const RunData& run);

}  // namespace samara
