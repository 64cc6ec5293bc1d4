#include "storage/quarantine.h"

#include <vector>

#include "core/log.h"

namespace samara {

RootedPath CorruptName(const RootedPath& path) {
  const std::string base = path.name() + ".corrupt";
  RootedPath name = path.WithName(base);
  for (int n = 2; Exists(name); ++n) name = path.WithName(base + "-" + std::to_string(n));
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

Status Quarantine(const RootedPath& path, const Status& why) {
  const RootedPath name = CorruptName(path);
  RETURN_IF_ERROR(RenamePath(path, name));
  RETURN_IF_ERROR(SyncFolder(path.parent()));
  LogWarning(why.message() + "; kept as " + name.name());
  return Status::Ok();
}

void RemoveTemporaries(const RootedPath& folder, const RootedPath& but) {
  const auto names = ListFolder(folder);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!IsTemporaryName(name) || folder / name == but) continue;
    if (Status status = RemoveTree(folder / name); !status.ok()) LogWarning(status.message());
  }
}

}  // namespace samara
