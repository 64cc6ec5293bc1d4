#include "samara/checkpoint.h"

#include <unistd.h>

#include <algorithm>

#include "core/bytes.h"
#include "core/checksum.h"
#include "core/crc32c.h"
#include "core/files.h"
#include "nn/safetensors.h"
#include "replica/collectives/agreement.h"
#include "replica/torch/checkpoint_file.h"
#include "replica/torch/reducer.h"
#include "samara/batch_norm.h"
#include "samara/spectral_norm.h"

namespace samara {
namespace {

using Field = std::function<void(const char* name, torch::Tensor& value)>;
constexpr double kValuesMax = int64_t{1} << 48;  // of one tensor
constexpr const char* kFormat = "samara replicated program 1";
constexpr const char* kSum = "crc32c";

// Over all that a file holds but itself: numbers that a disk has changed still look like numbers.
std::string SumOf(const Safetensors& file) {
  std::string sums;
  for (const auto& [key, value] : file.metadata)
    if (key != kSum) sums += key + "=" + value + "\n";
  for (const auto& [name, tensor] : file.tensors)
    sums += name + " " + std::to_string(Crc32c(tensor.bytes)) + "\n";
  return std::to_string(Crc32c(sums));
}

// The numbers that an optimizer keeps for one parameter, as tensors that `field` may replace.
template <typename State>
void Counted(State& state, const Field& field) {
  torch::Tensor step = torch::tensor(state.step());
  field("step", step);
  state.step(step.item<int64_t>());
}
bool Visit(torch::optim::OptimizerParamState& any, const Field& field) {
  if (auto* sgd = dynamic_cast<torch::optim::SGDParamState*>(&any)) {
    field("momentum_buffer", sgd->momentum_buffer());
    return true;
  }
  const auto adam = [&](auto& state) {
    Counted(state, field);
    field("exp_avg", state.exp_avg());
    field("exp_avg_sq", state.exp_avg_sq());
    field("max_exp_avg_sq", state.max_exp_avg_sq());
    return true;
  };
  if (auto* s = dynamic_cast<torch::optim::AdamParamState*>(&any)) return adam(*s);
  if (auto* s = dynamic_cast<torch::optim::AdamWParamState*>(&any)) return adam(*s);
  if (auto* s = dynamic_cast<torch::optim::RMSpropParamState*>(&any)) {
    Counted(*s, field);
    field("square_avg", s->square_avg());
    field("momentum_buffer", s->momentum_buffer());
    field("grad_avg", s->grad_avg());
    return true;
  }
  if (auto* s = dynamic_cast<torch::optim::AdagradParamState*>(&any)) {
    Counted(*s, field);
    field("sum", s->sum());
    return true;
  }
  return false;
}

std::unique_ptr<torch::optim::OptimizerParamState> EmptyState(torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  if (dynamic_cast<SGD*>(&optimizer) != nullptr) return std::make_unique<SGDParamState>();
  if (dynamic_cast<AdamW*>(&optimizer) != nullptr) return std::make_unique<AdamWParamState>();
  if (dynamic_cast<Adam*>(&optimizer) != nullptr) return std::make_unique<AdamParamState>();
  if (dynamic_cast<RMSprop*>(&optimizer) != nullptr) return std::make_unique<RMSpropParamState>();
  if (dynamic_cast<Adagrad*>(&optimizer) != nullptr) return std::make_unique<AdagradParamState>();
  throw ReplicationError(
      78, "a checkpoint of this optimizer: expected SGD, Adam, AdamW, RMSprop or Adagrad");
}

Entries OfModules(const Checkpoint& checkpoint) {
  Entries entries;
  for (const auto& [name, module] : checkpoint.modules) {
    for (const auto& p : module->named_parameters())
      entries["module." + name + "." + p.key()] = p.value();
    for (const auto& b : module->named_buffers())
      entries["module." + name + "." + b.key()] = b.value();
  }
  return entries;
}

// Parameters, and the buffers that are the same on every replica by construction, are shared; other
// buffers are each replica's own, and the checkpoint has replica 0's.
HeldEntries HeldByModules(const Checkpoint& checkpoint) {
  HeldEntries entries;
  for (const auto& [name, module] : checkpoint.modules) {
    for (const auto& p : module->named_parameters())
      entries.shared["module." + name + "." + p.key()] = p.value();
    const auto hold = [&](const std::string& prefix, torch::nn::Module* part) {
      const bool same = dynamic_cast<CrossReplicaBatchNormImpl*>(part) != nullptr ||
                        dynamic_cast<SpectralNormImpl*>(part) != nullptr;
      for (const auto& b : part->named_buffers(/*recurse=*/false))
        (same ? entries.shared : entries.own)[prefix + "." + b.key()] = b.value();
    };
    hold("module." + name, module);
    for (const auto& part : module->named_modules("module." + name, /*include_self=*/false))
      hold(part.key(), part.value().get());
  }
  return entries;
}

std::string KeyOf(const std::string& optimizer, size_t parameter, const char* field) {
  return "optimizer." + optimizer + "." + std::to_string(parameter) + "." + field;
}

// Returns the optimizer state of this rank: (parameter and field, value).
Entries OfOptimizer(const std::string& name, WrappedOptimizer& wrapped) {
  Entries entries;
  auto& states = wrapped.base().state();
  const auto& parameters = wrapped.reducer().parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto it = states.find(parameters[i].unsafeGetTensorImpl());
    if (it == states.end()) continue;
    const bool known = Visit(*it->second, [&](const char* field, torch::Tensor& value) {
      if (value.defined()) entries[KeyOf(name, i, field)] = value;
    });
    if (!known) (void)EmptyState(wrapped.base());
  }
  return entries;
}

Tensor ToFile(const torch::Tensor& value, std::string& type) {
  const torch::Tensor host = OnHost(value);
  const auto bytes = BytesOf(host);
  Tensor tensor;
  tensor.bytes.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (host.scalar_type() == torch::kFloat32) {
    tensor.shape = host.sizes().vec();
  } else {
    // the file knows float32 and bytes; what they were stands in its metadata
    type = DescribeTensor(host);
    tensor.type = Tensor::Type::kUint8;
    tensor.shape = {static_cast<int64_t>(bytes.size())};
  }
  return tensor;
}

// The tensor that "int64[2,3]" describes, without values; nullopt for other text.
std::optional<torch::Tensor> FromDescription(const std::string& text) {
  const size_t open = text.find('[');
  if (open == std::string::npos || text.back() != ']') return std::nullopt;
  std::vector<int64_t> sizes;
  double values = 1;
  for (size_t i = open + 1; i + 1 < text.size();) {
    size_t end = text.find(',', i);
    end = end == std::string::npos ? text.size() - 1 : end;
    const std::string number = text.substr(i, end - i);
    if (number.empty() || number.size() > 12 ||
        number.find_first_not_of("0123456789") != std::string::npos)
      return std::nullopt;
    sizes.push_back(std::stoll(number));
    values *= std::max<double>(1, static_cast<double>(sizes.back()));
    if (values > kValuesMax) return std::nullopt;
    i = end + 1;
  }
  for (int e = 0; e <= static_cast<int>(ElementType::kBool); ++e) {
    const auto type = static_cast<ElementType>(e);
    if (text.substr(0, open) == Name(type)) {
      // its size is compared before any memory is asked for
      return torch::empty(sizes, torch::TensorOptions(ScalarTypeOf(type)).device(torch::kMeta));
    }
  }
  return std::nullopt;
}

// kBadData when the file's bytes are not what its metadata say.
Result<torch::Tensor> FromFile(const Safetensors& file, const std::string& name,
                               const Tensor& tensor) {
  const auto type = file.metadata.find("type." + name);
  std::optional<torch::Tensor> like;
  if (type != file.metadata.end())
    like = FromDescription(type->second);
  else if (tensor.type == Tensor::Type::kFloat32)
    like = torch::empty(tensor.shape, torch::TensorOptions(torch::kFloat32).device(torch::kMeta));
  if (!like || like->nbytes() != tensor.bytes.size())
    return Status(Code::kBadData, name + ": not what the file says of it");
  torch::Tensor value = torch::empty_like(*like, torch::TensorOptions(torch::kCPU));
  if (!tensor.bytes.empty())
    std::memcpy(value.data_ptr(), tensor.bytes.data(), tensor.bytes.size());
  return value;
}

// kBadData when there is no such value of that type and shape.
Status Take(const ReplicaCheckpoint& file, const std::string& name, torch::Tensor& into) {
  const auto it = file.entries.find(name);
  if (it == file.entries.end()) return Status(Code::kBadData, "the checkpoint has no " + name);
  if (it->second.scalar_type() != into.scalar_type() || it->second.sizes() != into.sizes()) {
    return Status(Code::kBadData, name + ": the checkpoint's is " + DescribeTensor(it->second) +
                                      ", expected " + DescribeTensor(into) +
                                      ": another program's?");
  }
  into = it->second.to(into.device());
  return {};
}

// Returns the settings that decide the bits of a run in exact mode.
Metadata WhatDecidesBits(const Replicator& replicator) {
  return {{"mode", replicator.mode() == ReplicationMode::kExact ? "exact" : "fast"},
          {"replicas", std::to_string(replicator.num_replicas())},
          {"seed", std::to_string(replicator.state().options().seed)}};
}

void AddToFile(const std::string& name, const torch::Tensor& value, Safetensors& file) {
  std::string type;
  file.tensors[name] = ToFile(value, type);
  if (!type.empty()) file.metadata["type." + name] = type;
}

// A note is rank 0's own text.
bool IsNote(const std::string& word) { return word.starts_with("note."); }

// Checksums by name of what one rank would save.
using Sums = std::map<std::string, std::string>;
Sums SumsOf(const Replicator& replicator, const Entries& shared, const Metadata& metadata,
            const Safetensors& file) {
  Sums sums;
  for (const auto& [name, value] : shared) {
    const auto written = file.tensors.find(name);  // rank 0's
    const bool here = written == file.tensors.end();
    const torch::Tensor host = here ? OnHost(value) : torch::Tensor();
    const auto bytes = here ? std::span<const std::byte>(BytesOf(host))
                            : std::as_bytes(std::span(written->second.bytes));
    sums[name] = DescribeTensor(value) + " " + std::to_string(Checksum(bytes, 0));
  }
  for (const auto& [name, text] : metadata)
    if (!IsNote(name)) sums[name] = text;
  sums["step"] = std::to_string(replicator.step());
  return sums;
}

std::vector<Sums> Exchange(const Replicator& replicator, const Sums& mine, Site site) {
  ByteWriter out;
  for (const auto& [name, sum] : mine) out.PutBytes(name).PutBytes(sum);
  const std::string message = out.Take();
  std::vector<std::vector<std::byte>> parts;
  ThrowReplication(replicator.state().communicator().AllGatherRagged(
      {"checksums of a checkpoint", "", site}, std::as_bytes(std::span(message)), parts));
  std::vector<Sums> all;
  for (const auto& part : parts) {
    ByteReader in({reinterpret_cast<const char*>(part.data()), part.size()});
    Sums& sums = all.emplace_back();
    while (in.ok() && !in.AtEnd()) {
      const std::string name(in.GetBytes());
      sums[name] = in.GetBytes();
    }
    if (!in.ok())
      throw ReplicationError(70, "checksums between ranks that are none: is it another build?");
  }
  return all;
}

// Collective. Throws unless the ranks that hold an entry hold the same; returns, on rank 0, those
// that only other ranks hold.
Entries Agree(Replicator& replicator, const std::string& path, const Entries& shared,
              const Metadata& metadata, const Safetensors& file, Site site) {
  if (replicator.world_size() == 1) return {};
  const std::vector<Sums> all =
      Exchange(replicator, SumsOf(replicator, shared, metadata, file), site);
  std::map<std::string, std::map<int, std::string>> by_name;
  for (size_t r = 0; r < all.size(); ++r)
    for (const auto& [name, sum] : all[r]) by_name[name][static_cast<int>(r)] = sum;
  std::vector<std::string> mine;  // what rank 0 lacks, and this rank is the first to have
  bool lacks = false;
  for (const auto& [name, sums] : by_name) {
    if (replicator.state().compares())
      ThrowReplication(CheckAgreement(path + ": not saved at step " +
                                          std::to_string(replicator.step()) +
                                          ", what was there before stays: " + name,
                                      sums));
    lacks = lacks || sums.begin()->first != 0;
    if (sums.begin()->first != 0 && sums.begin()->first == replicator.rank()) mine.push_back(name);
  }
  if (!lacks) return {};
  // the state of a sharded optimizer
  Leaves leaves;
  for (const std::string& name : mine) leaves.push_back(shared.at(name));
  const std::string message = Pack(leaves);
  std::vector<std::vector<std::byte>> parts;
  ThrowReplication(replicator.state().communicator().AllGatherRagged(
      {"what only some ranks have of a checkpoint", "", site}, std::as_bytes(std::span(message)),
      parts));
  if (!replicator.IsMain()) return {};
  std::vector<Leaves> theirs;
  for (const auto& part : parts)
    theirs.push_back(
        ValueOrReplication(Unpack({reinterpret_cast<const char*>(part.data()), part.size()})));
  Entries missing;
  std::vector<size_t> at(parts.size());
  for (const auto& [name, sums] : by_name) {
    const auto holder = static_cast<size_t>(sums.begin()->first);
    if (holder != 0) missing[name] = theirs[holder].at(at[holder]++);
  }
  return missing;
}

}  // namespace

