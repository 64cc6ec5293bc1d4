// SPDX-License-Identifier: Apache-2.0 OR MIT
// Little-endian records: what is written is read back on any machine, and every read is checked.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace samara {

static_assert(std::endian::native == std::endian::little, "records are little-endian");

class ByteWriter {
 public:
  template <typename T>
  requires std::is_trivially_copyable_v<T> ByteWriter& Put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  // 64-bit length, then the bytes.
  ByteWriter& PutBytes(std::string_view bytes) {
    Put(uint64_t{bytes.size()});
    bytes_.append(bytes);
    return *this;
  }
  // Writes numbers as PutBytes writes bytes.
  template <typename T>
  requires std::is_trivially_copyable_v<T> ByteWriter& PutVector(const std::vector<T>& values) {
    return PutBytes({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// After a read past the end, or of a boolean that is neither 0 nor 1, every later read fails too:
// check ok() once, and AtEnd() for trailing bytes.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : left_(bytes) {}
  template <typename T>
  requires std::is_trivially_copyable_v<T> T Get() {
    if constexpr (std::is_same_v<T, bool>) {
      const auto byte = Get<uint8_t>();
      ok_ = ok_ && byte <= 1;
      return ok_ && byte == 1;
    } else {
      T value{};
      ok_ = ok_ && left_.size() >= sizeof value;
      if (!ok_) return value;
      std::memcpy(&value, left_.data(), sizeof value);
      left_.remove_prefix(sizeof value);
      return value;
    }
  }
  std::string_view GetBytes() {
    const auto size = Get<uint64_t>();
    if (!ok_ || size > left_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view bytes = left_.substr(0, size);
    left_.remove_prefix(size);
    return bytes;
  }
  // Reads what PutVector wrote. False: the bytes are no whole number of values, or missing.
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  bool GetVector(std::vector<T>& values) {
    const std::string_view bytes = GetBytes();
    values.resize(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return ok_ && bytes.size() % sizeof(T) == 0;
  }
  bool ok() const { return ok_; }
  bool AtEnd() const { return ok_ && left_.empty(); }

 private:
  std::string_view left_;
  bool ok_ = true;
};

}  // namespace samara
