// Atari environments as a Python program steps them: samara.make_vec next to ALE's own vector
// environment and EnvPool, by one script (env_rivals.py), alternately.
#include "bench/environment_rows.h"

namespace samara::bench {

using nlohmann::json;

namespace {

constexpr int kVectorRounds = 2;
constexpr const char* kVectorRivals[] = {"ale_vector", "envpool"};

json VectorHeadline(const Options& options, const EnvironmentRows& rows) {
  json headline = {{"game", options.game},
                   {"samara", rows.BestOf("samara")},
                   {"ratio", rows.Ratio(kVectorRivals)}};
  for (const char* who : kVectorRivals) headline[who] = rows.BestOf(who);
  return headline;
}

}  // namespace

Result<json> Vectors(const Options& options) {
  EnvironmentRows rows;
  for (int round = 0; round < kVectorRounds; ++round) {
    RETURN_IF_ERROR(OfferRival("samara", options, rows));
    for (const std::string who : kVectorRivals)
      if (options.rivals) RETURN_IF_ERROR(OfferRival(who, options, rows));
  }
  for (const json& row : rows.all()) {
    options.say(EnvironmentRows::Line(row));
    if (row["who"] == "envpool" && row.contains("reason"))
      options.say("envpool: `make envpool` installs it");
  }
  return Report(rows.all(), VectorHeadline(options, rows));
}

}  // namespace samara::bench