void RefuseOther(const std::string& path, const Metadata& metadata, const std::string& name,
                 const std::string& value) {
  const auto it = metadata.find(name);
  if (it == metadata.end() || it->second == value) return;  // files of earlier builds have none
  throw ReplicationError(78, path + ": saved with " + name + " " + it->second +
                                 ", and this run has " + value +
                                 ": exact mode goes on as it began; give the same, or choose fast "
                                 "mode");
}

void WriteCheckpoint(Replicator& replicator, const std::string& path, const HeldEntries& mine,
                     const Metadata& metadata, Site site) {
  const torch::NoGradGuard none;
  // the bytes that are compared are those that are written
  Safetensors file;
  if (replicator.IsMain())
    for (const auto* entries : {&mine.shared, &mine.own})
      for (const auto& [name, value] : *entries) AddToFile(name, value, file);
  Entries missing = Agree(replicator, path, mine.shared, metadata, file, site);
  // rank 0 writes, and says to all how it went
  std::string failure;
  if (replicator.IsMain()) {
    for (const auto& [name, value] : missing) AddToFile(name, value, file);
    file.metadata.insert(metadata.begin(), metadata.end());
    file.metadata["format"] = kFormat;
    file.metadata["step"] = std::to_string(replicator.step());
    file.metadata.merge(WhatDecidesBits(replicator));
    file.metadata[kSum] = SumOf(file);
    const auto bytes = FormatSafetensors(file);
    Status written = bytes.status();
    if (written.ok() && !Path(path).parent_path().empty())
      written = CreateFolders(Path(path).parent_path());
    if (written.ok()) written = WriteFileAtomic(Path(path), *bytes);
    if (!written.ok()) failure = path + ": " + written.message();
  }
  Leaves said{torch::tensor(static_cast<int64_t>(failure.empty() ? 0 : 1))};
  said = replicator.state().Broadcast(
      std::vector<Leaves>(static_cast<size_t>(replicator.local_replicas()), said), 0,
      {"checkpoint written", "", site});
  if (said[0].item<int64_t>() != 0)
    throw ReplicationError(74, replicator.IsMain() ? failure : "rank 0 could not write " + path);
}

