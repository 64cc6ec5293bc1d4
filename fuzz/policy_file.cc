// Policy files of unknown origin: a safetensors file, and one that is right but for one text of its
// metadata.
#include <unistd.h>

#include <filesystem>

#include "core/check.h"
#include "core/log.h"
#include "nn/safetensors.h"
#include "play/saved_policy.h"

namespace samara {
namespace {

Path TemporaryFile() {
  return std::filesystem::temp_directory_path() / ("fuzz_policy." + std::to_string(::getpid()));
}

Safetensors MakePolicyFile() {
  Policy policy;
  policy.config.env.id = "CartPole-v1";
  auto network = MakeNetwork("mlp-3-tanh", 1, 1, 4, 2);
  CHECK(network.ok()) << network.status().message();
  policy.network = *network;
  policy.parameters.resize(policy.network.parameter_count);
  policy.genome = Genome{};
  const Path file = TemporaryFile();
  CHECK(SavePolicy(policy, file).ok());
  const auto bytes = ReadFile(file);
  std::filesystem::remove(file);
  auto parsed = ParseSafetensors(*bytes);
  CHECK(parsed.ok());
  return *parsed;
}

void Load(std::string_view bytes) {
  const Path file = TemporaryFile();
  {
    auto out = AppendFile::Open(file, 0, AppendFile::Durability::kBuffered);
    CHECK(out.ok() && (*out)->Append(bytes).ok());
  }
  const auto policy = LoadPolicy(file);
  std::filesystem::remove(file);
  if (policy.ok() && !policy->config.Learns()) {
    CHECK(policy->parameters.size() == policy->network.parameter_count);
  }
}

}  // namespace
}  // namespace samara

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace samara;
  SetLogLevel(LogLevel::kError);
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    const auto parsed = ParseSafetensors(bytes);
    if (parsed.ok()) {
      const auto again = FormatSafetensors(*parsed);
      CHECK(again.ok() && *FormatSafetensors(*ParseSafetensors(*again)) == *again);
    }
    Load(bytes);
    return 0;
  }
  static const Safetensors good = MakePolicyFile();
  Safetensors changed = good;
  auto text = changed.metadata.begin();
  std::advance(text, data[0] / 2 % changed.metadata.size());
  text->second = bytes;
  if (const auto file = FormatSafetensors(changed); file.ok()) Load(*file);
  return 0;
}
