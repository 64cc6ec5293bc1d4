// TensorBoard event files without TensorFlow: the few fields of protobuf that scalars, pictures, a
// text and hyper-parameters need.
//
//   TFRecord: u64 length, u32 masked CRC-32C of these 8, data, u32 masked CRC-32C of data
//   Event:    1 wall_time double, 2 step int64, 3 file_version string, 5 summary Summary
//   Summary:  1 value, repeated: 1 tag string, 2 simple_value float, 4 image Image,
//             8 tensor TensorProto, 9 metadata SummaryMetadata: 1 plugin_data: 1 plugin_name
//             string, 2 content bytes
//   Image:    1 height int32, 2 width int32, 3 colorspace (3: RGB), 4 encoded_image_string bytes
//   TensorProto: 1 dtype (7: string), 8 string_val bytes
//   HParamsPluginData: 3 session_start_info: 1 hparams, a map: entries of 1 key, 2 value
//   google.protobuf.Value: 2 number_value double, 3 string_value, 4 bool_value
#include <bit>
#include <ctime>

#include "core/crc32c.h"
#include "core/inline_toml.h"
#include "storage/metrics.h"
#include "storage/scalars.h"

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

std::string Event(double wall_time, uint64_t step, std::string_view summary) {
  std::string event;
  PutDouble(event, 1, wall_time);
  PutTag(event, 2, kVarint);
  PutVarint(event, step);
  PutBytes(event, 5, summary);
  return Record(event);
}

// A value of a summary that a plugin of TensorBoard reads.
std::string OfPlugin(std::string_view tag, std::string_view plugin, std::string_view content,
                     std::string_view tensor) {
  std::string data, metadata, value;
  PutBytes(data, 1, plugin);
  PutBytes(data, 2, content);
  PutBytes(metadata, 1, data);
  PutBytes(value, 1, tag);
  if (!tensor.empty()) PutBytes(value, 8, tensor);
  PutBytes(value, 9, metadata);
  return value;
}

// google.protobuf.Value
std::string ValueOf(const toml::node& node) {
  std::string value;
  if (const auto number = node.value_exact<double>()) {
    PutDouble(value, 2, *number);
  } else if (const auto integer = node.value_exact<int64_t>()) {
    PutDouble(value, 2, static_cast<double>(*integer));
  } else if (const auto boolean = node.value_exact<bool>()) {
    PutTag(value, 4, kVarint);
    PutVarint(value, *boolean ? 1 : 0);
  } else {
    PutBytes(value, 3, node.is_string() ? node.as_string()->get() : InlineToml(node).value_or(""));
  }
  return value;
}

}  // namespace

std::string EventFileHeader() {
  std::string event;
  PutDouble(event, 1, 0);
  PutBytes(event, 3, "brain.Event:2");
  return Record(event);
}

std::string EventOfLine(const nlohmann::json& line) {
  const auto scalars = ScalarsOf(line);
  if (!scalars) return {};
  std::string summary;
  for (const auto& [tag, value] : scalars->values) {
    std::string scalar;
    PutBytes(scalar, 1, tag);
    PutFloat(scalar, 2, static_cast<float>(value));
    PutBytes(summary, 1, scalar);
  }
  return Event(WallTime(line), scalars->step, summary);
}

std::string EventOfImage(std::string_view tag, uint64_t step, const EncodedImage& picture) {
  std::string image, value, summary;
  int field = 0;
  for (const int number : {picture.height, picture.width, 3}) {
    PutTag(image, ++field, kVarint);
    PutVarint(image, static_cast<uint64_t>(number));
  }
  PutBytes(image, 4, picture.encoded);
  PutBytes(value, 1, tag);
  PutBytes(value, 4, image);
  PutBytes(summary, 1, value);
  return Event(static_cast<double>(std::time(nullptr)), step, summary);
}

std::string EventOfConfig(std::string_view config) {
  const toml::parse_result parsed = toml::parse(config);
  if (!parsed) return {};
  std::string text = "| key | value |\n|---|---|\n", start;
  for (const auto& [name, table] : parsed.table()) {
    if (!table.is_table()) continue;
    for (const auto& [key, value] : *table.as_table()) {
      const std::string full = std::string(name.str()) + "." + std::string(key.str());
      text += "| " + full + " | `" + InlineToml(value).value_or("") + "` |\n";
      std::string entry;
      PutBytes(entry, 1, full);
      PutBytes(entry, 2, ValueOf(value));
      PutBytes(start, 1, entry);
    }
  }
  std::string tensor, session, summary;
  PutTag(tensor, 1, kVarint);
  PutVarint(tensor, 7);
  PutBytes(tensor, 8, text);
  PutBytes(session, 3, start);
  PutBytes(summary, 1, OfPlugin("config", "text", "", tensor));
  PutBytes(summary, 1, OfPlugin("_hparams_/session_start_info", "hparams", session, ""));
  return Event(0, 0, summary);
}

}  // namespace samara
