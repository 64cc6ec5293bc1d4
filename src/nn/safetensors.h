// SPDX-License-Identifier: Apache-2.0 OR MIT
// Reader and writer of the safetensors format, for float32 and uint8 tensors and text metadata.
//
// A file is the header's length (8 bytes, little-endian), the header (JSON: name -> dtype, shape,
// data_offsets; "__metadata__" -> texts) and the tensors' bytes without gaps. The reader trusts
// nothing: sizes are checked before anything is allocated, and only exact
// files pass.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace samara {

struct Tensor {
  enum class Type : uint8_t { kFloat32, kUint8 } type = Type::kFloat32;
  std::vector<int64_t> shape;  // empty: a scalar
  std::string bytes;           // row-major, little-endian

  // REQUIRES: values.size() is the product of shape.
  static Tensor OfFloats(std::vector<int64_t> shape, std::span<const float> values);
  // REQUIRES: type == kFloat32.
  std::vector<float> Floats() const;
};

struct Safetensors {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

// The bytes of a file; the caller saves them (core/files.h). kConfig when a name, a rank or the
// header exceeds what the reader accepts, or bytes do not fit the shape.
Result<std::string> FormatSafetensors(const Safetensors& file);
// kBadData, in one line, on anything but an exact file.
Result<Safetensors> ParseSafetensors(std::string_view bytes);

}  // namespace samara
