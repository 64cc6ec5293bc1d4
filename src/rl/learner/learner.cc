#include "rl/learner/learner.h"

#include <malloc.h>

#include <cmath>
#include <limits>

#include "core/clock.h"
#include "core/cpu.h"
#include "core/first_line.h"
#include "core/rng.h"
#include "core/sha256.h"
#include "rl/learner/agent_files.h"
#include "rl/learner/algorithm.h"
#include "rl/learner/learner_network.h"
#include "rl/learner/replay_files.h"
#include "rl/learner/shards.h"
#include "rl/replay/sequence_sampler.h"

namespace samara {
namespace {

using torch::Tensor;

constexpr char kTargets[] = "targets.safetensors";

class Learner : public Agent {
 public:
  Learner(const AgentSetup& setup, const AgentNetworkConfig& network_config,
          const InputLayout& layout, std::unique_ptr<Algorithm> algorithm)
      : config_(setup.config),
        combiner_(setup.combiner),
        shards_(ShardsEach(config_.learn, setup.ranks)),
        first_shard_(shards_ * setup.rank),
        all_shards_(shards_ * setup.ranks),
        seed_(setup.seed),
        layout_(layout),
        choices_(setup.environment.action.discrete ? setup.environment.action.n : 0),
        distribution_(MakeDistribution(setup.environment.action)),
        algorithm_(std::move(algorithm)),
        replay_(algorithm_->replay()),
        module_input_(network_config.module_input()),
        network_(std::make_shared<AgentNetworkImpl>(network_config)),
        own_parameters_(algorithm_->parameters()),
        parameters_(NamedParameters(*network_)),
        statistics_(*network_),
        parts_(static_cast<size_t>(shards_)),
        threads_(config_.learn.threads, shards_),
        device_(network_config.device),
        native_(network_config.native),
        acting_(setup, InferringNetwork(network_config, setup), layout,
                replay_ != nullptr ? std::optional(replay_->acting) : std::nullopt) {
    for (const auto& [name, parameter] : own_parameters_) {
      CHECK(!parameters_.contains(name)) << "two parameters named " << name;
      parameters_[name] = parameter;
    }
    for (const auto& [name, parameter] : parameters_)
      if (parameter.requires_grad()) learned_[name] = parameter;
    optimizer_.emplace(config_.optimizer, learned_);
    const bool networks_alone = std::ranges::none_of(
        own_parameters_, [](const auto& own) { return own.second.requires_grad(); });
    if (algorithm_->by_hand() && network_->dense() && layout.is_vector() && networks_alone)
      by_hand_ = static_cast<size_t>(network_->parameter_count());
    if (!native_)
      for (ShardWork& part : parts_) part.upload.emplace(device_);
    acting_.Publish(0, *network_);
    if (replay_ == nullptr) return;
    target_ = std::make_shared<AgentNetworkImpl>(network_config);
    for (Tensor& parameter : target_->parameters()) parameter.set_requires_grad(false);
    SetTarget(NamedParameters(*network_));
    for (ShardWork& part : parts_)
      part.replay =
          std::make_unique<SequenceSampler>(Sequences(), replay_->keys.alpha, replay_->keys.beta);
  }

  const ModelShape& shape() const override { return acting_.shape(); }
  Status Infer(InferenceBatch& batch) override { return acting_.Infer(batch); }
  bool Has(uint64_t version) const override { return acting_.Has(version); }
  uint64_t version() const override { return version_; }
  int64_t parameter_count() const override { return network_->parameter_count(); }
  std::vector<int64_t> module_input() const override { return module_input_; }

