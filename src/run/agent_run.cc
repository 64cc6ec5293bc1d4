// A learning run from configuration to result: actors, inference and learner side by side, on one
// rank or on several that learn together (agent_ranks.h).
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "core/clock.h"
#include "core/cpu.h"
#include "core/log.h"
#include "core/rng.h"
#include "core/thread.h"
#include "rl/agent.h"
#include "rl/batch_size.h"
#include "rl/inference_server.h"
#include "run/agent_interval.h"
#include "run/agent_ranks.h"
#include "run/agent_state.h"
#include "run/build_info.h"
#include "run/busy.h"
#include "run/checkpoint.h"
#include "run/metrics.h"
#include "run/play_episodes.h"
#include "run/progress.h"
#include "run/retry.h"
#include "run/run_data.h"
#include "run/session.h"
#include "run/signals.h"
#include "run/statistics.h"
#include "run/text.h"
#include "run/train.h"

namespace samara {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

// between lines of metrics.jsonl: a fiftieth of the time so far, so that short runs have curves too
constexpr double kMetricsSecondsMin = 0.5, kMetricsSecondsMax = 5;
constexpr milliseconds kWait{20};           // until a stop is noticed
constexpr uint64_t kSkippedMax = 5;         // updates in a row before the last good state is taken
constexpr uint64_t kRollbacksMax = 3;       // then the run gives up
constexpr double kBatchSizeSeconds = 0.02;  // of each size that is tried
constexpr double kWatchdogSeconds = 60;     // without a turn of learner or inference: not healthy

json ToJson(const BatchChoice& choice) {
  json curve = json::array();
  for (const BatchPoint& point : choice.curve)
    curve.push_back({{"rows", point.rows}, {"milliseconds", point.milliseconds}});
  return {{"rows", choice.rows}, {"curve", curve}};
}

class AgentRun {
 public:
  AgentRun(ExperimentConfig config, const TrainOptions& options)
      : session_(std::move(config), options),
        config_(session_.config()),
        learn_(config_.learning.learn),
        ranks_(options.ranks),
        slots_(ranks_.PartOf(learn_.environments)) {}

  // A whole run. With several ranks, of rank 0.
  Result<json> Run() {
    const Status open = Open();
    if (!open.ok() || finished_) {
      const Status told = ranks_.FromRank0(kStart, "").status();  // the others have nothing to do
      RETURN_IF_ERROR(open);
      RETURN_IF_ERROR(told);
      Session::Show(*finished_);
      return *finished_;
    }
    Result<json> result = RunOpened();
    if (!result.ok() && result.status().code() != Code::kTryAgain) ranks_.Fail(result.status());
    return result;
  }
  // Of the others, from where rank 0 is.
  Status Follow(AgentStart start) {
    beginning_ = std::move(start);
    RETURN_IF_ERROR(SetTheStage());
    RETURN_IF_ERROR(Begin());
    RETURN_IF_ERROR(PlayRandomPolicy());
    RETURN_IF_ERROR(Learn());
    RETURN_IF_ERROR(ranks_.Compare("parameters", agent_->parameter_hash()));
    return Test().status();
  }
  static constexpr char kStart[] = "start";  // what AgentStart is called between ranks

