// SPDX-License-Identifier: Apache-2.0 OR MIT
// Cloned<T>: a polymorphic object that is copied like a value, by T::Clone(). May be empty.
#pragma once

#include <memory>
#include <utility>

namespace samara {

template <typename T>
class Cloned {
 public:
  Cloned() = default;
  Cloned(std::unique_ptr<T> object) : object_(std::move(object)) {}  // NOLINT: a value is one
  Cloned(const Cloned& other) : object_(other ? other->Clone() : nullptr) {}
  Cloned(Cloned&&) noexcept = default;
  Cloned& operator=(const Cloned& other) { return *this = Cloned(other); }
  Cloned& operator=(Cloned&&) noexcept = default;
  ~Cloned() = default;

  explicit operator bool() const { return object_ != nullptr; }
  T& operator*() { return *object_; }
  const T& operator*() const { return *object_; }
  T* operator->() { return object_.get(); }
  const T* operator->() const { return object_.get(); }

 private:
  std::unique_ptr<T> object_;
};

}  // namespace samara
