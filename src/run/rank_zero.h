// What the ranks of one run must have alike: rank 0 says it at the start, the others take it or
// refuse.
#pragma once

#include <string>

#include "core/bytes.h"
#include "replica/rendezvous/world.h"
#include "config/experiment.h"

namespace samara {

struct RankZero {
  std::string build_id, environment_version, config_toml;

  void Put(ByteWriter& out) const;
  static RankZero Get(ByteReader& in);
  // For another rank of `world`. kConfig: this program is another build.
  Result<ExperimentConfig> Config(const World& world) const;
  // kConfig: this machine has another environment.
  Status Check(const Stage& stage, int rank) const;
};

// As rank 0 has it.
RankZero MakeRankZero(const ConfigTable& table, const Stage& stage);

}  // namespace samara
