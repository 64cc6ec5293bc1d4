// Counters of a learning run, lines of metrics, the live view.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/format.h"
#include "core/statistics.h"
#include "play/network_module.h"
#include "report/run_data.h"
#include "train/agent_trainer.h"
#include "view/utilization.h"

namespace samara {

using nlohmann::json;

namespace {

// between lines of metrics.jsonl: a fiftieth of the time so far, so that short runs have curves too
constexpr double kMetricsSecondsMin = 0.5, kMetricsSecondsMax = 5;

}  // namespace

RankCounters AgentTrainer::OwnCounters() const {
  const InferenceServer::Counters server = server_->counters();
  const UnrollStore::Counters store = store_->counters();
  const FleetCounters fleet = setup_.fleet->counters();
  return {.queue_unrolls = store.waiting + loop_->waiting(),
          .queue_free = store.free,
          .stalls = server.stalls,
          .live_slots = setup_.fleet->live(),
          .respawns = fleet.respawns,
          .dropped_unrolls = store.dropped,
          .partial_unrolls = store.dropped_partial,
          .lost_episodes = server.lost_episodes,
          .not_finite_rows = server.not_finite,
          .stale_events = fleet.stale_events};
}

json AgentTrainer::Drops() const {
  const RankCounters now = AllCounters();
  json drops = {{"stale_unrolls", agent_state().stale_unrolls},
                {"queue_full_unrolls", agent_state().dropped_unrolls + now.dropped_unrolls},
                {"partial_unrolls", agent_state().partial_unrolls + now.partial_unrolls},
                {"lost_episodes", agent_state().lost_episodes + now.lost_episodes},
                {"not_finite_rows", agent_state().not_finite_rows + now.not_finite_rows},
                {"stale_events", now.stale_events},
                {"skipped_updates", agent_state().skipped_updates}};
  for (const auto& [reason, count] : setup_.fleet->drops()) drops["remote_" + reason] = count;
  return drops;
}

json AgentTrainer::MetricsLine() {
  const InferenceServer::Counters server = server_->counters(), &before = server_before_;
  const RankCounters ranks = AllCounters();
  const double environment = setup_.fleet->counters().step_seconds;
  const double batches =
      static_cast<double>(std::max<uint64_t>(1, server.batches - before.batches));
  const std::vector<double> last(agent_state().last_returns.begin(),
                                 agent_state().last_returns.end());
  json line = {{"time", WallTimeIso()},
               {"seconds", Seconds()},
               {"update", agent_state().updates},
               {"frames", agent_state().frames},
               {"steps", agent_state().steps},
               {"episodes", agent_state().episodes},
               {"return_last100", last.empty() ? json() : json(Mean(last))},
               {"queue_unrolls", ranks.queue_unrolls},
               {"queue_free", ranks.queue_free},
               {"stalls", ranks.stalls - stalls_before_},
               {"rows_per_batch", static_cast<double>(server.rows - before.rows) / batches},
               {"live_slots", ranks.live_slots},
               {"environment_workers", setup_.workers},
               {"seconds_environment", environment - environment_before_},
               {"seconds_inference", server.infer_seconds - before.infer_seconds},
               {"seconds_server", server.rest_seconds - before.rest_seconds},
               {"seconds_server_wait", server.wait_seconds - before.wait_seconds},
               {"respawns", ranks.respawns},
               {"rollbacks", agent_state().rollbacks},
               {"drops", Drops()}};
  line.update(interval_.Line());
  server_before_ = server;
  stalls_before_ = ranks.stalls;
  environment_before_ = environment;
  return line;
}

void AgentTrainer::MaybeWriteMetrics(bool last) {
  const double due = std::clamp(Seconds() / 50, kMetricsSecondsMin, kMetricsSecondsMax);
  if (!last && interval_.seconds() < due) return;
  if (interval_.updates() == 0) return;
  if (sync_.is_main()) {
    json line = MetricsLine();
    metrics_->Write(line);
    const MutexLock lock(mu_);
    last_metrics_ = std::move(line);
  }
  interval_ = AgentInterval();
}

ProgressState AgentTrainer::Snapshot() const {
  const MutexLock lock(mu_);
  ProgressState s;
  s.title = Title(TorsoName(config_.learning.network));
  s.step_name = "update";
  s.generation = static_cast<int64_t>(state_.updates);
  s.generations = learn_.updates;
  s.frames = static_cast<int64_t>(state_.frames);
  s.frames_budget = static_cast<int64_t>(learn_.frames);
  s.seconds = Seconds();
  s.seconds_budget = config_.run.minutes * 60;
  // of the last line, so that what changes shows
  s.stages =
      BusyShares([&](const char* name) REQUIRES(mu_) { return NumberOr(last_metrics_, name); },
                 setup_.workers);
  s.stages_title = TakesTurns() ? "utilization, in turns: " : "utilization: ";
  const std::vector<double> last(state_.last_returns.begin(), state_.last_returns.end());
  if (!last.empty()) {
    s.score = Mean(last);
    s.numbers.push_back({"return", ScoreText(s.score), /*plain=*/true, /*is_score=*/true});
  }
  if (last_evaluation_)
    s.numbers.push_back(
        {"evaluation", ScoreText(last_evaluation_->mean), /*plain=*/true, /*is_score=*/true});
  if (state_.best) s.best = state_.best->mean;
  const auto show = [&](const char* name, const char* key, const char* format, bool plain = false)
                        REQUIRES(mu_) {
                          const double value = NumberOr(last_metrics_, key);
                          if (!std::isnan(value))
                            s.numbers.push_back({name, fmt::format(fmt::runtime(format), value),
                                                 plain, /*is_score=*/false});
                        };
  show("episodes", "episodes", "{:.0f}");
  show("loss", "loss", "{:.3g}");
  show("entropy", "entropy", "{:.3g}", /*plain=*/true);
  show("explained variance", "explained_variance", "{:.2f}");
  show("lag", "lag_mean", "{:.1f}", /*plain=*/true);
  show("queue", "queue_unrolls", "{:.0f}");
  show("rows a batch", "rows_per_batch", fmt::format("{{:.1f}} of {}", batch_.rows).c_str());
  s.random = random_returns().empty() ? ProgressState::kUnknown : Mean(random_returns());
  s.respawns = static_cast<int64_t>(setup_.fleet->counters().respawns + others_.respawns);
  return s;
}

}  // namespace samara
