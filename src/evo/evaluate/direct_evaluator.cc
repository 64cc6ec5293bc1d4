#include "core/clock.h"
#include "core/mutex.h"
#include "core/thread.h"
#include "evo/evaluate/evaluator.h"

namespace samara {
namespace {

constexpr std::chrono::milliseconds kRolloutWait{20};  // until an idle thread notices a stop

constexpr size_t kSideBySide = PopulationKernel::kSideBySide;  // episodes of a thread
constexpr uint64_t kStepsFirst = 1000;                         // until their cost is known

class DirectEvaluator : public Evaluator {
 public:
  DirectEvaluator(EnvironmentFactory factory,
                  std::vector<std::unique_ptr<Environment>> environments,
                  std::unique_ptr<PolicyModel> model, double cheap_step)
      : spec_(environments.front()->spec()),
        factory_(std::move(factory)),
        cheap_step_(cheap_step),
        model_(std::move(model)) {
    for (auto& environment : environments)
      environments_.emplace_back().push_back(std::move(environment));
  }

  const EnvironmentSpec& spec() const override { return spec_; }

  Status Play(const ParameterSource& source, WorkSource& work) override {
    ThreadGroup threads(nullptr);  // they return when the work is finished
    RETURN_IF_ERROR(threads.Start("rollout-", environments_.size(),
                                  [&](size_t i) { Rollouts(environments_[i], source, work); }));
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
  // An environment, and the episode that is played in it.
  struct Seat {
    Seat(Environment& e, const PolicyModel& model)
        : environment(e), policy(model), observation(e.spec().observation.bytes()) {}
    Environment& environment;
    PolicyState policy;
    std::vector<std::byte> observation;
    std::vector<float> position;
    uint32_t index = 0;
    Task task;
    EpisodeResult result;
    bool over = false;  // it has ended, or was cancelled (result.done is false)
  };

  void Rollouts(std::vector<std::unique_ptr<Environment>>& environments,
                const ParameterSource& source, WorkSource& work) {
    PolicyWorkspace workspace(*model_);
    std::vector<std::unique_ptr<Seat>> seats;  // the first `playing` are taken
    size_t playing = 0;
    SteadyTime since = Now();
    double decoding = 0;
    while (true) {
      while (playing < Wide(environments)) {
        const auto index = playing == 0 ? ClaimOrWait(work) : work.Claim();
        if (!index) break;
        if (playing == 0) since = Now();
        if (playing == seats.size())
          seats.push_back(std::make_unique<Seat>(*environments[playing], *model_));
        decoding += Begin(*seats[playing++], work.TaskOf(*index), *index, source, workspace);
      }
      if (playing == 0) return;
      Steps(std::span(seats).first(playing), workspace, work);
      double played = SecondsSince(since) - decoding;
      since = Now();
      for (size_t i = playing; i-- > 0;) {
        if (!seats[i]->over) continue;
        End(*seats[i], std::exchange(decoding, 0), std::exchange(played, 0), work);
        std::swap(seats[i], seats[--playing]);
      }
    }
  }

  // How many episodes a thread plays side by side; makes the environments for them.
  size_t Wide(std::vector<std::unique_ptr<Environment>>& environments) {
    if (environments.size() == kSideBySide || !model_->kernel().small()) return environments.size();
    const MutexLock lock(mu_);
    if (counters_.steps < kStepsFirst ||
        seconds_.environment > cheap_step_ * static_cast<double>(counters_.steps))
      return 1;
    while (environments.size() < kSideBySide) {
      auto made = factory_();
      if (!made.ok()) break;  // those that are there do
      environments.push_back(std::move(made).ValueOrThrow());
    }
    return environments.size();
  }

  // Returns the seconds for its parameters.
  double Begin(Seat& seat, Task task, uint32_t index, const ParameterSource& source,
               PolicyWorkspace& workspace) const {
    const SteadyTime start = Now();
    seat.policy.Load(workspace, task.policy, source);
    const double decoding = SecondsSince(start);
    seat.index = index;
    seat.task = task;
    seat.result = {};
    seat.over = false;
    seat.position.assign(static_cast<size_t>(spec_.position), 0);
    seat.policy.StartEpisode(seat.task.episode, seat.task.experience);
    seat.environment.Reset(seat.task.episode, seat.observation);
    return decoding;
  }

  // Plays until an episode is over, or several are.
  void Steps(std::span<const std::unique_ptr<Seat>> seats, PolicyWorkspace& workspace,
             const WorkSource& work) const {
    const size_t n = seats.size();
    PolicyState* policies[kSideBySide];
    std::span<const std::byte> observations[kSideBySide];
    for (size_t i = 0; i < n; ++i)
      policies[i] = &seats[i]->policy, observations[i] = seats[i]->observation;
    for (bool over = false; !over;) {
      for (size_t i = 0; i < n; ++i) {
        seats[i]->over = !work.Wanted(seats[i]->index);
        if (seats[i]->over) return;
      }
      for (size_t i = 0; i < n; ++i) {
        if (seats[i]->task.episode.record == RecordKind::kObservations)
          AppendRow(observations[i], seats[i]->result.recording);
      }
      PolicyState::EvaluateAll(workspace, {policies, n}, {observations, n});
      for (size_t i = 0; i < n; ++i) {
        Step(*seats[i]);
        over |= seats[i]->over;
      }
    }
  }

  void Step(Seat& seat) const {
    EpisodeResult& result = seat.result;
    const StepResult step = seat.environment.Step(seat.policy.Act(), seat.observation);
    result.fitness += FitnessOf(step.reward, seat.task.episode);
    result.frames += step.frames;
    ++result.steps;
    if (step.new_sequence) seat.policy.StartSequence();
    const bool ended = step.terminated || step.truncated;
    const bool recorded = seat.task.episode.record == RecordKind::kPositions;
    if (!seat.position.empty() && (ended || recorded)) seat.environment.Position(seat.position);
    if (recorded) AppendRow(std::span<const float>(seat.position), result.recording);
    if (!ended) return;
    result.truncated = step.truncated;
    result.position = std::move(seat.position);
    result.done = true;
    seat.over = true;
  }

  void End(const Seat& seat, double decoding, double played, WorkSource& work) {
    const EpisodeResult& result = seat.result;
    if (result.done && seat.task.experience)
      work.PostExperience(seat.index, std::make_shared<Experience>(seat.policy.experience()));
    if (result.done) work.Post(seat.index, result);
    const MutexLock lock(mu_);
    seconds_.decode += decoding;
    seconds_.environment += played;  // inference is inside: no clock is read per step
    counters_.steps += result.steps;
    counters_.frames += result.frames;
    ++rollouts_ended_;
    rollout_ended_.NotifyAll();
  }

  // Empty once the work is finished. What there is to claim changes with the results.
  std::optional<uint32_t> ClaimOrWait(WorkSource& work) {
    MutexLock lock(mu_);  // no rollout ends between an empty claim and the wait
    while (!work.Finished()) {
      if (const auto index = work.Claim()) return index;
      rollout_ended_.WaitFor(mu_, kRolloutWait, [this, seen = rollouts_ended_]() REQUIRES(mu_) {
        return rollouts_ended_ != seen;
      });
    }
    return std::nullopt;
  }

  // constant after construction
  const EnvironmentSpec spec_;
  const EnvironmentFactory factory_;
  const double cheap_step_;
  std::vector<std::vector<std::unique_ptr<Environment>>> environments_;  // of each thread
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
                                                       uint32_t threads, double cheap_step) {
  std::vector<std::unique_ptr<Environment>> environments;
  for (uint32_t i = 0; i < threads; ++i) {
    ASSIGN_OR_RETURN(auto environment, factory());
    environments.push_back(std::move(environment));
  }
  return std::unique_ptr<Evaluator>(std::make_unique<DirectEvaluator>(
      factory, std::move(environments), std::move(model), cheap_step));
}

}  // namespace samara
