// Checkpoints of a learning run: saved, restored, rolled back to.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/format.h"
#include "core/log.h"
#include "report/run_data.h"
#include "rl/algorithms/registry.h"
#include "storage/build_info.h"
#include "train/agent_trainer.h"

namespace samara {

using nlohmann::json;

namespace {

constexpr const char* kAgentState = "state.bin";
constexpr const char* kEnvironments = "server.bin";  // episodes and unrolls in the middle
// Among what a run begins with: the state of a later checkpoint, of which only `best` counts.
constexpr const char* kLaterState = "later_state.bin";
// Files of which every rank has a part.
constexpr const char* kFilesInParts[] = {"slots.bin", kEnvironments, "replay.bin"};
bool IsReplayPart(const std::string& name) { return name.starts_with(Agent::kReplayParts); }

// Whether a rank's file of this name holds its own slots or shards.
bool IsOfRank(const std::string& name) {
  return IsReplayPart(name) || std::ranges::find(kFilesInParts, name) != std::end(kFilesInParts);
}

constexpr double kAloneSeconds = 5;  // a stop waits so long for actors
constexpr double kStopSeconds = 10;  // and so long for the end of a round

}  // namespace

Result<Trainer::Restored> AgentTrainer::Restore() {
  RunFolder& folder = session_.folder();
  const bool some = !ListCheckpoints(folder.checkpoints()).empty();
  ASSIGN_OR_RETURN(std::optional<StoredCheckpoint> checkpoint,
                   LatestGoodCheckpoint(folder.checkpoints(), OnBadCheckpoint::kQuarantine));
  if (!checkpoint && some)
    return Status(Code::kBadData,
                  folder.path().string() +
                      ": every checkpoint is damaged, they are kept as *.corrupt; the "
                      "same command again begins from the start");
  if (!setup_.listens.empty())
    LogInfo("listens at " + setup_.listens + ": " + setup_.actor_command);
  if (const ReplayMemory memory = agent_->replay_memory(); memory.most > 0)
    LogInfo(fmt::format("replay: {} of memory when full{}", ShortBytes(memory.most),
                        memory.compressed() ? ", less what replay.compress saves" : ""));
  if (sync_.is_main()) LogInfo(CoresText());
  const bool bfloat16 = PrecisionOf(Setup()) == Precision::kBfloat16;
  if (learns_on_.cuda || infers_on_.cuda || bfloat16)
    LogInfo("networks are computed on " + device_name_ +
            (bfloat16 && !device_name_.ends_with("bfloat16") ? " in bfloat16" : ""));
  const std::string begun_on = folder.identity().value("device", "CPU");
  if (begun_on != device_name_)
    LogWarning(fmt::format("run.device: the run began on {} and goes on on {}{}", begun_on,
                           device_name_,
                           learn_.deterministic() ? ", which has other last bits" : ""));
  if (!batch_.curve.empty())
    Log(LogLevel::kDebug, "inference: batches of at most " + ToText(batch_));
  if (!checkpoint) return Restored();
  RETURN_IF_ERROR(Take(std::move(*checkpoint)));
  if (learn_.deterministic() && !start_.files.contains(kEnvironments) && !BudgetSpent()) {
    // its end has no environments: with a larger budget it goes on where it had them, but keeps
    // the best agent
    const bool has_best = agent_state().best.has_value();
    ASSIGN_OR_RETURN(checkpoint,
                     LatestGoodCheckpoint(folder.checkpoints(), OnBadCheckpoint::kQuarantine,
                                          /*with=*/kEnvironments));
    NamedFiles later = std::move(start_.files);
    RETURN_IF_ERROR(Take(checkpoint ? std::move(*checkpoint) : StoredCheckpoint()));
    if (has_best) {
      start_.files[kLaterState] = later[kAgentState];
      start_.files[AgentState::kBestWeights] = later[AgentState::kBestWeights];
      RETURN_IF_ERROR(RestoreState());
    }
    LogInfo(fmt::format("deterministic: goes on {}, as a run of the larger budget would",
                        checkpoint ? "from the last state with environments" : "from its start"));
    if (!checkpoint) return Restored();
  }
  const bool exact = start_.files.contains(kEnvironments);
  LogInfo(fmt::format(
      "resumed after update {}, {} frames; {}", agent_state().updates, agent_state().frames,
      learn_.deterministic() && exact ? "episodes continue where they were, with the same bits"
                                      : "episodes start again"));
  return Restored{agent_state().updates, {}};
}

// Goes on from this checkpoint; from an empty one: from the start.
Status AgentTrainer::Take(StoredCheckpoint checkpoint) {
  start_.files = std::move(checkpoint.files);
  start_.path = checkpoint.path.string();
  checkpoints_->ContinueFrom(checkpoint.path);
  RETURN_IF_ERROR(RestoreState());
  start_.seconds = seconds_before_ = agreed_.seconds = agent_state().seconds;
  started_ = Now();
  return Status::Ok();
}

Status AgentTrainer::RestoreState() {
  AgentState state;
  if (const auto saved = start_.files.find(kAgentState); saved != start_.files.end()) {
    ASSIGN_OR_RETURN(state, AgentState::Decode(saved->second));
  }
  if (const auto saved = start_.files.find(kLaterState); saved != start_.files.end()) {
    ASSIGN_OR_RETURN(const AgentState later, AgentState::Decode(saved->second));
    state.best = later.best;
  }
  // another score may be asked for now
  const std::optional<double> score = config_.run.stop_at;
  if (state.solved && (!score || state.solved->mean < *score)) state.solved.reset();
  const MutexLock lock(mu_);
  state_ = std::move(state);
  return Status::Ok();
}

// From the same beginning on every rank.
Status AgentTrainer::Begin() {
  MakeServer();
  if (learns_on_.cuda) RETURN_IF_ERROR(sync_.LinkGpus(learns_on_));
  RETURN_IF_ERROR(RestoreState());
  if (agent_state().best) best_weights_ = start_.files[AgentState::kBestWeights];
  if (!start_.files.contains(kAgentState)) return Status::Ok();
  const auto server = start_.files.find(kEnvironments);
  const bool exact = learn_.deterministic() && server != start_.files.end();
  const Status restored =
      agent_->Restore(start_.files, exact ? Agent::Part::kSlots : Agent::Part::kRun);
  if (!restored.ok()) return restored.Annotate(start_.path);
  if (!exact) return Status::Ok();
  return server_->Restore(server->second).Annotate(start_.path);
}

// The last good state, after several updates in a row came to nothing.
Status AgentTrainer::Rollback() {
  if (loop_->verdict() == LearnerLoop::Verdict::kGiveUp)
    return {Code::kInternal,
            fmt::format("the loss stays not finite after {} updates; lower optimizer.learning_rate "
                        "or set optimizer.clip_norm",
                        agent_state().updates)};
  // the clock decides which checkpoint is the last one: bits that are to be the same go without it,
  // on parameters that only steps with a finite loss have changed
  if (learn_.deterministic()) return Status::Ok();
  NamedFiles files;
  if (sync_.is_main()) {
    ASSIGN_OR_RETURN(std::optional<StoredCheckpoint> good,
                     LatestGoodCheckpoint(session_.folder().checkpoints(), OnBadCheckpoint::kSkip));
    if (!good)
      files = initial_weights_;
    else
      files = std::move(good->files);
    LogWarning(
        fmt::format("{} updates in a row were not finite: parameters of update {} taken again",
                    LearnerLoop::kSkippedMax, good ? good->info.step : 0));
  }
  if (!sync_.alone()) {
    std::erase_if(files, [](const auto& file) { return IsOfRank(file.first); });
    ASSIGN_OR_RETURN(const std::string shared, sync_.FromMain("rollback", EncodeFiles(files)));
    ASSIGN_OR_RETURN(files, DecodeFiles(shared));
  }
  RETURN_IF_ERROR(agent_->Restore(files, Agent::Part::kWeights));
  const MutexLock lock(mu_);
  ++state_.rollbacks;
  return Status::Ok();
}

// Now or, in a deterministic run, after the next rounds.
Status AgentTrainer::Save(OnRefusal on_refusal) {
  return learn_.deterministic() ? SaveExactCheckpoint(on_refusal)
                                : SaveCheckpoint(/*exact=*/false, on_refusal);
}

// The ranks compare what all of them save alike: everything but their own slots, their part of a
// replay and the clock.
Status AgentTrainer::CheckSame(const NamedFiles& contents) {
  NamedFiles same;
  for (const auto& [name, bytes] : contents)
    if (!IsOfRank(name)) same[name] = bytes;
  AgentState state = agent_state();
  state.seconds = 0;
  for (auto* evaluation : {&state.solved, &state.best})
    if (*evaluation) (*evaluation)->seconds = 0;
  same[kAgentState] = state.Encode();
  return sync_.CheckSame(
      fmt::format("after update {}: not saved, the last checkpoint stays: ", agent_state().updates),
      same);
}

// Collective: names of the files that the main rank may keep of the last checkpoint.
Result<std::set<std::string>> AgentTrainer::KeptFiles() {
  std::set<std::string> kept;
  if (sync_.is_main()) kept = checkpoints_->Kept(MakeCheckpointInfo(agent_state().updates));
  if (sync_.alone()) return kept;
  NamedFiles names;
  for (const std::string& name : kept) names[name];
  ASSIGN_OR_RETURN(const std::string shared, sync_.FromMain("kept", EncodeFiles(names)));
  ASSIGN_OR_RETURN(names, DecodeFiles(shared));
  for (const auto& [name, nothing] : names) kept.insert(name);
  return kept;
}

// Collective: parts of replays become those of all ranks.
Status AgentTrainer::JoinReplayParts(NamedFiles& contents) {
  if (sync_.alone()) return Status::Ok();
  NamedFiles mine;
  for (auto& [name, bytes] : contents)
    if (IsReplayPart(name)) mine[name] = std::move(bytes);
  ASSIGN_OR_RETURN(const std::vector<std::string> all, sync_.Exchange("replay", EncodeFiles(mine)));
  for (const std::string& parts : all) {
    ASSIGN_OR_RETURN(NamedFiles theirs, DecodeFiles(parts));
    for (auto& [name, bytes] : theirs) contents[name] = std::move(bytes);
  }
  return Status::Ok();
}

// Collective: the main rank's files become those of all ranks.
Status AgentTrainer::JoinRanks(NamedFiles& contents) {
  for (const char* name : kFilesInParts) {
    if (!contents.contains(name)) continue;
    ASSIGN_OR_RETURN(const std::vector<std::string> parts,
                     sync_.Exchange(name, std::move(contents[name])));
    ASSIGN_OR_RETURN(contents[name], JoinSlotRecords(parts));
  }
  return JoinReplayParts(contents);
}

// Collective, between two updates: writes some parts of the replays that the last checkpoint lacks.
// False: it is time to save, since there are no more, the disk refuses them, or as many bytes as
// the replays have were written.
Result<bool> AgentTrainer::SavePartsAhead() {
  const uint64_t memory = agent_->replay_memory().most;
  if (memory == 0) return false;
  const SteadyTime begin = Now();
  ASSIGN_OR_RETURN(const std::set<std::string> kept, KeptFiles());
  NamedFiles parts = agent_->SaveNextParts(kept);
  RETURN_IF_ERROR(JoinReplayParts(parts));
  Status written;
  for (const auto& [name, bytes] : parts) {
    ahead_.bytes += bytes.size();
    if (sync_.is_main() && written.ok()) written = checkpoints_->WriteAhead(name, bytes);
  }
  bool more = !parts.empty() && written.ok();
  if (!sync_.alone()) {
    ASSIGN_OR_RETURN(const std::string goes_on, sync_.FromMain("ahead", more ? "more" : ""));
    more = !goes_on.empty();
  }
  ahead_.seconds += SecondsSince(begin);
  // parts may become complete as fast as they are written
  return more && ahead_.bytes < memory * static_cast<uint64_t>(sync_.ranks());
}

// Collective.
Status AgentTrainer::SaveCheckpoint(bool exact, OnRefusal on_refusal) {
  const SteadyTime begin = Now();
  const double seconds_ahead = std::exchange(ahead_, {}).seconds;
  ASSIGN_OR_RETURN(const std::set<std::string> kept, KeptFiles());
  NamedFiles contents = agent_->Save(exact ? Agent::Part::kSlots : Agent::Part::kRun, kept);
  if (agent_state().best) contents[AgentState::kBestWeights] = best_weights_;
  if (!sync_.alone()) RETURN_IF_ERROR(CheckSame(contents));
  if (!agent_->finite()) {
    const std::string why = fmt::format("the parameters are not finite after update {}: not saved",
                                        agent_state().updates);
    if (on_refusal == OnRefusal::kFail)
      return {Code::kInternal, why + "; lower optimizer.learning_rate or set optimizer.clip_norm"};
    if (sync_.is_main()) LogError(why);
    return Status::Ok();
  }
  if (exact) contents[kEnvironments] = server_->Save();
  // rank 0 writes what all remember
  RETURN_IF_ERROR(JoinRanks(contents));
  if (!sync_.is_main()) return Status::Ok();
  contents[kAgentState] = StateToSave().Encode();
  std::vector<CheckpointFile> files;
  for (const auto& [name, bytes] : contents)
    files.push_back({name, bytes, IsReplayPart(name) && kept.contains(name)});
  CheckpointInfo info = MakeCheckpointInfo(agent_state().updates);
  info.note = {{"parameter_hash", agent_->parameter_hash()}, {"exact", exact}};
  const auto save = [&] { return checkpoints_->Save(info, files).status(); };
  if (on_refusal == OnRefusal::kFail) {
    RETURN_IF_ERROR(
        session_.MakeDurable(fmt::format("the agent of update {} is not saved", info.step), save));
  } else if (const Status saved = save(); !saved.ok()) {
    return schedule_->Failed(Seconds(), saved, checkpoints_->last().path());
  }
  schedule_->Saved(Seconds(), seconds_ahead + SecondsSince(begin));
  initial_weights_.clear();
  return Status::Ok();
}

// Main rank: with what all ranks and the clock add to it.
AgentState AgentTrainer::StateToSave() const {
  AgentState state = agent_state();
  state.seconds = Seconds();
  const json drops = Drops();
  state.dropped_unrolls = drops["queue_full_unrolls"],
  state.partial_unrolls = drops["partial_unrolls"];
  state.lost_episodes = drops["lost_episodes"], state.not_finite_rows = drops["not_finite_rows"];
  return state;
}

// Between two rounds: every slot waits for its first action of the next one, every unroll is
// learned. No rank has begun a round after the one whose policy is being learned by now, and `lag`
// more. A budget that is spent on the way ends the run instead.
Status AgentTrainer::SaveExactCheckpoint(OnRefusal on_refusal) {
  const uint64_t round = agent_state().updates / PerRound() + static_cast<uint64_t>(learn_.lag) + 1;
  const SteadyTime begun = Now();
  server_->lockstep()->Park(round);
  while (!BudgetSpent() &&
         (agent_state().updates < round * PerRound() || !server_->lockstep()->parked())) {
    if (LearnerLoop::Unrolls batch = NextBatch(); !batch.empty())
      RETURN_IF_ERROR(Update(std::move(batch)));
    else
      RETURN_IF_ERROR(Trouble());
    if (sync_.alone() && Stops() && SecondsSince(begun) > kStopSeconds)
      return {Code::kTryAgain,
              fmt::format("stopped after update {}; the round did not end within {} s: what the "
                          "last checkpoint holds is kept",
                          agent_state().updates, kStopSeconds)};
    if (Stops() && setup_.fleet->live() == 0 && SecondsSince(begun) > kAloneSeconds)
      return {Code::kTryAgain,
              fmt::format("stopped after update {}; no actor is there to end the round: what the "
                          "last checkpoint holds is kept",
                          agent_state().updates)};
  }
  const Status saved = BudgetSpent() ? Status::Ok() : SaveCheckpoint(/*exact=*/true, on_refusal);
  server_->lockstep()->Resume();
  return saved;
}

}  // namespace samara
