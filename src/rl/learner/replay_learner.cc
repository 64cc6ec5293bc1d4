#include "rl/learner/replay_learner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "core/bytes.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/sha256.h"
#include "rl/learner/acting_torso.h"
#include "rl/learner/checkpoint_files.h"
#include "rl/learner/flat_optimizer.h"
#include "rl/learner/image_torso.h"
#include "rl/learner/minibatch_features.h"
#include "rl/learner/observation_normalizer.h"
#include "rl/learner/replay_files.h"
#include "rl/learner/shards.h"
#include "rl/learner/version_queue.h"
#include "rl/replay/hindsight.h"
#include "rl/replay/step_sampler.h"
#include "rl/trajectory/reward_transform.h"

namespace samara {
namespace {

using Files = std::map<std::string, std::string>;

constexpr char kVersion[] = "version", kSteps[] = "steps";  // metadata

// The goals of the environment with rewards as the learner sees them.
HindsightRule HindsightOf(const AgentSetup& setup) {
  const auto& keys = ReplayAlgorithmConfig::Of(setup.config).hindsight;
  const RewardMode mode = setup.config.learn.rewards;
  GoalSpec goal = setup.environment.goal;
  for (double* reward : {&goal.reached, &goal.missed}) *reward = LearnersReward(mode, *reward);
  return {goal, keys.fraction, setup.environment.observation.elements()};
}

// Key of the torso's initial draws, beyond those of the algorithm's blocks of parameters.
constexpr uint64_t kTorsoKey = uint64_t{1} << 32;

class ReplayLearner final : public Agent {
 public:
  // `torso`: null where observations are vectors. `normalized`: numbers of an observation that is
  // normalized, or 0.
  ReplayLearner(const AgentSetup& setup, std::unique_ptr<const ImageTorso> torso, size_t normalized,
                std::unique_ptr<ReplayAlgorithm> algorithm)
      : config_(setup.config),
        keys_(ReplayAlgorithmConfig::Of(setup.config).replay),
        hindsight_(HindsightOf(setup)),
        choices_(setup.environment.action.discrete ? setup.environment.action.n : 0),
        random_shift_(ReplayAlgorithmConfig::Of(setup.config).random_shift),
        combiner_(setup.combiner),
        shards_(ShardsEach(setup.config.learn, setup.ranks)),
        first_shard_(shards_ * setup.rank),
        all_shards_(shards_ * setup.ranks),
        seed_(setup.seed),
        share_(setup.share),
        slots_(setup.slots),
        torso_(std::move(torso)),
        torso_size_(torso_ ? torso_->size() : 0),
        algorithm_(std::move(algorithm)),
        shape_(Shape()),
        learned_(torso_size_ + algorithm_->learned().size()),
        targets_(torso_size_ + algorithm_->targets().size()),
        threads_(config_.learn.threads, shards_),
        acting_scratch_(algorithm_->MakeScratch(setup.rows_max)),
        versions_(setup.versions_kept, setup.versions_every) {
    const Initializer initializer = config_.network.initializer;
    algorithm_->Initialize(seed_, initializer, Behind(std::span(learned_)),
                           Behind(std::span(targets_)));
    if (torso_) {
      torso_->blocks().Initialize(DeriveKey(seed_, Purpose::kNetworkInit, kTorsoKey), initializer,
                                  Torso(std::span(learned_)));
      ResetTargets(learned_, targets_);
      groups_.emplace_back(config_, ParameterGroup{.name = "torso", .size = torso_size_});
      acting_torso_.emplace(*torso_, slots_, setup.rows_max);
    }
    if (normalized > 0) {
      normalizer_.emplace(normalized, torso_ != nullptr && torso_->layout().bytes);
      if (!torso_) acting_normalized_.emplace(normalized, setup.rows_max);
    }
    for (ParameterGroup part : algorithm_->groups()) {
      part.first += torso_size_;
      groups_.emplace_back(config_, part);
    }
    MakeShards();
    Publish(0, Newest());
  }

