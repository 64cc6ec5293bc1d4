// An agent that learns by V-trace: Espeholt et al. 2018 (IMPALA, arXiv 1802.01561), section 4.
#include <malloc.h>

#include <cstdlib>
#include <limits>

#include "core/clock.h"
#include "core/cpu.h"
#include "core/resources.h"
#include "core/rng.h"
#include "core/sha256.h"
#include "core/thread.h"
#include "nn/safetensors.h"
#include "nn/torch/first_line.h"
#include "rl/learner/policy_versions.h"
#include "rl/learner/agent.h"
#include "rl/learner/learner_batch.h"
#include "rl/learner/optimizer.h"
#include "rl/algorithms/vtrace.h"

namespace samara {
namespace {

using torch::Tensor;

constexpr char kWeights[] = "weights.safetensors", kOptimizer[] = "optimizer.safetensors",
               kSlots[] = "slots.bin", kVersions[] = "versions.safetensors",
               kEntropyCost[] = "entropy_cost";

constexpr int64_t kActionInputMax = 4096;  // inputs that say which action was the last

Result<AgentNetworkConfig> NetworkFor(const AgentSetup& setup, const InputLayout& layout) {
  const ActionDistribution distribution = MakeDistribution(setup.environment.action);
  const AgentNetworkKeys& keys = setup.config.network;
  AgentNetworkConfig network;
  network.torso = keys.name == "Nature" ? "nature" : keys.name;  // as evolution spells it
  network.height = layout.height, network.width = layout.width, network.channels = layout.channels;
  network.outputs = distribution.parameters();
  network.lstm = keys.lstm;
  network.reward_input = keys.reward_input;
  network.initializer = keys.initializer;
  network.precision = keys.precision;
  if (keys.action_input && distribution.continuous())
    return Status(Code::kConfig,
                  "network.action_input=true: the environment's actions are "
                  "continuous; expected false");
  if (keys.action_input && setup.environment.action.n > kActionInputMax)
    return Status(Code::kConfig, "network.action_input=true: the environment has " +
                                     std::to_string(setup.environment.action.n) +
                                     " actions; expected at most " +
                                     std::to_string(kActionInputMax));
  if (keys.action_input) network.action_input = setup.environment.action.n;
  return network;
}

std::map<std::string, Tensor> Named(const AgentNetworkImpl& network) {
  std::map<std::string, Tensor> all;
  for (const auto& item : network.named_parameters()) all[item.key()] = item.value();
  return all;
}

std::string ToSafetensors(const std::map<std::string, Tensor>& tensors,
                          std::map<std::string, std::string> metadata = {}) {
  Safetensors file;
  file.metadata = std::move(metadata);
  for (const auto& [name, tensor] : tensors) {
    const Tensor flat = tensor.detach().to(torch::kFloat32).contiguous();
    file.tensors[name] = samara::Tensor::OfFloats(
        flat.sizes().vec(), std::span(flat.data_ptr<float>(), static_cast<size_t>(flat.numel())));
  }
  return FormatSafetensors(file).ValueOrThrow();
}

Result<std::map<std::string, Tensor>> FromSafetensors(
    const std::map<std::string, std::string>& files, const char* name) {
  const auto found = files.find(name);
  if (found == files.end()) return Status(Code::kBadData, std::string("holds no ") + name);
  auto parsed = ParseSafetensors(found->second);
  if (!parsed.ok()) return parsed.status().Annotate(name);
  std::map<std::string, Tensor> tensors;
  for (const auto& [key, tensor] : parsed->tensors) {
    if (tensor.type != samara::Tensor::Type::kFloat32)
      return Status(Code::kBadData, std::string(name) + ": " + key + " is not float32");
    const std::vector<float> values = tensor.Floats();
    tensors[key] =
        torch::tensor(at::ArrayRef<float>(values.data(), values.size())).reshape(tensor.shape);
  }
  return tensors;
}

// kBadData unless `from` has exactly the names and shapes of `to`.
Status SameShapes(const std::map<std::string, Tensor>& from,
                  const std::map<std::string, Tensor>& to, const char* file) {
  for (const auto& [name, tensor] : to) {
    const auto found = from.find(name);
    if (found == from.end() || found->second.sizes() != tensor.sizes())
      return {Code::kBadData, std::string(file) + ": " + name +
                                  " is missing or has another shape than this run's network"};
  }
  if (from.size() == to.size()) return Status::Ok();
  return {Code::kBadData, std::string(file) + ": " + std::to_string(from.size()) +
                              " tensors, expected " + std::to_string(to.size())};
}

class VtraceAgent : public Agent {
 public:
  VtraceAgent(const AgentSetup& setup, const AgentNetworkConfig& network_config,
              const InputLayout& layout)
      : config_(setup.config),
        combiner_(setup.combiner),
        shards_(ShardsEach(config_.learn, setup.ranks)),
        first_shard_(shards_ * setup.rank),
        all_shards_(shards_ * setup.ranks),
        loss_averages_(config_.loss.over == "mean"),
        seed_(setup.seed),
        network_config_(network_config),
        layout_(layout),
        distribution_(MakeDistribution(setup.environment.action)),
        entropy_cost_(setup.config.learn.entropy_cost, EntropyTarget(setup.config.learn),
                      setup.config.learn.entropy_speed),
        network_(std::make_shared<AgentNetworkImpl>(network_config)),
        parameters_(Named(*network_)),
        acting_(setup, network_config, layout) {
    if (entropy_cost_.parameter().defined()) parameters_[kEntropyCost] = entropy_cost_.parameter();
    acting_.Publish(0, *network_);
  }
  Status MakeOptimizer() {
    auto optimizer = Optimizer::Make(config_.optimizer, parameters_);
    if (!optimizer.ok()) return optimizer.status();
    optimizer_.emplace(std::move(*optimizer));
    return Status::Ok();
  }

