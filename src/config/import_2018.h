// Configuration files of the programs published in 2018 with the papers on the Deep GA (arXiv
// 1712.06567) and on novelty search with evolution strategies (arXiv 1712.06560), as TOML that runs
// here. Both schemas are read: the distributed program's (members config, env_id, policy, ...) and
// the accelerated one's (game, model, population_size, ...).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace samara {

struct ImportedConfig {
  std::string algorithm;  // the value of run.algorithm
  std::string toml;
  // Warnings, a line each: settings without effect, in that program or here, and differences here.
  std::vector<std::string> warnings;
};

// Whether the text is JSON with members of one of the schemas, well-formed or not.
bool IsConfig2018(std::string_view json);

// `algorithm`: which of the programs the file was for, as the files do not say it: ga, rs, es, ns,
// nsr; empty: as its members tell. kConfig names an unknown member, one that is missing, or a value
// that nothing here does; kBadData: no JSON object.
Result<ImportedConfig> ImportConfig2018(std::string_view json, const std::string& algorithm = {});

}  // namespace samara
