#include "replica/collectives/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "core/cpu.h"
#include "core/futex.h"
#include "core/mutex.h"
#include "replica/liveness/frame_socket.h"

namespace samara {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kMagic = 0x32616E6572616D73;  // "smarena2"
constexpr size_t kTotalBytesMax = size_t{32} << 20;
constexpr size_t kAreaBytesMax = size_t{1} << 20, kAreaBytesMin = size_t{16} << 10;

struct alignas(64) ArenaHead {
  uint64_t magic;
  uint64_t area_bytes;
  uint32_t ranks;
  alignas(64) std::atomic<uint32_t> came;  // to all rounds together, modulo 2^32
  Doorbell complete;                       // rung when a round has all ranks, and by Abort
  std::atomic<uint32_t> rounds;            // complete ones
};
struct alignas(64) RankHead {
  std::atomic<uint32_t> rounds;  // come to
  CollectiveHeader header[2];
  uint64_t bytes[2];
};

size_t AreaBytes(int size, const ArenaOptions& options) {
  if (options.area_bytes > 0) return (options.area_bytes + 63) / 64 * 64;
  const size_t share = kTotalBytesMax / (2 * static_cast<size_t>(size));
  return std::clamp(share / 64 * 64, kAreaBytesMin, kAreaBytesMax);
}
size_t TotalBytes(int size, size_t area_bytes) {
  return sizeof(ArenaHead) + static_cast<size_t>(size) * (sizeof(RankHead) + 2 * area_bytes);
}

// A mapping of shared memory.
class Mapping {
 public:
  Mapping(void* memory, size_t bytes) : memory_(static_cast<std::byte*>(memory)), bytes_(bytes) {}
  ~Mapping() { munmap(memory_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* memory() const { return memory_; }

 private:
  std::byte* const memory_;
  const size_t bytes_;
};

std::string Why(const char* what) { return std::string(what) + ": " + std::strerror(errno); }

// The memory has no name of its own: it is gone with the last rank that has it, however the ranks
// end. The others open it as rank 0's descriptor.
struct Shared {
  OwnedFd fd;
  std::unique_ptr<Mapping> mapping;
  std::string Name() const {
    return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd.get());
  }
};

// A new one where `name` is empty.
Result<Shared> Map(const std::string& name, size_t bytes) {
  const bool create = name.empty();
  Shared shared;
  shared.fd = OwnedFd(create ? memfd_create("samara-ranks", MFD_CLOEXEC)
                             : open(name.c_str(), O_RDWR | O_CLOEXEC));
  const int fd = shared.fd.get();
  if (fd < 0) return Status(Code::kUnavailable, Why("shared memory between ranks"));
  int failed = create ? posix_fallocate(fd, 0, static_cast<off_t>(bytes)) : 0;
  struct stat info {};
  if (failed == 0 && !create) {
    failed = fstat(fd, &info) != 0 || static_cast<size_t>(info.st_size) != bytes ? EINVAL : 0;
  }
  void* memory = MAP_FAILED;
  if (failed == 0) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) failed = errno;
  }
  if (memory == MAP_FAILED)
    return Status(Code::kUnavailable,
                  std::to_string(bytes >> 20) +
                      " MiB of shared memory between ranks: " + std::strerror(failed));
  shared.mapping = std::make_unique<Mapping>(memory, bytes);
  return shared;
}

class ArenaTransport : public Transport {
 public:
  ArenaTransport(int rank, int size, size_t area_bytes, std::unique_ptr<Mapping> mapping,
                 std::chrono::nanoseconds spin)
      : rank_(rank),
        size_(size),
        area_bytes_(area_bytes),
        spin_(spin),
        mapping_(std::move(mapping)),
        head_(*reinterpret_cast<ArenaHead*>(mapping_->memory())),
        ranks_(reinterpret_cast<RankHead*>(mapping_->memory() + sizeof(ArenaHead))),
        areas_(mapping_->memory() + sizeof(ArenaHead) +
               static_cast<size_t>(size) * sizeof(RankHead)),
        shown_(static_cast<size_t>(size)),
        headers_(static_cast<size_t>(size)) {}