 private:
  Status Open() {
    RETURN_IF_ERROR(session_.Open());
    slots_ = ranks_.PartOf(learn_.environments);  // of the configuration that was found
    RETURN_IF_ERROR(Check(config_.learning));
    RETURN_IF_ERROR(RecallResult());
    if (finished_) return Status::Ok();
    RETURN_IF_ERROR(ranks_.Check(learn_));
    RETURN_IF_ERROR(SetTheStage());
    return Restore();
  }
  Result<json> RunOpened() {
    RETURN_IF_ERROR(ranks_.FromRank0(kStart, beginning_.Encode()).status());
    RETURN_IF_ERROR(Begin());
    RETURN_IF_ERROR(PlayRandomPolicy());
    RETURN_IF_ERROR(Learn());
    return Finish();
  }
  // 1 folder and configuration
  Status RecallResult();
  // 2 environments, agent, store, server
  Status SetTheStage();
  Status OpenFolder();
  SlotShare Share() const {
    return {.first = slots_.first, .all = static_cast<uint32_t>(learn_.environments)};
  }
  uint32_t Shards() const {  // of this rank
    return static_cast<uint32_t>(ShardsEach(learn_, ranks_.size()));
  }
  AgentSetup Setup();
  Status ChooseBatchSize();
  InferenceConfig ServerConfig() const;
  // 3 the newest state that is whole, on every rank
  Status Restore();
  Status Begin();
  void RecallRandomPolicy();
  // 4 what a policy that knows nothing gets
  Status PlayRandomPolicy();
  // 5 updates, while actors and inference go on
  Status Learn();
  Status LearnLoop();
  Status Stopped(const std::string& done) const;
  Status Trouble() const;
  using UnrollKey = std::pair<uint64_t, uint32_t>;
  std::vector<UnrollKey> NextUnrolls() const;
  std::vector<UnrollStore::Loan> NextBatch();
  void NoteTurn();
  bool Healthy() const;
  void TakeUnrolls(std::vector<UnrollStore::Loan> taken);
  Status ShareHarvest();
  void Account(const Harvest& harvest);
  Status Update(std::vector<UnrollStore::Loan> batch);
  Status Rollback();
  void MaybeWriteMetrics(bool last);
  json MetricsLine();
  Status Save();
  Status SaveCheckpoint(bool exact);
  Status SaveExactCheckpoint();
  // 6 test, video, result
  Result<json> Finish();
  Result<std::vector<double>> Test();

  bool Deterministic() const { return learn_.mode == "deterministic"; }
  double Seconds() const { return seconds_before_ + SecondsSince(start_); }
  bool BudgetSpent() const {
    const bool frames = learn_.frames > 0 && static_cast<double>(state_.frames) >= learn_.frames;
    const bool updates =
        learn_.updates > 0 && state_.updates >= static_cast<uint64_t>(learn_.updates);
    return frames || updates || TimeSpent();
  }
  // With several ranks all decide by what they told each other last.
  bool TimeSpent() const {
    const double seconds = ranks_.alone() ? Seconds() : agreed_.seconds;
    return config_.run.minutes > 0 && seconds >= config_.run.minutes * 60;
  }
  bool Stops() const { return ranks_.alone() ? StopRequested() : agreed_.stop; }
  bool WantsToSave() {  // asked once: a request is taken
    return TakeCheckpointRequest() || (ranks_.owns_run() && schedule_->Due(Seconds()));
  }
  RankCounters OwnCounters() const;
  RankCounters AllCounters() const {
    RankCounters all = OwnCounters();
    return all += others_;
  }
  json Drops() const;
  ProgressState Snapshot() const;

