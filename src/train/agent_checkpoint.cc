// What a learning run saves and takes again.
#include <fmt/format.h>

#include "core/log.h"
#include "run/agent_run.h"
#include "storage/build_info.h"
#include "report/run_data.h"

namespace samara {

using nlohmann::json;

namespace {

constexpr uint64_t kRollbacksMax = 3;  // in a row; then the run gives up
constexpr double kAloneSeconds = 5;    // a stop waits so long for actors

}  // namespace

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

// The last good state, after several updates in a row came to nothing.
Status AgentRun::Rollback() {
  skipped_in_a_row_ = 0;
  if (++rollbacks_in_a_row_ > kRollbacksMax)
    return {Code::kInternal,
            fmt::format("the loss stays not finite after {} updates; lower optimizer.learning_rate "
                        "or set optimizer.clip_norm",
                        state_.updates)};
  // the clock decides which checkpoint is the last one: bits that are to be the same go without it,
  // on parameters that no skipped update has changed
  if (Deterministic()) return Status::Ok();
  NamedFiles files;
  if (ranks_.owns_run()) {
    ASSIGN_OR_RETURN(const std::optional<Checkpoint> good,
                     LatestGoodCheckpoint(session_.folder().checkpoints(), OnBadCheckpoint::kSkip));
    if (!good)
      files = begun_with_;
    else
      for (const auto& [name, bytes] : good->files) files[name] = bytes;
    LogWarning(
        fmt::format("{} updates in a row were not finite: parameters of update {} taken again",
                    kSkippedMax, good ? good->info.step : 0));
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

// Now or, in a deterministic run, after the next rounds.
Status AgentRun::Save(OnRefusal on_refusal) {
  return Deterministic() ? SaveExactCheckpoint(on_refusal)
                         : SaveCheckpoint(/*exact=*/false, on_refusal);
}

// Of what is saved the ranks compare what all hold: everything but what they remember of their own
// slots, and the clock.
Status AgentRun::Agree(NamedFiles contents) {
  contents.erase("slots.bin");
  AgentState state = state_;
  state.seconds = 0;
  contents["state.bin"] = state.Encode();
  return ranks_.Agree(fmt::format("after update {}", state_.updates), contents);
}

// Collective.
Status AgentRun::SaveCheckpoint(bool exact, OnRefusal on_refusal) {
  const SteadyTime begin = Now();
  NamedFiles contents = agent_->Save(exact);
  if (!ranks_.alone()) RETURN_IF_ERROR(Agree(contents));
  if (!agent_->finite()) {
    const std::string why =
        fmt::format("the parameters are not finite after update {}: not saved", state_.updates);
    if (on_refusal == OnRefusal::kFail)
      return {Code::kInternal, why + "; lower optimizer.learning_rate or set optimizer.clip_norm"};
    if (ranks_.owns_run()) LogError(why);
    return Status::Ok();
  }
  if (!ranks_.owns_run() && !exact) return Status::Ok();
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
  const auto save = [&] { return checkpoints_->Save(info, files).status(); };
  if (on_refusal == OnRefusal::kFail) {
    RETURN_IF_ERROR(session_.MakeDurable(
        fmt::format("the agent of update {} is not saved", state.updates), save));
  } else if (const Status saved = save(); !saved.ok()) {
    return schedule_->Failed(Seconds(), saved, checkpoints_->last().path());
  }
  schedule_->Saved(Seconds(), SecondsSince(begin));
  begun_with_.clear();
  return Status::Ok();
}

// Between two rounds: every slot waits for its first action of the next one, every unroll is
// learnt. No rank has begun a round after the one whose policy is being learnt by now, and `lag`
// more. A budget that is spent on the way ends the run instead.
Status AgentRun::SaveExactCheckpoint(OnRefusal on_refusal) {
  const uint64_t round = state_.updates / PerRound() + static_cast<uint64_t>(learn_.lag) + 1;
  const SteadyTime begun = Now();
  server_->Park(round);
  while (!BudgetSpent() && (state_.updates < round * PerRound() || !server_->parked())) {
    if (std::vector<UnrollStore::Loan> batch = NextBatch(); !batch.empty())
      RETURN_IF_ERROR(Update(std::move(batch)));
    else
      RETURN_IF_ERROR(Trouble());
    if (Stops() && stage_.fleet->live() == 0 && SecondsSince(begun) > kAloneSeconds)
      return {Code::kTryAgain,
              fmt::format("stopped after update {}; no actor is there to end the round: what the "
                          "last checkpoint holds is kept",
                          state_.updates)};
  }
  const Status saved = BudgetSpent() ? Status::Ok() : SaveCheckpoint(/*exact=*/true, on_refusal);
  server_->Resume();
  return saved;
}

}  // namespace samara
