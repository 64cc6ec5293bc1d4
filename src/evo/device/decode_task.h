// Arguments of the kernel that decodes a genome. Included by code that nvcc compiles.
#pragma once

#include "nn/device/tasks.h"

namespace samara::device {

struct DeviceMutation {
  uint64_t key;
  float power;
  uint32_t unused;
};

// A tensor's initial values: scaled noise, or one number.
struct InitialTensor {
  size_t first, count;
  float scale, value;
  bool noise;
};

// values = base, or the initial parameters, and then the mutations, left to right; written to a
// network's bytes (place), or to `out` where that is not null.
struct DecodeTask {
  PlaceTask place;
  float* out;         // [place.size], canonical
  const float* base;  // [place.size], canonical; null: initial parameters
  const InitialTensor* initial;
  uint32_t tensors;
  uint64_t initial_key;
  const DeviceMutation* mutations;
  uint32_t mutation_count;
  uint32_t noise;  // NoiseKind: 1 normal, 2 quantile8
};

}  // namespace samara::device
