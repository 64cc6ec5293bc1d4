// The facts that the ranks of one run must share: the main rank sends them at the start, the others
// use or refuse them.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "core/bytes.h"
#include "play/environment_setup.h"
#include "replica/rendezvous/world.h"

namespace samara {

using NamedFiles = std::map<std::string, std::string>;

std::string EncodeFiles(const NamedFiles& files);
Result<NamedFiles> DecodeFiles(std::string_view bytes);  // kInternal

struct RunDescriptor {
  std::string build_id, environment_version, config_toml;
  std::string module = {};  // the bytes of network.module; empty: there is none
  std::string device = {};  // where numbers are computed; empty: any device has the same bits

  void Put(ByteWriter& out) const;
  static RunDescriptor Get(ByteReader& in);
  // For another rank of `world`. kConfig: this program is another build.
  Result<ExperimentConfig> Config(const World& world) const;
  // kConfig: this machine has another environment, or computes elsewhere (`mine`, as `device`).
  Status Check(const EnvironmentSetup& setup, const std::string& mine, int rank) const;
};

// The main rank's; `table` is that of `config`.
RunDescriptor MakeRunDescriptor(const ConfigTable& table, const ExperimentConfig& config,
                                const EnvironmentSetup& setup, std::string device);

// Where a run begins, on every rank alike.
struct StartState {
  RunDescriptor run;
  uint64_t incarnation = 1;
  bool random_policy = false;  // whether the random policy is played first
  double seconds = 0;          // running time so far
  NamedFiles files;            // the state to go on from; empty: a new run
  std::string path;            // of these files, for messages

  std::string Encode() const;
  static Result<StartState> Decode(std::string_view bytes);
};

}  // namespace samara
