// Anonymous shared memory (memfd) that child processes inherit.
#pragma once

#include <cstddef>
#include <string>

#include "core/status.h"

namespace samara {

// One memfd, readable by its owner only. Created empty, so that a child can inherit it before its
// size is known; Map gives it its final size and seals it, so that no peer can shrink it under us.
class SharedMemory {
 public:
  static Result<SharedMemory> Create(const std::string& name);
  SharedMemory(SharedMemory&& other) noexcept { Swap(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~SharedMemory();

  // Zero-filled. REQUIRES: called once, bytes > 0. kIoError when the memory is not to be had.
  Status Map(size_t bytes);
  int fd() const { return fd_; }
  std::byte* data() const { return data_; }  // null before Map
  size_t size() const { return size_; }

 private:
  explicit SharedMemory(int fd) : fd_(fd) {}
  void Swap(SharedMemory& other);
  int fd_ = -1;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace samara
