// Arguments and options of `samara train`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace samara {

struct TrainArguments {
  std::vector<std::string> words;  // preset or file, then overrides
  std::string out, resume;
  std::string seeds;               // "0..4"; empty: the configuration's
  std::vector<std::string> sweep;  // "KEY=VALUE,VALUE" each
  std::string listen, certificate, key, client_ca;
  std::vector<std::string> token_files;
  bool token_only = false, insecure = false, trust = false;
  bool dry_run = false, json = false, quiet = false, progress = false;
  uint32_t parallel = 0;  // of seeds and settings; 0 = one for each core

  bool many() const { return !seeds.empty() || !sweep.empty(); }
};

}  // namespace samara