  const ModelShape& shape() const override { return shape_; }
  Status Infer(InferenceBatch& batch) override {
    const auto policy = versions_.Get(batch.version);
    CHECK(policy != nullptr) << "version " << batch.version << " is not kept";
    const std::span<const float> all = policy->parameters;
    if (acting_normalized_) {
      const NormalizedObservations::Rows rows(*acting_normalized_, policy->normalizer, batch);
      algorithm_->Act(all, *acting_scratch_, batch);
    } else if (!torso_) {
      algorithm_->Act(all, *acting_scratch_, batch);
    } else if (!batch.rows.empty()) {
      const ActingTorso::Features features(*acting_torso_, Torso(all), policy->normalizer, batch);
      algorithm_->Act(Behind(all), *acting_scratch_, batch);
    }
    return Status::Ok();
  }
  bool Has(uint64_t version) const override { return versions_.Has(version); }
  uint64_t version() const override { return version_; }
  bool explores() const override { return algorithm_->explores(); }
  bool keeps_last() const override { return hindsight_.fraction > 0; }
  ReplayMemory replay_memory() const override {
    const ReplayShape shape = Replay();
    const auto bytes = [&](const ReplayShape& of) {
      return static_cast<uint64_t>(shards_) * StepSampler::Bytes(of, keys_.alpha);
    };
    ReplayMemory memory{.most = bytes(shape), .least = bytes(shape.Rest())};
    for (const ShardWork& part : parts_) memory.Add(part.replay, shards_);
    return memory;
  }
  int64_t parameter_count() const override {
    int64_t count = 0;
    for (const auto& [name, tensor] : Learned(learned_))
      count += static_cast<int64_t>(tensor.bytes.size() / sizeof(float));
    return count;
  }

  Result<UpdateReport> Update(std::span<const UnrollStore::Loan> unrolls, double frames) override;
  std::string parameter_hash() const override {
    Sha256 hash;
    for (const auto& [name, tensor] : Weights(learned_, NormalizerFloats())) {
      hash.Update(name);
      hash.Update({tensor.bytes.data(), tensor.bytes.size()});
    }
    return Hex(hash.Finish());
  }
  bool finite() const override {
    return AllFinite(learned_) && AllFinite(targets_) &&
           std::ranges::all_of(groups_, [](const Group& g) { return g.optimizer.finite(); });
  }
  Files Save(Part part, const std::set<std::string>& kept) const override;
  Files SaveNextParts(const std::set<std::string>& kept) const override {
    return samara::SaveNextParts(parts_, first_shard_, kept, &ShardWork::replay);
  }
  Status Restore(const Files& files, Part part) override;

 private:
  struct Group {
    Group(const LearningConfig& config, const ParameterGroup& group)
        : part(group), optimizer(Scaled(config.optimizer, group.rate), group.size) {}
    static OptimizerConfig Scaled(OptimizerConfig config, double rate) {
      config.learning_rate *= rate;
      return config;
    }
    // Name of the count of its steps in a checkpoint.
    std::string counted() const { return part.name.empty() ? kSteps : kSteps + ("/" + part.name); }
    ParameterGroup part;
    FlatOptimizer optimizer;
  };
  // The part of the parameters that acts.
  struct Policy {
    std::vector<float> parameters, normalizer;  // the latter as ObservationNormalizer has floats
  };
  // A shard of this learner.
  struct ShardWork {
    StepSampler replay;
    Hindsight hindsight;
    std::unique_ptr<ReplayScratch> scratch;
    std::vector<Transition> steps;  // of the minibatch
    std::vector<float> errors;
    std::optional<MinibatchFeatures> features;         // of images
    std::optional<NormalizedObservations> normalized;  // vectors, where there is a normalizer
    std::vector<float> row;  // gradient, numbers, largest weight of each shard
    std::map<std::string, double> numbers;
  };