std::optional<ReplicaCheckpoint> ReadCheckpoint(Replicator& replicator, const std::string& path,
                                                Site site) {
  const torch::NoGradGuard none;
  // rank 0 reads: [state of affairs, bytes]
  std::string message;
  if (replicator.IsMain()) {
    const auto bytes = ReadFile(path);
    if (bytes.ok())
      message = "+" + *bytes;
    else
      message = bytes.status().code() == Code::kNoInput ? "-" : "!" + bytes.status().message();
  }
  std::vector<std::vector<std::byte>> all;
  ThrowReplication(replicator.state().communicator().AllGatherRagged(
      {"checkpoint of " + path, "", site}, std::as_bytes(std::span(message)), all));
  const std::string_view whole(reinterpret_cast<const char*>(all[0].data()), all[0].size());
  if (whole == "-") return std::nullopt;
  if (!whole.starts_with('+'))
    throw ReplicationError(65, path + ": " + std::string(whole.substr(1)));
  const auto parsed = ParseSafetensors(whole.substr(1));
  if (!parsed.ok()) throw ReplicationError(65, path + ": " + parsed.status().message());
  ReplicaCheckpoint file;
  file.metadata = parsed->metadata;
  if (const auto it = file.metadata.find("format");
      it == file.metadata.end() || it->second != kFormat)
    throw ReplicationError(65, path + ": not a checkpoint of a replicated program");
  // files of earlier builds have no sum
  if (const auto it = file.metadata.find(kSum); it != file.metadata.end()) {
    if (it->second != SumOf(*parsed))
      throw ReplicationError(65, path + ": damaged: its checksum does not match what it holds");
    file.metadata.erase(it);
  }
  for (const auto& [name, tensor] : parsed->tensors) {
    auto value = FromFile(*parsed, name, tensor);
    if (!value.ok()) throw ReplicationError(65, path + ": " + value.status().message());
    file.entries.emplace(name, std::move(*value));
  }
  const auto step = file.metadata.find("step");
  if (step == file.metadata.end() || step->second.empty() ||
      step->second.find_first_not_of("0123456789") != std::string::npos || step->second.size() > 18)
    throw ReplicationError(65, path + ": a checkpoint without its step");
  file.step = std::stoll(step->second);
  if (replicator.mode() == ReplicationMode::kExact)
    for (const auto& [name, value] : WhatDecidesBits(replicator))
      RefuseOther(path, file.metadata, name, value);
  return file;
}

