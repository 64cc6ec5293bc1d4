#include "replica/torch/c10d.h"

#include "nn/torch/torch.h"
// after the door to torch
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#ifdef SAMARA_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif

#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

namespace samara {
namespace {

using namespace std::chrono_literals;

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

// c10d's store behind ours.
class C10dStore : public Store {
 public:
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
  Status Set(const std::string& key, std::string_view value) override {
    return Try([&] { store_->set(key, std::vector<uint8_t>(value.begin(), value.end())); });
  }
  Result<std::string> Get(const std::string& key, std::chrono::milliseconds timeout) override {
    std::string value;
    const Status status = Try([&] {
      store_->wait({key}, std::max(timeout, 1ms));
      const std::vector<uint8_t> bytes = store_->get(key);
      value.assign(bytes.begin(), bytes.end());
    });
    if (!status.ok()) return status;
    return value;
  }
  Result<int64_t> Add(const std::string& key, int64_t amount) override {
    int64_t sum = 0;
    const Status status = Try([&] { sum = store_->add(key, amount); });
    if (!status.ok()) return status;
    return sum;
  }
  const c10::intrusive_ptr<c10d::Store>& c10d() const { return store_; }

 private:
  template <typename Fn>
  Status Try(Fn&& fn) {
    try {
      fn();
      return {};
    } catch (const std::exception& e) {
      return Status(Code::kUnavailable, "the store of the ranks: " + FirstLine(e.what()));
    }
  }
  const c10::intrusive_ptr<c10d::Store> store_;
};

#ifdef SAMARA_GLOO

constexpr size_t kInlineBytes = 768;  // go with the header
constexpr size_t kAreaBytes = size_t{4} << 20;

struct Envelope {
  CollectiveHeader header;
  uint64_t bytes = 0;
  std::byte small[kInlineBytes] = {};
};

// Gives c10d a store of ours.
class GlooStoreAdapter : public c10d::Store {
 public:
  GlooStoreAdapter(std::shared_ptr<samara::Store> store, std::chrono::milliseconds timeout)
      : c10d::Store(timeout), store_(std::move(store)) {}
  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<GlooStoreAdapter>(store_, timeout_);
  }
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    Throw(store_->Set(key, {reinterpret_cast<const char*>(value.data()), value.size()}));
  }
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>&,
                                  const std::vector<uint8_t>& desired) override {
    set(key, desired);
    return desired;
  }
  std::vector<uint8_t> get(const std::string& key) override {
    const auto value = store_->Get(key, timeout_);
    Throw(value.status());
    return {value->begin(), value->end()};
  }
  int64_t add(const std::string& key, int64_t value) override {
    const auto sum = store_->Add(key, value);
    Throw(sum.status());
    return *sum;
  }
  bool deleteKey(const std::string&) override { return false; }
  bool check(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys)
      if (!store_->Get(key, 1ms).ok()) return false;
    return true;
  }
  int64_t getNumKeys() override { return 0; }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    for (const std::string& key : keys) Throw(store_->Get(key, timeout).status());
  }

 private:
  static void Throw(const Status& status) {
    if (!status.ok()) throw std::runtime_error(status.message());
  }
  const std::shared_ptr<samara::Store> store_;
};

