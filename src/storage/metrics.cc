#include "storage/metrics.h"

#include "core/clock.h"
#include "core/log.h"
#include "storage/quarantine.h"
#include "storage/sealed_json.h"

namespace samara {
namespace {

constexpr const char* kEventsPrefix = "events.out.tfevents.";

// Ordered by name as TensorBoard reads them; the incarnation stands where others put the time.
std::string EventsName(uint64_t incarnation) {
  const std::string digits = std::to_string(incarnation);
  return kEventsPrefix + std::string(10 - std::min<size_t>(10, digits.size()), '0') + digits +
         ".samara";
}

uint64_t GenerationOf(const nlohmann::json& line) { return StepOf(line).value_or(0); }

// A value that nlohmann would refuse to write, or write over several lines, cannot occur: NaN
// becomes null, text is escaped.
std::string LineText(const nlohmann::json& line) {
  return line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

// The lines of `text` that end, one after the other, until `take` says no.
template <typename Take>
void ForEachLine(std::string_view text, Take take) {
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    if (!take(text.substr(0, end + 1))) return;
    text.remove_prefix(end + 1);
  }
}

// Event files of earlier incarnations; the new one holds all they held.
void RemoveEventFiles(const RootedPath& folder, const RootedPath& except) {
  const auto names = ListFolder(folder);
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
    if (!name.starts_with(kEventsPrefix) || name == except.name()) continue;
    if (Status status = RemoveTree(folder / name); !status.ok()) LogWarning(status.message());
  }
}

}  // namespace

PatientFile::~PatientFile() {
  const Status status = waiting_.empty() ? Status::Ok() : Flush();
  if (!status.ok() || lost_ > 0)
    LogWarning(path_.string() + ": incomplete, some of its lines could not be written" +
               (status.ok() ? "" : " (" + status.message() + ")"));
}

void PatientFile::Write(std::string_view bytes) {
  if (waiting_.size() + bytes.size() > kWaitingBytesMax)
    ++lost_;
  else
    waiting_ += bytes;
  const Status status = Flush();
  if (!status.ok() && !warned_)
    LogWarning(status.message() + "; continuing, metrics are kept in memory");
  if (status.ok() && warned_) LogInfo(path_.string() + ": written again");
  warned_ = !status.ok();
}

Status PatientFile::Flush() {
  if (file_ == nullptr) {
    ASSIGN_OR_RETURN(file_, AppendFile::Open(path_, -1, AppendFile::Durability::kBuffered));
  }
  RETURN_IF_ERROR(file_->Append(waiting_));
  waiting_.clear();
  return Status::Ok();
}

MetricsWriter::MetricsWriter(const RootedPath& run_folder, uint64_t incarnation,
                             uint64_t generation, const std::vector<nlohmann::json>& saved)
    : folder_(run_folder),
      events_path_(run_folder / EventsName(incarnation)),
      generation_(generation),
      lines_(run_folder / "metrics.jsonl"),
      events_(events_path_) {
  for (const nlohmann::json& line : saved) saved_[GenerationOf(line)] = line;
  if (Status status = Prepare(); !status.ok())
    LogWarning(status.message() + "; continuing, metrics are kept in memory");
}

Status MetricsWriter::Prepare() {
  const RootedPath path = folder_ / "metrics.jsonl";
  auto text = ReadFile(path);
  if (!text.ok() && text.status().code() == Code::kNoInput) text = std::string();
  RETURN_IF_ERROR(text.status());
  std::string kept;
  std::string events = EventFileHeader();
  if (const auto config = ReadFile(folder_ / "config.toml"); config.ok())
    events += EventOfConfig(*config);
  bool damaged = false;
  uint64_t dropped = 0;  // the first generation that is
  const auto keep = [&](std::string_view line, const nlohmann::json& json) {
    kept += line;
    events += EventOfLine(json);
  };
  auto next = saved_.begin();
  const auto keep_saved_up_to = [&](uint64_t generation) {
    for (; next != saved_.end() && next->first <= generation; ++next)
      keep(LineText(next->second), next->second);
  };
  ForEachLine(*text, [&](std::string_view line) {
    const auto json = ParseJson(line, path.string());
    const bool readable = json.ok() && json->is_object();
    damaged = damaged || !readable;
    if (!readable) return true;
    const uint64_t generation = GenerationOf(*json);
    if (generation > generation_) {
      dropped = generation;
      return false;
    }
    keep_saved_up_to(generation);
    if (json->contains("event") || !saved_.contains(generation)) keep(line, *json);
    return true;
  });
  keep_saved_up_to(generation_);
  if (damaged) {
    const RootedPath aside = CorruptName(path);
    RETURN_IF_ERROR(WriteFileAtomic(aside, *text));
    LogWarning(path.string() + ": damaged: a line is not a JSON object; kept as " + aside.name());
  }
  // the journal has a generation before metrics.jsonl: the file was removed or replaced
  if (dropped > 0) {
    LogWarning(path.string() + ": reports step " + std::to_string(dropped) +
               ", but the last saved one is " + std::to_string(generation_) +
               "; later ones are computed again");
  }
  if (kept != *text) RETURN_IF_ERROR(WriteFileAtomic(path, kept));
  RETURN_IF_ERROR(WriteFileAtomic(events_path_, events));
  RemoveEventFiles(folder_, events_path_);
  saved_.clear();
  prepared_ = true;
  return Status::Ok();
}

void MetricsWriter::Write(nlohmann::json line) {
  CHECK(line.is_object());
  if (!line.contains("time")) line["time"] = WallTimeIso();
  early_.push_back(std::move(line));
  // what later generations left must go before anything new comes
  if (!prepared_ && !Prepare().ok()) return;
  for (const nlohmann::json& ready : early_) {
    lines_.Write(LineText(ready));
    if (std::string event = EventOfLine(ready); !event.empty()) events_.Write(std::move(event));
  }
  early_.clear();
}

void MetricsWriter::WriteImage(std::string_view tag, uint64_t step, const EncodedImage& image) {
  if (prepared_) events_.Write(EventOfImage(tag, step, image));
}

std::optional<uint64_t> StepOf(const nlohmann::json& line) {
  for (const char* name : kStepNames) {
    const auto step = line.find(name);
    if (step != line.end() && step->is_number_unsigned()) return step->get<uint64_t>();
  }
  return std::nullopt;
}

Result<std::vector<nlohmann::json>> ReadMetrics(const RootedPath& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<nlohmann::json> lines;
  Status failure;
  ForEachLine(text, [&](std::string_view line) {
    const std::string source = path.string() + ", line " + std::to_string(lines.size() + 1);
    auto json = ParseJson(line, source);
    if (!json.ok())
      failure = json.status();
    else if (!json->is_object())
      failure = {Code::kBadData, source + ": damaged: not a JSON object"};
    else
      lines.push_back(std::move(*json));
    return failure.ok();
  });
  if (!failure.ok()) return failure;
  return lines;
}

}  // namespace samara
