// Verifies everything that a resume of a run relies on; changes nothing.
#pragma once

#include <string>
#include <vector>

#include "core/files.h"
#include "core/status.h"

namespace samara {

struct FsckReport {
  std::vector<std::string> problems;   // one line each; empty when the run is sound
  std::vector<std::string> set_aside;  // *.corrupt: damage that was dealt with
  // traces of an interrupted process, which a resume removes; metrics that no report can read
  std::vector<std::string> notes;
  int files_verified = 0;

  // ok, or kBadData naming the first problem and their number.
  Status status() const;
};

// Verifies config.toml, run.json, incarnation.json, result.json and every file in checkpoints/: the
// manifest and all files of each checkpoint, the journal's chain, and that the journal still holds
// what each checkpoint pins; of a finished learning run, which has no journal, that the agent of
// its result is there. A file that samara does not know is a problem. Works while another process
// writes. kNoInput: not a run folder.
Result<FsckReport> Fsck(const Path& run);

}  // namespace samara
