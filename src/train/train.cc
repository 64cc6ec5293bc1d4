#include "train/train.h"

#include "train/trainer.h"

namespace samara {

using nlohmann::json;

void TakeAlgorithm(ExperimentConfig& config, const TrainOptions& options) {
  if (!options.resume) return;
  // opening the folder finds what is wrong with it
  if (const auto toml = ReadFile(RootedPath::Root(*options.resume) / "config.toml"); toml.ok())
    config.ChooseAlgorithm(*toml);
}

Result<EffectiveConfig> CheckTrain(ExperimentConfig config, const TrainOptions& options) {
  Session session(std::move(config), options);
  RETURN_IF_ERROR(session.CheckNew());
  ExperimentConfig one = session.config();
  one.fleet.actors = one.fleet.slots = one.fleet.threads = 1;
  ASSIGN_OR_RETURN(json found, MakeTrainer(one, options)->CheckOnly());
  return EffectiveConfig{session.table().ToToml(), session.table().Hash(), std::move(found)};
}

Result<json> Train(ExperimentConfig config, const TrainOptions& options) {
  TakeAlgorithm(config, options);
  if (options.ranks != nullptr) RETURN_IF_ERROR(options.ranks->Exchange("run", "train").status());
  return MakeTrainer(std::move(config), options)->Run();
}

namespace {

// A run of rank 0's, on another rank.
Status FollowRun(RankGroup& ranks) {
  ASSIGN_OR_RETURN(const std::string received, RankSync(&ranks).FromMain(Trainer::kStart, ""));
  if (received.empty()) return Status::Ok();  // it came to nothing
  ASSIGN_OR_RETURN(StartState start, StartState::Decode(received));
  ASSIGN_OR_RETURN(ExperimentConfig config, start.run.Config(ranks.world()));
  TrainOptions options;
  options.quiet = true;
  options.ranks = &ranks;
  const Status ended = MakeTrainer(std::move(config), options)->Follow(std::move(start));
  return ended.code() == Code::kTryAgain ? Status::Ok()
                                         : ended;  // all were stopped: rank 0 says so
}

}  // namespace

Result<Code> FollowRuns(RankGroup& ranks) {
  for (;;) {
    ASSIGN_OR_RETURN(const auto received, ranks.Exchange("run", ""));
    if (received[0].size() == 1) return static_cast<Code>(received[0][0]);
    const Status followed = FollowRun(ranks);
    if (followed.ok()) continue;
    ranks.Fail(followed);
    return followed;
  }
}

void EndRuns(RankGroup& ranks, Code code) {
  (void)ranks.Exchange("run", std::string(1, static_cast<char>(code)));
}

}  // namespace samara
