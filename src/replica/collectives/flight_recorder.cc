#include "replica/collectives/flight_recorder.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace samara {
namespace {
double Seconds(SteadyTime from, SteadyTime to) {
  return std::chrono::duration<double>(to - from).count();
}
}  // namespace

Path FlightFile(const std::string& folder, int rank, const EnvironmentVariables& environment) {
  const std::string number = std::to_string(rank);
  const auto traces = environment("SAMARA_TRACE");
  const std::string chosen = folder.empty() ? traces.value_or("") : folder;
  if (!chosen.empty()) return Path(chosen) / ("flight-" + number + ".json");
  if (traces.has_value()) return {};
  std::error_code none;
  const Path temporary = std::filesystem::temp_directory_path(none);
  if (none) return {};
  return temporary / ("samara-flight-" + number + "-" + std::to_string(::getpid()) + ".json");
}

void FlightRecorder::Begin(uint64_t sequence, std::string text, const char* transport,
                           uint64_t bytes) {
  const MutexLock lock(mu_);
  records_[count_++ % records_.size()] = {.sequence = sequence,
                                          .text = std::move(text),
                                          .transport = transport,
                                          .bytes = bytes,
                                          .begin = Now()};
}

void FlightRecorder::End(bool failed) {
  const MutexLock lock(mu_);
  FlightRecord& last = records_[(count_ - 1) % records_.size()];
  last.end = Now();
  last.ended = true;
  last.failed = failed;
}

void FlightRecorder::Span(std::string track, std::string name, SteadyTime begin) {
  const MutexLock lock(mu_);
  spans_[span_count_++ % spans_.size()] = {std::move(track), std::move(name), begin, Now()};
}

bool FlightRecorder::empty() const {
  const MutexLock lock(mu_);
  return count_ == 0;
}

std::vector<FlightRecord> FlightRecorder::records() const {
  const MutexLock lock(mu_);
  std::vector<FlightRecord> out;
  for (size_t i = count_ - std::min(count_, records_.size()); i < count_; ++i)
    out.push_back(records_[i % records_.size()]);
  return out;
}

std::string FlightRecorder::Json(int rank, int size, const std::string& error) const {
  nlohmann::json list = nlohmann::json::array();
  for (const FlightRecord& r : records()) {
    list.push_back({{"sequence", r.sequence},
                    {"text", r.text},
                    {"transport", r.transport},
                    {"bytes", r.bytes},
                    {"begin_s", Seconds(origin_, r.begin)},
                    {"seconds", Seconds(r.begin, r.ended ? r.end : Now())},
                    {"state", !r.ended   ? "waiting"
                              : r.failed ? "failed"
                                         : "done"}});
  }
  const nlohmann::json whole{
      {"rank", rank}, {"world_size", size}, {"error", error}, {"records", std::move(list)}};
  return whole.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Status FlightRecorder::Write(const Path& file, int rank, int size, const std::string& error) const {
  RETURN_IF_ERROR(CreateFolders(file.parent_path()));
  const RootedPath temporary = TemporaryName(file);
  Status written = [&]() -> Status {
    ASSIGN_OR_RETURN(const auto out,
                     AppendFile::Open(temporary, 0, AppendFile::Durability::kBuffered));
    RETURN_IF_ERROR(out->Append(Json(rank, size, error)));
    return RenamePath(temporary, file);
  }();
  if (!written.ok()) (void)RemoveTree(temporary);
  return written;
}

std::string FlightRecorder::ChromeTrace(int rank) const {
  nlohmann::json events = nlohmann::json::array();
  const auto add = [&](const std::string& track, const std::string& name, SteadyTime begin,
                       SteadyTime end) -> nlohmann::json& {
    events.push_back({{"name", name},
                      {"ph", "X"},
                      {"pid", rank},
                      {"tid", track},
                      {"ts", Seconds(origin_, begin) * 1e6},
                      {"dur", Seconds(begin, end) * 1e6}});
    return events.back();
  };
  for (const FlightRecord& r : records()) {
    if (!r.ended) continue;
    nlohmann::json& event = add("collectives", r.text, r.begin, r.end);
    event["cat"] = "collective";
    event["args"] = {{"bytes", r.bytes}, {"sequence", r.sequence}};
  }
  const MutexLock lock(mu_);
  for (const FlightSpan& s : spans_)
    if (!s.name.empty()) add(s.track, s.name, s.begin, s.end);
  return nlohmann::json{{"traceEvents", std::move(events)}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace samara
