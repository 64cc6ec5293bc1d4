// A configuration is TOML text and overrides `table.key=value`: the input up to its first zero, and
// what lies between the next ones.
#include <nlohmann/json.hpp>

#include "config/experiment.h"
#include "core/check.h"
#include "core/log.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace samara;
  SetLogLevel(LogLevel::kError);
  std::vector<std::string> parts(1);
  for (const char c : std::string_view(reinterpret_cast<const char*>(data), size)) {
    if (c == '\0')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  const std::string toml = parts[0];
  const std::vector<std::string> overrides(parts.begin() + 1, parts.end());
  ExperimentConfig config;
  config.ChooseAlgorithm(toml, overrides);
  ConfigTable table = config.Table();
  if (!table.ParseToml(toml, "input").ok()) return 0;
  for (const std::string& word : overrides)
    if (!table.Override(word).ok()) return 0;
  // what was accepted is written down and read again as the same
  const std::string written = table.ToToml();
  ExperimentConfig second;
  second.ChooseAlgorithm(written);
  ConfigTable again = second.Table();
  const Status status = again.ParseToml(written, "written");
  CHECK(status.ok()) << status.message();
  CHECK(again.ToToml() == written && again.Hash() == table.Hash());
  // actors are given what is JSON
  const GymOptions options = GymOptionsOf(config.env);
  CHECK(nlohmann::json::parse(options.kwargs, nullptr, false).is_object());
  CHECK(nlohmann::json::parse(options.wrappers, nullptr, false).is_array());
  return 0;
}