  // The torso's part of a vector of parameters, and the algorithm's behind it.
  template <typename T>
  std::span<T> Torso(std::span<T> all) const {
    return all.first(torso_size_);
  }
  template <typename T>
  std::span<T> Behind(std::span<T> all) const {
    return all.subspan(torso_size_);
  }
  void ResetTargets(std::span<const float> learned, std::span<float> targets) const {
    std::ranges::copy(Torso(learned), targets.begin());
    algorithm_->ResetTargets(Behind(learned), Behind(targets));
  }
  std::span<const float> NormalizerFloats() const {
    return normalizer_ ? normalizer_->floats() : std::span<const float>();
  }
  // The part of the parameters that acts.
  std::span<const float> Acting(std::span<const float> all) const {
    return all.first(torso_size_ + algorithm_->acting());
  }
  ModelShape Shape() const;
  using Named = std::map<std::string, Tensor>;
  Named Learned(std::span<const float> all, const std::string& suffix = "") const {
    return TensorsOf(algorithm_->learned(), all, suffix);
  }
  // And the normalizer's, if there is one: all that a file of weights has.
  Named Weights(std::span<const float> all, std::span<const float> normalizer) const {
    Named tensors = Learned(all);
    if (normalizer_) tensors.merge(ObservationNormalizer::Tensors(normalizer));
    return tensors;
  }
  Named TensorsOf(const ParameterBlocks& behind, std::span<const float> all,
                  const std::string& suffix = "") const;
  Status FromTensors(const ParameterBlocks& behind, const Named& tensors, std::span<float> all,
                     const std::string& suffix = "") const;
  ReplayShape Replay() const;  // of a shard
  void MakeShards();
  Policy PolicyOf(std::span<const float> all, std::span<const float> normalizer) const {
    const std::span<const float> acting = Acting(all);
    return {{acting.begin(), acting.end()}, {normalizer.begin(), normalizer.end()}};
  }
  Policy Newest() const { return PolicyOf(learned_, NormalizerFloats()); }
  void Publish(uint64_t version, Policy policy) {
    versions_.Publish(version, std::make_shared<const Policy>(std::move(policy)));
  }
  Status UpdateStatistics(std::span<const UnrollStore::Loan> unrolls);
  void SampleAndDifferentiate(size_t index, ShardWork& part) const;
  Result<bool> TakeStep(double frames, UpdateReport& report);
  bool StepGroups(std::span<const float> gradient, double frames, UpdateReport& report);
  std::string SaveOptimizer() const;
  Status RestoreOptimizer(const Safetensors& saved, std::vector<Group>& groups) const;
  Status RestoreNormalizer(const Files& files, Part part, const Named& weights,
                           std::optional<ObservationNormalizer>& normalizer) const;
  Status RestoreVersions(const Safetensors& saved, std::map<uint64_t, Policy>& versions) const;
  const LearningConfig config_;
  const ReplayKeys keys_;
  const HindsightRule hindsight_;
  const int64_t choices_;  // number of discrete actions; 0 when continuous
  const int64_t random_shift_;
  GradientCombiner* const combiner_;
  const int64_t shards_, first_shard_, all_shards_;
  const uint64_t seed_;
  const SlotShare share_;
  const uint32_t slots_;
  const std::unique_ptr<const ImageTorso> torso_;  // null: observations are vectors
  const size_t torso_size_;                        // floats
  const std::unique_ptr<ReplayAlgorithm> algorithm_;
  const ModelShape shape_;
  std::vector<float> learned_, targets_;  // the torso's, then the algorithm's
  std::optional<ObservationNormalizer> normalizer_;
  std::vector<Group> groups_;
  ShardThreads threads_;
  const std::unique_ptr<ReplayScratch> acting_scratch_;      // of inference
  std::optional<ActingTorso> acting_torso_;                  // the same
  std::optional<NormalizedObservations> acting_normalized_;  // the same
  VersionQueue<const Policy> versions_;
  std::vector<ShardWork> parts_;
  std::vector<float> row_;  // the sum of the shards' rows
  uint64_t version_ = 0, steps_ = 0;
};

ModelShape ReplayLearner::Shape() const {
  ModelShape shape = algorithm_->shape();
  if (torso_) {
    const InputLayout& layout = torso_->layout();
    shape.observation_bytes = layout.plane_bytes;
    shape.history_bytes = (layout.depth() - 1) * layout.plane_bytes;
  }
  return shape;
}

ReplayLearner::Named ReplayLearner::TensorsOf(const ParameterBlocks& behind,
                                              std::span<const float> all,
                                              const std::string& suffix) const {
  Named tensors = behind.Tensors(Behind(all), suffix);
  if (torso_) tensors.merge(torso_->blocks().Tensors(Torso(all), suffix));
  return tensors;
}

Status ReplayLearner::FromTensors(const ParameterBlocks& behind, const Named& tensors,
                                  std::span<float> all, const std::string& suffix) const {
  RETURN_IF_ERROR(behind.FromTensors(tensors, Behind(all), suffix));
  return torso_ ? torso_->blocks().FromTensors(tensors, Torso(all), suffix) : Status::Ok();
}

ReplayShape ReplayLearner::Replay() const {
  return {.capacity = static_cast<uint64_t>(keys_.capacity / static_cast<double>(all_shards_)),
          .length = static_cast<uint32_t>(config_.learn.unroll),
          .observation_bytes = shape_.observation_bytes,
          .history = torso_ ? static_cast<uint32_t>(torso_->layout().depth() - 1) : 0,
          .action_values = shape_.action_values,
          .choices = choices_,
          .episodes = keeps_last(),
          .compress = keys_.compress == Compression::kLz4,
          .parts = PartRuleOf(all_shards_)};
}

void ReplayLearner::MakeShards() {
  for (int64_t i = 0; i < shards_; ++i) {
    const int64_t begin = (first_shard_ + i) * keys_.batch / all_shards_;
    const int64_t end = (first_shard_ + i + 1) * keys_.batch / all_shards_;
    const auto rows = static_cast<size_t>(end - begin);
    parts_.push_back({.replay = StepSampler(Replay(), keys_.alpha, keys_.beta),
                      .hindsight = Hindsight(hindsight_, keeps_last() ? rows : 0),
                      .scratch = algorithm_->MakeScratch(rows),
                      .steps = std::vector<Transition>(rows),
                      .errors = std::vector<float>(rows),
                      .features = std::nullopt,
                      .normalized = std::nullopt,
                      .row = {},
                      .numbers = {}});
    if (torso_)
      parts_.back().features.emplace(*torso_, parts_.back().replay.replay(), rows,
                                     algorithm_->learned_sees_next(), random_shift_);
    if (normalizer_ && !torso_) parts_.back().normalized.emplace(normalizer_->numbers(), 2 * rows);
  }
}

void ReplayLearner::SampleAndDifferentiate(size_t index, ShardWork& part) const {
  const uint64_t shard = static_cast<uint64_t>(first_shard_) + index;
  // 2 sample
  const CounterRng chosen(DeriveKey(seed_, Purpose::kReplaySample, steps_, shard));
  const CounterRng goals(DeriveKey(seed_, Purpose::kHindsight, steps_, shard));
  const CounterRng shifts(DeriveKey(seed_, Purpose::kAugmentation, steps_, shard));
  const double share = static_cast<double>(part.steps.size()) / static_cast<double>(keys_.batch);
  part.replay.Draw(chosen, part.steps.size(), all_shards_, share);
  for (size_t i = 0; i < part.steps.size(); ++i)
    part.steps[i] = part.hindsight.At(part.replay.replay(), part.replay.drawn()[i],
                                      algorithm_->returns(), goals, i);
  const auto learned = std::span<const float>(learned_), targets = std::span<const float>(targets_);
  if (torso_)
    part.features->Replace(part.replay.replay(), part.replay.drawn(), Torso(learned),
                           Torso(targets), NormalizerFloats(), shifts, part.steps);
  if (part.normalized) part.normalized->Replace(normalizer_->floats(), part.steps);
  // 3 gradient; as often as its steps count among all
  part.row.resize(learned_.size());
  ReplayMinibatch minibatch{
      .step = steps_,
      .steps = part.steps,
      .weights = part.replay.weights(),
      .learned = Behind(learned),
      .targets = Behind(targets),
      .noise = CounterRng(DeriveKey(seed_, Purpose::kEntropySample, steps_, shard)),
      .errors = part.errors};
  if (torso_) part.features->Bind(minibatch);
  part.numbers = algorithm_->Gradient(minibatch, *part.scratch, Behind(std::span(part.row)));
  if (torso_) part.features->Backward(Torso(learned), Torso(std::span(part.row)));
  for (const auto& [name, value] : part.numbers) part.row.push_back(static_cast<float>(value));
  if (share != 1)
    for (float& value : part.row) value = static_cast<float>(value * share);
  AppendLargest(all_shards_, first_shard_ + static_cast<int64_t>(index),
                std::ranges::max(part.replay.weights()), part.row);
  part.replay.SetPriorities(part.errors);
}

// One step of every group whose turn it is, or of none. Returns whether it was taken.
bool ReplayLearner::StepGroups(std::span<const float> gradient, double frames,
                               UpdateReport& report) {
  std::vector<double> squares;
  double all = 0;
  for (const Group& group : groups_) {
    squares.push_back(group.part.Learns(steps_) ? SumOfSquares(group.part.Of(gradient)) : 0);
    all += squares.back();
  }
  report.gradient_norm += std::sqrt(all);
  if (!std::isfinite(all)) return false;
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    if (group.part.Learns(steps_))
      group.optimizer.Step(group.part.Of(std::span(learned_)), group.part.Of(gradient),
                           std::sqrt(squares[g]), frames);
  }
  ReplayAlgorithm::Follow(algorithm_->polyak(steps_), Torso(std::span<const float>(learned_)),
                          Torso(std::span(targets_)));
  algorithm_->AfterStep(steps_, Behind(std::span(learned_)), Behind(std::span(targets_)));
  return true;
}

// Returns whether it was taken.
Result<bool> ReplayLearner::TakeStep(double frames, UpdateReport& report) {
  SteadyTime clock = Now();
  RETURN_IF_ERROR(
      threads_.Run(parts_.size(), [&](size_t i) { SampleAndDifferentiate(i, parts_[i]); }));
  report.seconds_backward += SecondsSince(clock);

  clock = Now();
  std::vector<std::span<const float>> rows;
  for (const ShardWork& part : parts_) rows.emplace_back(part.row);
  row_.resize(rows[0].size());
  RETURN_IF_ERROR(AddShards(combiner_, rows, row_));
  size_t at = learned_.size();
  std::map<std::string, double> numbers;
  for (const auto& [name, value] : parts_[0].numbers) numbers[name] = row_[at++];
  const std::span<float> gradient = std::span(row_).first(learned_.size());
  if (const float largest = LargestOf(all_shards_, row_); largest != 1) {
    for (float& value : Torso(gradient)) value /= largest;
    for (float& value : algorithm_->Weighted(Behind(gradient))) value /= largest;
  }
  const bool taken = std::isfinite(numbers.at("loss")) && StepGroups(gradient, frames, report);
  ++steps_, ++report.steps;
  for (const auto& [name, value] : numbers) report.numbers[name] += value;
  report.seconds_step += SecondsSince(clock);
  return taken;
}

// The statistics of everything that was played until now, on all learners.
Status ReplayLearner::UpdateStatistics(std::span<const UnrollStore::Loan> unrolls) {
  RETURN_IF_ERROR(threads_.Run(parts_.size(), [&](size_t i) {
    parts_[i].row = normalizer_->Moments(OfShard(unrolls, i, parts_.size()));
  }));
  std::vector<std::span<const float>> rows;
  for (const ShardWork& part : parts_) rows.emplace_back(part.row);
  std::vector<float> sum(rows[0].size());
  RETURN_IF_ERROR(AddShards(combiner_, rows, sum));
  normalizer_->Merge(sum);
  return Status::Ok();
}

Result<UpdateReport> ReplayLearner::Update(std::span<const UnrollStore::Loan> unrolls,
                                           double frames) {
  UpdateReport report;
  report.applied = true;
  report.learning_rate = LearningRateAt(config_.optimizer, frames);
  report.coefficients = algorithm_->coefficients(Behind(std::span<const float>(learned_)));
  // 1 store
  SteadyTime clock = Now();
  for (size_t i = 0; i < parts_.size(); ++i)
    for (const auto& unroll : OfShard(unrolls, i, parts_.size()))
      parts_[i].replay.Add(*unroll, share_.first + unroll->slot);
  if (normalizer_) RETURN_IF_ERROR(UpdateStatistics(unrolls));
  report.seconds_batch = SecondsSince(clock);

  const uint64_t due = keys_.Due(config_.learn, version_ + 1);
  while (steps_ < due && report.applied) {
    ASSIGN_OR_RETURN(report.applied, TakeStep(frames, report));
  }
  if (!report.applied) {  // copies that the step that was not taken and those after it are due to
    bool copies = false;
    for (--steps_; steps_ < due; ++steps_) copies = copies || algorithm_->polyak(steps_) == 0;
    if (copies) ResetTargets(learned_, targets_);
  }
  if (report.steps > 0) {
    report.gradient_norm /= static_cast<double>(report.steps);
    for (auto& [name, value] : report.numbers) value /= static_cast<double>(report.steps);
  }

  // 5 publish
  clock = Now();
  Publish(++version_, Newest());
  report.seconds_step += SecondsSince(clock);
  return report;
}

std::string ReplayLearner::SaveOptimizer() const {
  std::vector<float> mean(learned_.size()), square(learned_.size());
  std::map<std::string, std::string> counts = {{"sampled", std::to_string(steps_)}};
  for (const Group& group : groups_) {
    std::ranges::copy(group.optimizer.mean(), group.part.Of(std::span(mean)).begin());
    std::ranges::copy(group.optimizer.square(), group.part.Of(std::span(square)).begin());
    counts[group.counted()] = std::to_string(group.optimizer.steps());
  }
  auto tensors = Learned(mean, "/mean");
  tensors.merge(Learned(square, "/square"));
  return FormatSafetensors({std::move(tensors), std::move(counts)}).ValueOrThrow();
}

Status ReplayLearner::RestoreOptimizer(const Safetensors& saved, std::vector<Group>& groups) const {
  const ParameterBlocks& blocks = algorithm_->learned();
  std::vector<float> mean(learned_.size()), square(learned_.size());
  RETURN_IF_ERROR(FromTensors(blocks, saved.tensors, mean, "/mean").Annotate(kOptimizerFile));
  RETURN_IF_ERROR(FromTensors(blocks, saved.tensors, square, "/square").Annotate(kOptimizerFile));
  for (Group& group : groups) {
    ASSIGN_OR_RETURN(const uint64_t steps,
                     NumberIn(saved, kOptimizerFile, group.counted().c_str()));
    group.optimizer.Restore(group.part.Of(std::span<const float>(mean)),
                            group.part.Of(std::span<const float>(square)), steps);
  }
  return Status::Ok();
}

Files ReplayLearner::Save(Part part, const std::set<std::string>& kept) const {
  Files files;
  const auto save = [&](const char* name, std::map<std::string, Tensor> tensors,
                        std::map<std::string, std::string> metadata = {}) {
    files[name] = FormatSafetensors({std::move(tensors), std::move(metadata)}).ValueOrThrow();
  };
  save(Agent::kWeightsFile, Weights(learned_, NormalizerFloats()),
       {{kVersion, std::to_string(version_)}});
  if (part == Part::kWeights) return files;
  files[kOptimizerFile] = SaveOptimizer();
  if (normalizer_) files[kStatisticsFile] = normalizer_->Save();
  save(kTargetsFile, TensorsOf(algorithm_->targets(), targets_));
  SaveReplays(parts_, first_shard_, kept, files, &ShardWork::replay);
  if (part == Part::kRun) return files;
  // slots remember frames, of vectors nothing
  files[kSlotsFile] =
      WriteSlotRecords(acting_torso_ ? acting_torso_->Save() : std::vector<std::string>(slots_));
  std::map<std::string, Tensor> versions;
  std::vector<float> all = learned_;
  for (const auto& [number, policy] : versions_.all()) {
    std::ranges::copy(policy->parameters, all.begin());
    for (auto& [name, tensor] : Weights(all, policy->normalizer))
      versions[std::to_string(number) + "/" + name] = std::move(tensor);
  }
  save(kVersionsFile, std::move(versions));
  return files;
}

// The normalizer of a checkpoint, or of weights alone.
Status ReplayLearner::RestoreNormalizer(const Files& files, Part part, const Named& weights,
                                        std::optional<ObservationNormalizer>& normalizer) const {
  if (!normalizer) {
    if (!ObservationNormalizer::In(weights)) return Status::Ok();
    return {Code::kBadData, std::string(Agent::kWeightsFile) +
                                ": is of a network that begins with normalize, this run's "
                                "does not"};
  }
  auto floats = normalizer->FromTensors(weights);
  if (!floats.ok()) return floats.status().Annotate(Agent::kWeightsFile);
  const auto saved = files.find(kStatisticsFile);
  if (saved == files.end() && part != Part::kWeights)
    return {Code::kBadData, std::string("holds no ") + kStatisticsFile};
  return normalizer->Restore(*std::move(floats), saved == files.end() ? nullptr : &saved->second)
      .Annotate(kStatisticsFile);
}

Status ReplayLearner::RestoreVersions(const Safetensors& saved,
                                      std::map<uint64_t, Policy>& versions) const {
  std::map<uint64_t, Named> tensors;
  for (const auto& [name, tensor] : saved.tensors) {
    const size_t slash = name.find('/');
    if (slash == std::string::npos)
      return {Code::kBadData, fmt::format("{}: {} names no version", kVersionsFile, name)};
    tensors[std::strtoull(name.c_str(), nullptr, 10)][name.substr(slash + 1)] = tensor;
  }
  std::vector<float> all(learned_.size()), normalizer;
  for (const auto& [number, named] : tensors) {
    RETURN_IF_ERROR(FromTensors(algorithm_->learned(), named, all).Annotate(kVersionsFile));
    if (normalizer_) {
      auto floats = normalizer_->FromTensors(named);
      if (!floats.ok()) return floats.status().Annotate(kVersionsFile);
      normalizer = *std::move(floats);
    }
    versions[number] = PolicyOf(all, normalizer);
  }
  return Status::Ok();
}

Status ReplayLearner::Restore(const Files& files, Part part) {
  // everything but the replay is read and compared before anything is changed
  ASSIGN_OR_RETURN(const Safetensors weights, ParsedFile(files, Agent::kWeightsFile));
  ASSIGN_OR_RETURN(const uint64_t version, NumberIn(weights, Agent::kWeightsFile, kVersion));
  std::vector<float> learned = learned_, targets = targets_;
  const ParameterBlocks& blocks = algorithm_->learned();
  RETURN_IF_ERROR(FromTensors(blocks, weights.tensors, learned).Annotate(Agent::kWeightsFile));
  std::optional<ObservationNormalizer> normalizer = normalizer_;
  RETURN_IF_ERROR(RestoreNormalizer(files, part, weights.tensors, normalizer));
  std::vector<Group> groups = groups_;
  uint64_t sampled = steps_;
  if (part != Part::kWeights || files.contains(kOptimizerFile)) {
    ASSIGN_OR_RETURN(const Safetensors saved, ParsedFile(files, kOptimizerFile));
    RETURN_IF_ERROR(RestoreOptimizer(saved, groups));
    ASSIGN_OR_RETURN(sampled, NumberIn(saved, kOptimizerFile, "sampled"));
    ASSIGN_OR_RETURN(const Safetensors followers, ParsedFile(files, kTargetsFile));
    RETURN_IF_ERROR(
        FromTensors(algorithm_->targets(), followers.tensors, targets).Annotate(kTargetsFile));
  } else {
    ResetTargets(learned, targets);
  }
  std::map<uint64_t, Policy> versions;
  std::optional<ActingTorso::Slots> frames;
  if (part == Part::kSlots) {
    ASSIGN_OR_RETURN(const Safetensors saved, ParsedFile(files, kVersionsFile));
    RETURN_IF_ERROR(RestoreVersions(saved, versions));
    const auto memory = files.find(kSlotsFile);
    if (memory == files.end()) return {Code::kBadData, std::string("holds no ") + kSlotsFile};
    ASSIGN_OR_RETURN(const auto records, ReadSlotRecords(memory->second, share_, slots_));
    if (acting_torso_) {
      ASSIGN_OR_RETURN(frames, acting_torso_->Parse(records));
    }
  }
  if (part != Part::kWeights)
    RETURN_IF_ERROR(RestoreReplays(files, first_shard_, all_shards_, parts_, &ShardWork::replay));
  if (part == Part::kRun)  // slots begin again
    for (ShardWork& shard : parts_) shard.replay.EndStreams();
  if (frames) acting_torso_->Restore(*std::move(frames));
  learned_ = std::move(learned), targets_ = std::move(targets);
  groups_ = std::move(groups), normalizer_ = std::move(normalizer);
  if (part != Part::kWeights) version_ = version, steps_ = sampled;
  for (auto& [number, policy] : versions) Publish(number, std::move(policy));
  if (versions.empty()) Publish(version_, Newest());
  return Status::Ok();
}

// Refuses keys that perceptrons on the processor do not use.
Status CheckKeys(const AgentSetup& setup) {
  const AgentNetworkKeys &keys = setup.config.network, plain;
  const auto refuse = [&](const char* key, const char* expected) {
    return Status(Code::kConfig, fmt::format("{}: {} learns with perceptrons; expected {}", key,
                                             setup.config.algorithm, expected));
  };
  if (!keys.module.empty()) return refuse("network.module", "it left out");
  if (const AgentCore core = keys.core()) return refuse(("network." + core.name()).c_str(), "0");
  if (keys.reward_input) return refuse("network.reward_input", "false");
  if (keys.action_input) return refuse("network.action_input", "false");
  if (keys.head != plain.head) return refuse("network.head", "0");
  if (keys.value != plain.value) return refuse("network.value", "it left out");
  if (keys.normalize_value) return refuse("network.normalize_value", "false");
  if (keys.deviation != plain.deviation) return refuse("network.deviation", "network");
  const ObservationSpec& observation = setup.environment.observation;
  RETURN_IF_ERROR(LayoutOf(observation, setup.stack).status());
  const ReplayAlgorithmConfig& own = ReplayAlgorithmConfig::Of(setup.config);
  RETURN_IF_ERROR(own.hindsight.Check(setup.environment));
  if (own.hindsight.fraction > 0 && observation.image())
    return {Code::kConfig,
            "her.fraction: goals are part of vectors, the environment's observations are images; "
            "expected 0"};
  if (own.replay.compress != Compression::kNone && !observation.image())
    return {Code::kConfig,
            "replay.compress=lz4: compresses images, the environment's observations are vectors; "
            "expected none"};
  if (own.random_shift > 0 && !observation.image())
    return {Code::kConfig,
            fmt::format("replay.random_shift={}: moves images, the environment's observations are "
                        "vectors; expected 0",
                        own.random_shift)};
  if (!observation.image() && observation.dtype != DType::kFloat32)
    return {Code::kConfig,
            fmt::format("run.algorithm={}: the environment's observations are vectors of bytes; "
                        "expected floats, or images",
                        setup.config.algorithm)};
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<Agent>> MakeReplayLearner(const AgentSetup& setup,
                                                 MakeReplayAlgorithm* make) {
  RETURN_IF_ERROR(CheckKeys(setup));
  AgentSetup behind = setup;
  ASSIGN_OR_RETURN(const size_t normalized, ObservationNormalizer::Split(behind));
  auto torso = ImageTorso::Split(behind);
  if (!torso.ok() && normalized > 0)
    return torso.status().Annotate("network " + setup.config.network.text());
  if (!torso.ok()) return torso.status();
  ASSIGN_OR_RETURN(auto algorithm, make(behind));
  return std::unique_ptr<Agent>(
      std::make_unique<ReplayLearner>(setup, std::move(*torso), normalized, std::move(algorithm)));
}

}  // namespace samara
