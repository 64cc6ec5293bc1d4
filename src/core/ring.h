// SPDX-License-Identifier: Apache-2.0 OR MIT
// First in, first out, within a fixed capacity: what is allocated is allocated at the start.
// One thread at a time.
#pragma once

#include <utility>
#include <vector>

#include "core/check.h"

namespace samara {

template <typename T>
class Ring {
 public:
  explicit Ring(size_t capacity) : items_(capacity) {}
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  // The i-th oldest. REQUIRES: i < size().
  const T& operator[](size_t i) const {
    CHECK_LT(i, size_);
    return items_[(first_ + i) % items_.size()];
  }
  // REQUIRES: size() < capacity.
  void Push(T item) {
    CHECK_LT(size_, items_.size());
    items_[(first_ + size_++) % items_.size()] = std::move(item);
  }
  // REQUIRES: not empty.
  T Pop() {
    CHECK(size_ > 0);
    --size_;
    return std::exchange(items_[std::exchange(first_, (first_ + 1) % items_.size())], T());
  }
  void Clear() {
    while (!empty()) Pop();
  }

 private:
  std::vector<T> items_;
  size_t first_ = 0, size_ = 0;
};

}  // namespace samara
