// Collectives between ranks: correct, or refused on every rank. Each carries a fingerprint that all
// ranks compare before any number is read, a deadline, and an entry in the flight recorder.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/mutex.h"
#include "replica/collectives/flight_recorder.h"
#include "replica/collectives/reduce.h"
#include "replica/collectives/transport.h"
#include "replica/liveness/monitor.h"
#include "samara/site.h"

namespace samara {

// A collective as its caller describes it. What differs between two of them is an error.
struct Collective {
  std::string operation;  // "all_reduce sum"
  std::string operand;    // "float32[3,4]": structure, shapes, types; empty where ranks may differ
  Site site = std::source_location::current();
  std::string text() const;  // "all_reduce sum of float32[3,4] at train.cc:41"
  uint64_t fingerprint() const;
};

struct CommunicatorOptions {
  std::chrono::milliseconds deadline{30'000};  // of a collective
  std::chrono::milliseconds first_deadline{600'000};
  // Called before and after the part of a collective that waits for others, so that other ranks of
  // this process may run. After a failure `reacquire` must not wait.
  std::function<void()> release{};
  std::function<void(const Status& failure)> reacquire{};
  std::string flight_folder{};  // of the record that a failure leaves; empty: as FlightFile says
};

// One rank's end of a group. Collectives are called by one thread at a time, in the same order on
// every rank; Abort, Leave and failure() from any thread.
// After a failure every call returns it: a group that has lost step cannot be repaired, only made
// again. Codes: kInternal for a mismatch, kUnavailable for a rank that died, froze or did not come.
class Communicator {
 public:
  // The monitor is optional, and may be set later.
  Communicator(std::unique_ptr<Transport> transport, const CommunicatorOptions& options);
  ~Communicator();

  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }
  const Transport& transport() const { return *transport_; }
  void SetMonitor(Monitor* monitor) { monitor_ = monitor; }  // borrowed

  // Value of the fixed tree over `leaves`; partials of all ranks, in rank order, cover them. Equal
  // bits for any group of ranks that holds them. `out` may be where the only partial is.
  Status AllReduce(const Collective& what, ReduceOp op, ElementType type, uint32_t leaves,
                   std::span<const Partial> partials, std::span<std::byte> out);
  // `out` = size() pieces of mine.size() bytes, in rank order.
  Status AllGather(const Collective& what, std::span<const std::byte> mine,
                   std::span<std::byte> out);
  // The same, for sizes that differ: sizes first, then as much as the largest.
  Status AllGatherRagged(const Collective& what, std::span<const std::byte> mine,
                         std::vector<std::vector<std::byte>>& out);
  // `data` of `root` to all.
  Status Broadcast(const Collective& what, int root, std::span<std::byte> data);
  // Piece j of `mine`, in size() equal pieces, goes to rank j; `out` has theirs in rank order.
  Status AllToAll(const Collective& what, std::span<const std::byte> mine,
                  std::span<std::byte> out);
  Status Barrier(const Collective& what);
  // The ranks agree on `what`; then `run` moves its `bytes` by other means than the transport's. It
  // ends by the deadline with kDeadlinePassed, and soon after failure() is no longer OK.
  Status Delegate(const Collective& what, uint64_t bytes,
                  const std::function<Status(SteadyTime deadline)>& run);

  // Tells this rank's waiting call, and later ones, to end with `why`; the first reason stays.
  void Abort(const Status& why);
  // The same at an orderly end, of which no record of the last collectives is kept.
  void Leave();
  Status failure() const;  // names the record that this rank has left
  uint64_t sequence() const { return sequence_; }
  const FlightRecorder& flight() const { return flight_; }
  FlightRecorder& flight() { return flight_; }

 private:
  // Runs `rounds` under the name of one collective.
  Status Run(const Collective& what, uint64_t bytes,
             const std::function<Status(Transport::Round& first)>& rounds);
  Status Check(std::span<const CollectiveHeader> all) const;
  Status Late() const;
  void Fail(const Status& why, bool record = true);  // the first one stays
  Status abort_message() const;

  // constant after construction
  const std::unique_ptr<Transport> transport_;
  const CommunicatorOptions options_;
  const Path flight_file_;  // empty: none
  Monitor* monitor_ = nullptr;
  // touched by the calling thread
  uint64_t sequence_ = 0;
  CollectiveHeader header_;
  Transport::Check check_;
  std::vector<std::byte> scratch_;
  FlightRecorder flight_;
  mutable Mutex mu_;
  Status failure_ GUARDED_BY(mu_);
  // the same as sent to other ranks, without the name of this rank's record
  Status abort_message_ GUARDED_BY(mu_);
};

}  // namespace samara
