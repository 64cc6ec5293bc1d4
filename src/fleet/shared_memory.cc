#include "fleet/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace samara {

namespace {
Status Failed(const std::string& what) {
  return {Code::kIoError, "shared memory: " + what + ": " + std::strerror(errno)};
}
}  // namespace

Result<SharedMemory> SharedMemory::Create(const std::string& name) {
  const int fd = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return Failed("memfd_create");
  SharedMemory memory(fd);
  if (fchmod(fd, 0600) != 0) return Failed("fchmod");
  return memory;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
  if (fd_ >= 0) close(fd_);
}

void SharedMemory::Swap(SharedMemory& other) {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
}

Status SharedMemory::Map(size_t bytes) {
  CHECK(data_ == nullptr && bytes > 0) << bytes;
  // reserve the pages now: a full memory is an error here instead of SIGBUS later
  if (const int error = posix_fallocate(fd_, 0, static_cast<off_t>(bytes)); error != 0) {
    errno = error;
    return Failed("reserving " + std::to_string(bytes) + " bytes");
  }
  if (fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return Failed("sealing");
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (address == MAP_FAILED) return Failed("mmap of " + std::to_string(bytes) + " bytes");
  data_ = static_cast<std::byte*>(address);
  size_ = bytes;
  return Status::Ok();
}

}  // namespace samara
