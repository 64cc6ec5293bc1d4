#include "samara/dataset.h"

#include "core/cpu.h"
#include "data/sources.h"
#include "data/workers.h"
#include "replica/torch/state.h"

namespace samara {
namespace {

Datasets WithThreads(Result<ImageSplits> opened, int threads) {
  const ImageSplits splits = ValueOrReplication(std::move(opened));
  const auto workers = std::make_shared<Workers>(threads);
  return {Dataset(splits.train, workers), Dataset(splits.test, workers)};
}

}  // namespace

Dataset::Dataset(std::shared_ptr<const ImageSource> source, std::shared_ptr<Workers> workers)
    : source_(std::move(source)), workers_(std::move(workers)) {}

int64_t Dataset::size() const { return source_->size(); }
int64_t Dataset::channels() const { return source_->shape().channels; }
int64_t Dataset::height() const { return source_->shape().height; }
int64_t Dataset::width() const { return source_->shape().width; }
int64_t Dataset::classes() const { return source_->classes(); }

Samples Dataset::Read(const std::vector<int64_t>& indices, int64_t epoch) const {
  const auto n = static_cast<int64_t>(indices.size());
  Samples samples{torch::empty({n, channels(), height(), width()}),
                  torch::empty({n}, torch::kInt64)};
  const size_t bytes = source_->shape().bytes();
  auto* images = samples.images.data_ptr<float>();
  auto* labels = samples.labels.data_ptr<int64_t>();
  std::vector<Status> failures(indices.size());
  // each sample into its own row, on whichever thread
  workers_->Run(indices.size(), [&](size_t i) {
    std::vector<uint8_t> pixels(bytes);
    const auto label = source_->Read(indices[i], epoch, pixels);
    if (!label.ok()) {
      failures[i] = label.status();
      return;
    }
    labels[i] = *label;
    std::transform(pixels.begin(), pixels.end(), images + i * bytes,
                   [](uint8_t pixel) { return static_cast<float>(pixel) / 127.5F - 1; });
  });
  for (const Status& failure : failures) ThrowReplication(failure);
  return samples;
}

Datasets Datasets::Idx(const std::string& folder) { return WithThreads(OpenIdx(folder), 0); }

Datasets Datasets::Cifar10(const std::string& folder, bool vary, uint64_t seed) {
  return WithThreads(OpenCifar10(folder, vary, seed), 0);
}

Datasets Datasets::ImageFolder(const std::string& folder, int64_t side, int threads,
                               uint64_t seed) {
  if (side < 1 || side > 4096 || threads < 0 || threads > 1024) {
    throw ReplicationError(
        78, "images of side " + std::to_string(side) + " read by " + std::to_string(threads) +
                " threads: expected a side from 1 to 4096, at most 1024 threads");
  }
  return WithThreads(OpenImageFolder(folder, static_cast<int>(side), seed),
                     threads > 0 ? threads : static_cast<int>(Cores()));
}

Datasets Datasets::Digits(int64_t channels, int64_t side, uint64_t seed) {
  if (channels < 1 || channels > 16 || side < 12 || side > 4096) {
    throw ReplicationError(78, "digits of " + std::to_string(channels) + " channels and side " +
                                   std::to_string(side) +
                                   ": expected 1 to 16 channels, a side from 12 to 4096");
  }
  DrawnDigits options;
  options.seed = seed;
  options.shape = {.channels = static_cast<int>(channels),
                   .height = static_cast<int>(side),
                   .width = static_cast<int>(side)};
  return WithThreads(DrawDigits(options), 0);
}

Pipeline<Samples> ReadInOrder(const InputContext& context, const Dataset& data,
                              const SampleOrder& order, int64_t first_step, int64_t last_step) {
  if (order.StepsPerEpoch() == 0) {
    throw ReplicationError(78, "a batch of " + std::to_string(order.global_batch) +
                                   " from a data set of " + std::to_string(order.samples) +
                                   " samples: expected a batch that it fills");
  }
  return [=, step = first_step]() mutable -> std::optional<Samples> {
    if (step >= last_step) return std::nullopt;
    const auto indices =
        order.Indices(step, context.input_pipeline_id, context.num_input_pipelines);
    return data.Read(indices, step++ / order.StepsPerEpoch());
  };
}

Input<Samples> TrainingInput(Replicator& replicator, const Dataset& data, int64_t batch,
                             int64_t first_step, int64_t last_step) {
  const SampleOrder order{.samples = data.size(), .global_batch = batch, .drop_last = true};
  return replicator.MakeInput(InputMode::kPerReplica, [&](const InputContext& context) {
    return ReadInOrder(context, data, order, first_step, last_step);
  });
}

double Accuracy(Replicator& replicator, const Dataset& data, int64_t batch,
                const std::function<torch::Tensor(const torch::Tensor&)>& scores) {
  const SampleOrder order{.samples = data.size(), .global_batch = batch, .shuffle = false};
  auto input = replicator.MakeInput(InputMode::kPerReplica, [&](const InputContext& context) {
    return ReadInOrder(context, data, order, 0, order.StepsPerEpoch());
  });
  const auto count = [&](Samples& samples) {
    const torch::NoGradGuard none;
    return scores(samples.images).argmax(1).eq(samples.labels).sum();
  };
  const int64_t step = replicator.step();
  int64_t right = 0;
  while (const auto counts = replicator.Run(count, input))
    right += replicator.Reduce(*counts, ReduceOp::kSum).item<int64_t>();
  replicator.SetStep(step);
  return static_cast<double>(right) / static_cast<double>(data.size());
}

}  // namespace samara
