// Moves bytes between ranks. Everything else (which operation, its order, its deadline, what the
// bytes mean) lies above it, in communicator.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/clock.h"
#include "core/status.h"

namespace samara {

// A rank's description of its present collective; compared on every rank before any data is read.
struct CollectiveHeader {
  uint64_t sequence = 0;     // of this rank's collectives
  uint64_t fingerprint = 0;  // operation, structure, shapes, types, place in the program
  char text[232] = {};       // for people: "all_reduce sum of float32[3,4] at train.cc:41"
  bool operator==(const CollectiveHeader&) const = default;
};
inline constexpr size_t kHeaderBytes = 248;
static_assert(sizeof(CollectiveHeader) == kHeaderBytes);

// One rank's end. Called by one thread at a time, but for Abort. Rounds have the same order on
// every rank; after an error no other round is possible.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual const char* name() const = 0;  // "memory", "shared", "gloo", "nccl"
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The most that one rank gives in one round.
  virtual size_t bytes_max() const = 0;

  using Write = std::function<void(std::span<std::byte> mine)>;
  // The bytes of every rank, in rank order; valid during the call.
  using Read = std::function<void(std::span<const std::span<const std::byte>> all)>;
  // Headers of all ranks, in rank order. Not ok: the same on every rank, and nothing is read.
  using Check = std::function<Status(std::span<const CollectiveHeader> all)>;

  struct Round {
    const CollectiveHeader* header = nullptr;  // null: goes on with the last one, nothing to check
    const Check* check = nullptr;              // with a header
    size_t bytes = 0;                          // this rank's; equal on all ranks once checked
    int only = -1;  // Gather: the one rank whose bytes are wanted; -1: all
    SteadyTime deadline;
  };
  // Shows every rank's bytes to every rank.
  virtual Status Gather(const Round& round, const Write& write, const Read& read) = 0;
  // `bytes` is size() equal pieces; shows piece rank() of every rank.
  virtual Status Scatter(const Round& round, const Write& write, const Read& read) = 0;

  // Ranks that have not come to the round that is waited for; empty when none is.
  virtual std::vector<int> missing() const = 0;
  // Ends the wait of this rank, now and later, with `why`. From any thread.
  virtual void Abort(const Status& why) = 0;
};

// A deadline passed: the code of a Transport's Status then, and of no other failure of it.
inline constexpr Code kDeadlinePassed = Code::kTryAgain;

}  // namespace samara
