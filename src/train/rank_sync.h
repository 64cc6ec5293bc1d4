// The ranks that share a run, as its trainer sees them: one protocol for evolution and learning.
//
// All ranks run the same trainer on the same state. The main rank also owns the run folder and the
// clock. Between two steps the ranks exchange what each was asked for, and all decide alike.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "evo/evaluate/peers.h"
#include "replica/group/group.h"
#include "rl/learner/agent.h"
#include "train/run_descriptor.h"

namespace samara {

// One rank's view of the others; without a group it is the only one.
class RankSync final : public GradientCombiner, public Peers {
 public:
  explicit RankSync(RankGroup* group) : group_(group) {}  // borrowed; null: alone
  bool alone() const { return group_ == nullptr; }
  int rank() const override { return alone() ? 0 : group_->rank(); }
  int ranks() const override { return alone() ? 1 : group_->size(); }
  int local_rank() const { return alone() ? 0 : group_->world().local_rank; }
  bool is_main() const { return rank() == 0; }
  // Not ok once a rank is gone.
  Status failure() const;
  bool failed() const override { return !alone() && group_->failed(); }
  // All ranks end, for this reason.
  void Fail(const Status& why);
  // Called on all ranks at the same point of a run, before Add: a group may see several runs.
  void BeginRun();

  // This rank's part of `n` things that the ranks share: [first, end).
  struct Part {
    uint32_t first, end;
    uint32_t size() const { return end - first; }
  };
  Part PartOf(int64_t n) const;

  // Requests that a rank has received, and the running time that it knows.
  struct Requests {
    bool stop = false, save = false;
    double seconds = 0;
    // The requests of all: those of any rank; the first rank's time.
    static Requests Join(std::span<const Requests> all);
  };
  // Collective: the requests that all ranks act on next.
  Result<Requests> Decide(const Requests& mine);

  // Collectives. The bytes that every rank sends, in the order of ranks:
  Result<std::vector<std::string>> Exchange(const std::string& what, std::string mine) override;
  // The bytes that the main rank sends.
  Result<std::string> FromMain(const std::string& what, std::string mine);
  // kInternal unless the files, of the same names everywhere, are the same on every rank. `when`
  // begins the message.
  Status CheckSame(const std::string& when, const NamedFiles& files);
  // The episodes of all ranks, each of which has played some; kTryAgain when one was stopped.
  Result<std::vector<EpisodeResult>> Gather(Result<std::vector<EpisodeResult>> mine);

  // Gradients go from GPU to GPU from now on where every rank learns on one of its own. Collective.
  Status LinkGpus(const Device& mine);
  // The last gradients are added: on every rank, after an orderly end.
  void UnlinkGpus();

  // GradientCombiner: the fixed tree over the shards (replica/collectives/reduce.h), whichever rank
  // has them.
  Status Combine(std::span<const std::span<const float>> mine, std::span<float> sum) override;
  bool links_gpus() const override { return gpus_ != nullptr; }
  Status CombineOnGpus(std::span<const float> mine, std::span<float> sum) override {
    return gpus_->Sum(mine, sum);
  }
  // Peers.
  Result<int64_t> Add(const std::string& counter, int64_t amount) override;

 private:
  RankGroup* const group_;
  std::string run_;  // before the names of counters
  std::unique_ptr<GpuSum> gpus_;
};

}  // namespace samara
