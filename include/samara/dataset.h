// Labelled images as batches of tensors: real files, or drawn digits that need none.
//
// A sample is a function of its number, the epoch and the seed alone, so that batches are the same
// at any number of replicas, ranks and threads. Errors are ReplicationError: 66 for a file that is
// missing, 65 for one that is not what it should be, in one line that names it.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "samara/input.h"
#include "samara/replicator.h"

namespace samara {

class ImageSource;  // src/data
class Workers;

struct Samples {
  torch::Tensor images;  // float32 [n, channels, height, width], from -1 to 1
  torch::Tensor labels;  // int64 [n]
};

// Copies share the samples and the threads that read them.
class Dataset {
 public:
  Dataset(std::shared_ptr<const ImageSource> source, std::shared_ptr<Workers> workers);
  int64_t size() const;
  int64_t channels() const;
  int64_t height() const;
  int64_t width() const;
  int64_t classes() const;
  // The samples in this order, as they are in `epoch`. From any thread.
  Samples Read(const std::vector<int64_t>& indices, int64_t epoch = 0) const;

 private:
  std::shared_ptr<const ImageSource> source_;
  std::shared_ptr<Workers> workers_;
};

// A data set for training, and another one of the same classes and shape.
struct Datasets {
  Dataset train, test;

  // MNIST and others in its format: FOLDER/train-images-idx3-ubyte and its three companions.
  static Datasets Idx(const std::string& folder);
  // The binary version of CIFAR-10: FOLDER/data_batch_1.bin to 5, test_batch.bin. `vary`: training
  // samples are moved by up to 4 pixels and mirrored.
  static Datasets Cifar10(const std::string& folder, bool vary = true, uint64_t seed = 1);
  // FOLDER/train/CLASS/*.jpg and FOLDER/val/CLASS/*.jpg, decoded by `threads` threads (0: as many
  // as there are cores): a random part for training, the middle for testing, `side` x `side`.
  static Datasets ImageFolder(const std::string& folder, int64_t side, int threads = 0,
                              uint64_t seed = 1);
  // Seven-segment digits of random place, size and colour: 8192 and 256 of them.
  static Datasets Digits(int64_t channels, int64_t side, uint64_t seed = 1);
};

// A pipeline of the batches `first_step` to `last_step`, the latter excluded, of an order that goes
// through the data set again and again. For MakeInput with kPerReplica.
Pipeline<Samples> ReadInOrder(const InputContext& context, const Dataset& data,
                              const SampleOrder& order, int64_t first_step, int64_t last_step);

// The batches of the steps `first_step` to `last_step`, the latter excluded, shuffled again in each
// epoch, which leaves out samples that do not fill a batch.
Input<Samples> TrainingInput(Replicator& replicator, const Dataset& data, int64_t batch,
                             int64_t first_step, int64_t last_step);

// The share of samples whose highest score is that of their class; `scores` gives them for images,
// [n, classes]. Collective, outside steps; leaves the replicator's step as it was.
double Accuracy(Replicator& replicator, const Dataset& data, int64_t batch,
                const std::function<torch::Tensor(const torch::Tensor& images)>& scores);

}  // namespace samara