  const ModelShape& shape() const override { return acting_.shape(); }
  Status Infer(InferenceBatch& batch) override { return acting_.Infer(batch); }
  bool Has(uint64_t version) const override { return acting_.Has(version); }
  uint64_t version() const override { return version_; }
  int64_t parameter_count() const override { return network_->parameter_count(); }

  Result<UpdateReport> Update(std::span<const UnrollStore::Loan> unrolls, double frames) override;
  std::string parameter_hash() const override;
  bool finite() const override;
  std::map<std::string, std::string> Save(bool slots) const override;
  Status Restore(const std::map<std::string, std::string>& files, Part part) override;

 private:
  static std::optional<double> EntropyTarget(const LearnConfig& learn) {
    if (learn.entropy_target == "none") return std::nullopt;
    return std::strtod(learn.entropy_target.c_str(), nullptr);
  }
  struct ShardResult {
    std::vector<float> row;  // gradients in the order of parameters_, then EachShared
    UpdateReport report;
  };
  ShardResult Shard(std::span<const UnrollStore::Loan> unrolls, int64_t index,
                    Tensor& inputs) const;
  // Whether shards bring a parameter's gradient as a mean over their entries; otherwise as a sum.
  bool Averages(const std::string& parameter) const {
    return loss_averages_ || parameter == kEntropyCost;
  }
  Tensor FinalValues(const LearnerBatch& batch, const AgentNetworkImpl::Output& out) const;

