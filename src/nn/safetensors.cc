// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

namespace samara {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are stored little-endian");

using Json = nlohmann::json;

constexpr size_t kHeaderMax = size_t{1} << 20;
constexpr size_t kTensorsMax = size_t{1} << 16;
constexpr size_t kRankMax = 8;
constexpr size_t kNameMax = size_t{1} << 10;
constexpr int kDepth = 3;  // header, tensor, shape
constexpr const char* kMetadata = "__metadata__";

size_t ItemSize(Tensor::Type type) { return type == Tensor::Type::kFloat32 ? sizeof(float) : 1; }

// Bytes of a tensor; false when a size is negative or the product overflows.
bool ByteCount(const std::vector<int64_t>& shape, Tensor::Type type, uint64_t* count) {
  *count = ItemSize(type);
  for (int64_t d : shape) {
    if (d < 0 || __builtin_mul_overflow(*count, static_cast<uint64_t>(d), count)) return false;
  }
  return true;
}

Status Bad(const std::string& what) { return {Code::kBadData, "not a safetensors file: " + what}; }

// Names come from the file: quoted, printable, short.
std::string Quoted(const std::string& name) {
  std::string text = "'";
  for (char c : name.substr(0, 60)) text += c >= ' ' && c <= '~' ? c : '?';
  return text + "'";
}

// Strict JSON of bounded depth; every key of an object at most once.
Result<Json> ParseHeader(std::string_view text) {
  std::string problem;
  std::vector<std::set<std::string>> keys(kDepth + 2);
  const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (depth >= kDepth) {
        problem = "the header is nested too deep";
        return false;
      }
      keys[static_cast<size_t>(depth) + 1].clear();
    }
    if (event == Event::key && depth <= kDepth &&
        !keys[static_cast<size_t>(depth)].insert(value.get_ref<const std::string&>()).second) {
      problem = "the header repeats " + Quoted(value.get_ref<const std::string&>());
    }
    return true;
  };
  Json header = Json::parse(text, check, /*allow_exceptions=*/false);
  if (!problem.empty()) return Bad(problem);
  if (!header.is_object()) return Bad("the header is not a JSON object");
  return header;
}

struct Entry {
  std::string name;
  Tensor tensor;  // without bytes
  uint64_t begin = 0, end = 0;
};

Result<Entry> ParseEntry(const std::string& name, const Json& json) {
  Entry entry;
  entry.name = name;
  const std::string where = "tensor " + Quoted(name) + ": ";
  if (name.empty() || name.size() > kNameMax) {
    return Bad(where + "a name has 1 to " + std::to_string(kNameMax) + " bytes");
  }
  if (!json.is_object() || json.size() != 3 || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets")) {
    return Bad(where + "expected dtype, shape and data_offsets");
  }
  if (json["dtype"] == "F32") {
    entry.tensor.type = Tensor::Type::kFloat32;
  } else if (json["dtype"] == "U8") {
    entry.tensor.type = Tensor::Type::kUint8;
  } else {
    return Bad(where + "dtype is not F32 or U8");
  }
  const Json& shape = json["shape"];
  if (!shape.is_array() || shape.size() > kRankMax) {
    return Bad(where + "shape is not a list of at most " + std::to_string(kRankMax) + " sizes");
  }
  for (const Json& d : shape) {
    if (!d.is_number_unsigned() || d.get<uint64_t>() > uint64_t{1} << 48) {
      return Bad(where + "a size is out of range");
    }
    entry.tensor.shape.push_back(d.get<int64_t>());
  }
  const Json& offsets = json["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    return Bad(where + "data_offsets is not a pair of offsets");
  }
  entry.begin = offsets[0].get<uint64_t>();
  entry.end = offsets[1].get<uint64_t>();
  uint64_t count = 0;
  if (entry.end < entry.begin || !ByteCount(entry.tensor.shape, entry.tensor.type, &count) ||
      count != entry.end - entry.begin) {
    return Bad(where + "data_offsets do not fit its shape");
  }
  return entry;
}

Status ParseMetadata(const Json& json, Safetensors* file) {
  if (!json.is_object()) return Bad("__metadata__ is not an object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) return Bad("metadata " + Quoted(key) + " is not a text");
    file->metadata[key] = value.get<std::string>();
  }
  return Status::Ok();
}

