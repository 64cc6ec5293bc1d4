#include "rl/replay/replay_learner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/check.h"
#include "core/clock.h"
#include "core/sha256.h"
#include "rl/learner/flat_optimizer.h"
#include "rl/learner/shards.h"
#include "rl/learner/version_queue.h"

namespace samara {
namespace {

using Files = std::map<std::string, std::string>;

constexpr char kWeights[] = "weights.safetensors", kOptimizer[] = "optimizer.safetensors",
               kTargets[] = "targets.safetensors", kReplay[] = "replay.bin", kSlots[] = "slots.bin",
               kVersions[] = "versions.safetensors";
constexpr char kVersion[] = "version", kSteps[] = "steps";  // metadata

Result<Safetensors> Parsed(const Files& files, const char* name) {
  const auto found = files.find(name);
  if (found == files.end()) return Status(Code::kBadData, std::string("holds no ") + name);
  auto parsed = ParseSafetensors(found->second);
  if (!parsed.ok()) return parsed.status().Annotate(name);
  return parsed;
}

Result<uint64_t> Count(const Safetensors& file, const char* key, const char* name) {
  const auto found = file.metadata.find(key);
  if (found == file.metadata.end())
    return Status(Code::kBadData, fmt::format("{}: says no {}", name, key));
  return std::strtoull(found->second.c_str(), nullptr, 10);
}

class ReplayLearner final : public Agent {
 public:
  ReplayLearner(const AgentSetup& setup, std::unique_ptr<ReplayAlgorithm> algorithm)
      : config_(setup.config),
        keys_(dynamic_cast<const ReplayAlgorithmConfig&>(*setup.config.own).replay),
        combiner_(setup.combiner),
        shards_(ShardsEach(setup.config.learn, setup.ranks)),
        first_shard_(shards_ * setup.rank),
        all_shards_(shards_ * setup.ranks),
        seed_(setup.seed),
        share_(setup.share),
        slots_(setup.slots),
        algorithm_(std::move(algorithm)),
        shape_(algorithm_->shape()),
        learned_(algorithm_->learned().size()),
        targets_(algorithm_->targets().size()),
        optimizer_(config_.optimizer, learned_.size()),
        threads_(config_.learn.threads, shards_),
        acting_scratch_(algorithm_->MakeScratch(setup.rows_max)),
        versions_(setup.versions_kept, setup.versions_every) {
    algorithm_->Initialize(seed_, learned_, targets_);
    MakeShards();
    Publish(0, learned_);
  }

  const ModelShape& shape() const override { return shape_; }
  Status Infer(InferenceBatch& batch) override {
    const auto policy = versions_.Get(batch.version);
    CHECK(policy != nullptr) << "version " << batch.version << " is not kept";
    algorithm_->Act(*policy, *acting_scratch_, batch);
    return Status::Ok();
  }
  bool Has(uint64_t version) const override { return versions_.Has(version); }
  uint64_t version() const override { return version_; }
  uint64_t memory_bytes() const override {
    return static_cast<uint64_t>(shards_) * UnrollReplay::Bytes(Replay());
  }
  int64_t parameter_count() const override {
    int64_t count = 0;
    for (const auto& [name, tensor] : algorithm_->learned().Tensors(learned_))
      count += static_cast<int64_t>(tensor.bytes.size() / sizeof(float));
    return count;
  }

  Result<UpdateReport> Update(std::span<const UnrollStore::Loan> unrolls, double frames) override;
  std::string parameter_hash() const override {
    Sha256 hash;
    for (const auto& [name, tensor] : algorithm_->learned().Tensors(learned_)) {
      hash.Update(name);
      hash.Update({tensor.bytes.data(), tensor.bytes.size()});
    }
    return Hex(hash.Finish());
  }
  bool finite() const override {
    return AllFinite(learned_) && AllFinite(targets_) && optimizer_.finite();
  }
  Files Save(Part part) const override;
  Status Restore(const Files& files, Part part) override;