  const LearningConfig config_;
  GradientCombiner* const combiner_;
  const int64_t shards_, first_shard_;  // this learner's
  const int64_t all_shards_;
  const bool loss_averages_;
  const uint64_t seed_;
  const AgentNetworkConfig network_config_;
  const InputLayout layout_;
  const ActionDistribution distribution_;
  EntropyCost entropy_cost_;
  const AgentNetwork network_;
  std::map<std::string, Tensor> parameters_;
  Acting acting_;
  std::optional<Optimizer> optimizer_;
  std::vector<Tensor> inputs_;  // of each shard
  uint64_t version_ = 0;
};

// The numbers of a report that are over all shards: those of the loss, then means over entries.
template <typename Report, typename F>
void EachLoss(Report& r, const F& f) {
  f(r.loss), f(r.policy_loss), f(r.value_loss), f(r.kl);
}
template <typename Report, typename F>
void EachMean(Report& r, const F& f) {
  f(r.entropy), f(r.rho), f(r.explained_variance);
}

// V of the final observations of truncated episodes, at their transitions: [T][B]. The network is
// in the state that followed the last observation it acted on.
Tensor VtraceAgent::FinalValues(const LearnerBatch& batch,
                                const AgentNetworkImpl::Output& out) const {
  const torch::NoGradGuard no_gradient;
  Tensor values = torch::zeros_like(batch.reward.slice(0, 1));
  if (batch.final_entry.numel() == 0) return values;
  const Tensor at = batch.final_entry - 1, unroll = batch.final_unroll;
  const auto pick = [&](const Tensor& x, const Tensor& t) { return x.index({t, unroll}); };
  const Tensor state = out.states.defined() ? pick(out.states, at) : torch::zeros({at.size(0), 0});
  const Tensor action = pick(batch.action, at).select(-1, 0).to(torch::kInt64);
  const auto final = network_->forward(
      {batch.final_observation, pick(batch.reward, batch.final_entry).unsqueeze(0),
       action.unsqueeze(0), torch::zeros({1, at.size(0)}, torch::kBool)},
      state);
  values.index_put_({at, unroll}, final.value[0]);
  return values;
}

VtraceAgent::ShardResult VtraceAgent::Shard(std::span<const UnrollStore::Loan> unrolls,
                                            int64_t index, Tensor& inputs) const {
  ShardResult result;
  UpdateReport& report = result.report;
  SteadyTime clock = Now();
  // of its own: the bits of a shard do not depend on what lies beside it
  const LearnerBatch batch =
      MakeLearnerBatch(unrolls, layout_, shape(), distribution_.continuous(), inputs);
  report.seconds_batch = SecondsSince(clock);
  clock = Now();
  const int64_t steps = batch.reward.size(0) - 1;
  const auto acted = [steps](const Tensor& x) { return x.slice(0, 0, steps); };  // t = 0 ... T-1
  const auto followed = [](const Tensor& x) { return x.slice(0, 1); };           // t + 1

  // 1 what the current policy makes of the unrolls; their last entry has a value and no loss
  const auto entries = [&](int64_t from, int64_t to) {
    const auto part = [from, to](const Tensor& x) { return x.slice(0, from, to); };
    return AgentNetworkImpl::Input{part(batch.observation), part(batch.reward),
                                   part(batch.previous_action), part(batch.first)};
  };
  const auto out = network_->forward(entries(0, steps), batch.state);
  const Tensor bootstrap = [&] {
    const torch::NoGradGuard no_gradient;
    return network_->forward(entries(steps, steps + 1), out.state).value[0];
  }();
  const auto parts = [this](const Tensor& x) {
    return distribution_.continuous() ? x : distribution_.Split(x);
  };
  const Tensor &policy = out.policy, &value = out.value;
  const Tensor action = parts(acted(batch.action));
  const Tensor log_pi = distribution_.LogProb(policy, action);
  Tensor uniforms;
  if (distribution_.continuous()) {
    uniforms = torch::empty(action.sizes());
    const CounterRng rng(
        DeriveKey(seed_, Purpose::kEntropySample, version_, static_cast<uint64_t>(index)));
    for (int64_t i = 0; i < uniforms.numel(); ++i)
      uniforms.data_ptr<float>()[i] =
          static_cast<float>(std::clamp(rng.Uniform(static_cast<uint64_t>(i)), 1e-7, 1 - 1e-7));
  }
  const Tensor entropy = distribution_.Entropy(policy, uniforms);

  // 2 how far it has moved from the one that acted; the targets (section 4.1)
  const Tensor log_mu = distribution_.LogProb(acted(batch.behaviour), action);
  const Tensor log_rho = (log_pi - log_mu).detach();
  const VtraceTargets targets = Vtrace(config_.vtrace, {.log_rho = log_rho,
                                                        .reward = followed(batch.reward),
                                                        .terminated = followed(batch.terminated),
                                                        .truncated = followed(batch.truncated),
                                                        .value = value.detach(),
                                                        .final_value = FinalValues(batch, out),
                                                        .bootstrap = bootstrap});

  // 3 the loss (section 4.2) and its gradient
  const VtraceLoss loss =
      MakeVtraceLoss(config_.loss, targets, log_pi, log_mu, entropy, value, entropy_cost_);
  report.seconds_forward = SecondsSince(clock);
  clock = Now();
  std::vector<Tensor> parameters;
  for (const auto& [name, parameter] : parameters_) parameters.push_back(parameter);
  const std::vector<Tensor> gradients =
      torch::autograd::grad({loss.total}, parameters, {}, std::nullopt, false, true);
  report.seconds_backward = SecondsSince(clock);

  const auto number = [](const Tensor& x) { return x.detach().item<double>(); };
  report.loss = number(loss.total), report.policy_loss = number(loss.policy);
  report.value_loss = number(loss.value), report.kl = number(loss.kl);
  report.entropy = number(loss.mean_entropy);
  report.rho = number(log_rho.exp().mean());
  const double spread = number(targets.value.var());
  report.explained_variance = spread > 0 ? 1 - number((targets.value - value).var()) / spread : 0;

  // what it brings to the batch; a mean counts as often as it has unrolls
  const double share = static_cast<double>(unrolls.size()) * static_cast<double>(all_shards_) /
                       static_cast<double>(config_.learn.batch);
  size_t p = 0;
  for (const auto& [name, parameter] : parameters_) {
    const Tensor& gradient = gradients[p++];
    const size_t at = result.row.size();
    result.row.resize(at + static_cast<size_t>(parameter.numel()));
    if (!gradient.defined()) continue;
    const Tensor flat = (share == 1 || !Averages(name) ? gradient : gradient * share).contiguous();
    std::copy_n(flat.data_ptr<float>(), flat.numel(), result.row.data() + at);
  }
  EachLoss(report, [&](double x) {
    result.row.push_back(static_cast<float>(loss_averages_ ? x * share : x));
  });
  EachMean(report, [&](double x) { result.row.push_back(static_cast<float>(x * share)); });
  return result;
}

Result<UpdateReport> VtraceAgent::Update(std::span<const UnrollStore::Loan> unrolls,
                                         double frames) {
  // equal parts side by side: the number of threads leaves no trace
  const auto shards = static_cast<size_t>(shards_);
  CHECK(unrolls.size() >= shards);
  std::vector<ShardResult> parts(shards);
  std::vector<Status> failed(shards);
  inputs_.resize(shards);
  const size_t threads = std::min<size_t>(
      shards, config_.learn.threads > 0 ? static_cast<size_t>(config_.learn.threads) : Cores());
  const auto work = [&](size_t first) {
    at::init_num_threads();  // one: without it a new thread has as many as there are cores
    for (size_t i = first; i < shards; i += threads) {
      const size_t begin = i * unrolls.size() / shards, end = (i + 1) * unrolls.size() / shards;
      try {
        parts[i] = Shard(unrolls.subspan(begin, end - begin),
                         first_shard_ + static_cast<int64_t>(i), inputs_[i]);
      } catch (const std::exception& e) {  // torch's: no memory, above all
        const Status why = StatusOf(e);
        failed[i] = {why.code(), "learning: " + FirstLine(why.message())};
      }
    }
  };
  {
    ThreadGroup others(nullptr);  // they return by themselves
    RETURN_IF_ERROR(others.Start("learner-", threads - 1, [&](size_t i) { work(i + 1); }));
    work(0);
  }
  for (const Status& status : failed) RETURN_IF_ERROR(status);
  UpdateReport report;
  for (const ShardResult& part : parts) {
    report.seconds_batch = std::max(report.seconds_batch, part.report.seconds_batch);
    report.seconds_forward = std::max(report.seconds_forward, part.report.seconds_forward);
    report.seconds_backward = std::max(report.seconds_backward, part.report.seconds_backward);
  }
  SteadyTime clock = Now();

  // joined by the combiner, over all learners; means average
  Tensor sum = torch::empty({static_cast<int64_t>(parts[0].row.size())});
  const std::span<float> all(sum.data_ptr<float>(), parts[0].row.size());
  if (combiner_ != nullptr) {
    std::vector<std::span<const float>> rows;
    for (const ShardResult& part : parts) rows.emplace_back(part.row);
    RETURN_IF_ERROR(combiner_->Combine(rows, all));
  } else {
    std::copy(parts[0].row.begin(), parts[0].row.end(), all.begin());
    for (size_t i = 1; i < shards; ++i)
      for (size_t k = 0; k < all.size(); ++k) all[k] += parts[i].row[k];
  }
  const double weight = 1.0 / static_cast<double>(all_shards_);
  int64_t at = 0;
  for (auto& [name, parameter] : parameters_) {
    Tensor gradient = sum.narrow(0, at, parameter.numel());
    if (weight != 1 && Averages(name)) gradient.mul_(weight);
    parameter.mutable_grad() = gradient.view_as(parameter);
    at += parameter.numel();
  }
  const float* shared = all.data() + at;
  EachLoss(report, [&](double& x) { x = *shared++ * (loss_averages_ ? weight : 1); });
  EachMean(report, [&](double& x) { x = *shared++ * weight; });

  // 4 one step, and the new policy is there for whoever acts next
  report.learning_rate = LearningRateAt(config_.optimizer, frames);
  report.entropy_cost = entropy_cost_.coefficient().item<double>();
  if (std::isfinite(report.loss)) {
    const Optimizer::StepResult step = optimizer_->Step(frames);
    report.applied = step.applied;
    report.gradient_norm = step.gradient_norm;
  } else {
    for (auto& [name, parameter] : parameters_) parameter.mutable_grad() = Tensor();
  }
  entropy_cost_.Bound();
  ++version_;
  acting_.Publish(version_, *network_);
  report.seconds_step = SecondsSince(clock);
  return report;
}

std::string VtraceAgent::parameter_hash() const {
  Sha256 hash;
  for (const auto& [name, parameter] : parameters_) {
    const Tensor flat = parameter.detach().contiguous();
    hash.Update(name);
    hash.Update({static_cast<const char*>(flat.data_ptr()), flat.nbytes()});
  }
  return Hex(hash.Finish());
}

bool VtraceAgent::finite() const {
  const auto all_finite = [](const auto& tensors) {
    return std::all_of(tensors.begin(), tensors.end(), [](const auto& named) {
      return named.second.detach().isfinite().all().template item<bool>();
    });
  };
  // what the optimizer remembers of gradients can overflow before the parameters do
  return all_finite(parameters_) && all_finite(optimizer_->State());
}

std::map<std::string, std::string> VtraceAgent::Save(bool slots) const {
  std::map<std::string, std::string> files;
  files[kWeights] = ToSafetensors(parameters_, {{"version", std::to_string(version_)}});
  files[kOptimizer] = ToSafetensors(optimizer_->State());
  if (!slots) return files;
  files[kSlots] = acting_.SaveSlots();
  std::map<std::string, Tensor> versions;
  for (const uint64_t version : acting_.versions())
    for (const auto& [name, tensor] : Named(*acting_.network(version)))
      versions[std::to_string(version) + "/" + name] = tensor;
  files[kVersions] = ToSafetensors(versions);
  return files;
}

Status VtraceAgent::Restore(const std::map<std::string, std::string>& files, Part part) {
  const bool slots = part == Part::kSlots;
  // everything is read and compared before anything is changed
  ASSIGN_OR_RETURN(const auto weights, FromSafetensors(files, kWeights));
  RETURN_IF_ERROR(SameShapes(weights, parameters_, kWeights));
  const auto metadata = ParseSafetensors(files.at(kWeights))->metadata;
  const auto version = metadata.find("version");
  if (version == metadata.end())
    return {Code::kBadData, std::string(kWeights) + ": says no version"};
  std::map<std::string, Tensor> optimizer;
  if (part != Part::kWeights || files.contains(kOptimizer)) {
    ASSIGN_OR_RETURN(optimizer, FromSafetensors(files, kOptimizer));
    RETURN_IF_ERROR(optimizer_->Restore(optimizer));
  }
  std::map<uint64_t, std::map<std::string, Tensor>> versions;
  if (slots) {
    ASSIGN_OR_RETURN(const auto all, FromSafetensors(files, kVersions));
    for (const auto& [name, tensor] : all) {
      const size_t slash = name.find('/');
      if (slash == std::string::npos)
        return {Code::kBadData, std::string(kVersions) + ": " + name + " names no version"};
      versions[std::strtoull(name.c_str(), nullptr, 10)][name.substr(slash + 1)] = tensor;
    }
    for (const auto& [number, tensors] : versions)
      RETURN_IF_ERROR(SameShapes(tensors, Named(*network_), kVersions));
    const auto memory = files.find(kSlots);
    if (memory == files.end()) return {Code::kBadData, std::string("holds no ") + kSlots};
    RETURN_IF_ERROR(acting_.RestoreSlots(memory->second));
  }
  const torch::NoGradGuard no_gradient;
  const auto named = Named(*network_);
  for (const auto& [number, tensors] : versions) {
    for (const auto& [name, tensor] : named) {
      Tensor to = tensor;
      to.copy_(tensors.at(name));
    }
    acting_.Publish(number, *network_);
  }
  for (auto& [name, parameter] : parameters_) parameter.copy_(weights.at(name));
  if (part != Part::kWeights) version_ = std::strtoull(version->second.c_str(), nullptr, 10);
  if (!slots) acting_.Publish(version_, *network_);
  return Status::Ok();
}

// A learner asks for the same hundreds of megabytes over and over: giving them back to the system
// in between costs it a third of its time in page faults.
void KeepMemory() {
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, 64 << 20);
}

Result<std::unique_ptr<Agent>> Make(const AgentSetup& setup) {
  RETURN_IF_ERROR(Check(setup.config));
  at::set_num_threads(1);  // threads are ours to place: one an inference or a shard
  KeepMemory();
  if (setup.stack && setup.stack->depth > kDepthMax)
    return Status(Code::kConfig, "a stack of " + std::to_string(setup.stack->depth) +
                                     " frames: expected at most " + std::to_string(kDepthMax));
  if (setup.stack && !setup.environment.observation.image())
    return Status(Code::kConfig, "env.stack=" + std::to_string(setup.stack->depth) +
                                     ": the environment's observations are vectors, which are not "
                                     "stacked; expected 0");
  const InputLayout layout = InputLayout::Make(setup.environment.observation, setup.stack);
  ASSIGN_OR_RETURN(const AgentNetworkConfig network, NetworkFor(setup, layout));
  if (const auto made = AgentNetworkImpl::Make(network); !made.ok()) return made.status();
  torch::manual_seed(DeriveKey(setup.seed, Purpose::kNetworkInit));
  auto agent = std::make_unique<VtraceAgent>(setup, network, layout);
  RETURN_IF_ERROR(agent->MakeOptimizer());
  return std::unique_ptr<Agent>(std::move(agent));
}

}  // namespace

Result<std::unique_ptr<Agent>> MakeVtraceAgent(const AgentSetup& setup) {
  try {
    return Make(setup);
  } catch (const std::exception&) {  // torch's: the only thing that can be missing is memory
    return Status(Code::kConfig, "network " + setup.config.network.name +
                                     ": this machine has no memory for its parameters; lower "
                                     "network.lstm, env.stack or the size of images");
  }
}

bool HasAgents() { return true; }

}  // namespace samara