  Result<UpdateReport> Update(std::span<const UnrollStore::Loan> unrolls, double frames) override;
  std::string parameter_hash() const override;
  bool finite() const override;
  std::map<std::string, std::string> Save(Part part,
                                          const std::set<std::string>& kept) const override;
  std::map<std::string, std::string> SaveNextParts(
      const std::set<std::string>& kept) const override {
    if (replay_ == nullptr) return {};
    return samara::SaveNextParts(parts_, first_shard_, kept, ReplayOf);
  }
  Status Restore(const std::map<std::string, std::string>& files, Part part) override;
  bool explores() const override { return replay_ != nullptr; }
  ReplayMemory replay_memory() const override {
    if (replay_ == nullptr) return {};
    // in free mode any shard may get an environment's next unroll, or none does
    const LearnConfig& learn = config_.learn;
    const bool shared =
        learn.deterministic() || (all_shards_ == 1 && learn.lag_max == 0 && !learn.drop_oldest);
    const SequenceShape shape = Sequences();
    const auto bytes = [&](const SequenceShape& of) {
      return static_cast<uint64_t>(shards_) *
             SequenceSampler::Bytes(of, replay_->keys.alpha, shared);
    };
    ReplayMemory memory{.most = bytes(shape), .least = bytes(shape.Rest())};
    for (const ShardWork& part : parts_) memory.Add(*part.replay, shards_);
    return memory;
  }

 private:
  // A shard during an update.
  struct ShardWork {
    std::unique_ptr<SequenceSampler> replay;  // kept; null without
    Tensor weight;                            // of what was drawn from it
    Tensor inputs;                            // kept for the next update
    std::optional<Upload> upload;             // instead, where the network is on a device
    LearnerBatch batch;
    double share = 1;  // how often a mean of it counts among those of all shards
    std::unique_ptr<Prepared> prepared;
    // of one pass
    std::vector<float> row;  // gradients in the order of learned_, then the numbers
    Tensor gradients;        // instead of the row's, where gradients_stay()
    std::vector<ShardLoss::Number> numbers;
    DensePass dense;  // where by_hand_ > 0
    double seconds_batch = 0, seconds_forward = 0, seconds_backward = 0;
  };
  static SequenceSampler& ReplayOf(const ShardWork& part) { return *part.replay; }
  SequenceShape Sequences() const;  // of a shard's replay
  void SetTarget(const NamedTensors& parameters);
  int64_t BatchSize() const;  // unrolls of a minibatch, or of a batch without a replay
  std::pair<int64_t, int64_t> PartOfBatch(size_t index) const;
  void Draw(ShardWork& part, size_t index) const;
  Status LearnFromBatch(std::span<const UnrollStore::Loan> unrolls, double frames,
                        UpdateReport& report);
  Status LearnFromReplay(std::span<const UnrollStore::Loan> unrolls, double frames,
                         UpdateReport& report);
  void AddToReplay(const Unroll& unroll, ShardWork& part) const;
  void MakeBatch(ShardWork& part, std::span<const Unroll* const> unrolls) const;
  Shard ShardOf(const ShardWork& part, size_t index, const Pass& pass) const;
  void RunPass(ShardWork& part, size_t index, const Pass& pass) const;
  void DifferentiateByHand(ShardWork& part) const;
  void Differentiate(const ShardLoss& loss, ShardWork& part) const;
  void PutGradients(std::span<const Tensor> gradients, ShardWork& part) const;
  void PutGradientsOfDevice(std::span<const Tensor> gradients, ShardWork& part) const;
  // Gradients stay on the device where there is nothing to add them to, or the others' are reached
  // from there.
  bool gradients_stay() const {
    return !native_ && (all_shards_ == 1 || (combiner_ != nullptr && combiner_->links_gpus()));
  }
  Result<Tensor> SumOnDevice() const;
  size_t SetGradients(const Tensor& all, double scale);
  Status OnThreads(const std::function<void(size_t index, ShardWork& part)>& work);
  Status MakeShards(std::span<const UnrollStore::Loan> unrolls);
  // Whether the update is over after this step.
  Result<bool> TakeStep(const Pass& pass, double frames, UpdateReport& report);
  Status Combine(std::span<float> sum) const;
  Status UpdateStatistics();
  // Whether shards have a parameter's gradient as a mean over their steps; otherwise as a sum.
  bool Averages(const std::string& parameter) const {
    return algorithm_->averages() || own_parameters_.contains(parameter);
  }

