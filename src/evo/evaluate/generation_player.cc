#include "evo/evaluate/generation_player.h"

#include <utility>

namespace samara {
namespace {

constexpr size_t kUnkeptBytesMax = size_t{32} << 20;  // of recordings, in one record

}  // namespace

GenerationPlayer::GenerationPlayer(uint64_t seed, Evaluator& evaluator, EpisodeRule episodes)
    : seed_(seed), evaluator_(evaluator), episodes_(std::move(episodes)) {}

void GenerationPlayer::StartAfter(uint64_t generation, uint64_t frames) {
  finished_.clear(), unkept_.clear();
  unkept_bytes_ = 0;
  kept_at_ = Now();
  frames_ = frames;
  frames_reused_ = 0;
  episodes_total_ = episodes_before_ = 0;
  const MutexLock lock(mu_);
  generation_ = generation;
  frames_before_ = frames;
}

// ---- finished episodes

void GenerationPlayer::KeepFinished(double seconds,
                                    std::function<bool(const FinishedEpisodes&)> keep) {
  keep_seconds_ = seconds, keep_ = std::move(keep);
}

void GenerationPlayer::Reuse(const FinishedEpisodes& finished) {
  if (finished.generation != next_generation()) return;
  finished_[finished.phase].insert(finished.results.begin(), finished.results.end());
}

void GenerationPlayer::Note(Phase phase, uint32_t index, const EpisodeResult& result) {
  finished_[phase][index] = unkept_[phase][index] = result;
  unkept_bytes_ += result.recording.size();
  if (SecondsSince(kept_at_) >= keep_seconds_ || unkept_bytes_ > kUnkeptBytesMax) KeepNow();
}

void GenerationPlayer::KeepNow() {
  kept_at_ = Now();
  unkept_bytes_ = 0;
  if (!keep_) return;
  std::erase_if(unkept_, [this](const auto& phase) {
    return keep_({next_generation(), phase.first, phase.second});
  });
}

// ---- tasks

Task GenerationPlayer::PopulationTask(uint32_t individual, uint64_t episode,
                                      double frames_expected) const {
  const uint64_t key = Key(Purpose::kEpisodePopulation, individual, episode);
  return {{individual, 0}, Role::kTrain, episodes_.Make(key, false), frames_expected};
}

// Keyed by the individual: when it is validated, and with which others, changes nothing.
Task GenerationPlayer::ValidationTask(uint32_t individual, uint64_t episode) const {
  const uint64_t key = Key(Purpose::kEpisodeValidation, individual, episode);
  return {{individual, 0}, Role::kEvaluate, episodes_.Make(key, false)};
}

std::vector<Task> GenerationPlayer::TestTasks(Purpose purpose, size_t episodes) const {
  std::vector<Task> tasks;
  for (size_t e = 0; e < episodes; ++e)
    tasks.push_back({{0, 0}, Role::kEvaluate, episodes_.Make(Key(purpose, 0, e), true)});
  return tasks;
}

// ---- population and validation as one piece of work

GenerationPlayer::Running::Running(GenerationPlayer& player, GenerationPlan plan,
                                   const ParameterSource& policies, size_t episodes_total,
                                   const StopToken& stop)
    : player_(player),
      work_(
          std::move(plan), [this, &stop] { return stopped_ || (stop && stop()); },
          player.finished_[Phase::kPopulation], player.finished_[Phase::kValidation]),
      policies_(policies) {
  work_.OnPost(
      [this](Phase phase, uint32_t i, const EpisodeResult& r) { player_.Note(phase, i, r); });
  player_.episodes_total_ = episodes_total, player_.episodes_before_ = 0;
  player_.Show([this] { return Progress(); }, player_.frames_);
}

GenerationPlayer::Running::~Running() { player_.Show(nullptr, player_.frames_before_); }

Status GenerationPlayer::Running::Start() {
  return thread_.Start("episodes", 1, [this](size_t) {
    played_ = player_.evaluator_.Play(policies_, work_);
    work_.EvaluatorIsDone();
  });
}

Status GenerationPlayer::Running::Population() {
  return work_.WaitForPopulation() ? Status::Ok() : Ended("population");
}

Status GenerationPlayer::Running::Validation() { return Ended("validation"); }

Status GenerationPlayer::Running::Play() {
  RETURN_IF_ERROR(Start());
  RETURN_IF_ERROR(Population());
  return Validation();  // which is none: the thread has ended
}

Status GenerationPlayer::Running::Ended(const char* phase) {
  thread_.Join();
  const GenerationWork::Counts counts = work_.counts();
  player_.Show(nullptr, player_.frames_ + counts.frames);
  player_.episodes_before_ = work_.population().size() + (counts.validating ? counts.total : 0);
  if (work_.Complete() && played_.ok()) {
    player_.frames_reused_ += counts.frames - work_.FramesPlayed();
    return played_;
  }
  player_.KeepNow();
  RETURN_IF_ERROR(played_);
  return {Code::kTryAgain, std::string("stopped while playing the ") + phase};
}

EvolutionProgress GenerationPlayer::Running::Progress() const {
  const GenerationWork::Counts c = work_.counts();
  const size_t before = c.validating ? work_.population().size() : 0;
  return {.phase = c.validating ? "validation" : "population",
          .done = c.done,
          .total = c.total,
          .frames = c.frames,
          .best = c.best,
          .episodes_done = before + c.done,
          .episodes_total = player_.episodes_total_};
}

// ---- apart from them

Result<GenerationPlayer::Results> GenerationPlayer::PlayFurther(
    std::span<const Task> tasks, uint32_t first, const ParameterSource& members,
    const StopToken& stop, std::function<void(EpisodeResult&)> reduce) {
  return PlayApart(Phase::kPopulation, tasks, first, members, stop, std::move(reduce));
}

// ---- tasks that follow from results

Result<GenerationPlayer::Results> GenerationPlayer::PlayOrdered(OrderedWork::Plan plan,
                                                                const ParameterSource& policies,
                                                                bool records,
                                                                const StopToken& stop) {
  const size_t tasks = plan.tasks;
  if (records) finished_.clear();
  uint64_t reused = 0;
  for (const auto& [index, result] : finished_[Phase::kPopulation])
    if (index < tasks) reused += result.frames;
  OrderedWork work(std::move(plan), stop, finished_[Phase::kPopulation]);
  if (!records)
    work.OnPost([this](uint32_t i, const EpisodeResult& r) { Note(Phase::kPopulation, i, r); });
  Show(
      [&] {
        const OrderedWork::Counts c = work.counts();
        return EvolutionProgress{.phase = "population",
                                 .done = c.done,
                                 .total = tasks,
                                 .frames = c.frames,
                                 .best = c.best,
                                 .episodes_done = c.done,
                                 .episodes_total = tasks};
      },
      frames_);
  const Status status = evaluator_.Play(policies, work);
  Show(nullptr, frames_ + work.counts().frames);
  episodes_before_ = tasks;
  if (work.Complete() && status.ok()) {
    frames_reused_ += reused;
    return work.TakeResults();
  }
  KeepNow();
  RETURN_IF_ERROR(status);
  return Status(Code::kTryAgain, "stopped while playing the population");
}

Result<std::vector<SharedExperience>> GenerationPlayer::Replay(const ParameterSource& policies,
                                                               std::span<const uint64_t> keys,
                                                               const StopToken& stop) {
  std::vector<Task> tasks;
  for (uint32_t i = 0; i < keys.size(); ++i)
    tasks.push_back({.policy = {i, 0},
                     .role = Role::kTrain,
                     .episode = episodes_.Make(keys[i], false),
                     .experience = true});
  LocalWork work(tasks, stop);
  RETURN_IF_ERROR(evaluator_.Play(policies, work));
  if (work.posted() < tasks.size())
    return Status(Code::kTryAgain, "stopped while playing ancestors again");
  return work.TakeExperiences();
}

// ---- one policy apart

Result<GenerationPlayer::Results> GenerationPlayer::Validate(const ParameterSource& policy,
                                                             uint32_t individual, size_t episodes,
                                                             const StopToken& stop,
                                                             int64_t frames_max) {
  std::vector<Task> tasks;
  for (size_t e = 0; e < episodes; ++e) {
    Task& task = tasks.emplace_back(ValidationTask(individual, e));
    task.episode.frames_max = ShorterLimit(task.episode.frames_max, frames_max);
  }
  const auto first = static_cast<uint32_t>(individual * episodes);
  return PlayApart(Phase::kValidation, tasks, first, policy, stop);
}

Result<GenerationPlayer::Results> GenerationPlayer::Test(const ParameterSource& policy,
                                                         size_t episodes, const StopToken& stop) {
  return PlayApart(Phase::kTest, TestTasks(Purpose::kEpisodeTest, episodes), 0, policy, stop);
}

Result<GenerationPlayer::Results> GenerationPlayer::PlayApart(
    Phase phase, std::span<const Task> tasks, uint32_t first, const ParameterSource& policy,
    const StopToken& stop, std::function<void(EpisodeResult&)> reduce) {
  ResultsByIndex known;
  for (const auto& [index, result] : finished_[phase])
    if (index >= first) known.emplace(index - first, result);
  LocalWork work(tasks, stop, known);
  const uint64_t reused = work.frames();
  work.Reduce(std::move(reduce));
  work.OnPost([&](uint32_t i, const EpisodeResult& r) { Note(phase, first + i, r); });
  auto results = PlayAll(work, tasks, phase, policy, episodes_total_);
  if (!results.ok()) KeepNow();
  if (results.ok() && phase != Phase::kTest) frames_reused_ += reused;
  episodes_before_ += tasks.size();
  return results;
}

Result<GenerationPlayer::Results> GenerationPlayer::Play(const ParameterSource& policy,
                                                         Purpose purpose, size_t episodes,
                                                         const StopToken& stop) {
  const std::vector<Task> tasks = TestTasks(purpose, episodes);
  LocalWork work(tasks, stop);
  return PlayAll(work, tasks, Phase::kTest, policy, 0);
}

Result<GenerationPlayer::Results> GenerationPlayer::PlayAll(LocalWork& work,
                                                            std::span<const Task> tasks,
                                                            Phase phase,
                                                            const ParameterSource& policy,
                                                            size_t episodes_total) {
  if (tasks.empty()) return Results();
  const bool counted = phase != Phase::kTest;
  const std::string name = phase == Phase::kPopulation ? "population"
                           : counted                   ? "validation"
                                                       : "test";
  const uint64_t frames = progress().frames;
  Show(
      [&, before = episodes_before_] {
        return EvolutionProgress{.phase = name,
                                 .done = work.posted(),
                                 .total = tasks.size(),
                                 .frames = counted ? work.frames() : 0,
                                 .episodes_done = episodes_total == 0 ? 0 : before + work.posted(),
                                 .episodes_total = episodes_total};
      },
      frames);
  const Status status = evaluator_.Play(policy, work);
  Show(nullptr, frames + (counted ? work.frames() : 0));
  if (work.posted() == tasks.size() && status.ok()) return work.TakeResults();
  RETURN_IF_ERROR(status);
  return Status(Code::kTryAgain, "stopped while playing the " + name);
}

// ---- progress

void GenerationPlayer::Show(std::function<EvolutionProgress()> progress, uint64_t frames_before) {
  const MutexLock lock(mu_);
  shown_ = std::move(progress), frames_before_ = frames_before;
}

EvolutionProgress GenerationPlayer::progress() const {
  const MutexLock lock(mu_);
  if (!shown_) return {.phase = "", .generation = generation_, .frames = frames_before_};
  EvolutionProgress progress = shown_();
  progress.generation = generation_ + 1;
  progress.frames += frames_before_;
  return progress;
}

}  // namespace samara
