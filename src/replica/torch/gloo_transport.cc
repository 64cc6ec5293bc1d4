// Rounds over c10d's Gloo.
#include <atomic>
#include <cstring>

#include "core/mutex.h"
#include "nn/torch/torch.h"
#include "replica/torch/c10d.h"
#include "replica/torch/c10d_group.h"

namespace samara {
namespace {

constexpr size_t kInlineBytes = 768;  // go with the header
constexpr size_t kAreaBytes = size_t{4} << 20;

struct Envelope {
  CollectiveHeader header;
  uint64_t bytes = 0;
  std::byte small[kInlineBytes] = {};
};

class GlooTransport : public Transport {
 public:
  GlooTransport(int rank, int size, C10dGroup group)
      : rank_(rank),
        size_(size),
        group_(std::move(group)),
        headers_(static_cast<size_t>(size)),
        shown_(static_cast<size_t>(size)) {
    memory_->envelopes.resize(static_cast<size_t>(size));
  }
  // Never joins threads that wait for a rank that is gone; they keep what they may still read and
  // write when it comes after all.
  ~GlooTransport() override {
    if (!stop_) return;
    group_.release();
    (void)memory_.release();
  }
  const char* name() const override { return "gloo"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  size_t bytes_max() const override { return kAreaBytes; }
  std::vector<int> missing() const override { return {}; }  // the monitor knows

  Status Gather(const Round& round, const Write& write, const Read& read) override {
    RETURN_IF_ERROR(Begin(round, write));
    auto& [envelope, envelopes, mine, all] = *memory_;
    if (round.header != nullptr && round.bytes <= kInlineBytes) {
      for (size_t r = 0; r < shown_.size(); ++r) shown_[r] = {envelopes[r].small, round.bytes};
    } else if (round.only >= 0) {
      if (rank_ == round.only) std::memcpy(all.data(), mine.data(), round.bytes);
      at::Tensor data = Wrap(all.data(), round.bytes);
      RETURN_IF_ERROR(Wait(round.deadline, [&] {
        std::vector<at::Tensor> tensors{data};
        c10d::BroadcastOptions options;
        options.rootRank = round.only;
        return group_->broadcast(tensors, options);
      }));
      for (auto& shown : shown_) shown = {};
      shown_[static_cast<size_t>(round.only)] = {all.data(), round.bytes};
    } else {
      at::Tensor in = Wrap(mine.data(), round.bytes),
                 out = Wrap(all.data(), round.bytes * shown_.size());
      RETURN_IF_ERROR(Wait(round.deadline, [&] { return group_->_allgather_base(out, in); }));
      for (size_t r = 0; r < shown_.size(); ++r)
        shown_[r] = {all.data() + r * round.bytes, round.bytes};
    }
    read(shown_);
    return {};
  }

  Status Scatter(const Round& round, const Write& write, const Read& read) override {
    RETURN_IF_ERROR(Begin(round, write));
    auto& [envelope, envelopes, mine, all] = *memory_;
    const size_t piece = round.bytes / shown_.size();
    if (round.header != nullptr && round.bytes <= kInlineBytes) {
      for (size_t r = 0; r < shown_.size(); ++r)
        shown_[r] = {envelopes[r].small + static_cast<size_t>(rank_) * piece, piece};
    } else {
      at::Tensor in = Wrap(mine.data(), round.bytes), out = Wrap(all.data(), round.bytes);
      std::vector<int64_t> even;
      RETURN_IF_ERROR(
          Wait(round.deadline, [&] { return group_->alltoall_base(out, in, even, even); }));
      for (size_t r = 0; r < shown_.size(); ++r) shown_[r] = {all.data() + r * piece, piece};
    }
    read(shown_);
    return {};
  }

  void Abort(const Status& why) override {
    const MutexLock lock(mu_);
    if (aborted_.ok()) aborted_ = why;
    stop_ = true;
  }

 private:
  static at::Tensor Wrap(std::byte* data, size_t bytes) {
    return torch::from_blob(data, {static_cast<int64_t>(bytes)}, torch::kUInt8);
  }

  // Writes this rank's part; with a header: sends it, and what is small, and compares.
  Status Begin(const Round& round, const Write& write) {
    if (round.bytes > kAreaBytes) return Status(Code::kInternal, "a round that is too large");
    RETURN_IF_ERROR(Stopped());  // else a round that was given up may still use the memory
    auto& [envelope, envelopes, mine, all] = *memory_;
    mine.resize(round.bytes);
    all.resize(round.bytes * shown_.size());
    if (round.bytes > 0) write(mine);
    if (round.header == nullptr) return {};
    envelope = {.header = *round.header, .bytes = round.bytes};
    if (round.bytes > 0 && round.bytes <= kInlineBytes)
      std::memcpy(envelope.small, mine.data(), round.bytes);
    at::Tensor in = Wrap(reinterpret_cast<std::byte*>(&envelope), sizeof envelope);
    at::Tensor out =
        Wrap(reinterpret_cast<std::byte*>(envelopes.data()), sizeof(Envelope) * envelopes.size());
    RETURN_IF_ERROR(Wait(round.deadline, [&] { return group_->_allgather_base(out, in); }));
    for (size_t r = 0; r < envelopes.size(); ++r) {
      headers_[r] = envelopes[r].header;
      headers_[r].text[sizeof headers_[r].text - 1] = 0;
    }
    if (round.check != nullptr) RETURN_IF_ERROR((*round.check)(headers_));
    for (const Envelope& e : envelopes) {
      if (e.bytes != round.bytes)
        return Status(Code::kInternal, "ranks agree on what they do but not on its size");
    }
    return {};
  }

  Status Stopped() {
    if (!stop_) return {};
    const MutexLock lock(mu_);
    return aborted_;
  }

  template <typename Start>
  Status Wait(SteadyTime deadline, const Start& start) {
    const Status status = WaitFor(start, deadline, [this] { return Stopped(); });
    if (!status.ok()) Abort(status);
    return status;
  }

  // Buffers of rounds.
  struct Memory {
    Envelope envelope;                // this rank's
    std::vector<Envelope> envelopes;  // of all
    std::vector<std::byte> mine, all;
  };

  const int rank_, size_;
  C10dGroup group_;
  std::unique_ptr<Memory> memory_ = std::make_unique<Memory>();
  std::vector<CollectiveHeader> headers_;
  std::vector<std::span<const std::byte>> shown_;
  std::atomic<bool> stop_{false};
  Mutex mu_;
  Status aborted_ GUARDED_BY(mu_);
};

class BareGlooGroup : public BareGloo {
 public:
  explicit BareGlooGroup(C10dGroup group) : group_(std::move(group)) {}
  void AllReduce(at::Tensor data) override {
    std::vector<at::Tensor> tensors{data};
    group_->allreduce(tensors)->wait();
  }
  void AllGather(at::Tensor mine, at::Tensor all) override {
    group_->_allgather_base(all, mine)->wait();
  }
  void Broadcast(at::Tensor data) override {
    std::vector<at::Tensor> tensors{data};
    group_->broadcast(tensors)->wait();
  }

 private:
  const C10dGroup group_;
};

}  // namespace

Result<std::unique_ptr<Transport>> MakeGlooTransport(int rank, int size,
                                                     const std::shared_ptr<Store>& store,
                                                     const std::string& address,
                                                     std::chrono::milliseconds deadline) {
  ASSIGN_OR_RETURN(C10dGroup group, MakeGlooGroup(rank, size, store, address, deadline));
  return std::unique_ptr<Transport>(std::make_unique<GlooTransport>(rank, size, std::move(group)));
}

Result<std::unique_ptr<BareGloo>> MakeBareGloo(int rank, int size,
                                               const std::shared_ptr<Store>& store,
                                               const std::string& address,
                                               std::chrono::milliseconds deadline) {
  ASSIGN_OR_RETURN(C10dGroup group, MakeGlooGroup(rank, size, store, address, deadline));
  return std::unique_ptr<BareGloo>(std::make_unique<BareGlooGroup>(std::move(group)));
}

}  // namespace samara
