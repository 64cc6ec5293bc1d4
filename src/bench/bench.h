// samara bench: named workloads, each compared with the machine's own limits and, where there are
// any, rivals that do the same work. The rivals' scripts lie in this folder. One table lists all
// (bench.cc).
#pragma once

#include <sys/types.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "config/experiment.h"
#include "core/clock.h"
#include "core/device.h"
#include "core/files.h"
#include "core/leave.h"
#include "core/status.h"

namespace samara::bench {

struct Options {
  double seconds = 2;              // of each measurement
  std::string game = "frostbite";  // of workloads on Atari
  std::string precision;           // vtrace: network.precision; empty: the quickest of the device
  // As run.device; empty: the CPU, and inference measures transports.
  std::string device;
  bool rivals = true;
  // inference: empty is all
  std::vector<std::string> transports;
  std::vector<uint32_t> payloads, streams, rows_per_message;
  std::string model = "null";  // inference: or a network of agents
  // collectives, replicate
  int ranks = 2;
  std::string mode = "fast";       // replicate: or exact
  int pairs = 5;                   // replicate: runs, each with one of the rival
  std::string task;                // time-to-score
  std::vector<std::string> rival;  // time-to-score: those to compare with; empty: all of the task
  int seeds = 3;                   // time-to-score
  Path runs;                       // time-to-score: folder of its runs, kept; empty: none is
  double patience = 0;             // time-to-score: the rival's seconds for one of samara's; 0: any
  std::string out;  // where a picture goes; empty: the workload's own name in this folder
  std::function<void(const std::string&)> say = [](const std::string&) {};  // a line of progress
};

struct Workload {
  const char* name;
  const char* about;
  // One flat object of results, with an array "all" where a workload has many combinations.
  Result<nlohmann::json> (*run)(const Options& options);
  const char* details = "";  // for its --help
};

std::span<const Workload> Workloads();
// kUsage names the nearest workload.
Result<const Workload*> FindWorkload(const std::string& name);

// Hashes of a fixed small workload: equal on every machine.
// {"noise", "kernels", "evolution", "signature"}; "signature" hashes the others.
nlohmann::json Signature();

// --- what the workloads share

// Runs `work(thread)` on `threads` threads until `seconds` have passed; each call returns how much
// it did. The sum per second.
double RatePerSecond(uint32_t threads, double seconds, const std::function<double(uint32_t)>& work);
// population and schedule on options.device, the schedules of one GPU and of this CPU's kernels.
Result<nlohmann::json> PopulationOnDevice(const Options& options);
Result<nlohmann::json> SchedulesOnDevice(const Options& options);
// The device that a name, as run.device has it, means here; the first of several.
Result<Device> DeviceNamed(const std::string& name);
// Number formats that it computes products in, the quickest first.
std::vector<Precision> PrecisionsOf(const Device& device);
// Returns the result of a workload: its headline (the first row where none is given), all rows
// under "all", and Machine(). REQUIRES: a row.
nlohmann::json Report(nlohmann::json rows, nlohmann::json headline = nullptr);
// {"cpu", "cores", "isa", "read_gb_per_second", "copy_gb_per_second", "fma_gflop_per_second"}: all
// cores, out of the caches; measured once a process.
const nlohmann::json& Machine();
// A folder of its own among the temporary ones, gone with the object.
class Scratch {
 public:
  static Result<std::unique_ptr<Scratch>> Make();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const Path& path() const { return path_; }

 private:
  explicit Scratch(Path path) : path_(std::move(path)), removed_(path_) {}
  const Path path_;
  const RemovedOnLeave removed_;
};
// Starts `command`, its standard output on `output`. It is killed with this process, however that
// ends, as long as the calling thread lives. 127: its program cannot be executed.
Result<pid_t> StartChild(std::vector<std::string> command, int output);
// Preset atari/deep-ga-desktop on another game.
Result<ExperimentConfig> DesktopConfig(const std::string& game);
// Share of all cores' time that other processes used since this object was made, 0 to 1: figures of
// a busy machine should say so. Children of ours count once they have ended.
class OthersShare {
 public:
  OthersShare();
  double get() const;
  // The share, from processor seconds of all processes and of ours in `seconds` on `cores`.
  static double Of(double busy, double own, double seconds, uint32_t cores);

 private:
  const SteadyTime start_;
  const double busy_, own_;
};
// Rows of floats one after the other, as the rivals read them.
Status WriteFloats(const Path& path, const std::vector<std::vector<float>>& rows);
// Greyscale frames of a random player under preset deepga-gpu, stacked as a network sees them:
// `count` consecutive inputs of 84 x 84 x 4 floats.
Result<std::vector<std::vector<float>>> RecordInputs(const std::string& game, size_t count);
// A Python script of this folder, run by .venv's interpreter; its last line is one JSON object.
Result<nlohmann::json> RunRival(const std::string& script,
                                const std::vector<std::string>& arguments);
// The same for any program: its path and its arguments.
Result<nlohmann::json> RunForJson(std::vector<std::string> command);
// A file of this folder in the source tree: next to build/, where this program lies, or else next
// to .venv, which may be a link to elsewhere.
Result<Path> FindScript(const Path& venv, const std::string& script);

}  // namespace samara::bench
