// Reports of an evolution: the live view, lines of metrics.jsonl, when a task was solved.
#include <algorithm>

#include "core/format.h"
#include "core/statistics.h"
#include "train/evolution_trainer.h"

namespace samara {

using nlohmann::json;

ProgressState EvolutionTrainer::Snapshot() const {
  const EvolutionProgress p = algorithm_->progress();
  const EvolutionBudget& budget = config_.evolution->budget;
  const StageSeconds stages = evaluator_->seconds();
  ProgressState s;
  s.title = Title(network_.name);
  s.generation = static_cast<int64_t>(p.generation);
  s.generations = budget.generations;
  s.frames = static_cast<int64_t>(p.frames);
  s.frames_budget = budget.frames;
  s.seconds = Seconds();
  s.seconds_budget = config_.run.minutes * 60;
  s.pace.emplace();
  s.pace->now.episodes = static_cast<double>(p.episodes_done);
  s.pace->episodes_total = static_cast<double>(p.episodes_total);
  s.phase = p.phase;
  s.phase_done = static_cast<int64_t>(p.done);
  s.phase_total = static_cast<int64_t>(p.total);
  s.stages = WorkShares({{"decode", stages.decode},
                         {"inference", stages.inference},
                         {"environment", stages.environment}});
  {
    const MutexLock lock(mu_);
    s.last_seconds = last_seconds_;
    s.pace->before = last_generation_;
    s.pace->now.seconds = SecondsSince(generation_began_);
    s.pace->now.frames = std::max(static_cast<double>(p.frames) - frames_before_, 0.0);
  }
  s.best_name = "last best";  // peak is the best of all
  s.best = std::isnan(best_) ? p.best : best_.load();
  s.scored = scored_;  // before best_, which is written first
  s.score = best_;
  s.elite = elite_;
  s.random = random_returns().empty() ? ProgressState::kUnknown : Mean(random_returns());
  s.respawns = static_cast<int64_t>(evaluator_->counters().respawns);
  return s;
}

// A task in which nothing is random is solved by the first member that reaches the criterion; any
// other by the mean of what the run hands over: of its test, or, in generations without one, of the
// validation. `numbered`: how many members, the first ones, have numbers by which they are rebuilt.
void EvolutionTrainer::NoteEvaluations(const GenerationReport& report, uint64_t numbered) {
  const uint64_t before = evaluations_;
  const uint64_t played = std::max<uint64_t>(report.evaluations, report.fitness.size());
  evaluations_ += played;
  if (solved_at_ > 0) return;
  if (setup_.environment.solved_once && report.fitness_is_return) {
    const auto first = std::ranges::find_if(report.fitness, [this](double f) { return Solved(f); });
    const auto individual = static_cast<uint64_t>(first - report.fitness.begin());
    if (first != report.fitness.end()) {
      solved_at_ = before + (individual + 1) * played / report.fitness.size();
      if (individual < numbered) solver_ = Solver{summary_.generation, individual};
    }
  }
  const bool tested = !report.test_returns.empty();
  const double mean = tested ? Mean(report.test_returns) : summary_.best_mean;
  if (solved_at_ == 0 && (tested || report.validated > 0) && Solved(mean))
    solved_at_ = evaluations_;
}

json EvolutionTrainer::SolvedFields() const {
  return {{"solved_at", solved_at_ > 0 ? json(solved_at_) : json()},
          {"solved_generation", solver_ ? json(solver_->generation) : json()},
          {"solved_individual", solver_ ? json(solver_->individual) : json()}};
}

// How long each phase of the generation took. What no phase has is between them: breeding,
// selection, and what followed the generation before.
void EvolutionTrainer::NotePhases(const GenerationReport& r, double episodes) {
  const MutexLock lock(mu_);
  last_generation_ = {SecondsSince(generation_began_), static_cast<double>(r.frames), episodes};
  const double between =
      last_generation_.seconds - r.seconds_population - r.seconds_validation - r.seconds_test;
  generation_began_ = Now();
  frames_before_ = static_cast<double>(summary_.frames);
  last_seconds_ = {{"population", r.seconds_population}};
  if (r.seconds_validation > 0) last_seconds_.emplace_back("validation", r.seconds_validation);
  if (!r.test_returns.empty()) last_seconds_.emplace_back("test", r.seconds_test);
  last_seconds_.emplace_back("between", between);
}

json EvolutionTrainer::MetricsLine(const GenerationReport& r, const StageSeconds& spent) const {
  const EvolutionSummary& s = summary_;
  const MutexLock lock(mu_);
  const auto [min, max] = RangeOf(r.fitness);
  json line = {{"time", WallTimeIso()},
               {"seconds", Seconds()},
               {"generation", s.generation},
               {"frames", s.frames},
               {"frames_test", s.frames_test},
               {"steps", s.steps},
               {"episodes", s.episodes},
               {"evaluations", evaluations_},
               {"fitness_mean", Mean(r.fitness)},
               {"fitness_median", Median(r.fitness)},
               {"fitness_max", max},
               {"fitness_min", min},
               {"fitness_std", Std(r.fitness)},
               {"elite_validation_mean", s.best_mean},
               {"population_hash", Hex(s.population_hash)},
               {"frames_per_second", static_cast<double>(r.frames - r.frames_reused) /
                                         (r.seconds_population + r.seconds_validation)},
               {"seconds_population", r.seconds_population},
               {"seconds_validation", r.seconds_validation},
               {"seconds_test", r.seconds_test},
               {"seconds_between", last_seconds_.back().second},
               {"seconds_materialise", spent.decode},
               {"seconds_inference", spent.inference},
               {"seconds_environment", spent.environment},
               {"respawns", evaluator_->counters().respawns}};
  line.update(SolvedFields());
  line.update(r.metrics);
  if (!r.test_returns.empty()) {
    line["elite_test_mean"] = Mean(r.test_returns);
    line["elite_test_median"] = Median(r.test_returns);
    line["elite_test_returns"] = r.test_returns;
  }
  return line;
}

}  // namespace samara