  const LearningConfig config_;
  GradientCombiner* const combiner_;
  const int64_t shards_, first_shard_;  // this learner's
  const int64_t all_shards_;
  const uint64_t seed_;
  const InputLayout layout_;
  const int64_t choices_;  // number of discrete actions; 0 when continuous
  const ActionDistribution distribution_;
  const std::unique_ptr<Algorithm> algorithm_;
  const ReplayUse* const replay_;  // the algorithm's; null
  const std::vector<int64_t> module_input_;
  const AgentNetwork network_;
  AgentNetwork target_;                // with a replay
  const NamedTensors own_parameters_;  // the algorithm's
  NamedTensors parameters_;            // the network's and the algorithm's
  NamedTensors learned_;               // those with a gradient
  NetworkStatistics statistics_;       // what the others follow from
  std::vector<ShardWork> parts_;       // of this learner
  ShardThreads threads_;
  const torch::Device device_;
  const bool native_;   // on the CPU, by samara's own loops
  size_t by_hand_ = 0;  // numbers of a gradient that needs no graph of torch's; 0: it needs one
  Acting acting_;
  std::optional<Optimizer> optimizer_;
  uint64_t version_ = 0;
  uint64_t steps_ = 0;  // from the replay
};

SequenceShape Learner::Sequences() const {
  const auto length = static_cast<uint32_t>(config_.learn.unroll);
  const auto sequences = static_cast<uint64_t>(replay_->keys.capacity) / length;
  return {.capacity = std::max<uint64_t>(1, sequences / static_cast<uint64_t>(all_shards_)),
          .length = length,
          .overlap = replay_->overlap,
          .observation_bytes = shape().observation_bytes,
          .state = shape().state,
          .history_bytes = shape().history_bytes,
          .choices = choices_,
          .compress = replay_->keys.compress == Compression::kLz4,
          .parts = PartRuleOf(all_shards_)};
}

void Learner::SetTarget(const NamedTensors& parameters) {
  const torch::NoGradGuard no_gradient;
  for (auto& [name, parameter] : NamedParameters(*target_))
    Tensor(parameter).copy_(parameters.at(name));
  target_->Freeze();
}

int64_t Learner::BatchSize() const {
  return replay_ != nullptr ? replay_->keys.batch / config_.learn.unroll : config_.learn.batch;
}

Shard Learner::ShardOf(const ShardWork& part, size_t index, const Pass& pass) const {
  const auto shard = static_cast<uint64_t>(first_shard_) + index;
  const auto step = static_cast<uint64_t>(pass.epoch * algorithm_->minibatches() + pass.minibatch);
  return {.batch = part.batch,
          .distribution = distribution_,
          .network = *network_,
          .rng = CounterRng(DeriveKey(seed_, Purpose::kEntropySample, version_, shard, step)),
          .pass = pass,
          .order = CounterRng(DeriveKey(seed_, Purpose::kMinibatches, version_, shard,
                                        static_cast<uint64_t>(pass.epoch))),
          .prepared = part.prepared.get(),
          .target = target_.get(),
          .weight = part.weight,
          .steps = part.replay ? part.replay->steps() : std::span<const StepRange>()};
}

void Learner::RunPass(ShardWork& part, size_t index, const Pass& pass) const {
  if (replay_ != nullptr) Draw(part, index);
  SteadyTime clock = Now();
  if (pass.minibatch == 0) algorithm_->Prepare(ShardOf(part, index, pass), part.prepared);
  const Shard shard = ShardOf(part, index, pass);
  const ShardLoss loss =
      by_hand_ > 0 ? algorithm_->LossByHand(shard, part.dense) : algorithm_->Loss(shard);
  part.seconds_forward += SecondsSince(clock);

  clock = Now();
  by_hand_ > 0 ? DifferentiateByHand(part) : Differentiate(loss, part);
  part.seconds_backward += SecondsSince(clock);
  part.numbers = loss.numbers;
  part.numbers.push_back({"loss", loss.total.item<double>(), algorithm_->averages()});
  for (const ShardLoss::Number& number : part.numbers)
    part.row.push_back(static_cast<float>(number.mean ? number.value * part.share : number.value));
  if (replay_ == nullptr) return;
  part.replay->SetPriorities(loss.priorities);
  AppendLargest(all_shards_, first_shard_ + static_cast<int64_t>(index),
                std::ranges::max(part.replay->weights()), part.row);
}

void Learner::DifferentiateByHand(ShardWork& part) const {
  part.row.resize(by_hand_);
  part.dense.Backward(*network_, part.row);
  if (part.share == 1 || !algorithm_->averages()) return;
  for (float& gradient : part.row) gradient *= static_cast<float>(part.share);
}

void Learner::Differentiate(const ShardLoss& loss, ShardWork& part) const {
  std::vector<Tensor> parameters;
  for (const auto& [name, parameter] : learned_) parameters.push_back(parameter);
  const std::vector<Tensor> gradients =
      torch::autograd::grad({loss.total}, parameters, {}, std::nullopt, false, true);
  native_ ? PutGradients(gradients, part) : PutGradientsOfDevice(gradients, part);
}

void Learner::PutGradients(std::span<const Tensor> gradients, ShardWork& part) const {
  part.row.clear();
  size_t p = 0;
  for (const auto& [name, parameter] : learned_) {
    const Tensor& gradient = gradients[p++];
    const size_t at = part.row.size();
    part.row.resize(at + static_cast<size_t>(parameter.numel()));
    if (!gradient.defined()) continue;
    const Tensor flat =
        (part.share == 1 || !Averages(name) ? gradient : gradient * part.share).contiguous();
    std::copy_n(flat.data_ptr<float>(), flat.numel(), part.row.data() + at);
  }
}

// Joins the gradients, so that one copy brings them all to the CPU.
void Learner::PutGradientsOfDevice(std::span<const Tensor> gradients, ShardWork& part) const {
  std::vector<Tensor> flat;
  size_t p = 0;
  for (const auto& [name, parameter] : learned_) {
    const Tensor& gradient = gradients[p++];
    if (!gradient.defined())
      flat.push_back(torch::zeros({parameter.numel()}, device_));
    else
      flat.push_back((Averages(name) ? gradient * part.share : gradient).reshape({-1}).to(device_));
  }
  part.row.clear();
  part.gradients = torch::cat(flat);
  if (gradients_stay()) return;
  const Tensor here = part.gradients.cpu();
  part.row.assign(here.data_ptr<float>(), here.data_ptr<float>() + here.numel());
}

// Returns the sum of gradients that have stayed.
Result<Tensor> Learner::SumOnDevice() const {
  if (all_shards_ == 1) return parts_[0].gradients;
  std::vector<Tensor> rows;
  for (const ShardWork& part : parts_) rows.push_back(part.gradients);
  const Tensor mine = torch::cat(rows);
  Tensor sum = torch::empty_like(rows[0]);
  const auto numbers = [](const Tensor& t) { return static_cast<size_t>(t.numel()); };
  RETURN_IF_ERROR(combiner_->CombineOnGpus({mine.data_ptr<float>(), numbers(mine)},
                                           {sum.data_ptr<float>(), numbers(sum)}));
  return sum;
}

// Sets the parameters' gradients from their sum, in the order of learned_; returns how many numbers
// they have.
size_t Learner::SetGradients(const Tensor& all, double scale) {
  int64_t at = 0;
  for (auto& [name, parameter] : learned_) {
    Tensor gradient = all.narrow(0, at, parameter.numel());
    if (scale != 1 && Averages(name)) gradient.mul_(scale);
    parameter.mutable_grad() = gradient.view_as(parameter).to(parameter.device());
    at += parameter.numel();
  }
  return static_cast<size_t>(at);
}

// Samples the shard's part of a minibatch.
void Learner::Draw(ShardWork& part, size_t index) const {
  const SteadyTime clock = Now();
  const auto shard = static_cast<uint64_t>(first_shard_) + index;
  const auto [begin, end] = PartOfBatch(index);
  part.replay->Draw(CounterRng(DeriveKey(seed_, Purpose::kReplaySample, steps_, shard)),
                    static_cast<size_t>(end - begin),
                    static_cast<double>(part.replay->size()) * static_cast<double>(all_shards_),
                    static_cast<double>(end - begin) / static_cast<double>(BatchSize()));
  const auto weights = part.replay->weights();
  part.weight = torch::tensor(at::ArrayRef<float>(weights.data(), weights.size())).to(device_);
  part.share = static_cast<double>((end - begin) * all_shards_) / static_cast<double>(BatchSize());
  MakeBatch(part, part.replay->unrolls());
  part.seconds_batch += SecondsSince(clock);
}

// Returns where the shard's unrolls begin and end among those of a whole minibatch.
std::pair<int64_t, int64_t> Learner::PartOfBatch(size_t index) const {
  const int64_t shard = first_shard_ + static_cast<int64_t>(index);
  return {shard * BatchSize() / all_shards_, (shard + 1) * BatchSize() / all_shards_};
}

// Memory of its own: the bits of a shard do not depend on the others.
void Learner::MakeBatch(ShardWork& part, std::span<const Unroll* const> unrolls) const {
  const bool continuous = distribution_.continuous();
  part.batch = part.upload ? MakeLearnerBatch(unrolls, layout_, shape(), continuous, *part.upload)
                           : MakeLearnerBatch(unrolls, layout_, shape(), continuous, part.inputs);
  part.prepared.reset();
}

// Calls work for each shard, on threads.
Status Learner::OnThreads(const std::function<void(size_t index, ShardWork& part)>& work) {
  const Status done = threads_.Run(parts_.size(), [&](size_t i) {
    // one: without it a new thread has as many as there are cores
    [[maybe_unused]] thread_local const bool one = (at::init_num_threads(), true);
    work(i, parts_[i]);
  });
  return done.Annotate("learning");  // torch's: no memory, above all
}

Status Learner::MakeShards(std::span<const UnrollStore::Loan> unrolls) {
  CHECK(unrolls.size() >= parts_.size());
  return OnThreads([&](size_t i, ShardWork& part) {
    const SteadyTime clock = Now();
    std::vector<const Unroll*> its;
    for (const auto& unroll : OfShard(unrolls, i, parts_.size())) its.push_back(unroll.get());
    MakeBatch(part, its);
    // a mean counts as often as the shard has unrolls
    part.share = static_cast<double>(its.size()) * static_cast<double>(all_shards_) /
                 static_cast<double>(config_.learn.batch);
    part.seconds_batch = SecondsSince(clock);
    part.seconds_forward = part.seconds_backward = 0;
  });
}

// Adds up the rows of all shards.
Status Learner::Combine(std::span<float> sum) const {
  std::vector<std::span<const float>> rows;
  for (const ShardWork& part : parts_) rows.emplace_back(part.row);
  return AddShards(combiner_, rows, sum);
}

// One pass: adds its numbers to the report's.
Result<bool> Learner::TakeStep(const Pass& pass, double frames, UpdateReport& report) {
  // 2 shard
  RETURN_IF_ERROR(OnThreads([&](size_t i, ShardWork& part) { RunPass(part, i, pass); }));
  const SteadyTime clock = Now();

  // 3 combine; means average
  Tensor sum = torch::empty({static_cast<int64_t>(parts_[0].row.size())});
  const std::span<float> all(sum.data_ptr<float>(), parts_[0].row.size());
  RETURN_IF_ERROR(Combine(all));
  const double weight = 1.0 / static_cast<double>(all_shards_);
  // the weights of a minibatch are divided by their largest
  const double scale = replay_ != nullptr ? weight / LargestOf(all_shards_, all) : weight;
  size_t at = by_hand_;  // of the numbers behind the gradients
  if (by_hand_ > 0) {
    if (scale != 1 && algorithm_->averages())
      for (float& gradient : all.first(by_hand_)) gradient *= static_cast<float>(scale);
  } else {
    Tensor gradients = sum;
    if (gradients_stay()) {
      ASSIGN_OR_RETURN(gradients, SumOnDevice());
    }
    const size_t set = SetGradients(gradients.to(device_), scale);
    at = gradients_stay() ? 0 : set;
  }
  std::map<std::string, double> numbers;
  for (const ShardLoss::Number& number : parts_[0].numbers)
    numbers[number.name] = all[at++] * (number.mean ? weight : 1);

  // 4 step
  Optimizer::StepResult step;
  if (std::isfinite(numbers["loss"])) {
    step = by_hand_ > 0 ? optimizer_->Step(all.first(by_hand_), frames) : optimizer_->Step(frames);
  } else {
    for (auto& [name, parameter] : learned_) parameter.mutable_grad() = Tensor();
  }
  algorithm_->AfterStep();
  report.applied = step.applied;
  report.gradient_norm += step.gradient_norm;
  for (const auto& [name, value] : numbers) report.numbers[name] += value;
  ++report.steps;
  report.seconds_step += SecondsSince(clock);
  return !step.applied || algorithm_->Enough(numbers);
}

// Adds what the unrolls of the shards' batches were played on to the statistics.
Status Learner::UpdateStatistics() {
  if (statistics_.numbers() == 0) return Status::Ok();
  RETURN_IF_ERROR(OnThreads([&](size_t, ShardWork& part) {
    // entries that an earlier unroll had, and the last one, which the next will have, are left out
    const Tensor& entries = part.batch.observation;
    const Tensor acted = entries.slice(0, entries.size(0) - 1 - config_.learn.unroll, -1);
    part.row = statistics_.Moments(acted, part.prepared ? part.prepared->value_target : Tensor());
  }));
  std::vector<float> sum(parts_[0].row.size());
  RETURN_IF_ERROR(Combine(sum));
  statistics_.Merge(sum, *network_);
  return Status::Ok();
}

Status Learner::LearnFromBatch(std::span<const UnrollStore::Loan> unrolls, double frames,
                               UpdateReport& report) {
  // 1 batch
  RETURN_IF_ERROR(MakeShards(unrolls));
  bool enough = false;
  for (Pass pass; pass.epoch < algorithm_->epochs() && !enough; ++pass.epoch)
    for (pass.minibatch = 0; pass.minibatch < algorithm_->minibatches() && !enough;
         ++pass.minibatch) {
      ASSIGN_OR_RETURN(enough, TakeStep(pass, frames, report));
    }
  return Status::Ok();
}

void Learner::AddToReplay(const Unroll& unroll, ShardWork& part) const {
  const std::vector<StepRange> sequences =
      replay_->cross_episodes ? std::vector{LearnedSteps(unroll)} : LearnedByEpisode(unroll);
  std::vector<double> priorities;
  for (const StepRange& steps : sequences)
    priorities.push_back(algorithm_->Priority(unroll, steps));
  part.replay->Add(unroll, sequences, priorities);
}

Status Learner::LearnFromReplay(std::span<const UnrollStore::Loan> unrolls, double frames,
                                UpdateReport& report) {
  RETURN_IF_ERROR(OnThreads([&](size_t i, ShardWork& part) {
    part.seconds_batch = part.seconds_forward = part.seconds_backward = 0;
    const SteadyTime clock = Now();
    for (const auto& unroll : OfShard(unrolls, i, parts_.size())) AddToReplay(*unroll, part);
    part.seconds_batch = SecondsSince(clock);
  }));
  if (statistics_.numbers() > 0) {
    RETURN_IF_ERROR(MakeShards(unrolls));
    RETURN_IF_ERROR(UpdateStatistics());
    target_->SetStatistics(*network_);
  }
  report.applied = true;
  const uint64_t due = replay_->keys.Due(config_.learn, version_ + 1);
  for (Pass pass; steps_ < due && report.applied; ++pass.minibatch) {
    RETURN_IF_ERROR(TakeStep(pass, frames, report).status());
    if (++steps_ % replay_->target_every == 0) SetTarget(NamedParameters(*network_));
  }
  if (steps_ < due) {  // after a step that was not taken
    if (due / replay_->target_every > steps_ / replay_->target_every)
      SetTarget(NamedParameters(*network_));
    steps_ = due;
  }
  return Status::Ok();
}

Result<UpdateReport> Learner::Update(std::span<const UnrollStore::Loan> unrolls, double frames) {
  UpdateReport report;
  report.learning_rate = LearningRateAt(config_.optimizer, frames);
  report.coefficients = algorithm_->coefficients();
  RETURN_IF_ERROR(replay_ != nullptr ? LearnFromReplay(unrolls, frames, report)
                                     : LearnFromBatch(unrolls, frames, report));
  if (report.steps > 0) {
    const auto steps = static_cast<double>(report.steps);
    report.gradient_norm /= steps;
    for (auto& [name, value] : report.numbers) value /= steps;
  }
  for (const ShardWork& part : parts_) {
    report.seconds_batch = std::max(report.seconds_batch, part.seconds_batch);
    report.seconds_forward = std::max(report.seconds_forward, part.seconds_forward);
    report.seconds_backward = std::max(report.seconds_backward, part.seconds_backward);
  }

  // 5 publish
  const SteadyTime clock = Now();
  if (report.applied && replay_ == nullptr) RETURN_IF_ERROR(UpdateStatistics());
  ++version_;
  acting_.Publish(version_, *network_);
  report.seconds_step += SecondsSince(clock);
  return report;
}

std::map<std::string, std::string> Learner::Save(Part part,
                                                 const std::set<std::string>& kept) const {
  auto files = SaveAgent(part, parameters_, version_, *optimizer_, statistics_, acting_);
  if (replay_ == nullptr || part == Part::kWeights) return files;
  files[kTargets] = TensorsToFile(NamedParameters(*target_), {{"steps", std::to_string(steps_)}});
  SaveReplays(parts_, first_shard_, kept, files, ReplayOf);
  return files;
}

Status Learner::Restore(const std::map<std::string, std::string>& files, Part part) {
  const LearnerState state{parameters_, version_, *optimizer_, *network_, statistics_, acting_};
  if (replay_ == nullptr) return RestoreAgent(files, part, state);
  std::optional<NamedTensors> target;
  uint64_t steps = steps_;
  if (part != Part::kWeights || files.contains(kTargets)) {
    ASSIGN_OR_RETURN(target, TensorsFromFile(files, kTargets, NamedParameters(*target_)));
    ASSIGN_OR_RETURN(steps, NumberOfFile(files.at(kTargets), kTargets, "steps"));
  }
  if (part != Part::kWeights)
    RETURN_IF_ERROR(RestoreReplays(files, first_shard_, all_shards_, parts_, ReplayOf));
  RETURN_IF_ERROR(RestoreAgent(files, part, state));
  SetTarget(target ? *target : NamedParameters(*network_));
  if (part != Part::kWeights) steps_ = steps;
  return Status::Ok();
}

std::string Learner::parameter_hash() const {
  Sha256 hash;
  for (const auto& [name, parameter] : parameters_) {
    const Tensor flat = parameter.detach().cpu().contiguous();
    hash.Update(name);
    hash.Update({static_cast<const char*>(flat.data_ptr()), flat.nbytes()});
  }
  return Hex(hash.Finish());
}

bool Learner::finite() const {
  const auto all_finite = [](const auto& tensors) {
    return std::all_of(tensors.begin(), tensors.end(), [](const auto& named) {
      return named.second.detach().isfinite().all().template item<bool>();
    });
  };
  // what the optimizer remembers of gradients can overflow before the parameters do
  return all_finite(parameters_) && all_finite(optimizer_->State());
}

// A learner asks for the same hundreds of megabytes over and over: giving them back to the system
// in between costs it a third of its time in page faults.
void KeepMemory() {
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, 64 << 20);
}

Result<std::unique_ptr<Agent>> Make(const AgentSetup& setup, std::unique_ptr<Algorithm> algorithm) {
  at::set_num_threads(1);  // threads are ours to place: one an inference or a shard
  if (setup.learns_on.cuda || setup.infers_on.cuda)
    RETURN_IF_ERROR(ConfigureGpus(setup.config.learn.deterministic()));
  KeepMemory();
  ASSIGN_OR_RETURN(const InputLayout layout, LayoutOf(setup.environment.observation, setup.stack));
  ASSIGN_OR_RETURN(const AgentNetworkConfig network,
                   LearningNetwork(setup, layout, algorithm->replay()));
  torch::manual_seed(DeriveKey(setup.seed, Purpose::kNetworkInit));
  return std::unique_ptr<Agent>(
      std::make_unique<Learner>(setup, network, layout, std::move(algorithm)));
}

}  // namespace

Result<std::unique_ptr<Agent>> MakeLearner(const AgentSetup& setup,
                                           std::unique_ptr<Algorithm> algorithm) {
  try {
    return Make(setup, std::move(algorithm));
  } catch (const std::exception& e) {  // torch's: the only thing that can be missing is memory
    if (setup.learns_on.cuda || setup.infers_on.cuda)
      return Status(Code::kUnavailable,
                    "run.device=" + setup.learns_on.text() + ": " + FirstLine(e.what()));
    return Status(Code::kNoResources,
                  "network " + setup.config.network.text() +
                      ": this machine has no memory for its parameters; lower network.layers, "
                      "network.lstm, network.gru, env.stack or the size of images");
  }
}

}  // namespace samara