Json HeaderEntry(const Tensor& tensor, uint64_t begin) {
  return {{"dtype", tensor.type == Tensor::Type::kFloat32 ? "F32" : "U8"},
          {"shape", tensor.shape},
          {"data_offsets", {begin, begin + tensor.bytes.size()}}};
}

Status CheckWritable(const std::string& name, const Tensor& tensor) {
  uint64_t count = 0;
  if (name.empty() || name.size() > kNameMax || name == kMetadata ||
      tensor.shape.size() > kRankMax || !ByteCount(tensor.shape, tensor.type, &count) ||
      count != tensor.bytes.size()) {
    return {Code::kConfig, "tensor " + Quoted(name) +
                               " cannot be written: expected a name of 1 to 1024 bytes, rank at "
                               "most 8 and bytes that fit the shape"};
  }
  return Status::Ok();
}

}  // namespace

Tensor Tensor::OfFloats(std::vector<int64_t> shape, std::span<const float> values) {
  Tensor tensor;
  tensor.shape = std::move(shape);
  tensor.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  uint64_t count = 0;
  CHECK(ByteCount(tensor.shape, tensor.type, &count) && count == tensor.bytes.size())
      << values.size() << " values do not fit the shape";
  return tensor;
}

std::vector<float> Tensor::Floats() const {
  CHECK(type == Type::kFloat32);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

Result<std::string> FormatSafetensors(const Safetensors& file) {
  if (file.tensors.size() > kTensorsMax) {
    return Status(Code::kConfig, "more than 65536 tensors for one safetensors file");
  }
  // wider items first, so that every tensor is aligned to its own size
  std::string data;
  Json header = Json::object();
  if (!file.metadata.empty()) header[kMetadata] = file.metadata;
  for (Tensor::Type type : {Tensor::Type::kFloat32, Tensor::Type::kUint8}) {
    for (const auto& [name, tensor] : file.tensors) {
      if (tensor.type != type) continue;
      RETURN_IF_ERROR(CheckWritable(name, tensor));
      header[name] = HeaderEntry(tensor, data.size());
      data += tensor.bytes;
    }
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kHeaderMax) {
    return Status(Code::kConfig, "a safetensors header of " + std::to_string(text.size()) +
                                     " bytes, at most 1 MiB is read back");
  }
  const uint64_t length = text.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  return bytes + text + data;
}

Result<Safetensors> ParseSafetensors(std::string_view bytes) {
  uint64_t length = 0;
  if (bytes.size() < sizeof(length)) return Bad("shorter than 8 bytes");
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > kHeaderMax || length > bytes.size() - sizeof(length)) {
    return Bad("a header of " + std::to_string(length) + " bytes in a file of " +
               std::to_string(bytes.size()) + " (at most 1 MiB)");
  }
  ASSIGN_OR_RETURN(const Json header, ParseHeader(bytes.substr(sizeof(length), length)));
  const std::string_view data = bytes.substr(sizeof(length) + length);

  Safetensors file;
  std::vector<Entry> entries;
  if (header.size() > kTensorsMax + 1) return Bad("more than 65536 tensors");
  for (const auto& [name, json] : header.items()) {
    if (name == kMetadata) {
      RETURN_IF_ERROR(ParseMetadata(json, &file));
    } else {
      ASSIGN_OR_RETURN(Entry entry, ParseEntry(name, json));
      entries.push_back(std::move(entry));
    }
  }
  // the tensors cover the data exactly: no gap, no overlap, no rest
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t covered = 0;
  for (Entry& entry : entries) {
    if (entry.begin != covered || entry.end > data.size()) {
      return Bad("tensor " + Quoted(entry.name) + " does not follow the one before it, or ends " +
                 "after the file");
    }
    covered = entry.end;
    entry.tensor.bytes = data.substr(entry.begin, entry.end - entry.begin);
    file.tensors[entry.name] = std::move(entry.tensor);
  }
  if (covered != data.size()) {
    return Bad(std::to_string(data.size() - covered) + " bytes follow the last tensor");
  }
  return file;
}

}  // namespace samara
