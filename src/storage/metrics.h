// metrics.jsonl and TensorBoard event files of a run. doc/metrics.md lists the names.
//
// metrics.jsonl is the truth; an event file holds the same numbers and is made from it again on
// resume. Neither is fsynced: metrics are for people, and what a run resumes from is elsewhere.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/files.h"
#include "core/status.h"

namespace samara {

// Appends to one file and never fails: what a full disk refuses waits in memory, at most
// `kWaitingBytesMax` of it, and follows when there is room again. Destruction tries once more, and
// warns of what is lost.
class PatientFile {
 public:
  static constexpr size_t kWaitingBytesMax = size_t{4} << 20;

  explicit PatientFile(RootedPath path) : path_(std::move(path)) {}
  ~PatientFile();
  PatientFile(const PatientFile&) = delete;
  PatientFile& operator=(const PatientFile&) = delete;
  void Write(std::string_view bytes);
  size_t waiting() const { return waiting_.size(); }
  uint64_t lost() const { return lost_; }  // writes dropped because too much waited

 private:
  Status Flush();

  const RootedPath path_;
  std::unique_ptr<AppendFile> file_;
  std::string waiting_;
  uint64_t lost_ = 0;
  bool warned_ = false;
};

struct EncodedImage {
  std::string_view encoded = {};
  int width = 0, height = 0;  // pixels
};

// Thread safety: none; one owner. Never stops a run: failures are logged once per trouble.
class MetricsWriter {
 public:
  // Goes on after `generation` (0: a new run): later generations, which the run will compute again,
  // are dropped from metrics.jsonl, a torn last line too, and the event file is written again.
  // `saved`, lines of generations that the journal holds, take the place of those in metrics.jsonl,
  // where a crash may have lost some. A file with a line that cannot be read is kept as *.corrupt.
  MetricsWriter(const RootedPath& run_folder, uint64_t incarnation, uint64_t generation,
                const std::vector<nlohmann::json>& saved = {});

  // One line; adds "time" when absent. Numbers that are not finite become null. What ScalarsOf
  // finds in it also goes to TensorBoard. REQUIRES: an object.
  void Write(nlohmann::json line);
  // An image for TensorBoard alone: the bytes of a GIF, JPEG or PNG; `step` in environment frames.
  void WriteImage(std::string_view tag, uint64_t step, const EncodedImage& image);

  uint64_t lost() const { return lines_.lost() + events_.lost(); }

 private:
  Status Prepare();

  const RootedPath folder_;
  const RootedPath events_path_;
  const uint64_t generation_;
  std::map<uint64_t, nlohmann::json> saved_;  // by generation
  bool prepared_ = false;                     // the files hold nothing later than generation_
  std::vector<nlohmann::json> early_;         // lines written before that
  PatientFile lines_, events_;
};

// All lines of metrics.jsonl; a torn last one is left out. kNoInput: missing; kBadData: a line that
// is no JSON object, with its number.
Result<std::vector<nlohmann::json>> ReadMetrics(const RootedPath& path);

// Names of the number of a line: the generations of an evolution, the updates of a learner.
inline constexpr const char* kStepNames[] = {"generation", "update"};
// The line's number; nothing when it has none.
std::optional<uint64_t> StepOf(const nlohmann::json& line);

// The bytes of a TensorBoard event file: a TFRecord per event, an Event of tensorflow/core/util/
// event.proto in each.
std::string EventFileHeader();
// One event with ScalarsOf(line); empty when there are none.
std::string EventOfLine(const nlohmann::json& line);
std::string EventOfImage(std::string_view tag, uint64_t step, const EncodedImage& image);
// One event with the keys of config.toml, as a text and as hyper-parameters; empty for what is no
// TOML.
std::string EventOfConfig(std::string_view config);

}  // namespace samara