class GlooTransport : public Transport {
 public:
  GlooTransport(int rank, int size, c10::intrusive_ptr<c10d::ProcessGroupGloo> group)
      : rank_(rank), size_(size), group_(std::move(group)), envelopes_(static_cast<size_t>(size)) {
    headers_.resize(envelopes_.size());
    shown_.resize(envelopes_.size());
  }
  // Never joins threads that wait for a rank that is gone.
  ~GlooTransport() override {
    if (stop_) group_.release();
  }
  const char* name() const override { return "gloo"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  size_t bytes_max() const override { return kAreaBytes; }
  std::vector<int> missing() const override { return {}; }  // the monitor knows

  Status Gather(const Round& round, const Write& write, const Read& read) override {
    RETURN_IF_ERROR(Begin(round, write));
    if (round.header != nullptr && round.bytes <= kInlineBytes) {
      for (size_t r = 0; r < shown_.size(); ++r) shown_[r] = {envelopes_[r].small, round.bytes};
    } else if (round.only >= 0) {
      if (rank_ == round.only) std::memcpy(all_.data(), mine_.data(), round.bytes);
      at::Tensor data = Wrap(all_.data(), round.bytes);
      RETURN_IF_ERROR(Wait(round.deadline, [&] {
        std::vector<at::Tensor> tensors{data};
        c10d::BroadcastOptions options;
        options.rootRank = round.only;
        return group_->broadcast(tensors, options);
      }));
      for (auto& shown : shown_) shown = {};
      shown_[static_cast<size_t>(round.only)] = {all_.data(), round.bytes};
    } else {
      at::Tensor in = Wrap(mine_.data(), round.bytes),
                 out = Wrap(all_.data(), round.bytes * shown_.size());
      RETURN_IF_ERROR(Wait(round.deadline, [&] { return group_->_allgather_base(out, in); }));
      for (size_t r = 0; r < shown_.size(); ++r)
        shown_[r] = {all_.data() + r * round.bytes, round.bytes};
    }
    read(shown_);
    return {};
  }

  Status Scatter(const Round& round, const Write& write, const Read& read) override {
    RETURN_IF_ERROR(Begin(round, write));
    const size_t piece = round.bytes / shown_.size();
    if (round.header != nullptr && round.bytes <= kInlineBytes) {
      for (size_t r = 0; r < shown_.size(); ++r)
        shown_[r] = {envelopes_[r].small + static_cast<size_t>(rank_) * piece, piece};
    } else {
      at::Tensor in = Wrap(mine_.data(), round.bytes), out = Wrap(all_.data(), round.bytes);
      std::vector<int64_t> even;
      RETURN_IF_ERROR(
          Wait(round.deadline, [&] { return group_->alltoall_base(out, in, even, even); }));
      for (size_t r = 0; r < shown_.size(); ++r) shown_[r] = {all_.data() + r * piece, piece};
    }
    read(shown_);
    return {};
  }

  void Abort(const Status& why) override {
    std::lock_guard lock(mu_);
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
    mine_.resize(round.bytes);
    all_.resize(round.bytes * shown_.size());
    if (round.bytes > 0) write(mine_);
    if (round.header == nullptr) return Stopped();
    Envelope envelope{.header = *round.header, .bytes = round.bytes};
    if (round.bytes > 0 && round.bytes <= kInlineBytes)
      std::memcpy(envelope.small, mine_.data(), round.bytes);
    at::Tensor in = Wrap(reinterpret_cast<std::byte*>(&envelope), sizeof envelope);
    at::Tensor out =
        Wrap(reinterpret_cast<std::byte*>(envelopes_.data()), sizeof(Envelope) * envelopes_.size());
    RETURN_IF_ERROR(Wait(round.deadline, [&] { return group_->_allgather_base(out, in); }));
    for (size_t r = 0; r < envelopes_.size(); ++r) {
      headers_[r] = envelopes_[r].header;
      headers_[r].text[sizeof headers_[r].text - 1] = 0;
    }
    if (round.check != nullptr) RETURN_IF_ERROR((*round.check)(headers_));
    for (const Envelope& e : envelopes_) {
      if (e.bytes != round.bytes)
        return Status(Code::kInternal, "ranks agree on what they do but not on its size");
    }
    return {};
  }

  Status Stopped() {
    std::lock_guard lock(mu_);
    return aborted_;
  }

  template <typename Start>
  Status Wait(SteadyTime deadline, const Start& start) {
    RETURN_IF_ERROR(Stopped());
    try {
      const auto work = start();
      // Gloo wakes nobody for another reason than its own: looked after in short steps
      auto pause = 5us;
      for (int i = 0; !work->isCompleted(); ++i) {
        if (stop_) return Stopped();
        if (Now() > deadline) {
          Abort(Status(kDeadlinePassed, "not all ranks came in time"));
          return Status(kDeadlinePassed, "not all ranks came in time");
        }
        if (i > 20)
          std::this_thread::sleep_for(pause);
        else
          std::this_thread::yield();
        pause = std::min(pause * 2, 200us);
      }
      work->wait();
      return {};
    } catch (const std::exception& e) {
      // the monitor knows more, a moment later
      for (int i = 0; i < 200 && !stop_; ++i) std::this_thread::sleep_for(10ms);
      const Status reason = Stopped();
      Abort(Status(Code::kUnavailable, "a connection between ranks broke: " + FirstLine(e.what())));
      return reason.ok() ? Stopped() : reason;
    }
  }

  const int rank_, size_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  std::vector<Envelope> envelopes_;
  std::vector<CollectiveHeader> headers_;
  std::vector<std::span<const std::byte>> shown_;
  std::vector<std::byte> mine_, all_;
  std::atomic<bool> stop_{false};
  std::mutex mu_;
  Status aborted_;  // guarded by mu_
};

c10::intrusive_ptr<c10d::ProcessGroupGloo> MakeGroup(int rank, int size,
                                                     const std::shared_ptr<samara::Store>& store,
                                                     const std::string& address,
                                                     std::chrono::milliseconds deadline) {
  auto options = c10d::ProcessGroupGloo::Options::create();
  // named here: the default resolves the host's name and may choose the wrong network
  options->devices.push_back(address.empty()
                                 ? c10d::ProcessGroupGloo::createDefaultDevice()
                                 : c10d::ProcessGroupGloo::createDeviceForHostname(address));
  options->timeout = deadline;
  return c10::make_intrusive<c10d::ProcessGroupGloo>(
      c10::make_intrusive<GlooStoreAdapter>(store, deadline), rank, size, options);
}

class BareGlooGroup : public BareGloo {
 public:
  explicit BareGlooGroup(c10::intrusive_ptr<c10d::ProcessGroupGloo> group)
      : group_(std::move(group)) {}
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
  const c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};
#endif

}  // namespace