  Session session_;
  const ExperimentConfig& config_;
  const LearnConfig& learn_;
  AgentRanks ranks_;
  AgentRanks::Part slots_;
  AgentStart beginning_;
  std::optional<json> finished_;  // the result of a run that was finished before
  // for the health check, which asks from other threads; they outlive the stage
  std::atomic<bool> learning_{false}, serving_{false};
  std::atomic<SteadyTime> learner_turned_{SteadyTime()}, inference_turned_{SteadyTime()};
  double inference_seconds_ = 0;  // of the learner's thread: the counters' sum at the last turn
  Stage stage_;
  std::unique_ptr<Agent> agent_;
  BatchChoice batch_;  // of inference; the curve is empty where nothing was measured
  std::unique_ptr<UnrollStore> store_;
  std::unique_ptr<InferenceServer> server_;
  std::unique_ptr<CheckpointWriter> checkpoints_;
  std::unique_ptr<MetricsWriter> metrics_;
  std::optional<CheckpointSchedule> schedule_;
  SteadyTime start_ = Now();
  double seconds_before_ = 0;
  std::vector<double> random_returns_;
  // complete unrolls on their way to the learner; deterministic: by round and slot
  std::map<UnrollKey, UnrollStore::Loan> waiting_;
  uint64_t arrivals_ = 0;
  Harvest harvest_;  // of the next update, so far
  struct {
    bool stop = false, save = false;
    double seconds = 0;
  } agreed_;             // of all ranks, at the last update
  RankCounters others_;  // the other ranks', then
  uint64_t skipped_in_a_row_ = 0;
  // at the last line of metrics
  InferenceServer::Counters server_before_;
  uint64_t stalls_before_ = 0;
  double environment_before_ = 0;
  mutable std::mutex mu_;
  // guarded by mu_ against the live view
  AgentState state_;
  AgentInterval now_;            // since the last line of metrics
  json shown_ = json::object();  // the last line of metrics
};

Status AgentRun::RecallResult() {
  if (!session_.resumed()) return Status::Ok();
  ASSIGN_OR_RETURN(std::optional<json> result, session_.ReadResult());
  if (!result) return Status::Ok();
  state_.frames = result->value("frames", uint64_t{0});
  state_.updates = result->value("updates", uint64_t{0});
  seconds_before_ = agreed_.seconds = result->value("seconds", 0.0);
  start_ = Now();
  if (BudgetSpent()) finished_ = std::move(result);
  state_ = {};
  seconds_before_ = agreed_.seconds = 0;
  return Status::Ok();
}

AgentSetup AgentRun::Setup() {
  AgentSetup setup;
  setup.config = config_.learning;
  setup.environment = stage_.environment;
  if (stage_.preset) setup.stack = stage_.preset->stack;
  setup.slots = setup.rows_max = slots_.size();
  setup.share = Share();
  setup.rank = static_cast<uint32_t>(ranks_.rank());
  setup.ranks = static_cast<uint32_t>(ranks_.size());
  setup.combiner = &ranks_;
  const auto per_round = static_cast<uint32_t>(learn_.environments / learn_.batch);
  if (Deterministic())
    setup.versions_kept = (static_cast<uint32_t>(learn_.lag) + 1) * per_round + 2;
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
    LogInfo("listens at " + stage_.listens + ": samara actor --connect " + stage_.listens);
  beginning_.incarnation = session_.folder().incarnation();
  return Status::Ok();
}

// What this run begins with, for all ranks.
Status AgentRun::Restore() {
  RunFolder& folder = session_.folder();
  const bool some = !ListCheckpoints(folder.checkpoints()).empty();
  ASSIGN_OR_RETURN(const std::optional<Checkpoint> checkpoint,
                   LatestGoodCheckpoint(folder.checkpoints(), OnBadCheckpoint::kSetAside));
  checkpoints_ = std::make_unique<CheckpointWriter>(folder.checkpoints());
  if (some && !checkpoint)
    return {Code::kBadData, folder.path().string() +
                                ": every checkpoint is damaged, they are kept as *.corrupt; the "
                                "same command again begins from the start"};
  beginning_.zero = MakeRankZero(session_.table(), stage_);
  if (checkpoint) {
    for (const auto& [name, bytes] : checkpoint->files) beginning_.checkpoint[name] = bytes;
    beginning_.checkpoint_path = checkpoint->path.string();
    ASSIGN_OR_RETURN(state_, AgentState::Decode(beginning_.checkpoint["state.bin"]));
    beginning_.seconds = seconds_before_ = agreed_.seconds = state_.seconds;
    const bool exact = beginning_.checkpoint.contains("server.bin");
    if (Deterministic() && !exact && !BudgetSpent())
      return {Code::kConfig,
              fmt::format("{}: holds the end of a deterministic run without its environments; "
                          "start a new run with the larger budget",
                          checkpoint->path.string())};
    LogInfo(fmt::format("resumed after update {}, {} frames; {}", state_.updates, state_.frames,
                        Deterministic() && exact
                            ? "episodes go on where they were, with the same bits"
                            : "episodes begin anew"));
  }
  metrics_ = std::make_unique<MetricsWriter>(folder.path(), folder.incarnation(), state_.updates);
  if (session_.resumed())
    metrics_->Write({{"event", "resumed"}, {"update", state_.updates}, {"time", WallTimeIso()}});
  RecallRandomPolicy();
  schedule_.emplace(config_.run.checkpoint_seconds,
                    RetryLimits{.give_up_seconds = config_.run.disk_retry_seconds});
  start_ = Now();
  schedule_->Saved(Seconds(), 0);
  return Status::Ok();
}

// From the same beginning on every rank.
Status AgentRun::Begin() {
  seconds_before_ = agreed_.seconds = beginning_.seconds;
  start_ = Now();
  const NamedFiles files = std::exchange(beginning_.checkpoint, {});
  if (files.empty()) return Status::Ok();
  ASSIGN_OR_RETURN(state_, AgentState::Decode(files.at("state.bin")));
  const auto server = files.find("server.bin");
  const bool exact = Deterministic() && server != files.end();
  const Status restored = agent_->Restore(files, exact ? Agent::Part::kSlots : Agent::Part::kRun);
  if (!restored.ok()) return restored.Annotate(beginning_.checkpoint_path);
  if (!exact) return Status::Ok();
  return server_->Restore(server->second).Annotate(beginning_.checkpoint_path);
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
  auto results = ranks_.Gather(PlayEpisodes(*stage_.fleet, random, play));
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

// ---- learning

// What a stopped run says: `done` is over, and how to go on.
Status AgentRun::Stopped(const std::string& done) const {
  return {Code::kTryAgain, done + (ranks_.owns_run() ? "; " + session_.HowToGoOn() : "")};
}

Status AgentRun::Learn() {
  if (BudgetSpent()) return Status::Ok();
  std::optional<Progress> progress;
  if (!session_.options().quiet) progress.emplace([this] { return Snapshot(); }, stderr);
  Status served;
  Status status;
  learner_turned_ = inference_turned_ = Now();
  learning_ = serving_ = true;
  {
    Thread inference("inference", [&] {
      served = server_->Serve();
      serving_ = false;
    });
    status = LearnLoop();
    server_->Stop();
  }
  learning_ = false;
  if (status.ok() && !served.ok() && !BudgetSpent()) status = served;
  if (!served.ok() && status.code() == Code::kUnavailable && ranks_.failure().ok()) status = served;
  waiting_.clear();
  if (status.code() == Code::kTryAgain)
    return Stopped(fmt::format("stopped after update {}, saved", state_.updates));
  return status;
}

Status AgentRun::LearnLoop() {
  while (!BudgetSpent()) {
    if (Stops()) {
      RETURN_IF_ERROR(Save());
      MaybeWriteMetrics(/*last=*/true);
      if (!BudgetSpent()) return {Code::kTryAgain, "stopped"};
      break;
    }
    const SteadyTime asked = Now();
    std::vector<UnrollStore::Loan> batch = NextBatch();
    {
      const std::lock_guard lock(mu_);
      now_.Waited(SecondsSince(asked));
    }
    if (batch.empty()) {
      RETURN_IF_ERROR(Trouble());
      continue;
    }
    RETURN_IF_ERROR(Update(std::move(batch)));
    MaybeWriteMetrics(/*last=*/false);
    if (ranks_.alone() ? WantsToSave() : agreed_.save) RETURN_IF_ERROR(Save());
  }
  MaybeWriteMetrics(/*last=*/true);
  return Status::Ok();
}

// Why no unrolls will come any more.
Status AgentRun::Trouble() const {
  RETURN_IF_ERROR(ranks_.failure());
  RETURN_IF_ERROR(stage_.fleet->status());
  return serving_ ? Status::Ok() : Status(Code::kUnavailable, "inference has ended");
}

// What the unrolls of all ranks bring, in the order of their slots.
void AgentRun::Account(const Harvest& harvest) {
  const std::lock_guard lock(mu_);
  state_.frames += harvest.frames, state_.steps += harvest.steps;
  state_.stale_unrolls += harvest.stale_unrolls;
  state_.episodes += harvest.episodes.size();
  for (const Harvest::Episode& episode : harvest.episodes) {
    state_.return_sum += episode.score;
    state_.last_returns.push_back(episode.score);
    if (state_.last_returns.size() > AgentState::kLastReturns) state_.last_returns.pop_front();
  }
  now_.Add(harvest);
}

void AgentRun::TakeUnrolls(std::vector<UnrollStore::Loan> taken) {
  const auto lag_max = static_cast<uint64_t>(learn_.lag_max);
  for (UnrollStore::Loan& unroll : taken) {
    if (Deterministic()) {
      const UnrollKey key(unroll->index, unroll->slot);
      waiting_.emplace(key, std::move(unroll));
      continue;
    }
    const uint64_t lag = agent_->version() - unroll->headers[0].policy_version;
    if (lag_max > 0 && lag > lag_max) {
      harvest_.Add(*unroll);
      ++harvest_.stale_unrolls;
      continue;
    }
    waiting_.emplace(UnrollKey(arrivals_++, unroll->slot), std::move(unroll));
  }
}

// Of the loop that learns; and of the one that serves, whose times grow as it turns.
void AgentRun::NoteTurn() {
  learner_turned_ = Now();
  const InferenceServer::Counters server = server_->counters();
  const double seconds = server.wait_seconds + server.infer_seconds + server.rest_seconds;
  if (std::exchange(inference_seconds_, seconds) != seconds) inference_turned_ = Now();
}

bool AgentRun::Healthy() const {
  if (StopRequested()) return false;
  return !learning_ || (SecondsSince(learner_turned_) < kWatchdogSeconds &&
                        SecondsSince(inference_turned_) < kWatchdogSeconds);
}

// Deterministic: of each shard its part of the batch, in the order of slots, round by round.
std::vector<AgentRun::UnrollKey> AgentRun::NextUnrolls() const {
  const auto per_round = static_cast<uint64_t>(learn_.environments / learn_.batch);
  const uint64_t round = state_.updates / per_round, part = state_.updates % per_round;
  const auto each = static_cast<uint32_t>(learn_.batch / learn_.shards);
  std::vector<UnrollKey> keys;
  for (uint32_t shard = 0; shard < Shards(); ++shard) {
    const uint32_t first = shard * slots_.size() / Shards() + static_cast<uint32_t>(part) * each;
    for (uint32_t i = 0; i < each; ++i) keys.emplace_back(round, first + i);
  }
  return keys;
}

// A whole batch, or nothing after a short wait.
std::vector<UnrollStore::Loan> AgentRun::NextBatch() {
  NoteTurn();
  const size_t size = ranks_.PartOf(learn_.batch).size();
  const std::vector<UnrollKey> wanted = Deterministic() ? NextUnrolls() : std::vector<UnrollKey>();
  const auto ready = [&] {
    return waiting_.size() >= size &&
           std::ranges::all_of(wanted, [&](const auto& key) { return waiting_.contains(key); });
  };
  if (!ready()) {
    store_->WaitFor(1, kWait);
    TakeUnrolls(store_->Take(size));
    if (!ready()) return {};
  }
  std::vector<UnrollStore::Loan> batch;
  for (size_t n = 0; n < size; ++n) {
    const auto next = Deterministic() ? waiting_.find(wanted[n]) : waiting_.begin();
    batch.push_back(std::move(next->second));
    waiting_.erase(next);
  }
  return batch;
}

// Tells the other ranks what this one brings and was asked for; all take the same from it.
Status AgentRun::ShareHarvest() {
  harvest_.counters = OwnCounters();
  harvest_.seconds = Seconds();
  if (!ranks_.alone()) harvest_.stop = StopRequested(), harvest_.save = WantsToSave();
  const SteadyTime told = Now();
  ASSIGN_OR_RETURN(const std::vector<Harvest> all, ranks_.Exchange(harvest_));
  harvest_ = {};
  agreed_ = {.stop = false, .save = false, .seconds = all[0].seconds};
  RankCounters others;
  for (size_t r = 0; r < all.size(); ++r) {
    Account(all[r]);
    agreed_.stop |= all[r].stop, agreed_.save |= all[r].save;
    if (r != static_cast<size_t>(ranks_.rank())) others += all[r].counters;
  }
  const std::lock_guard lock(mu_);
  others_ = others;
  now_.Waited(SecondsSince(told));  // for the slowest rank's unrolls
  return Status::Ok();
}

Status AgentRun::Update(std::vector<UnrollStore::Loan> batch) {
  for (const auto& unroll : batch) {
    harvest_.Add(*unroll);
    harvest_.AddLag(*unroll, agent_->version());
  }
  RETURN_IF_ERROR(ShareHarvest());
  ASSIGN_OR_RETURN(const UpdateReport report,
                   agent_->Update(batch, static_cast<double>(state_.frames)));
  batch.clear();
  {
    const std::lock_guard lock(mu_);
    ++state_.updates;
    state_.skipped_updates += report.applied ? 0 : 1;
    now_.Add(report);
  }
  skipped_in_a_row_ = report.applied ? 0 : skipped_in_a_row_ + 1;
  if (!report.applied && ranks_.owns_run())
    LogWarning(
        fmt::format("update {}: the loss or its gradient is not finite; skipped", state_.updates));
  return skipped_in_a_row_ >= kSkippedMax ? Rollback() : Status::Ok();
}

// The last good state, after several updates in a row came to nothing.
Status AgentRun::Rollback() {
  skipped_in_a_row_ = 0;
  NamedFiles files;
  if (ranks_.owns_run()) {
    ASSIGN_OR_RETURN(const std::optional<Checkpoint> good,
                     LatestGoodCheckpoint(session_.folder().checkpoints(), OnBadCheckpoint::kSkip));
    if (!good || state_.rollbacks >= kRollbacksMax)
      return {
          Code::kInternal,
          fmt::format("the loss stays not finite after {} updates and {} returns to a good state; "
                      "lower optimizer.learning_rate or set optimizer.clip_norm",
                      state_.updates, state_.rollbacks)};
    for (const auto& [name, bytes] : good->files) files[name] = bytes;
    LogWarning(
        fmt::format("{} updates in a row were not finite: parameters of update {} taken again",
                    kSkippedMax, good->info.step));
  }
  if (!ranks_.alone()) {
    ASSIGN_OR_RETURN(const std::string shared, ranks_.FromRank0("rollback", EncodeFiles(files)));
    ASSIGN_OR_RETURN(files, DecodeFiles(shared));
  }
  RETURN_IF_ERROR(agent_->Restore(files, Agent::Part::kWeights));
  const std::lock_guard lock(mu_);
  ++state_.rollbacks;
  return Status::Ok();
}

RankCounters AgentRun::OwnCounters() const {
  const InferenceServer::Counters server = server_->counters();
  const UnrollStore::Counters store = store_->counters();
  const FleetCounters fleet = stage_.fleet->counters();
  return {.queue_unrolls = store.waiting + waiting_.size(),
          .queue_free = store.free,
          .stalls = server.stalls,
          .live_slots = stage_.fleet->live(),
          .respawns = fleet.respawns,
          .dropped_unrolls = store.dropped,
          .partial_unrolls = store.dropped_partial,
          .lost_episodes = server.lost_episodes,
          .not_finite_rows = server.not_finite,
          .stale_events = fleet.stale_events};
}

json AgentRun::Drops() const {
  const RankCounters now = AllCounters();
  json drops = {{"stale_unrolls", state_.stale_unrolls},
                {"queue_full_unrolls", state_.dropped_unrolls + now.dropped_unrolls},
                {"partial_unrolls", state_.partial_unrolls + now.partial_unrolls},
                {"lost_episodes", state_.lost_episodes + now.lost_episodes},
                {"not_finite_rows", state_.not_finite_rows + now.not_finite_rows},
                {"stale_events", now.stale_events},
                {"skipped_updates", state_.skipped_updates}};
  for (const auto& [reason, count] : stage_.fleet->drops()) drops["remote_" + reason] = count;
  return drops;
}

json AgentRun::MetricsLine() {
  const InferenceServer::Counters server = server_->counters(), &before = server_before_;
  const RankCounters ranks = AllCounters();
  const double environment = stage_.fleet->counters().step_seconds;
  const double batches =
      static_cast<double>(std::max<uint64_t>(1, server.batches - before.batches));
  const std::vector<double> last(state_.last_returns.begin(), state_.last_returns.end());
  json line = {{"time", WallTimeIso()},
               {"seconds", Seconds()},
               {"update", state_.updates},
               {"frames", state_.frames},
               {"steps", state_.steps},
               {"episodes", state_.episodes},
               {"return_last100", last.empty() ? json() : json(Mean(last))},
               {"queue_unrolls", ranks.queue_unrolls},
               {"queue_free", ranks.queue_free},
               {"stalls", ranks.stalls - stalls_before_},
               {"rows_per_batch", static_cast<double>(server.rows - before.rows) / batches},
               {"live_slots", ranks.live_slots},
               {"environment_workers", stage_.workers},
               {"seconds_environment", environment - environment_before_},
               {"seconds_inference", server.infer_seconds - before.infer_seconds},
               {"seconds_server", server.rest_seconds - before.rest_seconds},
               {"seconds_server_wait", server.wait_seconds - before.wait_seconds},
               {"respawns", ranks.respawns},
               {"drops", Drops()}};
  line.update(now_.Line());
  server_before_ = server;
  stalls_before_ = ranks.stalls;
  environment_before_ = environment;
  return line;
}

void AgentRun::MaybeWriteMetrics(bool last) {
  const double due = std::clamp(Seconds() / 50, kMetricsSecondsMin, kMetricsSecondsMax);
  if (!last && now_.seconds() < due) return;
  if (now_.updates() == 0) return;
  const std::lock_guard lock(mu_);
  if (!ranks_.owns_run()) {
    now_ = AgentInterval();
    return;
  }
  json line = MetricsLine();
  metrics_->Write(line);
  shown_ = std::move(line);
  now_ = AgentInterval();
}

// Now or, in a deterministic run, after the next rounds.
Status AgentRun::Save() {
  return Deterministic() ? SaveExactCheckpoint() : SaveCheckpoint(/*exact=*/false);
}

Status AgentRun::SaveCheckpoint(bool exact) {
  const SteadyTime begin = Now();
  if (!agent_->finite()) {
    if (ranks_.owns_run()) LogError("the parameters are not finite: not saved");
    return Status::Ok();
  }
  if (!ranks_.owns_run() && !exact) return Status::Ok();
  NamedFiles contents = agent_->Save(exact);
  if (exact) {
    // rank 0 writes what all remember of their slots
    contents["server.bin"] = server_->Save();
    for (const char* name : {"slots.bin", "server.bin"}) {
      ASSIGN_OR_RETURN(const std::vector<std::string> parts, ranks_.Exchange(name, contents[name]));
      ASSIGN_OR_RETURN(contents[name], JoinSlotRecords(parts));
    }
    if (!ranks_.owns_run()) return Status::Ok();
  }
  AgentState state = state_;
  state.seconds = Seconds();
  const json drops = Drops();
  state.dropped_unrolls = drops["queue_full_unrolls"],
  state.partial_unrolls = drops["partial_unrolls"];
  state.lost_episodes = drops["lost_episodes"], state.not_finite_rows = drops["not_finite_rows"];
  contents["state.bin"] = state.Encode();
  std::vector<CheckpointFile> files;
  for (const auto& [name, bytes] : contents) files.push_back({name, bytes});
  CheckpointInfo info;
  info.step = state.updates;
  info.incarnation = session_.folder().incarnation();
  info.run_seconds = static_cast<uint64_t>(Seconds());
  info.build_id = ThisBuild().build_id;
  info.config_hash = session_.table().Hash();
  info.note = {{"parameter_hash", agent_->parameter_hash()}, {"exact", exact}};
  const auto saved = checkpoints_->Save(info, files);
  if (!saved.ok()) return schedule_->Failed(Seconds(), saved.status(), checkpoints_->last());
  schedule_->Saved(Seconds(), SecondsSince(begin));
  return Status::Ok();
}

// Between two rounds: every slot waits for its first action of the next one, every unroll is
// learnt. No rank has begun a round after the one whose policy is being learnt by now, and `lag`
// more. A budget that is spent on the way ends the run instead.
Status AgentRun::SaveExactCheckpoint() {
  const auto per_round = static_cast<uint64_t>(learn_.environments / learn_.batch);
  const uint64_t round = state_.updates / per_round + static_cast<uint64_t>(learn_.lag) + 1;
  server_->Park(round);
  while (!BudgetSpent() && (state_.updates < round * per_round || !server_->parked())) {
    if (std::vector<UnrollStore::Loan> batch = NextBatch(); !batch.empty())
      RETURN_IF_ERROR(Update(std::move(batch)));
    else
      RETURN_IF_ERROR(Trouble());
  }
  const Status saved = BudgetSpent() ? Status::Ok() : SaveCheckpoint(/*exact=*/true);
  server_->Resume();
  return saved;
}

// ---- the end

ProgressState AgentRun::Snapshot() const {
  const std::lock_guard lock(mu_);
  ProgressState s;
  s.title = fmt::format("{}, {}, {}, seed {}", config_.run.name, stage_.environment.id,
                        config_.learning.network.name, config_.run.seed);
  s.step_name = "update";
  s.generation = static_cast<int64_t>(state_.updates);
  s.generations = learn_.updates;
  s.frames = static_cast<int64_t>(state_.frames);
  s.frames_budget = static_cast<int64_t>(learn_.frames);
  s.seconds = Seconds();
  s.seconds_budget = config_.run.minutes * 60;
  // of the last line, so that what changes shows
  s.stages = BusyShares([&](const char* name) { return NumberOr(shown_, name); }, stage_.workers);
  s.stages_title = "busy: ";
  const std::vector<double> last(state_.last_returns.begin(), state_.last_returns.end());
  if (!last.empty()) s.numbers.push_back({"return", ScoreText(Mean(last)), /*plain=*/true});
  const auto show = [&](const char* name, const char* key, const char* format, bool plain = false) {
    const double value = NumberOr(shown_, key);
    if (!std::isnan(value))
      s.numbers.push_back({name, fmt::format(fmt::runtime(format), value), plain});
  };
  show("loss", "loss", "{:.3g}");
  show("entropy", "entropy", "{:.3g}", /*plain=*/true);
  show("explained variance", "explained_variance", "{:.2f}");
  show("lag", "lag_mean", "{:.1f}", /*plain=*/true);
  show("queue", "queue_unrolls", "{:.0f}");
  show("rows a batch", "rows_per_batch", fmt::format("{{:.1f}} of {}", batch_.rows).c_str());
  s.random = random_returns_.empty() ? ProgressState::kUnknown : Mean(random_returns_);
  s.respawns = static_cast<int64_t>(stage_.fleet->counters().respawns + others_.respawns);
  return s;
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
  if (play.episodes == 0) return returns;
  // the fleet's slots are in the middle of training: others play the test
  ASSIGN_OR_RETURN(stage_, MakeAgentStage(config_, slots_.size()));
  auto results = ranks_.Gather(PlayEpisodes(*stage_.fleet, *agent_, play));
  if (results.status().code() == Code::kTryAgain)
    return Stopped("stopped in the final test, every update is saved");
  RETURN_IF_ERROR(results.status());
  for (const EpisodeResult& r : *results) returns.push_back(r.fitness);
  return returns;
}

Result<json> AgentRun::Finish() {
  RETURN_IF_ERROR(SaveCheckpoint(/*exact=*/false));
  const std::string hash = agent_->parameter_hash();
  const json drops = Drops();
  const double seconds = Seconds();
  const uint64_t respawns = AllCounters().respawns;
  RETURN_IF_ERROR(ranks_.Compare("parameters", hash));
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
                 {"drops", drops}};
  return session_.Finish(std::move(result), *metrics_, LoadPolicy(session_.folder().path()),
                         "agent.mp4");
}

}  // namespace

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
