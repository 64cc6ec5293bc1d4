#include "train/evolution_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/cpu.h"
#include "core/device.h"
#include "core/format.h"
#include "core/log.h"
#include "core/rng.h"
#include "core/signals.h"
#include "core/statistics.h"
#include "evo/evaluate/reference.h"
#include "play/saved_policy.h"

namespace samara {

using nlohmann::json;

Result<json> EvolutionTrainer::CheckOnly() {
  ASSIGN_OR_RETURN(const EnvironmentSetup setup, SetUp());
  if (!config_.run.init_from.empty())
    RETURN_IF_ERROR(MakeInitialFile(config_, setup.network()).status());
  return json::object();
}

// Known to be good before anything is made on disk.
Result<EnvironmentSetup> EvolutionTrainer::SetUp() const {
  const RankPlace mine{.rank = sync_.rank(), .ranks = ranks(), .local_rank = sync_.local_rank()};
  ASSIGN_OR_RETURN(const std::optional<int> gpu, PopulationGpu(config_, mine));
  ASSIGN_OR_RETURN(EnvironmentSetup setup, SetUpEvolution(config_, /*render=*/false, gpu));
  RETURN_IF_ERROR(config_.evolution->Check(setup.network()));
  if (!config_.run.init_from.empty() && !config_.evolution->TakesInitialPolicy())
    return Status(Code::kConfig, fmt::format("run.init_from={}: {} with these keys begins from "
                                             "no policy; leave it out",
                                             Shown(config_.run.init_from), config_.run.algorithm));
  return setup;
}

Status EvolutionTrainer::Build() {
  ASSIGN_OR_RETURN(setup_, SetUp());
  network_ = setup_.network();
  if (config_.run.stop_when_solved && std::isnan(setup_.environment.solved) && sync_.is_main())
    LogWarning(
        fmt::format("run.stop_when_solved: {} has no published criterion; the run ends at "
                    "its budget",
                    setup_.environment.id));
  model_ = setup_.model.get();
  if (network_.needs_reference() && !config_.evolution->KeepsStatistics(network_)) {
    ASSIGN_OR_RETURN(const auto inputs,
                     CollectReference(setup_, static_cast<uint64_t>(config_.run.seed)));
    reference_ = EncodeReference(*model_, inputs);
  }
  ASSIGN_OR_RETURN(evaluator_, MakeEvaluator(config_, setup_));
  if (!sync_.alone()) evaluator_ = MakeSharedEvaluator(std::move(evaluator_), sync_);
  RETURN_IF_ERROR(TakeInitialPolicy());
  algorithm_ =
      config_.evolution->Make({static_cast<uint64_t>(config_.run.seed), network_, *evaluator_,
                               setup_.episodes, initial_ ? &*initial_ : nullptr});
  return Status::Ok();
}

// From the policy that the configuration names, once: a resumed run and the other ranks have the
// file that came of it.
Status EvolutionTrainer::TakeInitialPolicy() {
  if (config_.run.init_from.empty()) return Status::Ok();
  if (sync_.is_main() && session_.resumed()) {
    ASSIGN_OR_RETURN(const auto kept, session_.folder().ReadInitialPolicy());
    if (!kept)
      return {Code::kBadData, session_.folder().path().string() +
                                  ": run.json does not say which policy the run began from"};
    start_.files[RunFolder::kInitialPolicy] = *kept;
  } else if (sync_.is_main()) {
    ASSIGN_OR_RETURN(InitialFile made, MakeInitialFile(config_, network_));
    start_.files[RunFolder::kInitialPolicy] = std::move(made.bytes);
    initial_identity_ = std::move(made.identity);
    initial_about_ = std::move(made.about);
  }
  ASSIGN_OR_RETURN(initial_, ParseInitialPolicy(start_.files[RunFolder::kInitialPolicy], network_));
  return Status::Ok();
}

Trainer::Description EvolutionTrainer::Describe() const {
  Description run{network_.name, ToJson(network_), static_cast<int64_t>(network_.evolved_count)};
  run.more["device"] = DeviceName();
  if (!initial_identity_.is_null()) {
    run.more["initial_policy"] = initial_identity_;
    run.kept[RunFolder::kInitialPolicy] = start_.files.at(RunFolder::kInitialPolicy);
  }
  return run;
}

// Where the population is evaluated, which changes no result.
std::string EvolutionTrainer::DeviceName() const {
  return setup_.gpu ? NameOf({.cuda = true, .ordinal = *setup_.gpu}, FindGpus()) : "CPU";
}

Result<std::vector<EpisodeResult>> EvolutionTrainer::PlayRandomPolicy(size_t episodes) {
  std::vector<Task> tasks;
  for (uint64_t e = 0; e < episodes; ++e) {
    const uint64_t key =
        DeriveKey(static_cast<uint64_t>(config_.run.seed), Purpose::kRandomPolicy, 0, 0, e);
    tasks.push_back({kRandomHandle, Role::kEvaluate, setup_.episodes.Make(key, /*test=*/true)});
  }
  LocalWork work(tasks, StopRequested);
  work.OnPost([this](uint32_t, const EpisodeResult&) { ++over_; });
  awaits_ = true;
  const Status played = evaluator_->Play(FixedParameters(std::span<const float>{}), work);
  awaits_ = false;
  RETURN_IF_ERROR(played);
  if (work.posted() < episodes) return Status(Code::kTryAgain, "stopped");
  return work.TakeResults();
}

std::optional<uint64_t> EvolutionTrainer::AwaitedOver() const {
  const EvolutionProgress p = algorithm_->progress();
  if (p.phase.empty()) return Trainer::AwaitedOver();
  return p.generation + p.frames + p.done;
}

// With several ranks all have the same state and the same requests: they leave the loop together.
Status EvolutionTrainer::Loop() {
  {
    const MutexLock lock(mu_);
    generation_began_ = Now();
    frames_before_ = static_cast<double>(summary_.frames);
  }
  const auto progress = ShowLive([this] { return Snapshot(); });
  Status status;
  while (status.ok()) {
    const bool save = sync_.is_main() && summary_.generation > 0 && SaveRequested();
    const auto agreed = sync_.Decide({.stop = StopRequested(), .save = save, .seconds = Seconds()});
    status = agreed.status();
    if (!status.ok()) break;
    agreed_ = *agreed;
    if (config_.evolution->budget.Spent(summary_) || TimeSpent() || StopsAsSolved())
      return Status::Ok();
    if (save) status = SaveCheckpoint();
    if (status.ok()) status = Generation();
  }
  // stopped or failed: what is reported is in the journal; the checkpoint saves the next start some
  // work, unless the journal could not take this generation
  const uint64_t generation = summary_.generation;
  if (sync_.is_main() && generation > 0 && generation == journalled_) {
    if (const Status saved = WriteCheckpoint(); !saved.ok())
      LogWarning(saved.message() + "; the journal has every generation");
  }
  stop_.reset();  // what could be saved is
  return status.code() == Code::kTryAgain
             ? Stopped(
                   fmt::format("stopped in generation {}, all before it is saved", generation + 1))
             : status;
}

namespace {

// kInternal: a candidate of the state can no longer be played.
Status CheckFinite(const EvolutionAlgorithm& algorithm) {
  for (const NamedCandidate& named : algorithm.Candidates()) {
    const auto* parameters = std::get_if<std::vector<float>>(&named.candidate);
    if (parameters == nullptr ||
        std::ranges::all_of(*parameters, [](float x) { return std::isfinite(x); }))
      continue;
    return {Code::kInternal,
            fmt::format("generation {}: parameters of {} are not finite: not saved, all before it "
                        "are; start again with a smaller learning rate or step size",
                        algorithm.summary().generation, named.name)};
  }
  return Status::Ok();
}

}  // namespace

Status EvolutionTrainer::Generation() {
  if (agreed_.stop) return {Code::kTryAgain, "stopped"};
  const StageSeconds before = evaluator_->seconds();
  const auto episodes = static_cast<double>(algorithm_->EpisodesOfNext());
  const uint64_t numbered = algorithm_->MembersOfNext();
  ASSIGN_OR_RETURN(const GenerationReport report, algorithm_->Step(StopRequested));
  summary_ = algorithm_->summary();
  NoteEvaluations(report, numbered);
  const EvolutionSummary& s = summary_;
  RETURN_IF_ERROR(
      sync_.CheckSame(fmt::format("generation {}: not saved, all before it are: ", s.generation),
                      {{"the state", algorithm_->EncodeState()}}));
  RETURN_IF_ERROR(CheckFinite(*algorithm_));
  if (!sync_.is_main()) return Status::Ok();
  NotePhases(report, episodes);
  const StageSeconds after = evaluator_->seconds();
  fitness_ = report.fitness;
  positions_ = report.positions;
  best_ = RangeOf(fitness_).second;
  scored_ = static_cast<int64_t>(s.generation);
  elite_ = s.best_mean;
  metrics_line_ =
      MetricsLine(report, {after.decode - before.decode, after.inference - before.inference,
                           after.environment - before.environment});
  RETURN_IF_ERROR(MakeDurable());
  metrics_->Write(metrics_line_);
  // a display says the same
  Log(DrawsLive() ? LogLevel::kDebug : LogLevel::kInfo,
      fmt::format("generation {}: frames {}, fitness best {:g} mean {:.1f}, elite {:.1f}{}, {}, "
                  "{:.0f} frames/s",
                  s.generation, s.frames, best_.load(), Mean(fitness_), s.best_mean,
                  report.validated > 0 ? " in validation" : "", report.note,
                  static_cast<double>(report.frames - report.frames_reused) /
                      (report.seconds_population + report.seconds_validation)));
  return Status::Ok();
}

Result<Policy> EvolutionTrainer::Trained() const {
  Policy policy;
  policy.config = config_;
  policy.network = network_;
  RETURN_IF_ERROR(TakeCandidate(summary_.best, policy, initial_ ? &*initial_ : nullptr));
  if (!reference_.empty()) {
    PolicyWorkspace workspace(*model_);
    model_->ComputeStatistics(workspace, policy.parameters);
  }
  policy.source = fmt::format("{}, elite of generation {}", session_.folder().path().string(),
                              summary_.generation);
  return policy;
}

Result<std::vector<double>> EvolutionTrainer::Test() {
  const auto results =
      algorithm_->PlayBest(Purpose::kEpisodeTest, FinalTestEpisodes(config_), StopRequested);
  if (results.status().code() == Code::kTryAgain)
    return Stopped(std::string("stopped in the final test, ") + words().saved);
  RETURN_IF_ERROR(results.status());
  std::vector<double> returns;
  for (const auto& r : *results) returns.push_back(r.fitness);
  return returns;
}

json EvolutionTrainer::ResultOf(const std::vector<double>& test) const {
  const EvolutionSummary& s = summary_;
  const auto frames = static_cast<double>(s.frames);
  json result = {{"generation", s.generation},
                 {"evaluations", evaluations_},
                 {"frames", s.frames},
                 {"population_hash", Hex(s.population_hash)},
                 {"elite_mean", Mean(test)},
                 {"elite_median", Median(test)},
                 {"elite_returns", test},
                 {"seconds", Seconds()},
                 {"device", DeviceName()},
                 {"frames_per_core_second", frames / (Seconds() * Cores())},
                 {"hours_per_billion_frames", 1e9 / (frames / Seconds()) / 3600}};
  result.update(SolvedFields());
  const bool solved = Solved(Mean(test));
  if (solved_at_ == 0 && solved) result["solved_at"] = evaluations_;
  if (!std::isnan(setup_.environment.solved) && !test.empty()) result["elite_solved"] = solved;
  return result;
}

std::unique_ptr<Trainer> MakeEvolutionTrainer(ExperimentConfig config,
                                              const TrainOptions& options) {
  return std::make_unique<EvolutionTrainer>(std::move(config), options);
}

}  // namespace samara
