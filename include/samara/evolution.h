// An evolution algorithm of one's own: derive from EvolutionAlgorithm (one generation, its state as
// bytes) and EvolutionConfig (its parameters as keys), register a row, and run the command. The
// fleet, run folder, resume, report and live view are the same as for the algorithms of samara.
// Links samara::evolution; samara::learning instead for runs on several ranks, which find each
// other by torch.
#pragma once

#include "core/bytes.h"
#include "evo/algorithms/algorithm.h"
#include "evo/algorithms/registry.h"
#include "samara/command.h"
