#include "play/network_module.h"

#include "core/files.h"
#include "core/sha256.h"

namespace samara {
namespace {

constexpr std::string_view kPrefix = RunFolder::kModuleDigest;
constexpr size_t kModuleBytesMax = size_t{1} << 31;

std::string DigestOf(const std::string& bytes) { return std::string(kPrefix) + Sha256Hex(bytes); }

}  // namespace

Status TakeModule(AgentNetworkKeys& keys) {
  const bool digest = keys.module.starts_with(kPrefix);
  if (keys.module.empty()) {
    keys.module_bytes.reset();
    return Status::Ok();
  }
  if (digest && keys.module_bytes && keys.module == DigestOf(*keys.module_bytes))
    return Status::Ok();
  if (digest)
    return {Code::kConfig, "network.module=" + Shown(keys.module) +
                               ": a module that a run keeps; expected a file, such as its "
                               "module.pt"};
  auto bytes = ReadFile(Path(keys.module), kModuleBytesMax);
  if (!bytes.ok()) return bytes.status().Annotate("network.module");
  keys.module = DigestOf(*bytes);
  keys.module_bytes = std::make_shared<const std::string>(*std::move(bytes));
  return Status::Ok();
}

Status TakeModule(const RunFolder& run, AgentNetworkKeys& keys) {
  ASSIGN_OR_RETURN(std::optional<std::string> bytes, run.ReadModule());
  if (bytes) keys.module_bytes = std::make_shared<const std::string>(*std::move(bytes));
  return Status::Ok();
}

std::string TorsoName(const AgentNetworkKeys& keys) {
  if (!keys.module.starts_with(kPrefix)) return keys.text();
  return "module-" + keys.module.substr(kPrefix.size(), 8);
}

}  // namespace samara
