#include <algorithm>

#include "core/bytes.h"
#include "core/mutex.h"
#include "evo/evaluate/finished_episodes.h"
#include "evo/evaluate/peers.h"

namespace samara {
namespace {

constexpr int64_t kBeyond = int64_t{1} << 40;  // puts a counter past the end of any work

// One round of a piece of work: what can be claimed now, until every task of it is played by some
// rank.
//
// The tasks are claimed from the whole work once, on every rank in the same order; the counter then
// says whose they are. Each grab takes an eighth of this rank's share of what is left (guided
// self-scheduling, Polychronopoulos and Kuck 1987): few questions while there is much to do, single
// tasks at the end, so that ranks finish together.
class Round : public WorkSource {
 public:
  Round(WorkSource& whole, Peers& peers, std::string counter)
      : whole_(whole), peers_(peers), counter_(std::move(counter)) {
    while (const auto index = whole_.Claim()) tasks_.push_back(*index);
  }

  std::optional<uint32_t> Claim() override {
    const MutexLock lock(mu_);
    if (Broken()) GiveUpLocked();
    if (next_ == end_ && !exhausted_) Grab();
    if (next_ == end_) return std::nullopt;
    ++claimed_;
    return tasks_[next_++];
  }
  Task TaskOf(uint32_t index) const override { return whole_.TaskOf(index); }
  void Post(uint32_t index, const EpisodeResult& played) override {
    EpisodeResult result = whole_.Reduced(played);  // what the other ranks receive
    whole_.Post(index, result);
    const MutexLock lock(mu_);
    results_.emplace(index, std::move(result));
    NoteDone();
  }
  void PostExperience(uint32_t index, SharedExperience experience) override {
    whole_.PostExperience(index, experience);
    const MutexLock lock(mu_);
    experiences_[index] = std::move(experience);
  }
  bool Finished() const override { return done_.load(std::memory_order_relaxed) || Broken(); }
  bool Wanted(uint32_t index) const override { return !Broken() && whole_.Wanted(index); }
  EpisodeResult Reduced(EpisodeResult result) const override {
    return whole_.Reduced(std::move(result));
  }

  bool empty() const { return tasks_.empty(); }
  // Ends all claims.
  void GiveUp() {
    const MutexLock lock(mu_);
    GiveUpLocked();
  }
  // REQUIRES of both: no evaluator is running on this round, and GiveUp was called.
  bool complete() const {
    const MutexLock lock(mu_);
    return !dropped_ && results_.size() == claimed_;
  }
  ResultsByIndex results() const {
    const MutexLock lock(mu_);
    return results_;
  }
  std::map<uint32_t, SharedExperience> experiences() const {
    const MutexLock lock(mu_);
    return experiences_;
  }

 private:
  // Stopped, or without the others.
  bool Broken() const { return peers_.failed() || whole_.Finished(); }

  void GiveUpLocked() REQUIRES(mu_) {
    dropped_ = dropped_ || !exhausted_ || next_ != end_;
    // for the others too; where the group is broken, its store may never answer
    if (!exhausted_ && !peers_.failed()) (void)peers_.Add(counter_, kBeyond);
    exhausted_ = true;
    end_ = next_;
  }

  void Grab() REQUIRES(mu_) {
    const auto size = static_cast<int64_t>(tasks_.size());
    const int64_t wanted =
        std::max<int64_t>(1, (size - static_cast<int64_t>(end_)) / (8 * peers_.ranks()));
    const Result<int64_t> begin = peers_.Add(counter_, wanted);
    dropped_ = !begin.ok();
    exhausted_ = dropped_ || *begin >= size;
    if (exhausted_) return NoteDone();
    next_ = static_cast<size_t>(*begin);
    end_ = static_cast<size_t>(std::min(size, *begin + wanted));
  }

  void NoteDone() REQUIRES(mu_) {
    done_ = exhausted_ && next_ == end_ && results_.size() == claimed_;
  }

  WorkSource& whole_;
  Peers& peers_;
  const std::string counter_;
  std::vector<uint32_t> tasks_;    // constant after construction
  std::atomic<bool> done_{false};  // every result of this rank is in; read once per step
  mutable Mutex mu_;
  // in tasks_: what this rank has grabbed and not claimed yet
  size_t next_ GUARDED_BY(mu_) = 0, end_ GUARDED_BY(mu_) = 0;
  size_t claimed_ GUARDED_BY(mu_) = 0;
  bool exhausted_ GUARDED_BY(mu_) = false;  // the counter has passed the last task
  bool dropped_ GUARDED_BY(mu_) = false;    // there are unclaimed tasks
  ResultsByIndex results_ GUARDED_BY(mu_);
  std::map<uint32_t, SharedExperience> experiences_ GUARDED_BY(mu_);
};

struct Spent {
  StageSeconds seconds;
  FleetCounters counters;
};
Spent operator+(const Spent& a, const Spent& b) {
  return {a.seconds + b.seconds, a.counters + b.counters};
}

// Message of a rank to the others at the end of a round.
struct Said {
  Status status;
  bool stopped = false;
  Spent spent;
  ResultsByIndex results;
  std::map<uint32_t, SharedExperience> experiences;