void Save(Replicator& replicator, const std::string& path, const Checkpoint& checkpoint,
          Site site) {
  const torch::NoGradGuard none;
  HeldEntries entries = HeldByModules(checkpoint);
  Metadata metadata;
  for (const auto& [name, optimizer] : checkpoint.optimizers) {
    entries.shared.merge(OfOptimizer(name, *optimizer));
    for (size_t g = 0; g < optimizer->base().param_groups().size(); ++g) {
      const torch::Tensor rate =
          torch::tensor(optimizer->base().param_groups()[g].options().get_lr(), torch::kDouble);
      entries.shared.emplace("optimizer." + name + ".lr." + std::to_string(g), rate);
    }
    entries.shared.emplace("optimizer." + name + ".updates", torch::tensor(optimizer->updates()));
  }
  for (const auto& [name, text] : checkpoint.notes) metadata["note." + name] = text;
  WriteCheckpoint(replicator, path, entries, metadata, site);
}

bool Load(Replicator& replicator, const std::string& path, Checkpoint& checkpoint, Site site) {
  const torch::NoGradGuard none;
  const auto read_file = ReadCheckpoint(replicator, path, site);
  if (!read_file) return false;
  const ReplicaCheckpoint& file = *read_file;
  const auto check = [&](const Status& status) {
    if (!status.ok()) throw ReplicationError(65, path + ": " + status.message());
  };
  // everything is read before anything is changed
  std::vector<std::function<void()>> changes;
  for (auto& [name, value] : OfModules(checkpoint)) {
    torch::Tensor read = value;
    check(Take(file, name, read));
    changes.push_back([into = value, read] { into.detach().copy_(read); });
  }
  for (const auto& [optimizer, wrapped] : checkpoint.optimizers) {
    const std::string& name = optimizer;  // clang 14 captures no binding
    GradientReducer& reducer = wrapped->reducer();
    torch::optim::Optimizer& base = wrapped->base();
    changes.push_back([&base] { base.state().clear(); });
    for (size_t i = 0; i < reducer.parameters().size(); ++i) {
      if (reducer.owner(i) != replicator.rank()) continue;
      const torch::Tensor& parameter = reducer.parameters()[i];
      std::shared_ptr<torch::optim::OptimizerParamState> loaded = EmptyState(base);
      Status status;
      size_t found = 0;
      Visit(*loaded, [&](const char* field, torch::Tensor& value) {
        const std::string key = KeyOf(name, i, field);
        if (!file.entries.contains(key)) return;
        ++found;
        torch::Tensor read = std::string_view(field) == "step"
                                 ? torch::tensor(int64_t{0})
                                 : torch::empty_like(parameter).detach();
        if (const Status s = Take(file, key, read); !s.ok()) status = s;
        value = read;
      });
      check(status);
      if (found == 0) continue;  // it never had a gradient
      changes.push_back([&base, parameter, loaded] {
        base.state()[parameter.unsafeGetTensorImpl()] = loaded->clone();
      });
    }
    for (size_t g = 0; g < base.param_groups().size(); ++g) {
      torch::Tensor rate = torch::zeros({}, torch::kDouble);
      check(Take(file, "optimizer." + name + ".lr." + std::to_string(g), rate));
      changes.push_back(
          [&base, g, rate] { base.param_groups()[g].options().set_lr(rate.item<double>()); });
    }
    torch::Tensor updates = torch::tensor(int64_t{0});
    check(Take(file, "optimizer." + name + ".updates", updates));
    changes.push_back([&reducer, updates] { reducer.Restored(updates.item<int64_t>()); });
  }
  for (const auto& change : changes) change();
  replicator.SetStep(file.step);
  for (const auto& [key, text] : file.metadata)
    if (key.starts_with("note.")) checkpoint.notes[key.substr(5)] = text;
  return true;
}

}  // namespace samara
