#include "run/evolution_ranks.h"

#include <fmt/format.h>

#include <optional>

#include "core/bytes.h"
#include "core/rng.h"
#include "core/sha256.h"
#include "replica/collectives/agreement.h"
#include "play/saved_policy.h"
#include "core/signals.h"

namespace samara {

// ---- what ranks say to each other

Result<int64_t> EvolutionRanks::Add(const std::string& counter, int64_t amount) {
  ASSIGN_OR_RETURN(const int64_t sum, group_.store().Add(run_ + counter, amount));
  return sum - amount;
}

Result<std::vector<std::string>> EvolutionRanks::Exchange(const std::string& what,
                                                          std::string mine) {
  return group_.Exchange(what, mine);
}

Status EvolutionRanks::Announce(Act act, std::string details) {
  return Exchange("order", ByteWriter().Put(act).Take() + details).status();
}

Result<EvolutionRanks::Order> EvolutionRanks::Next() {
  ASSIGN_OR_RETURN(const auto all, Exchange("order", {}));
  if (all[0].empty()) return Status(Code::kInternal, "rank 0 said nothing: is it another build?");
  return Order{static_cast<Act>(all[0][0]), all[0].substr(1)};
}

Status EvolutionRanks::Agree(const GaState& state) {
  ASSIGN_OR_RETURN(const auto all, Exchange("state", Sha256Hex(state.Encode())));
  return CheckAgreement(
      fmt::format("generation {}: not saved, all before it are: the state", state.generation), all);
}

std::string EvolutionStart::Encode() const {
  ByteWriter out;
  zero.Put(out);
  out.PutBytes(state.Encode()).Put(uint64_t{finished.size()});
  for (const FinishedEpisodes& episodes : finished) out.PutBytes(episodes.Encode());
  return out.Take();
}

Result<EvolutionStart> EvolutionStart::Decode(std::string_view bytes) {
  ByteReader in(bytes);
  EvolutionStart start;
  start.zero = RankZero::Get(in);
  ASSIGN_OR_RETURN(start.state, GaState::Decode(in.GetBytes()));
  const auto count = in.Get<uint64_t>();
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    ASSIGN_OR_RETURN(FinishedEpisodes episodes, FinishedEpisodes::Decode(in.GetBytes()));
    start.finished.push_back(std::move(episodes));
  }
  if (!in.AtEnd()) return Status(Code::kInternal, "rank 0's start cannot be read");
  return start;
}

// ---- what all ranks do alike

std::vector<Task> RandomPolicyTasks(const RunConfig& run, const EpisodeRule& episodes) {
  std::vector<Task> tasks;
  for (uint64_t e = 0; e < static_cast<uint64_t>(run.random_episodes); ++e) {
    const uint64_t key =
        DeriveKey(static_cast<uint64_t>(run.seed), Purpose::kRandomPolicy, 0, 0, e);
    tasks.push_back({kRandomHandle, Role::kEvaluate, episodes.Make(key, /*test=*/true)});
  }
  return tasks;
}

GaConfig GaConfigOf(const ExperimentConfig& config) {
  GaConfig ga = config.ga;
  if (config.run.algorithm == "random-search") ga.parents = 0;
  return ga;
}

size_t FinalTestEpisodes(const ExperimentConfig& config) {
  return static_cast<size_t>(config.run.final_test_episodes > 0 ? config.run.final_test_episodes
                                                                : config.ga.test_episodes);
}

// ---- the ranks that follow

namespace {

class Follower {
 public:
  explicit Follower(RankGroup& group) : group_(group), ranks_(group) {}

  Status Run() {
    for (;;) {
      ASSIGN_OR_RETURN(const EvolutionRanks::Order order, ranks_.Next());
      if (order.act == Act::kEnd) return Status::Ok();
      RETURN_IF_ERROR(Do(order));
    }
  }

 private:
  Status Do(const EvolutionRanks::Order& order) {
    switch (order.act) {
      case Act::kStart:
        return Start(order.details);
      case Act::kRandomPolicy:
        return PlayRandomPolicy();
      case Act::kGeneration:
        return Generation();
      case Act::kTest:
        return Together(ga_->Play(ga_->state().elite, Purpose::kEpisodeTest,
                                  FinalTestEpisodes(config_), StopRequested)
                            .status());
      case Act::kEnd:
        break;
    }
    return {Code::kInternal, "rank 0 asks for something unknown: is it another build?"};
  }

  Status Start(const std::string& details) {
    ASSIGN_OR_RETURN(const EvolutionStart start, EvolutionStart::Decode(details));
    ASSIGN_OR_RETURN(config_, start.zero.Config(group_.world()));
    ASSIGN_OR_RETURN(stage_, MakeStage(config_));
    RETURN_IF_ERROR(start.zero.Check(stage_, group_.rank()));
    network_ = stage_.network();
    ASSIGN_OR_RETURN(auto own, MakeEvaluator(config_, stage_));
    evaluator_ = MakeSharedEvaluator(std::move(own), ranks_);
    ga_ = std::make_unique<DeepGa>(GaConfigOf(config_), static_cast<uint64_t>(config_.run.seed),
                                   network_, *evaluator_, stage_.episodes);
    ga_->Restore(start.state);
    for (const FinishedEpisodes& episodes : start.finished) ga_->Reuse(episodes);
    stop_.emplace();  // a stop ends the episodes on all ranks
    return Status::Ok();
  }

  Status PlayRandomPolicy() {
    const std::vector<Task> tasks = RandomPolicyTasks(config_.run, stage_.episodes);
    LocalWork work(tasks, StopRequested);
    return Together(evaluator_->Play(FixedParameters(std::span<const float>{}), work));
  }

  Status Generation() {
    const Status played = ga_->Step(StopRequested).status();
    return played.ok() ? ranks_.Agree(ga_->state()) : Together(played);
  }

  // What all ranks played together ended alike on all of them: rank 0 says what follows.
  Status Together(const Status& played) const { return group_.failed() ? played : Status::Ok(); }

  RankGroup& group_;
  EvolutionRanks ranks_;
  ExperimentConfig config_;
  Stage stage_;
  NetworkDescription network_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<DeepGa> ga_;
  std::optional<GracefulStop> stop_;
};

}  // namespace

Status FollowEvolution(RankGroup& group) { return Follower(group).Run(); }

}  // namespace samara
