#include "run/rank_zero.h"

#include <fmt/format.h>

#include "storage/build_info.h"

namespace samara {

void RankZero::Put(ByteWriter& out) const {
  out.PutBytes(build_id).PutBytes(environment_version).PutBytes(config_toml);
}

RankZero RankZero::Get(ByteReader& in) {
  RankZero zero;
  zero.build_id = in.GetBytes(), zero.environment_version = in.GetBytes();
  zero.config_toml = in.GetBytes();
  return zero;
}

Result<ExperimentConfig> RankZero::Config(const World& world) const {
  if (build_id != ThisBuild().build_id)
    return Status(Code::kConfig,
                  fmt::format("rank {}'s program is another build than rank 0's", world.rank));
  ExperimentConfig config;
  config.ChooseAlgorithm(config_toml);
  config.fleet.engines = world.local_size;
  RETURN_IF_ERROR(config.Table().ParseToml(config_toml, "rank 0's configuration"));
  return config;
}

Status RankZero::Check(const Stage& stage, int rank) const {
  if (stage.environment.version == environment_version) return Status::Ok();
  return {Code::kConfig,
          fmt::format("rank 0 plays '{}', rank {} has '{}'; expected the same environment",
                      environment_version, rank, stage.environment.version)};
}

RankZero MakeRankZero(const ConfigTable& table, const Stage& stage) {
  return {ThisBuild().build_id, stage.environment.version, table.ToToml()};
}

}  // namespace samara
