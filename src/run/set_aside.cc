#include "run/set_aside.h"

#include <vector>

#include "core/log.h"

namespace samara {

Path CorruptName(const Path& path) {
  std::error_code ignored;
  Path name = path.string() + ".corrupt";
  for (int n = 2; std::filesystem::exists(std::filesystem::symlink_status(name, ignored)); ++n) {
    name = path.string() + ".corrupt-" + std::to_string(n);
  }
  return name;
}

bool IsCorruptName(const Path& path) {
  const std::string name = path.filename().string();
  const size_t at = name.rfind(".corrupt");
  if (at == std::string::npos || at == 0) return false;
  const std::string rest = name.substr(at + 8);
  if (rest.empty()) return true;
  return rest.size() > 1 && rest[0] == '-' &&
         rest.find_first_not_of("0123456789", 1) == std::string::npos;
}

Status SetAside(const Path& path, const Status& why) {
  const Path name = CorruptName(path);
  RETURN_IF_ERROR(RenamePath(path, name));
  RETURN_IF_ERROR(SyncFolder(path.parent_path()));
  LogWarning(why.message() + "; kept as " + name.filename().string());
  return Status::Ok();
}

void RemoveTemporaries(const Path& folder) {
  std::error_code error;
  std::vector<Path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (IsTemporaryName(entry.path())) found.push_back(entry.path());
  }
  for (const Path& path : found) {
    if (Status status = RemoveTree(path); !status.ok()) LogWarning(status.message());
  }
}

}  // namespace samara