  const char* name() const override { return "shared"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  size_t bytes_max() const override { return area_bytes_; }

  Status Gather(const Round& round, const Write& write, const Read& read) override {
    RETURN_IF_ERROR(Barrier(round, write));
    for (int r = 0; r < size_; ++r) shown_[static_cast<size_t>(r)] = {Area(r), round.bytes};
    read(shown_);
    return {};
  }

  Status Scatter(const Round& round, const Write& write, const Read& read) override {
    RETURN_IF_ERROR(Barrier(round, write));
    const size_t piece = round.bytes / static_cast<size_t>(size_);
    for (int r = 0; r < size_; ++r)
      shown_[static_cast<size_t>(r)] = {Area(r) + static_cast<size_t>(rank_) * piece, piece};
    read(shown_);
    return {};
  }

  std::vector<int> missing() const override {
    std::vector<int> missing;
    const uint32_t round = waits_for_.load(std::memory_order_acquire);
    for (int r = 0; round != 0 && r < size_; ++r)
      if (ranks_[r].rounds.load(std::memory_order_acquire) + 1 == round) missing.push_back(r);
    return missing;
  }

  void Abort(const Status& why) override {
    {
      const MutexLock lock(mu_);
      if (aborted_.ok()) aborted_ = why;
    }
    stop_.store(true, std::memory_order_release);
    RingBell(head_.complete);  // wakes all; ranks that are not aborted sleep again
  }

 private:
  std::byte* Area(int rank) const {
    return areas_ + (static_cast<size_t>(rank) * 2 + round_ % 2) * area_bytes_;
  }

  Status Stopped() {
    const MutexLock lock(mu_);
    return aborted_;
  }

  // Gives this rank's part and returns when all ranks have, and their headers agree.
  Status Barrier(const Round& round, const Write& write) {
    if (round.bytes > area_bytes_) {
      return Status(Code::kInternal, "a round of " + std::to_string(round.bytes) +
                                         " bytes, at most " + std::to_string(area_bytes_));
    }
    if (stop_.load(std::memory_order_acquire)) return Stopped();
    ++round_;
    RankHead& mine = ranks_[rank_];
    const uint32_t turn = round_ % 2;
    if (round.header != nullptr) mine.header[turn] = *round.header;
    mine.bytes[turn] = round.bytes;
    if (round.bytes > 0) write({Area(rank_), round.bytes});
    // release: a rank that sees the round complete sees what was written above
    mine.rounds.store(round_, std::memory_order_release);
    if (head_.came.fetch_add(1, std::memory_order_acq_rel) + 1 ==
        round_ * static_cast<uint32_t>(size_)) {
      head_.rounds.store(round_, std::memory_order_release);
      RingBell(head_.complete);
    } else {
      RETURN_IF_ERROR(Wait(round.deadline));
    }
    if (round.header == nullptr) return {};
    for (int r = 0; r < size_; ++r) {
      headers_[static_cast<size_t>(r)] = ranks_[r].header[turn];
      headers_[static_cast<size_t>(r)].text[sizeof(CollectiveHeader::text) - 1] = 0;
    }
    if (round.check != nullptr) RETURN_IF_ERROR((*round.check)(headers_));
    for (int r = 0; r < size_; ++r) {
      if (ranks_[r].bytes[turn] != round.bytes)
        return Status(Code::kInternal, "ranks agree on what they do but not on its size");
    }
    return {};
  }

  Status Wait(SteadyTime deadline) {
    waits_for_.store(round_, std::memory_order_release);
    Status status;
    for (;;) {
      const uint32_t seen = head_.complete.rings();
      if (head_.rounds.load(std::memory_order_acquire) == round_) break;
      if (stop_.load(std::memory_order_acquire)) {
        status = Stopped();
        break;
      }
      const auto left = deadline - Now();
      if (left <= 0ns) {
        status = Status(kDeadlinePassed, "not all ranks came in time");
        break;
      }
      // not for long: a rank that dies between a ring and the wake-up wakes no other
      WaitForRing(head_.complete, seen, spin_, std::min<std::chrono::nanoseconds>(left, 100ms));
    }
    if (status.ok()) waits_for_.store(0, std::memory_order_release);
    return status;
  }

  const int rank_, size_;
  const size_t area_bytes_;
  const std::chrono::nanoseconds spin_;
  const std::unique_ptr<Mapping> mapping_;
  ArenaHead& head_;
  RankHead* const ranks_;
  std::byte* const areas_;
  uint32_t round_ = 0;
  std::atomic<uint32_t> waits_for_{0};  // a round; 0: none
  std::vector<std::span<const std::byte>> shown_;
  std::vector<CollectiveHeader> headers_;
  std::atomic<bool> stop_{false};
  Mutex mu_;
  Status aborted_ GUARDED_BY(mu_);
};

// Everybody says whether it worked, and learns whether it did for all.
Status Agree(int size, Store& store, const Status& mine, std::chrono::milliseconds timeout) {
  const SteadyTime deadline = Now() + timeout;
  if (!mine.ok()) RETURN_IF_ERROR(store.Set("failed", mine.message()));
  ASSIGN_OR_RETURN(const int64_t bad, store.Add("bad", mine.ok() ? 0 : 1));
  (void)bad;
  ASSIGN_OR_RETURN(const int64_t told, store.Add("told", 1));
  if (told == size) RETURN_IF_ERROR(store.Set("all", "yes"));
  const auto all =
      store.Get("all", std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Now()));
  if (!all.ok()) return Status(Code::kUnavailable, "not all ranks came to share memory in time");
  ASSIGN_OR_RETURN(const int64_t failures, store.Add("bad", 0));
  if (failures == 0) return {};
  if (!mine.ok()) return mine;
  ASSIGN_OR_RETURN(const std::string why, store.Get("failed", timeout));
  return Status(Code::kUnavailable, "another rank has no shared memory: " + why);
}

}  // namespace

