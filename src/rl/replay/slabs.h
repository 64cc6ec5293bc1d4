// Memory for what a replay stores, outside the heap, where long-lived items between a learner's
// tensors fragment it. Items are allocated and freed in about the same order.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

namespace samara {

// Values that live as long as a copy of this does, also beyond the Slabs that made it.
template <typename T>
class Kept {
 public:
  Kept() = default;
  Kept(std::shared_ptr<const T> first, size_t size) : first_(std::move(first)), size_(size) {}

  std::span<const T> values() const { return {first_.get(), size_}; }
  const T* data() const { return first_.get(); }
  size_t size() const { return size_; }

 private:
  std::shared_ptr<const T> first_;
  size_t size_ = 0;
};

// Thread safety: none; what it made may go on any thread.
class Slabs {
 public:
  static constexpr size_t kSlabBytes = size_t{1} << 22;

  // Copies `values` into a slab; slabs are given back to the system, each after the last of its
  // values. Throws std::bad_alloc.
  template <typename T>
  Kept<T> Keep(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (values.empty()) return {};
    const std::span<const std::byte> bytes = std::as_bytes(values);
    std::byte* to = Reserve(bytes.size());
    std::ranges::copy(bytes, to);
    return {std::shared_ptr<const T>(open_, reinterpret_cast<const T*>(to)), values.size()};
  }

  uint64_t bytes() const { return *bytes_; }  // of its slabs that are there
  static size_t TEST_Open();                  // slabs of this process

 private:
  class Slab;
  // Of the open slab, which is another one when it is full.
  std::byte* Reserve(size_t bytes);

  std::shared_ptr<std::atomic<uint64_t>> bytes_ = std::make_shared<std::atomic<uint64_t>>(0);
  std::shared_ptr<Slab> open_;
};

}  // namespace samara
