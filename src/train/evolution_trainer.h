// A run of an evolution: what a Trainer asks of it.
//
// evolution_trainer.cc has its beginning, generations and end, evolution_checkpoint.cc what is
// saved and restored, evolution_metrics.cc what is reported of it.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/mutex.h"
#include "play/initial_policy.h"
#include "storage/evolution_journal.h"
#include "storage/journal.h"
#include "train/trainer.h"

namespace samara {

class EvolutionTrainer final : public Trainer {
 public:
  EvolutionTrainer(ExperimentConfig config, const TrainOptions& options)
      : Trainer(std::move(config), options) {}

  Result<nlohmann::json> CheckOnly() override;

 private:
  Result<bool> ResultStands(const nlohmann::json& result) override;
  Status Build() override;
  Description Describe() const override;
  Result<Restored> Restore() override;
  Status Begin() override;
  Result<std::vector<EpisodeResult>> PlayRandomPolicy(size_t episodes) override;
  std::optional<uint64_t> AwaitedOver() const override;
  Status Loop() override;
  Status SaveLast() override;
  Result<std::vector<double>> Test() override;
  nlohmann::json ResultOf(const std::vector<double>& test) const override;
  Result<Policy> Trained() const override;
  Words words() const override { return {"generation", "every generation is saved", "elite.mp4"}; }

  std::string DeviceName() const;
  Result<EnvironmentSetup> SetUp() const;
  // Generations that the run has saved.
  struct Saved {
    std::optional<GenerationRecord> newest;
    EvolutionSummary summary;           // of the newest
    std::string archive;                // what every generation added to it, in order
    std::vector<nlohmann::json> lines;  // of metrics.jsonl
  };
  static Result<Saved> SavedIn(const JournalContents& contents);
  Status TakeLostEnd(const StoredCheckpoint& checkpoint, Saved& saved);
  void GoOnFrom(Saved saved);
  void ReuseFinished(const JournalContents& contents, uint64_t generation);
  Status RestoreReference(const JournalContents& contents);
  Status TakeInitialPolicy();
  Status Generation();
  void NoteEvaluations(const GenerationReport& report, uint64_t numbered);
  bool Solved(double fitness) const { return fitness >= setup_.environment.solved; }
  bool StopsAsSolved() const { return config_.run.stop_when_solved && solved_at_ > 0; }
  Status MakeDurable();
  // Fields of metrics and results for solved_at_ and solver_.
  nlohmann::json SolvedFields() const;
  nlohmann::json MetricsLine(const GenerationReport& report, const StageSeconds& spent) const;
  void NotePhases(const GenerationReport& report, double episodes);
  Status WriteCheckpoint();
  Status SaveCheckpoint();
  ProgressState Snapshot() const;
  GenerationRecord Record() const;

  NetworkDescription network_;
  std::string reference_;                 // of a network with statistics, as the journal holds it
  std::optional<InitialPolicy> initial_;  // what run.init_from says
  nlohmann::json initial_identity_;       // of a new run: initial_policy of run.json
  std::string initial_about_;             // and its line of the log
  std::unique_ptr<Evaluator> evaluator_;
  PolicyModel* model_ = nullptr;  // the evaluator's
  std::unique_ptr<EvolutionAlgorithm> algorithm_;
  EvolutionSummary summary_;  // of its state
  std::unique_ptr<Journal> journal_;
  bool other_journal_ = false;  // than the one that the last checkpoint pins
  uint64_t journalled_ = 0;     // the last generation that the journal holds
  nlohmann::json metrics_line_ = nlohmann::json::object();  // of the last generation
  std::vector<double> fitness_;                             // of the last generation
  std::vector<float> positions_;                            // the same
  size_t archive_journalled_ = 0;  // entries of the algorithm's archive in the journal
  uint64_t evaluations_ = 0;       // episodes of the population so far
  uint64_t solved_at_ = 0;         // such episodes until the task was solved; 0 = it is not
  // The member of the population that solved it, where members have numbers. Of rank 0, which keeps
  // it in the lines of metrics.
  struct Solver {
    uint64_t generation = 0, individual = 0;
  };
  std::optional<Solver> solver_;
  mutable Mutex mu_;  // against the live view
  SteadyTime generation_began_ GUARDED_BY(mu_) = Now();
  double frames_before_ GUARDED_BY(mu_) = 0;               // counted frames then
  GenerationPace::Spent last_generation_ GUARDED_BY(mu_);  // since the start or the resume
  // of the last generation's phases
  std::vector<std::pair<std::string, double>> last_seconds_ GUARDED_BY(mu_);
  std::atomic<double> best_{ProgressState::kUnknown}, elite_{ProgressState::kUnknown};
  std::atomic<int64_t> scored_{0};  // generation that best_ is of
};

}  // namespace samara
