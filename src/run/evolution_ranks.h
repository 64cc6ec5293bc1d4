// An evolution on several ranks, without a master: all hold the same state, share the episodes of
// every generation and derive the same next one. Rank 0 also owns the run folder, the clock and the
// budgets: it says what all do next, and the others follow.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "evo/ga.h"
#include "evo/evaluate/peers.h"
#include "replica/group/group.h"
#include "config/experiment.h"
#include "run/rank_zero.h"

namespace samara {

// What comes next, on every rank.
enum class Act : uint8_t { kStart, kRandomPolicy, kGeneration, kTest, kEnd };

class EvolutionRanks : public Peers {
 public:
  // Made on all ranks at the same point. `group` is borrowed.
  explicit EvolutionRanks(RankGroup& group)
      : group_(group), run_(fmt::format("evolution/{}/", group.communicator().sequence())) {}

  int rank() const override { return group_.rank(); }
  int ranks() const override { return group_.size(); }
  Result<int64_t> Add(const std::string& counter, int64_t amount) override;
  Result<std::vector<std::string>> Exchange(const std::string& what, std::string mine) override;
  bool failed() const override { return group_.failed(); }

  struct Order {
    Act act = Act::kEnd;
    std::string details;  // kStart: EvolutionStart
  };
  // Of rank 0: tells the others.
  Status Announce(Act act, std::string details = {});
  // Of the others: waits for it.
  Result<Order> Next();
  // Collective, after a generation and before it is saved: kInternal unless all hold the same
  // state.
  Status Agree(const GaState& state);

 private:
  RankGroup& group_;
  const std::string run_;  // before the names of counters: a group may see several runs
};

// What rank 0 tells with kStart: enough to be where it is.
struct EvolutionStart {
  RankZero zero;
  GaState state;
  std::vector<FinishedEpisodes> finished;  // of a generation that was cut short

  std::string Encode() const;
  static Result<EvolutionStart> Decode(std::string_view bytes);
};

// Episodes of the policy that knows nothing, run.random_episodes of them.
std::vector<Task> RandomPolicyTasks(const RunConfig& run, const EpisodeRule& episodes);
// ga.* as the algorithm wants it.
GaConfig GaConfigOf(const ExperimentConfig& config);
size_t FinalTestEpisodes(const ExperimentConfig& config);

// A whole run as a rank other than 0, which leaves nothing on disk. Ok when rank 0 ended it,
// however it ended. kInternal when this rank came to another state than rank 0.
Status FollowEvolution(RankGroup& group);

}  // namespace samara
