#include "replica/flight_recorder.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace samara {
namespace {
double Seconds(SteadyTime from, SteadyTime to) {
  return std::chrono::duration<double>(to - from).count();
}
}  // namespace

void FlightRecorder::Begin(uint64_t sequence, std::string text, const char* transport,
                           uint64_t bytes) {
  std::lock_guard lock(mu_);
  records_[count_++ % records_.size()] = {.sequence = sequence,
                                          .text = std::move(text),
                                          .transport = transport,
                                          .bytes = bytes,
                                          .begin = Now()};
}

void FlightRecorder::End(bool failed) {
  std::lock_guard lock(mu_);
  FlightRecord& last = records_[(count_ - 1) % records_.size()];
  last.end = Now();
  last.ended = true;
  last.failed = failed;
}

std::vector<FlightRecord> FlightRecorder::records() const {
  std::lock_guard lock(mu_);
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

std::string FlightRecorder::ChromeTrace(int rank) const {
  nlohmann::json events = nlohmann::json::array();
  for (const FlightRecord& r : records()) {
    if (!r.ended) continue;
    events.push_back({{"name", r.text},
                      {"ph", "X"},
                      {"cat", "collective"},
                      {"pid", rank},
                      {"tid", "collectives"},
                      {"ts", Seconds(origin_, r.begin) * 1e6},
                      {"dur", Seconds(r.begin, r.end) * 1e6},
                      {"args", {{"bytes", r.bytes}, {"sequence", r.sequence}}}});
  }
  return nlohmann::json{{"traceEvents", std::move(events)}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace samara
