// Genomes decoded on a device: from their seeds, by the counter noise of the CPU, bit for bit.
//
// Vectors of ancestors stay in the device's memory, float32 and in canonical order, so that a child
// costs one mutation and no copy from the host.
#pragma once

#include <list>
#include <memory>
#include <span>
#include <vector>

#include "core/mutex.h"
#include "evo/device/decode_task.h"
#include "evo/genome/genome.h"
#include "nn/device/population.h"

namespace samara {

// Runs a task on a stream of any device.
void Run(DeviceStream& stream, const device::DecodeTask& task);

// Whether a genome's own seeds are enough for a device: counter noise, initial parameters that are
// scaled noise, plain mutations. Others are decoded by the CPU and copied.
bool DecodesOnDevice(const Genome& genome);

// Thread safety: Load may be called from several threads, each with a lane of its own.
class DeviceDecoder {
 public:
  // `ancestors`: vectors that are kept.
  DeviceDecoder(DevicePopulation& population, size_t ancestors)
      : p_(population), ancestors_max_(ancestors) {}
  // Writes the genome's parameters into a network. REQUIRES: DecodesOnDevice(genome).
  Status Load(DevicePopulation::Lane& lane, uint32_t network, const Genome& genome);

  struct Counters {
    uint64_t ancestors = 0;  // vectors that were built on the way
    uint64_t mutations = 0;  // applied, in all
  };
  Counters counters() const;

 private:
  struct Ancestor {
    Genome genome;
    DeviceBytes parameters;
  };
  using Shared = std::shared_ptr<const Ancestor>;
  Shared FindLongest(const Genome& genome, size_t mutations_max) REQUIRES(mu_);
  // Holds what a task uploads, until it has been done.
  struct Sent {
    std::vector<device::DeviceMutation> mutations;
    std::vector<device::InitialTensor> tensors;
  };
  Shared Keep(Shared parent, uint64_t mutations);
  void Forget();  // all ancestors
  Result<Shared> Parent(DevicePopulation::Lane& lane, const Genome& genome);
  // The task that continues from `from` (null: the initial parameters).
  Result<device::DecodeTask> TaskOf(DevicePopulation::Lane& lane, const Genome& genome,
                                    const Ancestor* from, Sent& sent);
  DevicePopulation& p_;
  const size_t ancestors_max_;
  mutable Mutex mu_;
  std::list<Shared> ancestors_ GUARDED_BY(mu_);  // most recently used first
  Counters counters_ GUARDED_BY(mu_);
};

}  // namespace samara
