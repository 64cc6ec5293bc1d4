// Ranks of one host through memory that they share: each writes what it gives into its own area,
// counts itself in, and reads the others' when all have come. No byte is copied by a kernel.
//
// Invariants: (1) a rank's area is written by that rank alone; (2) areas are used in turn, two a
// rank: the rank that writes round n + 2 has seen all ranks come to round n + 1, so all have read
// round n; (3) `came` of the arena is the sum of the ranks' `rounds`.
#pragma once

#include <memory>
#include <string>

#include "replica/collectives/transport.h"
#include "replica/rendezvous/store.h"

namespace samara {

struct ArenaOptions {
  size_t area_bytes = 0;  // of one area; 0: a megabyte, less when the ranks are many
  // How long a rank polls before it sleeps; negative: 50 us, none with more ranks than cores.
  int spin_us = -1;
  std::chrono::milliseconds start{600'000};  // for all ranks to come
};

// One memory for ranks that are threads; call it with the same store in every thread.
// For ranks that are processes: rank 0 makes it, without a name in /dev/shm, and tells the others
// through the store which of its descriptors it is: nothing is left when ranks are killed.
// kUnavailable: a rank did not come, or cannot see it (another host, other processes' numbers), on
// all ranks alike.
Result<std::unique_ptr<Transport>> MakeArenaTransport(int rank, int size, Store& store,
                                                      const ArenaOptions& options = {});

}  // namespace samara
