#include "train/agent_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/cpu.h"
#include "core/format.h"
#include "core/log.h"
#include "core/resources.h"
#include "core/rng.h"
#include "core/statistics.h"
#include "fleet/named_environment.h"
#include "play/network_module.h"
#include "report/run_data.h"
#include "rl/algorithms/registry.h"
#include "rl/learner/replay_keys.h"
#include "rl/learner/shards.h"
#include "storage/build_info.h"
#include "storage/quarantine.h"

namespace samara {

using nlohmann::json;

namespace {

constexpr int64_t kStopEpisodes = 20;       // of an evaluation that may end a run
constexpr double kBatchSizeSeconds = 0.02;  // of each size that is tried

json ToJson(const BatchChoice& choice) {
  json curve = json::array();
  for (const BatchPoint& point : choice.curve)
    curve.push_back({{"rows", point.rows}, {"milliseconds", point.milliseconds}});
  return {{"rows", choice.rows}, {"curve", curve}};
}

// kConfig when `ranks` cannot share what `learn` configures.
Status CheckShares(const LearnConfig& learn, int ranks) {
  const int64_t shards = ShardsEach(learn, ranks) * ranks;
  if (learn.deterministic() && learn.shards % ranks != 0)
    return {Code::kConfig,
            fmt::format("learn.shards={} on {} ranks: ranks share whole shards in deterministic "
                        "mode; expected a multiple of {} that divides learn.batch={}, or fewer "
                        "ranks",
                        learn.shards, ranks, ranks, learn.batch)};
  if (learn.environments < ranks)
    return {Code::kConfig, fmt::format("learn.environments={} on {} ranks: expected one for each "
                                       "rank at least",
                                       learn.environments, ranks)};
  if (learn.batch < shards)
    return {Code::kConfig,
            fmt::format("learn.batch={} on {} ranks with learn.shards={}: expected at least {}",
                        learn.batch, ranks, learn.shards, shards)};
  return Status::Ok();
}

}  // namespace

Result<bool> AgentTrainer::ResultStands(const json& result) {
  if (const Status lost = CheckAgentOf(result); !lost.ok()) {
    RETURN_IF_ERROR(Quarantine(session_.folder().path() / "result.json", lost));
    return false;
  }
  if (!HasTests(result)) return false;
  const std::optional<double> stop_at = config_.run.stop_at;
  const json evaluated = result.value("evaluation_mean", json());
  if (stop_at && evaluated.is_number() && evaluated.get<double>() >= *stop_at) return true;
  const auto reached = [](double value, double budget) { return budget > 0 && value >= budget; };
  return reached(result.value("frames", 0.0), learn_.frames) ||
         reached(result.value("updates", 0.0), static_cast<double>(learn_.updates)) ||
         reached(result.value("seconds", 0.0), config_.run.minutes * 60);
}

// Whether the tests of a result are those that are asked for: others are played, nothing else.
bool AgentTrainer::HasTests(const json& result) const {
  const bool changes = std::ranges::any_of(
      session_.changes(), [](const auto& change) { return change.starts_with("learn.test_"); });
  const auto tested = result.find("test_returns");
  const bool as_many =
      tested == result.end() || static_cast<int64_t>(tested->size()) == learn_.test_episodes;
  return !changes && as_many &&
         result.value("test_greedy", learn_.test_greedy) == learn_.test_greedy;
}

// kBadData when the agent that a result names is not there: its checkpoint is damaged, or an
// earlier version wrote the result although the disk had refused the checkpoint.
Status AgentTrainer::CheckAgentOf(const json& result) const {
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

AgentSetup AgentTrainer::Setup() {
  AgentSetup setup;
  setup.config = config_.learning;
  setup.environment = setup_.environment;
  setup.stack = setup_.stack;
  setup.slots = setup.rows_max = slots_.size();
  setup.share = Share();
  setup.rank = static_cast<uint32_t>(sync_.rank());
  setup.ranks = static_cast<uint32_t>(sync_.ranks());
  setup.combiner = &sync_;
  if (learn_.deterministic()) {
    setup.versions_every = static_cast<uint32_t>(PerRound());  // rounds begin with these
    setup.versions_kept = static_cast<uint32_t>(learn_.lag) + 3;
  }
  setup.seed = static_cast<uint64_t>(config_.run.seed);
  setup.learns_on = learns_on_, setup.infers_on = infers_on_;
  return setup;
}

// As configured, or measured on the network that will play. Deterministic runs have batches of a
// fixed shape: nothing is measured there, and nothing of the measurement is in what they compute.
Status AgentTrainer::ChooseBatchSize() {
  const int64_t wanted = config_.learning.inference.batch;
  batch_.rows = wanted > 0 ? std::min(static_cast<uint32_t>(wanted), slots_.size()) : slots_.size();
  if (learn_.deterministic() || wanted > 0) return Status::Ok();
  ASSIGN_OR_RETURN(batch_, MeasureBatches(*agent_, batch_.rows, kBatchSizeSeconds));
  return Status::Ok();
}

InferenceConfig AgentTrainer::ServerConfig() const {
  const InferenceKeys& keys = config_.learning.inference;
  InferenceConfig server;
  server.batch_max = batch_.rows;
  server.wait = keys.wait_ms / 1000;
  server.low_mark = keys.low_mark;
  server.rewards = learn_.rewards;
  if (setup_.preset) server.life_loss = setup_.preset->life_loss;
  // what a free run draws must not repeat after a resume, which has forgotten how far it was
  server.seed = DeriveKey(static_cast<uint64_t>(config_.run.seed), Purpose::kPolicyAction,
                          learn_.deterministic() ? 0 : start_.incarnation);
  server.share = Share();
  server.ordered = learn_.deterministic();
  server.lag = static_cast<uint64_t>(learn_.lag);
  server.unroll_length = static_cast<uint32_t>(learn_.unroll);
  server.unrolls_per_update = sync_.PartOf(learn_.batch).size();
  if (learn_.deterministic()) server.shards = Shards();
  return server;
}

Status AgentTrainer::CheckConfig() const {
  if (config_.run.stop_at && learn_.evaluate_episodes < kStopEpisodes)
    return {Code::kConfig,
            fmt::format("learn.evaluate_episodes={}: fewer say too little to end a run by "
                        "run.stop_at={}; expected {} at least",
                        learn_.evaluate_episodes, *config_.run.stop_at, kStopEpisodes)};
  RETURN_IF_ERROR(Check(config_.learning));
  RETURN_IF_ERROR(CheckShares(learn_, ranks()));
  LearningConfig shared = config_.learning;  // as the ranks cut its batches
  shared.learn.shards = ShardsEach(learn_, ranks()) * ranks();
  return shared.own->Check(shared);
}

// Warns where episodes cannot be repeated one by one, as deterministic mode does after a resume.
void AgentTrainer::WarnOfEpisodes() const {
  const bool repeats = !setup_.preset || setup_.preset->life_loss != LifeLoss::kEndsEpisode;
  if (repeats || !learn_.deterministic() || !sync_.is_main()) return;
  LogWarning(
      fmt::format("env.preset={}: an episode after a lost life goes on with the game of the "
                  "one before: the run goes on with other bits after a stop or a lost actor",
                  config_.env.preset));
}

// Warns where the budget ends before the replay has what learning starts with.
void AgentTrainer::WarnOfBudget() const {
  const auto* own = dynamic_cast<const ReplayAlgorithmConfig*>(&*config_.learning.own);
  if (own == nullptr || !sync_.is_main()) return;
  const auto frames =
      static_cast<double>(learn_.batch * learn_.unroll * setup_.environment.frames_per_step);
  double updates = learn_.frames > 0 ? std::ceil(learn_.frames / frames) : HUGE_VAL;
  if (learn_.updates > 0) updates = std::min(updates, static_cast<double>(learn_.updates));
  if (updates * static_cast<double>(learn_.batch * learn_.unroll) > own->replay.start) return;
  LogWarning(
      fmt::format("replay.start={:.0f}: the budget ends before so many steps are played: nothing "
                  "is learned; expected fewer, or larger learn.frames or learn.updates",
                  own->replay.start));
}

// Each rank has one of several GPUs; on one rank the first learns and the last infers.
Status AgentTrainer::ChooseDevices() {
  ASSIGN_OR_RETURN(DeviceChoice choice, ParseDevice(config_.run.device));
  using Kind = DeviceChoice::Kind;
  // an agent of its own computes on the CPU, and small networks are quicker there
  const bool native = FindLearningAlgorithm(config_.run.algorithm)->agent != nullptr ||
                      IsNativeEnvironment(config_.env.id);
  if (native && choice.kind == Kind::kAuto) choice.kind = Kind::kCpu;
  const GpuList found = choice.kind == Kind::kCpu ? GpuList() : FindGpus();
  ASSIGN_OR_RETURN(const std::vector<Device> devices,
                   samara::ChooseDevices(choice, found, AgentsUseGpus(), sync_.local_rank()));
  if (const auto most = ranks() == 1 ? size_t{2} : static_cast<size_t>(ranks());
      devices.size() > most)
    return {Code::kConfig,
            fmt::format("run.device={}: {} GPUs; expected at most {}: one for each rank (samara "
                        "launch), or on one rank one that learns and one that infers",
                        config_.run.device, devices.size(), most)};
  const size_t mine = static_cast<size_t>(sync_.rank()) % devices.size();
  learns_on_ = sync_.alone() ? devices.front() : devices[mine];
  infers_on_ = sync_.alone() ? devices.back() : devices[mine];
  device_name_ = NameOf(learns_on_, found);
  if (!(learns_on_ == infers_on_)) device_name_ += ", " + NameOf(infers_on_, found);
  // other last bits, on the same kind of device too
  if (config_.learning.network.precision == Precision::kFastest)
    device_name_ += fmt::format(" in {}", NameOf<Precision>(kPrecisionNames, PrecisionOf(Setup())));
  return Status::Ok();
}

namespace {

// Refuses a replay that the machine has no memory for. Of a compressed one that is known when some
// of it is there; until then it is enough that the rest of it would fit. `engines`: ranks of this
// host, each of which has as much.
Status CheckMemory(const ReplayMemory& memory, int64_t engines) {
  const std::optional<uint64_t> there = AvailableMemory();
  const auto fits = [&](uint64_t bytes) {
    return !there || bytes * static_cast<uint64_t>(engines) <= *there;
  };
  const uint64_t missing = memory.Missing();
  if (fits(missing)) return Status::Ok();
  const auto says = [&](const char* how, uint64_t bytes) {
    return fmt::format("the replay{} needs {}{} of memory{}, and {} are available",
                       engines > 1 ? fmt::format(" of {} ranks", engines) : "", how,
                       ShortBytes(bytes * static_cast<uint64_t>(engines)),
                       memory.filled > 0 ? fmt::format(" besides what its first {:.2g} % take",
                                                       100 * memory.filled)
                                         : " when full",
                       ShortBytes(*there));
  };
  if (memory.compressed() && memory.filled == 0) {
    if (fits(memory.least)) {
      LogWarning(says("up to ", missing) +
                 "; the run stops if its observations do not compress enough");
      return Status::Ok();
    }
    return {Code::kNoResources, says("at least ", memory.least) + "; lower replay.capacity"};
  }
  return {Code::kNoResources, says("", missing) + "; lower replay.capacity"};
}

}  // namespace

// Each time so many bytes have been stored since the last.
Status AgentTrainer::CheckReplay() {
  constexpr uint64_t kBytes = uint64_t{64} << 20;
  const ReplayMemory memory = agent_->replay_memory();
  if (!memory.compressed() || memory.stored < checked_replay_ + kBytes) return Status::Ok();
  checked_replay_ = memory.stored;
  return CheckMemory(memory, config_.fleet.engines);
}

Result<json> AgentTrainer::CheckOnly() {
  RETURN_IF_ERROR(CheckConfig());
  RETURN_IF_ERROR(ChooseDevices());
  ASSIGN_OR_RETURN(setup_, SetUpLearning(config_, /*slots=*/1));
  WarnOfEpisodes();
  WarnOfBudget();
  ASSIGN_OR_RETURN(const auto agent, MakeAgent(Setup()));
  RETURN_IF_ERROR(CheckMemory(agent->replay_memory(), config_.fleet.engines));
  return json{{"module_input", agent->module_input()}};
}

Status AgentTrainer::Build() {
  slots_ = sync_.PartOf(learn_.environments);  // of the configuration that was found
  RETURN_IF_ERROR(CheckConfig());
  RETURN_IF_ERROR(ChooseDevices());
  if (!sync_.alone() && !options_.remote.address.empty())
    return {Code::kConfig,
            "--listen with several ranks: expected one rank, to which all remote "
            "actors connect"};
  RemoteFleetOptions remote = options_.remote;
  // a resumed run's leases follow its predecessor's
  remote.healthy = [this] { return Healthy(); };
  remote.incarnation = (session_.resumed() ? session_.folder().incarnation() : 1) << 32;
  ASSIGN_OR_RETURN(setup_, SetUpLearning(config_, slots_.size(), /*render=*/false, remote));
  WarnOfEpisodes();
  WarnOfBudget();
  ASSIGN_OR_RETURN(agent_, MakeAgent(Setup()));
  RETURN_IF_ERROR(CheckMemory(agent_->replay_memory(), config_.fleet.engines));
  return ChooseBatchSize();
}

// Who computes on which of this process's cores, and why.
std::string AgentTrainer::CoresText() const {
  const auto shards = static_cast<int64_t>(Shards());
  const size_t threads = ShardThreads(learn_.threads, shards).threads();
  const char* limit = learn_.threads > 0 ? "learn.threads" : "its cores";
  return fmt::format(
      "{}: {} for environments, 1 for inference, {} for learning ({}), {}",
      (Cores() < MachineCores() ? fmt::format("{} of ", Cores()) : "") +
          CountText(std::max(Cores(), MachineCores()), "core"),
      setup_.workers > 0 ? std::to_string(setup_.workers) : "none", threads,
      threads < static_cast<size_t>(shards)
          ? fmt::format("{} for {}", limit, CountText(static_cast<double>(shards), "shard"))
          : fmt::format("learn.shards={}", learn_.shards),
      TakesTurns() ? "in turns (learn.lag=0)" : "at once");
}

std::string AgentTrainer::KindOfDevice() {
  return fmt::format("{} in {}", learns_on_.cuda ? "a GPU" : "the CPU",
                     NameOf<Precision>(kPrecisionNames, PrecisionOf(Setup())));
}

Trainer::Description AgentTrainer::Describe() const {
  const AgentNetworkKeys& keys = config_.learning.network;
  const AgentCore core = keys.core();
  const std::string network =
      TorsoName(keys) + (core ? fmt::format("+{}-{}", core.name(), core.units) : "");
  Description run{network,
                  {{"name", network}, {"parameters", agent_->parameter_count()}},
                  agent_->parameter_count(),
                  {{"inference_batch", ToJson(batch_)}, {"device", device_name_}}};
  if (keys.module_bytes) run.kept[RunFolder::kModule] = *keys.module_bytes;
  return run;
}

void AgentTrainer::MakeServer() {
  const ModelShape& shape = agent_->shape();
  UnrollConfig unrolls;
  const uint32_t slots = unrolls.slots = slots_.size();
  unrolls.length = static_cast<uint32_t>(learn_.unroll);
  unrolls.overlap = static_cast<uint32_t>(config_.learning.own->overlap());
  const uint32_t batch = sync_.PartOf(learn_.batch).size();
  const uint32_t queue = learn_.queue > 0 ? sync_.PartOf(learn_.queue).size() : batch;
  // being filled, waiting, and with the learner
  unrolls.buffers = learn_.deterministic() ? slots * (static_cast<uint32_t>(learn_.lag) + 3)
                                           : slots + std::max(queue, batch) + batch;
  unrolls.drop_oldest = learn_.drop_oldest && !learn_.deterministic();
  const ActionSpec& action = setup_.environment.action;
  store_ = std::make_unique<UnrollStore>(EntryShape{.observation_bytes = shape.observation_bytes,
                                                    .action_values = shape.action_values,
                                                    .behaviour = shape.behaviour,
                                                    .values = shape.values,
                                                    .state = shape.state,
                                                    .history_bytes = shape.history_bytes,
                                                    .choices = action.discrete ? action.n : 0},
                                         unrolls);
  ServerHooks hooks;
  hooks.next = [this](uint32_t slot, uint64_t number) -> std::optional<EpisodeSpec> {
    const uint64_t incarnation = learn_.deterministic() ? 0 : start_.incarnation;
    return setup_.episodes.Make(
        DeriveKey(static_cast<uint64_t>(config_.run.seed), Purpose::kEpisodeTrain, incarnation,
                  slots_.first + slot, number),
        /*test=*/false);
  };
  server_ = std::make_unique<InferenceServer>(*setup_.fleet, *agent_, store_.get(), ServerConfig(),
                                              std::move(hooks));
  loop_.emplace(learn_, LearnerShare{.slots = slots, .batch = batch, .shards = Shards()}, *store_,
                *agent_, [this](const Unroll& unroll) {
                  statistics_.Add(unroll);
                  ++statistics_.stale_unrolls;
                });
}

Result<std::vector<EpisodeResult>> AgentTrainer::PlayRandomPolicy(size_t episodes) {
  RandomModel random(setup_.environment);
  const auto seed = static_cast<uint64_t>(config_.run.seed);
  PlayOptions play;
  play.episodes = episodes;
  play.spec = [&](size_t e) {
    return setup_.episodes.Make(DeriveKey(seed, Purpose::kRandomPolicy, 0, 0, e), /*test=*/true);
  };
  play.seed = DeriveKey(seed, Purpose::kRandomPolicy);
  play.share = Share();
  play.stop = StopRequested;
  if (setup_.listens.empty()) return Play(*setup_.fleet, random, play);
  // remote actors come when they like, and these episodes are few: this host plays them
  stop_.reset();  // actors may take long to start
  ASSIGN_OR_RETURN(const EnvironmentSetup here, SetUpLearning(config_, slots_.size()));
  stop_.emplace();
  return Play(*here.fleet, random, play);
}

// Plays episodes that the run waits for.
Result<std::vector<EpisodeResult>> AgentTrainer::Play(Fleet& fleet, Model& model,
                                                      PlayOptions play) {
  play.ended = [this] { ++over_; };
  awaits_ = true;
  auto results = PlayEpisodes(fleet, model, play);
  awaits_ = false;
  return results;
}

// This rank's part of fresh episodes of the agent in environments of `on`. Draws are keyed by
// `purpose` and `update`.
PlayOptions AgentTrainer::FreshEpisodes(Purpose purpose, uint64_t update, size_t episodes,
                                        const EnvironmentSetup& on) const {
  const auto seed = static_cast<uint64_t>(config_.run.seed);
  PlayOptions play;
  play.episodes = episodes;
  play.spec = [=, &on](size_t e) {
    return on.episodes.Make(DeriveKey(seed, purpose, update, 0, e), /*test=*/true);
  };
  play.seed = DeriveKey(seed, purpose, update);
  play.greedy = learn_.test_greedy;
  play.rewards = learn_.rewards;
  if (setup_.preset) play.life_loss = setup_.preset->life_loss;
  play.share = Share();
  if (learn_.deterministic()) play.shards = Shards();
  return play;
}

Result<std::vector<double>> AgentTrainer::Test() {
  PlayOptions play =
      FreshEpisodes(Purpose::kEpisodeTest, 0, static_cast<size_t>(learn_.test_episodes), setup_);
  play.stop = StopRequested;
  final_ = {agent_->parameter_hash(), Drops(), Seconds(), AllCounters().respawns};
  std::vector<double> returns;
  setup_.fleet->NotifyShutdown();
  server_.reset();  // it belongs to the fleet that is replaced now
  evaluation_.agent.reset(), evaluation_.setup.fleet.reset();
  // every update is saved: from here on a stop may leave at once
  RETURN_IF_ERROR(EndGraceful("stopped before the final test, every update is saved"));
  if (play.episodes == 0) return returns;
  // the fleet's slots are in the middle of training: others play the test
  ASSIGN_OR_RETURN(setup_, SetUpLearning(config_, slots_.size()));
  stop_.emplace();
  const auto results = sync_.Gather(Play(*setup_.fleet, *agent_, play));
  if (results.status().code() == Code::kTryAgain)
    return Stopped("stopped in the final test, every update is saved");
  RETURN_IF_ERROR(results.status());
  for (const EpisodeResult& r : *results) returns.push_back(r.fitness);
  return returns;
}

json AgentTrainer::ResultOf(const std::vector<double>& test) const {
  const std::vector<double> last(agent_state().last_returns.begin(),
                                 agent_state().last_returns.end());
  json returns_mean;
  const auto &solved = agent_state().solved, &best = agent_state().best;
  if (agent_state().episodes > 0)
    returns_mean = agent_state().return_sum / static_cast<double>(agent_state().episodes);
  return {{"frames", agent_state().frames},
          {"updates", agent_state().updates},
          {"episodes", agent_state().episodes},
          {"parameter_hash", final_.hash},
          {"return_mean", returns_mean},
          {"return_last100", MeanOrNull(last)},
          {"test_returns", test},
          {"test_greedy", learn_.test_greedy},
          {"test_mean", MeanOrNull(test)},
          {"evaluation_mean", solved ? json(solved->mean) : json()},
          {"best_mean", best ? json(best->mean) : json()},
          {"best_frames", best ? json(best->frames) : json()},
          {"solved_frames", solved ? json(solved->frames) : json()},
          {"solved_seconds", solved ? json(solved->seconds) : json()},
          {"frames_per_second", static_cast<double>(agent_state().frames) / final_.seconds},
          {"seconds", final_.seconds},
          {"inference_batch", batch_.rows},
          {"device", device_name_},
          {"respawns", final_.respawns},
          {"rollbacks", agent_state().rollbacks},
          {"drops", final_.drops}};
}

Result<Policy> AgentTrainer::Trained() const {
  return LoadPolicy(session_.folder().path().path(), {.trust = true});
}

std::unique_ptr<Trainer> MakeAgentTrainer(ExperimentConfig config, const TrainOptions& options) {
  return std::make_unique<AgentTrainer>(std::move(config), options);
}

}  // namespace samara
