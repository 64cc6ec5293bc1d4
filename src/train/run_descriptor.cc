#include "train/run_descriptor.h"

#include <fmt/format.h>

#include "storage/build_info.h"

namespace samara {

std::string EncodeFiles(const NamedFiles& files) {
  ByteWriter out;
  out.Put(uint64_t{files.size()});
  for (const auto& [name, bytes] : files) out.PutBytes(name).PutBytes(bytes);
  return out.Take();
}

Result<NamedFiles> DecodeFiles(std::string_view bytes) {
  ByteReader in(bytes);
  NamedFiles files;
  const auto count = in.Get<uint64_t>();
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    const std::string name(in.GetBytes());
    files[name] = in.GetBytes();
  }
  if (!in.AtEnd()) return Status(Code::kInternal, "the files of another rank cannot be read");
  return files;
}

void RunDescriptor::Put(ByteWriter& out) const {
  out.PutBytes(build_id).PutBytes(environment_version).PutBytes(config_toml).PutBytes(module);
  out.PutBytes(device);
}

RunDescriptor RunDescriptor::Get(ByteReader& in) {
  RunDescriptor run;
  run.build_id = in.GetBytes(), run.environment_version = in.GetBytes();
  run.config_toml = in.GetBytes(), run.module = in.GetBytes();
  run.device = in.GetBytes();
  return run;
}

Result<ExperimentConfig> RunDescriptor::Config(const World& world) const {
  if (build_id != ThisBuild().build_id)
    return Status(Code::kConfig,
                  fmt::format("rank {}'s program is another build than rank 0's", world.rank));
  ExperimentConfig config;
  config.ChooseAlgorithm(config_toml);
  config.fleet.engines = world.local_size;
  RETURN_IF_ERROR(config.Table().ParseToml(config_toml, "rank 0's configuration"));
  if (!module.empty())
    config.learning.network.module_bytes = std::make_shared<const std::string>(module);
  return config;
}

Status RunDescriptor::Check(const EnvironmentSetup& setup, const std::string& mine,
                            int rank) const {
  if (setup.environment.version != environment_version)
    return {Code::kConfig,
            fmt::format("rank 0 plays '{}', rank {} has '{}'; expected the same environment",
                        environment_version, rank, setup.environment.version)};
  if (mine != device)
    return {Code::kConfig,
            fmt::format("rank 0 computes on {}, rank {} on {}, which rounds differently; expected "
                        "the same, by run.device and network.precision",
                        device, rank, mine)};
  return Status::Ok();
}

RunDescriptor MakeRunDescriptor(const ConfigTable& table, const ExperimentConfig& config,
                                const EnvironmentSetup& setup, std::string device) {
  const auto& module = config.learning.network.module_bytes;
  return {ThisBuild().build_id, setup.environment.version, table.ToToml(),
          module ? *module : std::string(), std::move(device)};
}

std::string StartState::Encode() const {
  ByteWriter out;
  run.Put(out);
  out.Put(incarnation).Put(random_policy).Put(seconds).PutBytes(EncodeFiles(files)).PutBytes(path);
  return out.Take();
}

Result<StartState> StartState::Decode(std::string_view bytes) {
  ByteReader in(bytes);
  StartState start;
  start.run = RunDescriptor::Get(in);
  start.incarnation = in.Get<uint64_t>();
  start.random_policy = in.Get<bool>();
  start.seconds = in.Get<double>();
  const std::string_view files = in.GetBytes();
  start.path = in.GetBytes();
  if (!in.AtEnd()) return Status(Code::kInternal, "the start of rank 0 cannot be read");
  ASSIGN_OR_RETURN(start.files, DecodeFiles(files));
  return start;
}

}  // namespace samara
