// TensorBoard event files without TensorFlow: the few fields of protobuf that scalars need.
//
//   TFRecord: u64 length, u32 masked CRC-32C of these 8, data, u32 masked CRC-32C of data
//   Event:    1 wall_time double, 2 step int64, 3 file_version string, 5 summary Summary
//   Summary:  1 value, repeated: 1 tag string, 2 simple_value float
#include <algorithm>
#include <bit>
#include <ctime>

#include "core/crc32c.h"
#include "storage/metrics.h"

namespace samara {
namespace {

void PutLittleEndian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

void PutVarint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

enum WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void PutTag(std::string& out, int field, WireType type) {
  PutVarint(out, static_cast<uint64_t>(field) << 3 | type);
}

void PutDouble(std::string& out, int field, double value) {
  PutTag(out, field, kFixed64);
  PutLittleEndian(out, std::bit_cast<uint64_t>(value), 8);
}

void PutFloat(std::string& out, int field, float value) {
  PutTag(out, field, kFixed32);
  PutLittleEndian(out, std::bit_cast<uint32_t>(value), 4);
}

void PutBytes(std::string& out, int field, std::string_view bytes) {
  PutTag(out, field, kBytes);
  PutVarint(out, bytes.size());
  out += bytes;
}

uint32_t MaskedCrc(std::string_view bytes) { return std::rotr(Crc32c(bytes), 15) + 0xa282ead8U; }

std::string Record(std::string_view data) {
  std::string record;
  PutLittleEndian(record, data.size(), 8);
  PutLittleEndian(record, MaskedCrc(record), 4);
  record += data;
  PutLittleEndian(record, MaskedCrc(data), 4);
  return record;
}

// Seconds since 1970 of a line's "time"; 0 when it has none.
double WallTime(const nlohmann::json& line) {
  const auto time = line.find("time");
  std::tm utc{};
  if (time == line.end() || !time->is_string() ||
      ::strptime(time->get_ref<const std::string&>().c_str(), "%Y-%m-%dT%H:%M:%SZ", &utc) ==
          nullptr)
    return 0;
  return static_cast<double>(::timegm(&utc));
}

}  // namespace

std::string EventFileHeader() {
  std::string event;
  PutDouble(event, 1, 0);
  PutBytes(event, 3, "brain.Event:2");
  return Record(event);
}

std::string EventOfLine(const nlohmann::json& line) {
  const auto step = StepOf(line);
  if (line.contains("event") || !step) return {};
  std::string summary;
  for (const auto& [name, value] : line.items()) {
    if (!value.is_number() || std::ranges::find(kStepNames, name) != std::end(kStepNames)) continue;
    std::string scalar;
    PutBytes(scalar, 1, name);
    PutFloat(scalar, 2, value.get<float>());
    PutBytes(summary, 1, scalar);
  }
  std::string event;
  PutDouble(event, 1, WallTime(line));
  PutTag(event, 2, kVarint);
  PutVarint(event, *step);
  PutBytes(event, 5, summary);
  return Record(event);
}

}  // namespace samara