  std::string Encode() const {
    ByteWriter out;
    out.Put(static_cast<int32_t>(status.code())).PutBytes(status.message());
    out.Put(stopped).Put(spent);
    out.PutBytes(FinishedEpisodes{.generation = 0, .phase = Phase::kPopulation, .results = results}
                     .Encode());
    out.Put(uint64_t{experiences.size()});
    for (const auto& [index, experience] : experiences)
      out.Put(index).PutBytes(experience->Encode());
    return out.Take();
  }
  static Result<Said> Decode(std::string_view bytes) {
    ByteReader in(bytes);
    Said said;
    const auto code = static_cast<Code>(in.Get<int32_t>());
    said.status = Status(code, std::string(in.GetBytes()));
    said.stopped = in.Get<bool>();
    said.spent = in.Get<Spent>();
    ASSIGN_OR_RETURN(FinishedEpisodes results, FinishedEpisodes::Decode(in.GetBytes()));
    for (auto left = in.Get<uint64_t>(); left > 0 && in.ok(); --left) {
      const auto index = in.Get<uint32_t>();
      ASSIGN_OR_RETURN(Experience experience, Experience::Decode(in.GetBytes()));
      said.experiences[index] = std::make_shared<Experience>(std::move(experience));
    }
    if (!in.AtEnd()) return Status(Code::kInternal, "another rank's results cannot be read");
    said.results = std::move(results.results);
    return said;
  }
};

class SharedEvaluator : public Evaluator {
 public:
  SharedEvaluator(std::unique_ptr<Evaluator> own, Peers& peers)
      : own_(std::move(own)), peers_(peers) {}

  const EnvironmentSpec& spec() const override { return own_->spec(); }
  bool shared() const override { return true; }
  bool records() const override { return own_->records(); }

  Status Play(const ParameterSource& source, WorkSource& work) override {
    for (bool over = false; !over;) {
      Round round(work, peers_, "round/" + std::to_string(rounds_++));
      Said mine;
      if (!round.empty()) mine.status = own_->Play(source, round);
      round.GiveUp();
      // nothing to claim: all of it is known, or this rank was stopped before
      mine.stopped = round.empty() || !round.complete();
      mine.spent = {own_->seconds(), own_->counters()};
      mine.results = round.results();
      mine.experiences = round.experiences();
      ASSIGN_OR_RETURN(const auto all, peers_.Exchange("episodes", mine.Encode()));
      ASSIGN_OR_RETURN(over, Take(all, work));
    }
    return {};
  }

  StageSeconds seconds() const override {
    const MutexLock lock(mu_);
    return others_.seconds + own_->seconds();
  }
  FleetCounters counters() const override {
    const MutexLock lock(mu_);
    return others_.counters + own_->counters();
  }

 private:
  // Takes the messages of all ranks, this one included; returns whether this was the last round.
  Result<bool> Take(const std::vector<std::string>& all, WorkSource& work) {
    bool stopped = false;
    Spent others;
    Status failure;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      ASSIGN_OR_RETURN(const Said said, Said::Decode(all[rank]));
      for (const auto& [index, experience] : said.experiences)
        work.PostExperience(index, experience);
      for (const auto& [index, result] : said.results) work.Post(index, result);
      stopped = stopped || said.stopped;
      if (failure.ok()) failure = said.status.Annotate("rank " + std::to_string(rank));
      if (static_cast<int>(rank) != peers_.rank()) others = others + said.spent;
    }
    {
      const MutexLock lock(mu_);
      others_ = others;
    }
    RETURN_IF_ERROR(failure);
    // not work.Finished(), which is also true on a rank that was asked to stop since: it says so in
    // the next round, as a rank that finds nothing left to claim does
    return stopped;
  }

  const std::unique_ptr<Evaluator> own_;
  Peers& peers_;
  uint64_t rounds_ = 0;
  mutable Mutex mu_;
  Spent others_ GUARDED_BY(mu_);  // of the other ranks, as of the last exchange
};

}  // namespace

std::unique_ptr<Evaluator> MakeSharedEvaluator(std::unique_ptr<Evaluator> own, Peers& peers) {
  return std::make_unique<SharedEvaluator>(std::move(own), peers);
}

}  // namespace samara
