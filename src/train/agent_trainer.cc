#include "run/agent_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/cpu.h"
#include "core/log.h"
#include "core/rng.h"
#include "storage/build_info.h"
#include "report/run_data.h"
#include "storage/quarantine.h"
#include "core/statistics.h"

namespace samara {

using nlohmann::json;

namespace {

constexpr double kBatchSizeSeconds = 0.02;  // of each size that is tried

json ToJson(const BatchChoice& choice) {
  json curve = json::array();
  for (const BatchPoint& point : choice.curve)
    curve.push_back({{"rows", point.rows}, {"milliseconds", point.milliseconds}});
  return {{"rows", choice.rows}, {"curve", curve}};
}

}  // namespace

Status AgentRun::RecallResult() {
  if (!session_.resumed()) return Status::Ok();
  ASSIGN_OR_RETURN(std::optional<json> result, session_.ReadResult());
  if (!result) return Status::Ok();
  if (const Status lost = CheckAgentOf(*result); !lost.ok())
    return SetAside(session_.folder().path() / "result.json", lost);
  state_.frames = result->value("frames", uint64_t{0});
  state_.updates = result->value("updates", uint64_t{0});
  seconds_before_ = agreed_.seconds = result->value("seconds", 0.0);
  start_ = Now();
  if (BudgetSpent()) finished_ = std::move(result);
  state_ = {};
  seconds_before_ = agreed_.seconds = 0;
  return Status::Ok();
}

// kBadData when the agent that a result names is not there: its checkpoint is damaged, or an
// earlier version wrote the result although the disk had refused the checkpoint.
Status AgentRun::CheckAgentOf(const json& result) const {
  const RunFolder& folder = session_.folder();
  ASSIGN_OR_RETURN(const auto checkpoint,
                   LatestGoodCheckpoint(folder.checkpoints(), OnBadCheckpoint::kSkip));
  const auto updates = result.value("updates", uint64_t{0});
  const uint64_t saved = checkpoint ? checkpoint->info.step : 0;
  if (saved > updates) return Status::Ok();  // the run went on
  const bool same = checkpoint && saved == updates &&
                    ParameterHash(checkpoint->info, checkpoint->path).ok() &&
                    *ParameterHash(checkpoint->info, checkpoint->path) ==
                        result.value("parameter_hash", std::string());
  if (same) return Status::Ok();
  return {
      Code::kBadData,
      fmt::format("{}: names the agent of update {}, which is not saved; going on from update {}",
                  (folder.path() / "result.json").string(), updates, saved)};
}

AgentSetup AgentRun::Setup() {
  AgentSetup setup;
  setup.config = config_.learning;
  setup.environment = stage_.environment;
  setup.stack = stage_.stack;
  setup.slots = setup.rows_max = slots_.size();
  setup.share = Share();
  setup.rank = static_cast<uint32_t>(ranks_.rank());
  setup.ranks = static_cast<uint32_t>(ranks_.size());
  setup.combiner = &ranks_;
  if (Deterministic()) {
    setup.versions_every = static_cast<uint32_t>(PerRound());  // rounds begin with these
    setup.versions_kept = static_cast<uint32_t>(learn_.lag) + 3;
  }
  setup.seed = static_cast<uint64_t>(config_.run.seed);
  return setup;
}

// As configured, or measured on the network that will play. Deterministic runs have batches of a
// fixed shape: nothing is measured there, and nothing of the measurement is in what they compute.
Status AgentRun::ChooseBatchSize() {
  const int64_t wanted = config_.learning.inference.batch;
  batch_.rows = wanted > 0 ? std::min(static_cast<uint32_t>(wanted), slots_.size()) : slots_.size();
  if (Deterministic() || wanted > 0) return Status::Ok();
  ASSIGN_OR_RETURN(batch_, MeasureBatches(*agent_, batch_.rows, kBatchSizeSeconds));
  return Status::Ok();
}

InferenceConfig AgentRun::ServerConfig() const {
  const InferenceKeys& keys = config_.learning.inference;
  InferenceConfig server;
  server.batch_max = batch_.rows;
  server.wait = keys.wait_ms / 1000;
  server.low_mark = keys.low_mark;
  server.rewards = ParseRewardMode(learn_.rewards).ValueOrThrow();
  if (stage_.preset) server.life_loss = stage_.preset->life_loss;
  // what a free run draws must not repeat after a resume, which has forgotten how far it was
  server.seed = DeriveKey(static_cast<uint64_t>(config_.run.seed), Purpose::kPolicyAction,
                          Deterministic() ? 0 : beginning_.incarnation);
  server.share = Share();
  server.ordered = Deterministic();
  server.lag = static_cast<uint64_t>(learn_.lag);
  server.unroll_length = static_cast<uint32_t>(learn_.unroll);
  server.unrolls_per_update = ranks_.PartOf(learn_.batch).size();
  if (Deterministic()) server.shards = Shards();
  return server;
}

Status AgentRun::CheckOnly() {
  RETURN_IF_ERROR(CheckConfig());
  ASSIGN_OR_RETURN(stage_, MakeAgentStage(config_, /*slots=*/1));
  return MakeVtraceAgent(Setup()).status();
}

Status AgentRun::SetTheStage() {
  if (!ranks_.alone() && !session_.options().remote.address.empty())
    return {Code::kConfig,
            "--listen with several ranks: expected one rank, to which all remote "
            "actors connect"};
  RemoteFleetOptions remote = session_.options().remote;
  // a resumed run's leases follow its predecessor's
  remote.healthy = [this] { return Healthy(); };
  remote.incarnation = (session_.resumed() ? session_.folder().incarnation() : 1) << 32;
  ASSIGN_OR_RETURN(stage_, MakeAgentStage(config_, slots_.size(), /*render=*/false, remote));
  ASSIGN_OR_RETURN(agent_, MakeVtraceAgent(Setup()));
  RETURN_IF_ERROR(ChooseBatchSize());
  if (ranks_.owns_run())
    RETURN_IF_ERROR(OpenFolder());
  else
    RETURN_IF_ERROR(beginning_.zero.Check(stage_, ranks_.rank()));

  const ModelShape& shape = agent_->shape();
  UnrollConfig unrolls;
  const uint32_t slots = unrolls.slots = slots_.size();
  unrolls.length = static_cast<uint32_t>(learn_.unroll);
  const uint32_t batch = ranks_.PartOf(learn_.batch).size();
  const uint32_t queue = learn_.queue > 0 ? ranks_.PartOf(learn_.queue).size() : batch;
  // being filled, waiting, and with the learner
  unrolls.buffers = Deterministic() ? slots * (static_cast<uint32_t>(learn_.lag) + 3)
                                    : slots + std::max(queue, batch) + batch;
  unrolls.drop_oldest = learn_.drop_oldest && !Deterministic();
  store_ = std::make_unique<UnrollStore>(EntryShape{.observation_bytes = shape.observation_bytes,
                                                    .action_values = shape.action_values,
                                                    .behaviour = shape.behaviour,
                                                    .values = shape.values,
                                                    .state = shape.state,
                                                    .history_bytes = shape.history_bytes},
                                         unrolls);
  ServerHooks hooks;
  hooks.next = [this](uint32_t slot, uint64_t number) -> std::optional<EpisodeSpec> {
    const uint64_t incarnation = Deterministic() ? 0 : beginning_.incarnation;
    return stage_.episodes.Make(
        DeriveKey(static_cast<uint64_t>(config_.run.seed), Purpose::kEpisodeTrain, incarnation,
                  slots_.first + slot, number),
        /*test=*/false);
  };
  server_ = std::make_unique<InferenceServer>(*stage_.fleet, *agent_, store_.get(), ServerConfig(),
                                              std::move(hooks));
  return Status::Ok();
}

Status AgentRun::OpenFolder() {
  const std::string network =
      config_.learning.network.name + (config_.learning.network.lstm > 0
                                           ? fmt::format("+lstm-{}", config_.learning.network.lstm)
                                           : "");
  RETURN_IF_ERROR(session_.Create({{"name", network}, {"parameters", agent_->parameter_count()}},
                                  stage_, {{"inference_batch", ToJson(batch_)}}));
  RETURN_IF_ERROR(session_.CheckEnvironment(stage_));
  session_.LogHeader(network, agent_->parameter_count(), stage_);
  if (!batch_.curve.empty()) LogInfo("inference: batches of at most " + ToText(batch_));
  if (!stage_.listens.empty())
    LogInfo("listens at " + stage_.listens + ": " + stage_.actor_command);
  beginning_.incarnation = session_.folder().incarnation();
  return Status::Ok();
}

// Of a resumed run, from its metrics.
void AgentRun::RecallRandomPolicy() {
  const auto episodes = static_cast<size_t>(config_.run.random_episodes);
  if (session_.resumed()) random_returns_ = RandomReturns(session_.folder().metrics());
  beginning_.random_policy = random_returns_.size() != episodes;
  if (beginning_.random_policy) random_returns_.clear();
}

Status AgentRun::PlayRandomPolicy() {
  const auto episodes = static_cast<size_t>(config_.run.random_episodes);
  if (!beginning_.random_policy) return Status::Ok();
  RandomModel random(stage_.environment);
  const auto seed = static_cast<uint64_t>(config_.run.seed);
  PlayOptions play;
  play.episodes = episodes;
  play.spec = [&](size_t e) {
    return stage_.episodes.Make(DeriveKey(seed, Purpose::kRandomPolicy, 0, 0, e), /*test=*/true);
  };
  play.seed = DeriveKey(seed, Purpose::kRandomPolicy);
  play.share = Share();
  play.stop = StopRequested;
  // remote actors come when they like, and these episodes are few: this host plays them
  std::optional<Stage> here;
  if (!stage_.listens.empty()) {
    stop_.reset();  // actors may take long to start
    ASSIGN_OR_RETURN(here, MakeAgentStage(config_, slots_.size()));
    stop_.emplace();
  }
  auto results = ranks_.Gather(PlayEpisodes(here ? *here->fleet : *stage_.fleet, random, play));
  if (results.status().code() == Code::kTryAgain)
    return Stopped("stopped while playing the random policy");
  RETURN_IF_ERROR(results.status());
  for (const EpisodeResult& r : *results) random_returns_.push_back(r.fitness);
  if (ranks_.owns_run())
    metrics_->Write({{"event", "random_policy"},
                     {"returns", random_returns_},
                     {"mean", Mean(random_returns_)},
                     {"median", Median(random_returns_)}});
  return Status::Ok();
}

Result<std::vector<double>> AgentRun::Test() {
  const auto seed = static_cast<uint64_t>(config_.run.seed);
  PlayOptions play;
  play.episodes = static_cast<size_t>(learn_.test_episodes);
  play.spec = [&](size_t e) {
    return stage_.episodes.Make(DeriveKey(seed, Purpose::kEpisodeTest, 0, 0, e), /*test=*/true);
  };
  play.seed = DeriveKey(seed, Purpose::kEpisodeTest);
  play.greedy = learn_.test_greedy;
  if (stage_.preset) play.life_loss = stage_.preset->life_loss;
  play.share = Share();
  if (Deterministic()) play.shards = Shards();
  play.stop = StopRequested;
  std::vector<double> returns;
  stage_.fleet->Goodbye();
  server_.reset();  // it belongs to the fleet that is replaced now
  // every update is saved: from here on a stop may leave at once
  RETURN_IF_ERROR(EndGraceful("stopped before the final test, every update is saved"));
  if (play.episodes == 0) return returns;
  // the fleet's slots are in the middle of training: others play the test
  ASSIGN_OR_RETURN(stage_, MakeAgentStage(config_, slots_.size()));
  stop_.emplace();
  auto results = ranks_.Gather(PlayEpisodes(*stage_.fleet, *agent_, play));
  if (results.status().code() == Code::kTryAgain)
    return Stopped("stopped in the final test, every update is saved");
  RETURN_IF_ERROR(results.status());
  RETURN_IF_ERROR(EndGraceful("stopped after the final test, every update is saved"));
  for (const EpisodeResult& r : *results) returns.push_back(r.fitness);
  return returns;
}

Result<json> AgentRun::Finish() {
  RETURN_IF_ERROR(SaveCheckpoint(/*exact=*/false, OnRefusal::kFail));
  const std::string hash = agent_->parameter_hash();
  const json drops = Drops();
  const double seconds = Seconds();
  const uint64_t respawns = AllCounters().respawns;
  ASSIGN_OR_RETURN(const std::vector<double> test, Test());
  const std::vector<double> last(state_.last_returns.begin(), state_.last_returns.end());
  const double cores = Cores();
  const auto frames = static_cast<double>(state_.frames);
  const auto mean = [](const std::vector<double>& x) { return x.empty() ? json() : json(Mean(x)); };
  json result = {{"run", session_.folder().path().string()},
                 {"frames", state_.frames},
                 {"updates", state_.updates},
                 {"episodes", state_.episodes},
                 {"parameter_hash", hash},
                 {"return_mean", state_.episodes > 0 ? json(state_.return_sum /
                                                            static_cast<double>(state_.episodes))
                                                     : json()},
                 {"return_last100", mean(last)},
                 {"test_returns", test},
                 {"test_mean", mean(test)},
                 {"random_returns", random_returns_},
                 {"random_mean", mean(random_returns_)},
                 {"frames_per_second", frames / seconds},
                 {"seconds", seconds},
                 {"cores", cores},
                 {"ranks", ranks_.size()},
                 {"inference_batch", batch_.rows},
                 {"respawns", respawns},
                 {"rollbacks", state_.rollbacks},
                 {"drops", drops}};
  return session_.Finish(std::move(result), *metrics_,
                         LoadPolicy(session_.folder().path().path(), {.trust = true}), "agent.mp4");
}

Status CheckAgent(const ExperimentConfig& config, const TrainOptions& options) {
  AgentRun run(config, options);
  return run.CheckOnly();
}

Result<json> TrainAgent(ExperimentConfig config, const TrainOptions& options) {
  AgentRun run(std::move(config), options);
  return run.Run();
}

Status FollowAgent(RankGroup& group) {
  const auto follow = [&]() -> Status {
    ASSIGN_OR_RETURN(const std::string said, AgentRanks(&group).FromRank0(AgentRun::kStart, ""));
    if (said.empty()) return Status::Ok();
    ASSIGN_OR_RETURN(AgentStart start, AgentStart::Decode(said));
    ASSIGN_OR_RETURN(ExperimentConfig config, start.zero.Config(group.world()));
    TrainOptions options;
    options.quiet = true;
    options.ranks = &group;
    AgentRun run(std::move(config), options);
    return run.Follow(std::move(start));
  };
  const Status ended = follow();
  return ended.code() == Code::kTryAgain ? Status::Ok()
                                         : ended;  // all were stopped: rank 0 says so
}

}  // namespace samara
