
#include "core/clock.h"
#include "core/mutex.h"
#include "core/thread.h"
#include "evo/evaluate/evaluator.h"

namespace samara {
namespace {

constexpr std::chrono::milliseconds kRolloutWait{20};  // until an idle thread notices a stop

class DirectEvaluator : public Evaluator {
 public:
  DirectEvaluator(std::vector<std::unique_ptr<Environment>> environments,
                  std::unique_ptr<PolicyModel> model)
      : spec_(environments.front()->spec()),
        environments_(std::move(environments)),
        model_(std::move(model)) {}

  const EnvironmentSpec& spec() const override { return spec_; }

  Status Play(const ParameterSource& source, WorkSource& work) override {
    ThreadGroup threads(nullptr);  // they return when the work is finished
    RETURN_IF_ERROR(threads.Start("rollout-", environments_.size(),
                                  [&](size_t i) { Rollouts(*environments_[i], source, work); }));
    threads.Join();
    return Status::Ok();
  }

  StageSeconds seconds() const override {
    const MutexLock lock(mu_);
    return seconds_;
  }
  FleetCounters counters() const override {
    const MutexLock lock(mu_);
    return counters_;
  }

 private:
  void Rollouts(Environment& environment, const ParameterSource& source, WorkSource& work) {
    PolicyState policy(*model_);
    PolicyWorkspace workspace(*model_);
    std::vector<std::byte> observation(spec_.observation.bytes());
    while (const auto index = ClaimOrWait(work)) {
      const Task task = work.TaskOf(*index);
      const SteadyTime start = Now();
      policy.Load(workspace, task.policy, source);
      const double materialised = SecondsSince(start);
      const EpisodeResult result = Rollout(environment, task, policy, workspace, observation,
                                           [&] { return work.Wanted(*index); });
      const double played = SecondsSince(start) - materialised;
      if (result.done && task.experience)
        work.PostExperience(*index, std::make_shared<Experience>(policy.experience()));
      if (result.done) work.Post(*index, result);
      const MutexLock lock(mu_);
      seconds_.materialise += materialised;
      seconds_.environment += played;  // inference is inside: no clock is read per step
      counters_.steps += result.steps;
      counters_.frames += result.frames;
      ++rollouts_ended_;
      rollout_ended_.NotifyAll();
    }
  }

  // Empty once the work is finished. What there is to claim changes with the results.
  std::optional<uint32_t> ClaimOrWait(WorkSource& work) {
    MutexLock lock(mu_);  // no rollout ends between a claim in vain and the wait
    while (!work.Finished()) {
      if (const auto index = work.Claim()) return index;
      rollout_ended_.WaitFor(mu_, kRolloutWait, [this, seen = rollouts_ended_]() REQUIRES(mu_) {
        return rollouts_ended_ != seen;
      });
    }
    return std::nullopt;
  }

  // result.done is false when nobody wanted it any more
  EpisodeResult Rollout(Environment& environment, const Task& task, PolicyState& policy,
                        PolicyWorkspace& workspace, std::span<std::byte> observation,
                        const auto& wanted) const {
    EpisodeResult result;
    std::vector<float> position(static_cast<size_t>(spec_.position));
    policy.StartEpisode(task.episode, task.experience);
    environment.Reset(task.episode, observation);
    while (wanted()) {
      if (task.episode.record == RecordKind::kObservations)
        AppendRow(std::span<const std::byte>(observation), result.recording);
      const StepResult step = environment.Step(policy.Decide(workspace, observation), observation);
      result.fitness += FitnessOf(step.reward, task.episode);
      result.frames += step.frames;
      ++result.steps;
      if (step.new_sequence) policy.StartSequence();
      const bool ended = step.terminated || step.truncated;
      const bool recorded = task.episode.record == RecordKind::kPositions;
      if (!position.empty() && (ended || recorded)) environment.Position(position);
      if (recorded) AppendRow(std::span<const float>(position), result.recording);
      if (ended) {
        result.truncated = step.truncated;
        result.position = std::move(position);
        result.done = true;
        break;
      }
    }
    return result;
  }

  // constant after construction
  const EnvironmentSpec spec_;
  std::vector<std::unique_ptr<Environment>> environments_;  // one per thread
  std::unique_ptr<PolicyModel> model_;
  mutable Mutex mu_;
  CondVar rollout_ended_;
  uint64_t rollouts_ended_ GUARDED_BY(mu_) = 0;
  StageSeconds seconds_ GUARDED_BY(mu_);
  FleetCounters counters_ GUARDED_BY(mu_);
};

}  // namespace

Result<std::unique_ptr<Evaluator>> MakeDirectEvaluator(const EnvironmentFactory& factory,
                                                       std::unique_ptr<PolicyModel> model,
                                                       uint32_t threads) {
  std::vector<std::unique_ptr<Environment>> environments;
  for (uint32_t i = 0; i < threads; ++i) {
    ASSIGN_OR_RETURN(auto environment, factory());
    environments.push_back(std::move(environment));
  }
  return std::unique_ptr<Evaluator>(
      std::make_unique<DirectEvaluator>(std::move(environments), std::move(model)));
}

}  // namespace samara