Result<std::shared_ptr<Store>> ConnectTcpStore(const World& world,
                                               std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = world.port;
  // under torchrun the agent has the store (replicator.md 12.1)
  options.isServer = !world.agent_store && world.rank == 0;
  options.timeout = timeout;
  options.waitWorkers = false;
  try {
    return std::shared_ptr<Store>(
        std::make_shared<C10dStore>(c10::make_intrusive<c10d::TCPStore>(world.address, options)));
  } catch (const std::exception& e) {
    return Status(Code::kUnavailable, "no store at " + world.address + ":" +
                                          std::to_string(world.port) + ": " + FirstLine(e.what()));
  }
}

Result<std::unique_ptr<Transport>> MakeGlooTransport(int rank, int size,
                                                     const std::shared_ptr<Store>& store,
                                                     const std::string& address,
                                                     std::chrono::milliseconds deadline) {
#ifdef SAMARA_GLOO
  try {
    auto group = MakeGroup(rank, size, store, address, deadline);
    return std::unique_ptr<Transport>(
        std::make_unique<GlooTransport>(rank, size, std::move(group)));
  } catch (const std::exception& e) {
    return Status(Code::kUnavailable, "Gloo between the ranks: " + FirstLine(e.what()));
  }
#else
  (void)rank, (void)size, (void)store, (void)address, (void)deadline;
  return Status(Code::kConfig,
                "this build has no Gloo: install libgloo-dev, or keep all ranks on one host");
#endif
}

Result<std::unique_ptr<BareGloo>> MakeBareGloo(int rank, int size,
                                               const std::shared_ptr<Store>& store,
                                               const std::string& address,
                                               std::chrono::milliseconds deadline) {
#ifdef SAMARA_GLOO
  try {
    return std::unique_ptr<BareGloo>(
        std::make_unique<BareGlooGroup>(MakeGroup(rank, size, store, address, deadline)));
  } catch (const std::exception& e) {
    return Status(Code::kUnavailable, "Gloo between the ranks: " + FirstLine(e.what()));
  }
#else
  (void)rank, (void)size, (void)store, (void)address, (void)deadline;
  return Status(Code::kConfig, "this build has no Gloo: install libgloo-dev");
#endif
}

}  // namespace samara
