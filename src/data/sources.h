// Where images come from. A folder or file that is not there is kNoInput; one that is not what it
// should be is kBadData and named.
#pragma once

#include "core/files.h"
#include "data/interface.h"

namespace samara {

// `train-images-idx3-ubyte`, `train-labels-idx1-ubyte` and the same with `t10k`, as MNIST has them.
// Source: yann.lecun.com/exdb/mnist, "the IDX file format".
Result<ImageSplits> OpenIdx(const Path& folder);

// `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`: records of a class and three
// planes of 32 x 32. Source: cs.toronto.edu/~kriz/cifar.html, "binary version". With `vary`
// training samples are moved by up to 4 pixels over black, and mirrored half of the time.
Result<ImageSplits> OpenCifar10(const Path& folder, bool vary, uint64_t seed);

// `train/CLASS/*.jpg` and `val/CLASS/*.jpg`, classes and files in the order of their names, every
// sample `side` pixels high and wide. For training a random part of the image, mirrored half of the
// time; for testing its middle, 224/256 of the shorter side. kConfig in a build without libjpeg.
// Source of the random part (8 to 100 % of the area, 3:4 to 4:3): Szegedy et al. (2015), section 6.
Result<ImageSplits> OpenImageFolder(const Path& folder, int side, uint64_t seed);

struct DrawnDigits {
  ImageShape shape{.channels = 1, .height = 28, .width = 28};  // at least 12 high and wide
  int64_t train = 8192, test = 256;                            // samples
  uint64_t seed = 1;
};
// Digits of seven segments, of random place, size and colour, with noise; the same on every
// machine.
ImageSplits DrawDigits(const DrawnDigits& options);

}  // namespace samara
