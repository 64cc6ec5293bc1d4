#include "report/end_points.h"

#include <fmt/format.h>

#include "env/registry.h"
#include "report/report_sections.h"
#include "storage/evolution_journal.h"

namespace samara {

std::vector<EndPoints> EndPointsOf(const RunData& run) {
  std::vector<EndPoints> generations;
  const auto journal = ReadJournal(run.folder / "checkpoints" / "journal.bin");
  if (!journal.ok()) return generations;
  for (const JournalRecord& record : journal->records) {
    if (record.type != kGenerationRecord) continue;
    auto saved = GenerationRecord::Decode(record.payload);
    if (!saved.ok() || saved->positions.size() != 2 * saved->fitness.size()) continue;
    const auto line = nlohmann::json::parse(saved->metrics, nullptr, /*allow_exceptions=*/false);
    const double generation = line.is_object() ? NumberOr(line, "generation", 0) : 0;
    generations.push_back({static_cast<uint64_t>(generation), std::move(saved->positions)});
  }
  return generations;
}

std::string RunMap(const RunData& run, SvgUse use) {
  const auto map = NativeMap(run.Config("env.id"));
  if (!map) return "";
  const std::vector<EndPoints> generations = EndPointsOf(run);
  if (generations.empty()) return "";
  const char* const kTitle = "Where the episodes of the population ended";
  return MapSvg(*map, generations, use == SvgUse::kFile ? Title(run) : kTitle, use);
}

}  // namespace samara
