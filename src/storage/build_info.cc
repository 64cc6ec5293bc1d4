#include "storage/build_info.h"

#include <elf.h>
#include <link.h>

#include <cstring>

#include "core/clock.h"
#include "core/cpu.h"
#include "git_revision.h"

namespace samara {
namespace {

// Looks for the note NT_GNU_BUILD_ID in one segment of notes.
std::string BuildIdInNotes(const char* at, size_t size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  const auto aligned = [](size_t n) { return (n + 3) / 4 * 4; };
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof note);
    const size_t total = sizeof note + aligned(note.n_namesz) + aligned(note.n_descsz);
    if (total > size) break;
    const char* name = at + sizeof note;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
      std::string text;
      for (size_t i = 0; i < note.n_descsz; ++i) {
        const auto byte = static_cast<unsigned char>(name[4 + i]);
        text += {kDigits[byte >> 4], kDigits[byte & 15]};
      }
      return text;
    }
    at += total, size -= total;
  }
  return {};
}

// The first object that the loader reports is the program itself.
int VisitProgram(dl_phdr_info* info, size_t, void* out) {
  auto& id = *static_cast<std::string*>(out);
  for (int i = 0; i < info->dlpi_phnum && id.empty(); ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the loader hands addresses out as numbers
    const auto* notes = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
    id = BuildIdInNotes(notes, segment.p_memsz);
  }
  return 1;
}

std::string Compiler() {
#if defined(__clang__)
  const std::string name = "clang " __clang_version__;
#else
  const std::string name = "gcc " __VERSION__;
#endif
  return name + " " SAMARA_BUILD_TYPE;
}

BuildInfo Read() {
  std::string id;
  ::dl_iterate_phdr(VisitProgram, &id);
  return {.version = SAMARA_VERSION,
          .git_revision = SAMARA_GIT_REVISION,
          .build_id = id.empty() ? "unknown" : id,
          .compiler = Compiler(),
          .torch = SAMARA_TORCH_VERSION,
          .gpus = SAMARA_GPUS};
}

}  // namespace

const BuildInfo& ThisBuild() {
  static const BuildInfo info = Read();
  return info;
}

nlohmann::json MakeIdentity(const std::string& config_hash, int64_t seed,
                            std::span<const std::string> command) {
  const BuildInfo& build = ThisBuild();
  return {{"version", build.version},
          {"git_revision", build.git_revision},
          {"build_id", build.build_id},
          {"compiler", build.compiler},
          {"config_hash", config_hash},
          {"seed", seed},
          {"cpu", CpuName()},
          {"isa", Name(ActiveIsa())},
          {"created", WallTimeIso()},
          {"command", std::vector<std::string>(command.begin(), command.end())}};
}

}  // namespace samara
