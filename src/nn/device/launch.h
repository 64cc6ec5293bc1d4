// SPDX-License-Identifier: Apache-2.0 OR MIT
// How the kernels of tasks.h are spread over blocks, and which instance of a body a task needs.
// Included by cpu.cc and gpu.cu, which run Instance::Run on every block of the grid.
#pragma once

#include "nn/device/kernels_impl.h"
#include "nn/device/place_impl.h"

namespace samara::device {
namespace {

struct Grid {
  unsigned x = 1, y = 1, threads = 1;
  size_t shared = 0;  // bytes
};

constexpr unsigned kPushThreads = 256, kPlaceThreads = 256;

constexpr unsigned Blocks(size_t work, unsigned threads) {
  return static_cast<unsigned>((work + threads - 1) / threads);
}
constexpr unsigned WholeWarps(unsigned threads) { return (threads + 31) / 32 * 32; }

// ---- instances: Task, Run(block, task, shared)

template <typename T>
struct Push {
  using Task = PushTask;
  static constexpr char kName[] = "stacks";
  template <typename Block>
  static SAMARA_DEVICE void Run(Block& block, const Task& t, unsigned char*) {
    PushBody<T>(block, t);
  }
  static Grid GridOf(const Task& t) {
    return {Blocks(t.pixels, kPushThreads), t.count, kPushThreads, 0};
  }
};

template <Format kFormat, unsigned kStep>
struct Conv {
  using Task = ConvTask;
  static constexpr char kName[] = "convolution";
  template <typename Block>
  static SAMARA_DEVICE void Run(Block& block, const Task& t, unsigned char* shared) {
    ConvBody<kFormat, kStep>(block, t, reinterpret_cast<float*>(shared));
  }
  static Grid GridOf(const Task& t) {
    const unsigned groups = Blocks(size_t{t.tile_rows} * t.out_width, kTilePixels);
    return {t.count, Blocks(t.out_height, t.tile_rows),
            WholeWarps(groups * (t.columns / kTileChannels)), t.shared_size};
  }
};

inline Grid DenseGrid(const DenseTask& t, size_t shared) {
  const unsigned threads = Blocks(t.columns, kDenseColumns);
  const unsigned size = threads < kDenseThreads ? WholeWarps(threads) : kDenseThreads;
  return {t.count, Blocks(threads, size), size, shared};
}

template <Format kFormat>
struct Dense {
  using Task = DenseTask;
  static constexpr char kName[] = "dense layer";
  template <typename Block>
  static SAMARA_DEVICE void Run(Block& block, const Task& t, unsigned char* shared) {
    DenseBody<kFormat>(block, t, shared);
  }
  static Grid GridOf(const Task& t) { return DenseGrid(t, kDenseShared); }
};

template <Format kFormat>
struct Small {
  using Task = DenseTask;
  static constexpr char kName[] = "small dense layer";
  template <typename Block>
  static SAMARA_DEVICE void Run(Block& block, const Task& t, unsigned char* shared) {
    SmallBody<kFormat>(block, t, shared);
  }
  static Grid GridOf(const Task& t) { return {t.count, 1, kSmallThreads, SharedOf(t)}; }
  static size_t SharedOf(const Task& t) {
    return SmallWeightBytes(t, kPerWord<kFormat>) + t.inputs * sizeof(float);
  }
};

template <Format kFormat>
struct DenseGroup {
  using Task = DenseTask;
  static constexpr char kName[] = "dense layer of groups";
  template <typename Block>
  static SAMARA_DEVICE void Run(Block& block, const Task& t, unsigned char* shared) {
    DenseGroupBody<kFormat>(block, t, shared);
  }
  static Grid GridOf(const Task& t) { return DenseGrid(t, kGroupShared); }
};

struct PlaceAll {
  using Task = PlaceTask;
  static constexpr char kName[] = "parameters";
  template <typename Block>
  static SAMARA_DEVICE void Run(Block& block, const Task& t, unsigned char*) {
    PlaceBody(block, t);
  }
  static Grid GridOf(const Task& t) { return {Blocks(t.size, kPlaceThreads), 1, kPlaceThreads, 0}; }
};

// ---- choices: f(instance)

template <typename F>
void Choose(const PushTask& t, F f) {
  t.floats ? f(Push<float>()) : f(Push<unsigned char>());
}
template <typename F>
void Choose(const PlaceTask&, F f) {
  f(PlaceAll());
}
template <typename F>
void Choose(const ConvTask& t, F f) {
  const bool four = t.in_channels % 4 == 0;
  if (t.format == Format::kBf16)
    four ? f(Conv<Format::kBf16, 4>()) : f(Conv<Format::kBf16, 1>());
  else
    four ? f(Conv<Format::kFloat32, 4>()) : f(Conv<Format::kFloat32, 1>());
}
template <Format kFormat, typename F>
void ChooseDense(const DenseTask& t, F f) {
  if (t.shared > 1) return f(DenseGroup<kFormat>());
  if (Small<kFormat>::SharedOf(t) <= kSmallBytes) return f(Small<kFormat>());
  f(Dense<kFormat>());
}
template <typename F>
void Choose(const DenseTask& t, F f) {
  switch (t.format) {
    case Format::kFloat32:
      return ChooseDense<Format::kFloat32>(t, f);
    case Format::kBf16:
      return ChooseDense<Format::kBf16>(t, f);
    case Format::kInt8:
      return ChooseDense<Format::kInt8>(t, f);
  }
}

}  // namespace
}  // namespace samara::device
