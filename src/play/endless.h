// Episodes that may never end, and what is said to those who wait for them.
#pragma once

#include <memory>

#include "core/reminder.h"
#include "play/environment_setup.h"

namespace samara {

enum class Played { kAll, kTests };  // training episodes too, or tests alone

// Warns, once, when none of the `awaited` episodes has ended for half a minute, as long as it
// lives. Null where a limit of steps or frames ends every one.
std::unique_ptr<Reminder> WatchForEndlessEpisodes(const EnvironmentSetup& setup, Played played,
                                                  Reminder::Count awaited);

}  // namespace samara
