// Quarantine after a crash or a failing disk: damaged files are kept for inspection, never deleted;
// temporary files are removed.
#pragma once

#include "core/files.h"

namespace samara {

// "<path>.corrupt", or "<path>.corrupt-2", ... : the first that is free.
RootedPath CorruptName(const RootedPath& path);
bool IsCorruptName(const Path& path);
// Renames `path` to its CorruptName and says so in one warning that gives the reason.
Status Quarantine(const RootedPath& path, const Status& why);

// Deletes what an interrupted process left under a temporary name directly in `folder`.
void RemoveTemporaries(const RootedPath& folder, const RootedPath& but = {});

}  // namespace samara
