#include "evo/device/decode.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "evo/device/decode_impl.h"

namespace samara {

namespace gpu {
const char* Run(void* stream, const device::DecodeTask& task);  // decode_gpu.cu
}

namespace {

Genome Prefix(const Genome& genome, size_t mutations) {
  Genome prefix = genome;
  prefix.mutations.resize(mutations);
  return prefix;
}

// As InitialParameters (evo/genome/decode.h) scales weights.
double InitialScale(InitKind init, const TensorSlice& tensor) {
  const auto fan_in = static_cast<double>(tensor.fan_in),
             fan_out = static_cast<double>(tensor.fan_out);
  if (init == InitKind::kXavier) return std::sqrt(2 / (fan_in + fan_out));
  if (init == InitKind::kHe) return std::sqrt(2 / fan_in);
  return (tensor.output_layer ? 0.1 : 1.0) / std::sqrt(fan_in);
}

std::vector<device::InitialTensor> InitialTensors(const NetworkDescription& network,
                                                  InitKind init) {
  std::vector<device::InitialTensor> tensors;
  for (const TensorSlice& tensor : Tensors(network))
    tensors.push_back({.first = tensor.offset,
                       .count = tensor.count,
                       .scale = static_cast<float>(InitialScale(init, tensor)),
                       .value = tensor.initial,
                       .noise = !tensor.bias});
  std::ranges::sort(tensors, {}, &device::InitialTensor::first);
  return tensors;
}

}  // namespace

void Run(DeviceStream& stream, const device::DecodeTask& task) {
  if (void* const native = stream.native()) return stream.Fail(gpu::Run(native, task));
  for (unsigned x = 0; x < device::DecodeBlocks(task); ++x) {
    device::CpuBlock block(x, 0, device::kDecodeThreads);
    device::DecodeAny(block, task);
  }
}

bool DecodesOnDevice(const Genome& genome) {
  const bool scaled = genome.init == InitKind::kFanIn || genome.init == InitKind::kXavier ||
                      genome.init == InitKind::kHe;
  return scaled && genome.noise != NoiseKind::kTable && genome.plain();
}

DeviceDecoder::Counters DeviceDecoder::counters() const {
  const MutexLock lock(mu_);
  return counters_;
}

DeviceDecoder::Shared DeviceDecoder::FindLongest(const Genome& genome, size_t mutations_max) {
  auto best = ancestors_.end();
  for (auto it = ancestors_.begin(); it != ancestors_.end(); ++it) {
    const size_t n = (*it)->genome.mutations.size();
    if (n > mutations_max || !IsPrefix((*it)->genome, genome)) continue;
    if (best == ancestors_.end() || n > (*best)->genome.mutations.size()) best = it;
  }
  if (best == ancestors_.end()) return nullptr;
  ancestors_.splice(ancestors_.begin(), ancestors_, best);
  return ancestors_.front();
}

Result<device::DecodeTask> DeviceDecoder::TaskOf(DevicePopulation::Lane& lane, const Genome& genome,
                                                 const Ancestor* from, Sent& sent) {
  const NetworkDescription& network = p_.network();
  const size_t known = from == nullptr ? 0 : from->genome.mutations.size();
  auto& [mutations, tensors] = sent;
  mutations.clear();
  for (size_t i = known; i < genome.mutations.size(); ++i)
    mutations.push_back({genome.mutations[i].key, genome.mutations[i].power, 0});
  if (from == nullptr) tensors = InitialTensors(network, genome.init);
  const size_t tensor_bytes = tensors.size() * sizeof(device::InitialTensor);
  const size_t mutation_bytes = mutations.size() * sizeof(device::DeviceMutation);
  ASSIGN_OR_RETURN(std::byte* const staged, lane.LoadScratch(tensor_bytes + mutation_bytes));
  lane.stream().Upload(staged, tensors.data(), tensor_bytes);
  lane.stream().Upload(staged + tensor_bytes, mutations.data(), mutation_bytes);
  device::DecodeTask task{};
  task.place.size = network.parameter_count;
  task.base = from == nullptr ? nullptr : from->parameters.as<float>();
  task.initial = reinterpret_cast<const device::InitialTensor*>(staged);
  task.tensors = static_cast<uint32_t>(tensors.size());
  task.initial_key = genome.initial;
  task.mutations = reinterpret_cast<const device::DeviceMutation*>(staged + tensor_bytes);
  task.mutation_count = static_cast<uint32_t>(mutations.size());
  task.noise = static_cast<uint32_t>(genome.noise);
  return task;
}

// The genome without its last mutation, kept from now on.
Result<DeviceDecoder::Shared> DeviceDecoder::Parent(DevicePopulation::Lane& lane,
                                                    const Genome& genome) {
  const size_t mutations = genome.mutations.size() - 1;
  Shared from;
  {
    const MutexLock lock(mu_);
    from = FindLongest(genome, mutations);
  }
  if (from && from->genome.mutations.size() == mutations) return from;
  auto parent = std::make_shared<Ancestor>();
  parent->genome = Prefix(genome, mutations);
  const size_t bytes = p_.network().parameter_count * sizeof(float);
  auto made = p_.accelerator().Allocate(bytes);
  if (!made.ok()) {
    Forget();
    made = p_.accelerator().Allocate(bytes);
  }
  ASSIGN_OR_RETURN(parent->parameters, std::move(made));
  Sent sent;
  ASSIGN_OR_RETURN(device::DecodeTask task, TaskOf(lane, parent->genome, from.get(), sent));
  task.out = parent->parameters.as<float>();
  Run(lane.stream(), task);
  RETURN_IF_ERROR(lane.stream().Synchronize());
  return Keep(std::move(parent), task.mutation_count);
}

// Another thread may have built it meanwhile: then its vector is kept.
DeviceDecoder::Shared DeviceDecoder::Keep(Shared parent, uint64_t mutations) {
  Shared gone;  // freed without the lock: that waits for the device
  const MutexLock lock(mu_);
  ++counters_.ancestors;
  counters_.mutations += mutations;
  for (const Shared& kept : ancestors_) {
    if (kept->genome == parent->genome) {
      gone = std::move(parent);
      return kept;
    }
  }
  ancestors_.push_front(parent);
  if (ancestors_.size() > ancestors_max_) {
    gone = std::move(ancestors_.back());
    ancestors_.pop_back();
  }
  return parent;
}

void DeviceDecoder::Forget() {
  std::list<Shared> gone;
  const MutexLock lock(mu_);
  gone.swap(ancestors_);
}

Status DeviceDecoder::Load(DevicePopulation::Lane& lane, uint32_t network, const Genome& genome) {
  CHECK(DecodesOnDevice(genome));
  Shared from;
  if (!genome.mutations.empty()) {
    ASSIGN_OR_RETURN(from, Parent(lane, genome));
  }
  Sent sent;
  ASSIGN_OR_RETURN(device::DecodeTask task, TaskOf(lane, genome, from.get(), sent));
  lane.Place(network, [&](const device::PlaceTask& place) {
    task.place = place;
    Run(lane.stream(), task);
  });
  RETURN_IF_ERROR(lane.stream().Synchronize());
  const MutexLock lock(mu_);
  counters_.mutations += task.mutation_count;
  return Status::Ok();
}

}  // namespace samara
