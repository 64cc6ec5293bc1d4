// Reads the data of a report from a run folder: config.toml, run.json, metrics.jsonl
// (doc/metrics.md).
//
// Tolerant of what a living or old run may lack: any file but one, any field, a torn last line.
#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/files.h"
#include "core/status.h"

namespace samara {

// Names for the same things in evolutions and in learning runs.
struct RunKind {
  const char* step;         // key that numbers the lines: "generation", "update"; plural + "s"
  const char* steps_total;  // their number in the event "finished"
  const char* agent;        // who is tested: "elite", "agent"
  // returns and mean of its test, in the event "finished" or else in the latest line that has them
  const char *test_returns[2], *test_means[2];
  // column that shows how far a run has come, its name, and that next to another kind's
  const char *curve, *curve_name, *curve_short;
  const char* frames;  // name of an axis of frames
};
extern const RunKind kEvolutionKind, kLearningKind;

struct RunData {
  const RunKind* kind = &kEvolutionKind;
  RootedPath folder;
  std::string name;    // of the folder
  std::string preset;  // "atari/deep-ga-desktop"; empty when nothing says it
  std::string game;    // "frostbite", "CartPole-v1", ...; empty when nothing says it
  std::string seed;
  std::vector<std::pair<std::string, std::string>> config;  // "ga.population" -> "1000", in order
  nlohmann::json identity = nlohmann::json::object();       // run.json
  std::vector<nlohmann::json> lines;                        // by step, ascending
  nlohmann::json random_policy = nlohmann::json::object();  // the event, or empty
  nlohmann::json finished = nlohmann::json::object();       // the last such event, or empty
  int resumes = 0;
  std::set<std::string> changes;   // keys of the configuration that resumes changed
  std::vector<RootedPath> videos;  // videos/*.mp4, by name

  std::string Config(const std::string& key) const;  // empty when absent
  // One value per line; NaN where it is missing or not a number.
  std::vector<double> Column(const char* name) const;
  // The last number the column holds; NaN when there is none.
  double Last(const char* name) const;

  // The sum over all lines; NaN when none has a number.
  double Total(const char* name) const;
  // A number of the run's end, or the last line's while that is not there yet.
  double Final(const char* name) const;
  double Steps() const;  // so far

  // The agent's returns in its latest test, and what a random policy got; empty when not recorded.
  std::vector<double> TestReturns() const;
  std::vector<double> RandomReturns() const;
  // Mean of those returns, or the recorded mean where only that is there; NaN otherwise.
  double TestMean() const;
  double RandomMean() const;
};

// kNoInput: no such folder, or a folder that holds no run. kBadData: a run without config.toml, a
// file that cannot be understood, with the line, or a link in the place of one.
Result<RunData> LoadRun(const Path& folder);

// A member as a number; NaN when it is missing or something else.
double NumberOr(const nlohmann::json& object, const char* key,
                double otherwise = std::numeric_limits<double>::quiet_NaN());
std::string TextOr(const nlohmann::json& object, const char* key, const std::string& otherwise);
// The numbers of an array member; empty when it is missing or something else.
std::vector<double> NumbersOf(const nlohmann::json& object, const char* key);
// Returns of the random policy in a run's metrics; empty when it has not played.
std::vector<double> RandomReturns(const RootedPath& metrics);
// Scores in a run's metrics, as the live view calls them: the best return of each generation, the
// mean of the last training episodes.
std::vector<double> Scores(const RootedPath& metrics);

}  // namespace samara
