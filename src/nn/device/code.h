// SPDX-License-Identifier: Apache-2.0 OR MIT
// How one source of a kernel is compiled for this CPU and by nvcc for a GPU.
//
// A kernel's body is a function of a block: Block::Threads(f) runs f(thread) for every thread of
// it and ends when all have; what a thread keeps between two calls lies in Block::PerThread.
// On the CPU the threads run one after the other, so the ordinary tests run every line of it.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define SAMARA_DEVICE __device__ inline
#define SAMARA_BOTH __host__ __device__ inline
#define SAMARA_DEVICE_UNROLL _Pragma("unroll")
#else
#define SAMARA_DEVICE inline
#define SAMARA_BOTH inline
#define SAMARA_DEVICE_UNROLL
#endif

namespace samara::device {

struct Words4 {
  uint32_t word[4];
};

#if defined(__CUDACC__)

SAMARA_DEVICE float Fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
SAMARA_DEVICE float Add(float a, float b) { return __fadd_rn(a, b); }
SAMARA_DEVICE float Mul(float a, float b) { return __fmul_rn(a, b); }
SAMARA_DEVICE float Div(float a, float b) { return __fdiv_rn(a, b); }
SAMARA_DEVICE float SquareRoot(float x) { return __fsqrt_rn(x); }
SAMARA_DEVICE uint32_t BitsOf(float x) { return __float_as_uint(x); }
SAMARA_DEVICE float FloatOf(uint32_t bits) { return __uint_as_float(bits); }

// 16 bytes that nothing writes meanwhile.
SAMARA_DEVICE Words4 Load16(const void* p) {
  const uint4 v = __ldg(static_cast<const uint4*>(p));
  return {{v.x, v.y, v.z, v.w}};
}

// 16 bytes of shared memory.
SAMARA_DEVICE Words4 LoadShared16(const void* p) {
  const uint4 v = *static_cast<const uint4*>(p);
  return {{v.x, v.y, v.z, v.w}};
}
SAMARA_DEVICE void Store16(void* p, const Words4& words) {
  *static_cast<uint4*>(p) = make_uint4(words.word[0], words.word[1], words.word[2], words.word[3]);
}

struct GpuBlock {
  __device__ unsigned x() const { return blockIdx.x; }
  __device__ unsigned y() const { return blockIdx.y; }
  __device__ unsigned size() const { return blockDim.x; }
  template <typename F>
  __device__ void Threads(F f) {
    f(threadIdx.x);
    __syncthreads();
  }
  // Some threads may go on before others are done.
  template <typename F>
  __device__ void ThreadsUnordered(F f) {
    f(threadIdx.x);
  }
  // Copies into shared memory that are on their way meanwhile: a thread's copies since its last
  // Commit are there when it has waited until at most kLater later groups are on their way.
  __device__ static void Copy16(void* shared, const void* from) {
    const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
  }
  __device__ static void Commit() { asm volatile("cp.async.commit_group;"); }
  template <int kLater>
  __device__ static void Await() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLater));
  }
  template <typename T>
  struct PerThread {
    T value;
    __device__ T& operator[](unsigned) { return value; }
  };
  // `to` becomes the larger one. REQUIRES: neither is negative or NaN.
  __device__ static void RaiseTo(float* to, float value) {
    // threads that raise the same number agree first
    const unsigned active = __activemask();
    const unsigned peers = __match_any_sync(active, reinterpret_cast<unsigned long long>(to));
    const unsigned largest = __reduce_max_sync(peers, __float_as_uint(value));
    if ((threadIdx.x & 31) == __ffs(peers) - 1) atomicMax(reinterpret_cast<unsigned*>(to), largest);
  }
};

#else

SAMARA_DEVICE float Fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
SAMARA_DEVICE float Add(float a, float b) { return a + b; }
SAMARA_DEVICE float Mul(float a, float b) { return a * b; }
SAMARA_DEVICE float Div(float a, float b) { return a / b; }
SAMARA_DEVICE float SquareRoot(float x) { return __builtin_sqrtf(x); }
SAMARA_DEVICE uint32_t BitsOf(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}
SAMARA_DEVICE float FloatOf(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

SAMARA_DEVICE Words4 Load16(const void* p) {
  Words4 words;
  __builtin_memcpy(&words, p, sizeof words);
  return words;
}
SAMARA_DEVICE Words4 LoadShared16(const void* p) { return Load16(p); }
SAMARA_DEVICE void Store16(void* p, const Words4& words) {
  __builtin_memcpy(p, &words, sizeof words);
}

// One block at a time on this CPU.
class CpuBlock {
 public:
  static constexpr unsigned kThreadsMax = 256;
  CpuBlock(unsigned x, unsigned y, unsigned size) : x_(x), y_(y), size_(size) {}
  unsigned x() const { return x_; }
  unsigned y() const { return y_; }
  unsigned size() const { return size_; }
  template <typename F>
  void Threads(F f) {
    for (unsigned thread = 0; thread < size_; ++thread) f(thread);
  }
  template <typename F>
  void ThreadsUnordered(F f) {
    Threads(f);
  }
  static void Copy16(void* shared, const void* from) { __builtin_memcpy(shared, from, 16); }
  static void Commit() {}
  template <int kLater>
  static void Await() {}
  template <typename T>
  struct PerThread {
    T values[kThreadsMax];
    T& operator[](unsigned thread) { return values[thread]; }
  };
  static void RaiseTo(float* to, float value) { *to = *to < value ? value : *to; }

 private:
  const unsigned x_, y_, size_;
};

#endif

}  // namespace samara::device
