#include "rl/replay/slabs.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <new>

namespace samara {
namespace {

constexpr size_t kAlignment = 64;
std::atomic<size_t> open_slabs = 0;

}  // namespace

class Slabs::Slab {
 public:
  // `all`: the bytes of its kind.
  Slab(size_t bytes, std::shared_ptr<std::atomic<uint64_t>> all)
      : bytes_(bytes),
        all_(std::move(all)),
        memory_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    ++open_slabs, *all_ += bytes_;
  }
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  ~Slab() {
    munmap(memory_, bytes_);
    --open_slabs, *all_ -= bytes_;
  }

  // Null: there is no room for so many.
  std::byte* Reserve(size_t bytes) {
    if (bytes > bytes_ - used_) return nullptr;
    std::byte* const at = static_cast<std::byte*>(memory_) + used_;
    used_ = std::min(bytes_, (used_ + bytes + kAlignment - 1) / kAlignment * kAlignment);
    return at;
  }

 private:
  const size_t bytes_;
  const std::shared_ptr<std::atomic<uint64_t>> all_;
  void* const memory_;
  size_t used_ = 0;
};

std::byte* Slabs::Reserve(size_t bytes) {
  std::byte* at = open_ != nullptr ? open_->Reserve(bytes) : nullptr;
  if (at != nullptr) return at;
  open_ = std::make_shared<Slab>(std::max(bytes, kSlabBytes), bytes_);
  return open_->Reserve(bytes);
}

size_t Slabs::TEST_Open() { return open_slabs; }

}  // namespace samara