Result<std::unique_ptr<Transport>> MakeArenaTransport(int rank, int size, Store& store,
                                                      const ArenaOptions& options) {
  const size_t area_bytes = AreaBytes(size, options);
  const size_t bytes = TotalBytes(size, area_bytes);
  const SteadyTime start = Now();
  Result<Shared> shared = Status(Code::kUnavailable, "no shared memory yet");
  if (rank == 0) {
    shared = Map("", bytes);
    if (shared.ok()) {
      auto* head = new (shared->mapping->memory()) ArenaHead{};
      head->magic = kMagic;
      head->area_bytes = area_bytes;
      head->ranks = static_cast<uint32_t>(size);
    }
    RETURN_IF_ERROR(store.Set("name", shared.ok() ? shared->Name() : ""));
  } else {
    ASSIGN_OR_RETURN(const std::string name, store.Get("name", options.start));
    if (!name.empty()) shared = Map(name, bytes);
    if (shared.ok()) {
      const auto& head = *reinterpret_cast<const ArenaHead*>(shared->mapping->memory());
      if (head.magic != kMagic || head.area_bytes != area_bytes ||
          head.ranks != static_cast<uint32_t>(size)) {
        shared = Status(Code::kUnavailable, "the shared memory was made by another program");
      }
    }
  }
  const Status agreed = Agree(
      size, store, shared.status(),
      std::max(1000ms, options.start -
                           std::chrono::duration_cast<std::chrono::milliseconds>(Now() - start)));
  RETURN_IF_ERROR(agreed);
  int spin_us = options.spin_us;
  if (spin_us < 0) spin_us = size > static_cast<int>(Cores()) ? 0 : 50;
  return std::unique_ptr<Transport>(std::make_unique<ArenaTransport>(
      rank, size, area_bytes, std::move(shared->mapping), std::chrono::microseconds(spin_us)));
}

}  // namespace samara