 private:
  // A shard of this learner.
  struct ShardWork {
    UnrollReplay replay;
    std::unique_ptr<ReplayScratch> scratch;
    std::vector<Transition> steps;
    std::vector<float> row;  // gradient, then the numbers
    std::map<std::string, double> numbers;
  };

  ReplayShape Replay() const;  // of a shard
  void MakeShards();
  void Publish(uint64_t version, std::span<const float> parameters) {
    versions_.Publish(
        version,
        std::make_shared<const std::vector<float>>(
            parameters.begin(), parameters.begin() + static_cast<ptrdiff_t>(algorithm_->acting())));
  }
  // Steps of the optimizer that are due with this update.
  uint64_t Due() const;
  void SampleAndDifferentiate(size_t index, ShardWork& part) const;
  Result<bool> TakeStep(double frames, UpdateReport& report);
  Status RestoreReplay(const Files& files);

  const LearningConfig config_;
  const ReplayKeys keys_;
  GradientCombiner* const combiner_;
  const int64_t shards_, first_shard_, all_shards_;
  const uint64_t seed_;
  const SlotShare share_;
  const uint32_t slots_;
  const std::unique_ptr<ReplayAlgorithm> algorithm_;
  const ModelShape shape_;
  std::vector<float> learned_, targets_;
  FlatOptimizer optimizer_;
  ShardThreads threads_;
  const std::unique_ptr<ReplayScratch> acting_scratch_;  // of inference
  VersionQueue<const std::vector<float>> versions_;
  std::vector<ShardWork> parts_;
  uint64_t version_ = 0, steps_ = 0;
};

ReplayShape ReplayLearner::Replay() const {
  return {.capacity = static_cast<uint64_t>(keys_.capacity / static_cast<double>(all_shards_)),
          .length = static_cast<uint32_t>(config_.learn.unroll),
          .observation_bytes = shape_.observation_bytes,
          .action_values = shape_.action_values};
}

void ReplayLearner::MakeShards() {
  for (int64_t i = 0; i < shards_; ++i) {
    const int64_t begin = (first_shard_ + i) * keys_.batch / all_shards_;
    const int64_t end = (first_shard_ + i + 1) * keys_.batch / all_shards_;
    parts_.push_back({.replay = UnrollReplay(Replay()),
                      .scratch = algorithm_->MakeScratch(static_cast<size_t>(end - begin)),
                      .steps = std::vector<Transition>(static_cast<size_t>(end - begin)),
                      .row = {},
                      .numbers = {}});
  }
}

// Of all learners, which may have unequal parts of a batch: the same number on each.
uint64_t ReplayLearner::Due() const {
  const auto update = static_cast<double>(config_.learn.batch * config_.learn.unroll);
  const double stored = static_cast<double>(version_ + 1) * update;
  const double learned_from = std::max(0.0, stored - keys_.start) * keys_.ratio;
  return static_cast<uint64_t>(learned_from / static_cast<double>(keys_.batch));
}

void ReplayLearner::SampleAndDifferentiate(size_t index, ShardWork& part) const {
  const uint64_t shard = static_cast<uint64_t>(first_shard_) + index;
  // 2 sample
  const CounterRng chosen(DeriveKey(seed_, Purpose::kReplaySample, steps_, shard));
  for (size_t i = 0; i < part.steps.size(); ++i)
    part.steps[i] = part.replay.At(chosen.UniformInt(i, part.replay.size()));
  // 3 gradient; as often as its steps count among all
  part.row.resize(learned_.size());
  part.numbers = algorithm_->Gradient(
      {.steps = part.steps,
       .learned = learned_,
       .targets = targets_,
       .noise = CounterRng(DeriveKey(seed_, Purpose::kEntropySample, steps_, shard))},
      *part.scratch, part.row);
  for (const auto& [name, value] : part.numbers) part.row.push_back(static_cast<float>(value));
  const double weight = static_cast<double>(part.steps.size()) / static_cast<double>(keys_.batch);
  if (weight != 1)
    for (float& value : part.row) value = static_cast<float>(value * weight);
}

// Whether it was taken.
Result<bool> ReplayLearner::TakeStep(double frames, UpdateReport& report) {
  SteadyTime clock = Now();
  RETURN_IF_ERROR(
      threads_.Run(parts_.size(), [&](size_t i) { SampleAndDifferentiate(i, parts_[i]); }));
  report.seconds_backward += SecondsSince(clock);

  clock = Now();
  std::vector<std::span<const float>> rows;
  for (const ShardWork& part : parts_) rows.emplace_back(part.row);
  std::vector<float> row(rows[0].size());
  RETURN_IF_ERROR(AddShards(combiner_, rows, row));
  size_t at = learned_.size();
  std::map<std::string, double> numbers;
  for (const auto& [name, value] : parts_[0].numbers) numbers[name] = row[at++];
  const auto step = std::isfinite(numbers.at("loss"))
                        ? optimizer_.Step(learned_, std::span(row).first(learned_.size()), frames)
                        : FlatOptimizer::StepResult();
  if (step.applied) algorithm_->AfterStep(learned_, targets_);
  ++steps_, ++report.steps;
  report.gradient_norm += step.gradient_norm;
  for (const auto& [name, value] : numbers) report.numbers[name] += value;
  report.seconds_step += SecondsSince(clock);
  return step.applied;
}

Result<UpdateReport> ReplayLearner::Update(std::span<const UnrollStore::Loan> unrolls,
                                           double frames) {
  UpdateReport report;
  report.applied = true;
  report.learning_rate = LearningRateAt(config_.optimizer, frames);
  report.coefficients = algorithm_->coefficients(learned_);
  // 1 store
  SteadyTime clock = Now();
  for (size_t i = 0; i < parts_.size(); ++i)
    for (size_t u = i * unrolls.size() / parts_.size();
         u < (i + 1) * unrolls.size() / parts_.size(); ++u)
      parts_[i].replay.Add(*unrolls[u]);
  report.seconds_batch = SecondsSince(clock);

  const uint64_t due = Due();
  while (steps_ < due && report.applied) {
    ASSIGN_OR_RETURN(report.applied, TakeStep(frames, report));
  }
  steps_ = due;  // also after one that was not taken
  if (report.steps > 0) {
    report.gradient_norm /= static_cast<double>(report.steps);
    for (auto& [name, value] : report.numbers) value /= static_cast<double>(report.steps);
  }

  // 5 publish
  clock = Now();
  Publish(++version_, learned_);
  report.seconds_step += SecondsSince(clock);
  return report;
}

Files ReplayLearner::Save(Part part) const {
  Files files;
  const auto save = [&](const char* name, std::map<std::string, Tensor> tensors,
                        std::map<std::string, std::string> metadata = {}) {
    files[name] = FormatSafetensors({std::move(tensors), std::move(metadata)}).ValueOrThrow();
  };
  save(kWeights, algorithm_->learned().Tensors(learned_), {{kVersion, std::to_string(version_)}});
  if (part == Part::kWeights) return files;
  auto means = algorithm_->learned().Tensors(optimizer_.mean(), "/mean");
  means.merge(algorithm_->learned().Tensors(optimizer_.square(), "/square"));
  save(kOptimizer, std::move(means),
       {{kSteps, std::to_string(optimizer_.steps())}, {"sampled", std::to_string(steps_)}});
  save(kTargets, algorithm_->targets().Tensors(targets_));
  std::vector<std::string> replays;
  for (const ShardWork& shard : parts_) replays.push_back(shard.replay.Save());
  files[kReplay] = WriteSlotRecords(replays);
  if (part == Part::kRun) return files;
  files[kSlots] = WriteSlotRecords(std::vector<std::string>(slots_));  // they remember nothing
  std::map<std::string, Tensor> versions;
  std::vector<float> all = learned_;
  for (const auto& [number, policy] : versions_.all()) {
    std::ranges::copy(*policy, all.begin());
    for (auto& [name, tensor] : algorithm_->learned().Tensors(all))
      versions[std::to_string(number) + "/" + name] = std::move(tensor);
  }
  save(kVersions, std::move(versions));
  return files;
}

Status ReplayLearner::RestoreReplay(const Files& files) {
  const auto found = files.find(kReplay);
  if (found == files.end()) return {Code::kBadData, std::string("holds no ") + kReplay};
  const auto records = ReadSlotRecords(
      found->second,
      {.first = static_cast<uint32_t>(first_shard_), .all = static_cast<uint32_t>(all_shards_)},
      static_cast<uint32_t>(shards_));
  if (!records.ok())
    return {Code::kBadData, fmt::format("{}: damaged, or of another number of shards than {}",
                                        kReplay, all_shards_)};
  for (size_t i = 0; i < parts_.size(); ++i)
    RETURN_IF_ERROR(parts_[i].replay.Restore((*records)[i]).Annotate(kReplay));
  return Status::Ok();
}

Status ReplayLearner::Restore(const Files& files, Part part) {
  // everything but the replay is read and compared before anything is changed
  ASSIGN_OR_RETURN(const Safetensors weights, Parsed(files, kWeights));
  ASSIGN_OR_RETURN(const uint64_t version, Count(weights, kVersion, kWeights));
  std::vector<float> learned = learned_, targets = targets_;
  const ParameterBlocks& blocks = algorithm_->learned();
  RETURN_IF_ERROR(blocks.FromTensors(weights.tensors, learned).Annotate(kWeights));
  FlatOptimizer optimizer = optimizer_;
  uint64_t sampled = steps_;
  if (part != Part::kWeights || files.contains(kOptimizer)) {
    ASSIGN_OR_RETURN(const Safetensors saved, Parsed(files, kOptimizer));
    std::vector<float> mean(learned.size()), square(learned.size());
    RETURN_IF_ERROR(blocks.FromTensors(saved.tensors, mean, "/mean").Annotate(kOptimizer));
    RETURN_IF_ERROR(blocks.FromTensors(saved.tensors, square, "/square").Annotate(kOptimizer));
    ASSIGN_OR_RETURN(const uint64_t steps, Count(saved, kSteps, kOptimizer));
    ASSIGN_OR_RETURN(sampled, Count(saved, "sampled", kOptimizer));
    optimizer.Restore(std::move(mean), std::move(square), steps);
    ASSIGN_OR_RETURN(const Safetensors followers, Parsed(files, kTargets));
    RETURN_IF_ERROR(
        algorithm_->targets().FromTensors(followers.tensors, targets).Annotate(kTargets));
  } else {
    algorithm_->ResetTargets(learned, targets);
  }
  std::map<uint64_t, std::vector<float>> versions;
  if (part == Part::kSlots) {
    ASSIGN_OR_RETURN(const Safetensors saved, Parsed(files, kVersions));
    std::map<uint64_t, std::map<std::string, Tensor>> tensors;
    for (const auto& [name, tensor] : saved.tensors) {
      const size_t slash = name.find('/');
      if (slash == std::string::npos)
        return {Code::kBadData, fmt::format("{}: {} names no version", kVersions, name)};
      tensors[std::strtoull(name.c_str(), nullptr, 10)][name.substr(slash + 1)] = tensor;
    }
    for (const auto& [number, named] : tensors) {
      versions[number].resize(learned.size());
      RETURN_IF_ERROR(blocks.FromTensors(named, versions[number]).Annotate(kVersions));
    }
    const auto memory = files.find(kSlots);
    if (memory == files.end()) return {Code::kBadData, std::string("holds no ") + kSlots};
    RETURN_IF_ERROR(ReadSlotRecords(memory->second, share_, slots_).status());
  }
  if (part != Part::kWeights) RETURN_IF_ERROR(RestoreReplay(files));
  learned_ = std::move(learned), targets_ = std::move(targets);
  optimizer_ = std::move(optimizer);
  if (part != Part::kWeights) version_ = version, steps_ = sampled;
  for (const auto& [number, parameters] : versions) Publish(number, parameters);
  if (versions.empty()) Publish(version_, learned_);
  return Status::Ok();
}

// What perceptrons on the processor have no use for.
Status CheckKeys(const AgentSetup& setup) {
  const AgentNetworkKeys &keys = setup.config.network, plain;
  const auto refuse = [&](const char* key, const char* expected) {
    return Status(Code::kConfig, fmt::format("{}: {} learns with perceptrons; expected {}", key,
                                             setup.config.algorithm, expected));
  };
  if (keys.lstm != plain.lstm) return refuse("network.lstm", "0");
  if (keys.reward_input) return refuse("network.reward_input", "false");
  if (keys.action_input) return refuse("network.action_input", "false");
  if (keys.initializer != plain.initializer) return refuse("network.initializer", "glorot");
  if (keys.precision != plain.precision) return refuse("network.precision", "float32");
  if (keys.value != plain.value) return refuse("network.value", "it left out");
  if (keys.normalize_value) return refuse("network.normalize_value", "false");
  if (keys.deviation != plain.deviation) return refuse("network.deviation", "network");
  if (setup.stack)
    return {Code::kConfig,
            "env.stack: the environment's observations are vectors, which are not stacked; "
            "expected 0"};
  const ObservationSpec& observation = setup.environment.observation;
  if (observation.image() || observation.dtype != DType::kFloat32)
    return {Code::kConfig,
            fmt::format("run.algorithm={}: the environment's observations are {}; expected vectors "
                        "of floats",
                        setup.config.algorithm, observation.image() ? "images" : "bytes")};
  return Status::Ok();
}

}  // namespace

void ReplayKeys::Bind(ConfigTable& table) {
  table.Add("replay.capacity", &capacity, {1, 1e9}, "steps", "of the replay, over all shards");
  table.Add("replay.start", &start, {0, 1e9}, "steps", "played before the first is learned from");
  table.Add("replay.batch", &batch, {1, 65'536}, "steps", "of a minibatch, over all shards");
  table.Add("replay.ratio", &ratio, {0, 1e6}, "",
            "how often a step is learned from on average: replay.batch is one minibatch a step");
}

Status ReplayKeys::Check(const LearningConfig& config) const {
  const LearnConfig& learn = config.learn;
  if (config.optimizer.epsilon <= 0)
    return {Code::kConfig, "optimizer.epsilon=0: expected it above 0"};
  if (batch < learn.shards)
    return {Code::kConfig,
            fmt::format("replay.batch={}: expected at least learn.shards={}", batch, learn.shards)};
  const auto update = static_cast<double>(learn.batch * learn.unroll);
  if (capacity < update)
    return {Code::kConfig,
            fmt::format("replay.capacity={:.0f}: expected at least the {:.0f} steps of an "
                        "update (learn.batch * learn.unroll)",
                        capacity, update)};
  if (start > capacity)
    return {Code::kConfig,
            fmt::format("replay.start={:.0f}: expected at most replay.capacity={:.0f}", start,
                        capacity)};
  return Status::Ok();
}

Result<std::unique_ptr<Agent>> MakeReplayLearner(const AgentSetup& setup,
                                                 std::unique_ptr<ReplayAlgorithm> algorithm) {
  RETURN_IF_ERROR(CheckKeys(setup));
  return std::unique_ptr<Agent>(std::make_unique<ReplayLearner>(setup, std::move(algorithm)));
}

}  // namespace samara
