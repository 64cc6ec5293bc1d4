#include "fleet/remote/wire.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/log.h"
#include "fleet/actor_messages.h"

namespace samara {
namespace {

using Json = nlohmann::json;

std::string TextMessage(RemoteKind kind, uint64_t incarnation, const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  const MessageHeader header{kind, static_cast<uint32_t>(text.size()), incarnation};
  std::string message(sizeof header, '\0');
  std::memcpy(message.data(), &header, sizeof header);
  return message + text;
}

Status Wrong(const std::string& what) { return {Code::kConfig, "message of a peer: " + what}; }

// The integer at `key`, when it is one within [min, max].
Result<int64_t> Integer(const Json& json, const char* key, int64_t min, int64_t max) {
  const auto found = json.find(key);
  if (found != json.end() && found->is_number_integer()) {
    // an unsigned value beyond int64 turns negative and is refused as well
    if (const auto value = found->get<int64_t>(); value >= min && value <= max) return value;
  }
  return Wrong(std::string(key) + ": expected an integer, " + std::to_string(min) + ".." +
               std::to_string(max));
}

Result<double> Seconds(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found != json.end() && found->is_number()) {
    if (const auto value = found->get<double>(); value > 0 && value <= 86400) return value;
  }
  return Wrong(std::string(key) + ": expected seconds, above 0");
}

uint32_t RowsOf(size_t row_bytes) {
  return static_cast<uint32_t>(std::max<size_t>(1, kRowsBytesMax / row_bytes));
}

}  // namespace

uint32_t RemoteLayout::events_max() const { return RowsOf(event_bytes()); }
uint32_t RemoteLayout::commands_max() const { return RowsOf(command_bytes()); }

size_t MessageBytesMax(const RemoteLayout& layout) {
  return sizeof(MessageHeader) +
         std::max({kTextBytesMax, layout.events_max() * layout.event_bytes(),
                   layout.commands_max() * layout.command_bytes()});
}

bool PieceReader::Read(void* out, size_t n) {
  if (n > left_) return false;
  left_ -= n;
  auto* to = static_cast<std::byte*>(out);
  while (n > 0) {
    const auto piece = pieces_.front().subspan(offset_);
    const size_t m = std::min(n, piece.size());
    if (to != nullptr && m > 0) {  // an empty piece may be nowhere
      std::memcpy(to, piece.data(), m);
      to += m;
    }
    n -= m;
    offset_ += m;
    if (m < piece.size()) break;
    pieces_ = pieces_.subspan(1);
    offset_ = 0;
  }
  return true;
}

std::string WriteHello(const HelloMessage& hello) {
  return TextMessage(RemoteKind::kHello, 0,
                     {{"major", kRemoteMajor},
                      {"minor", hello.minor},
                      {"actor", hello.actor},
                      {"slots", hello.slots},
                      {"spec", ToJson(hello.spec)}});
}

std::string WriteWelcome(const RemoteWelcome& welcome) {
  return TextMessage(RemoteKind::kWelcome, welcome.incarnation,
                     {{"minor", welcome.minor},
                      {"incarnation", welcome.incarnation},
                      {"slots", welcome.slots},
                      {"heartbeat", welcome.heartbeat},
                      {"lease", welcome.lease},
                      {"events_max", welcome.events_max}});
}

std::string WriteShutdown(const std::string& why) {
  return TextMessage(RemoteKind::kShutdown, 0, {{"why", why}});
}

Result<HelloMessage> ParseHello(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return Wrong("not a JSON object");
  HelloMessage hello;
  ASSIGN_OR_RETURN(const int64_t major, Integer(json, "major", 0, 1 << 30));
  ASSIGN_OR_RETURN(hello.minor, Integer(json, "minor", 0, 1 << 30));
  if (major != kRemoteMajor || hello.minor > kRemoteMinor + 1 || hello.minor < kRemoteMinor - 1) {
    return Status(Code::kConfig, "the actor speaks protocol " + std::to_string(major) + "." +
                                     std::to_string(hello.minor) + ", the learner process " +
                                     std::to_string(kRemoteMajor) + "." +
                                     std::to_string(kRemoteMinor) +
                                     ": use the same version of samara on both sides");
  }
  ASSIGN_OR_RETURN(const int64_t slots, Integer(json, "slots", 1, kRemoteSlotsMax));
  hello.slots = static_cast<uint32_t>(slots);
  const auto actor = json.find("actor");
  if (actor == json.end() || !actor->is_string()) return Wrong("actor: expected a text");
  hello.actor = EscapeControl(actor->get_ref<const std::string&>().substr(0, 100));
  const auto spec = json.find("spec");
  if (spec == json.end() || !spec->is_object()) return Wrong("spec: expected an object");
  ASSIGN_OR_RETURN(hello.spec, ParseSpec(*spec));
  return hello;
}

Result<RemoteWelcome> ParseWelcome(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return Wrong("not a JSON object");
  RemoteWelcome welcome;
  ASSIGN_OR_RETURN(welcome.minor, Integer(json, "minor", 0, 1 << 30));
  ASSIGN_OR_RETURN(const int64_t incarnation,
                   Integer(json, "incarnation", 1, std::numeric_limits<int64_t>::max()));
  welcome.incarnation = static_cast<uint64_t>(incarnation);
  ASSIGN_OR_RETURN(const int64_t slots, Integer(json, "slots", 1, kRemoteSlotsMax));
  welcome.slots = static_cast<uint32_t>(slots);
  ASSIGN_OR_RETURN(welcome.heartbeat, Seconds(json, "heartbeat"));
  ASSIGN_OR_RETURN(welcome.lease, Seconds(json, "lease"));
  ASSIGN_OR_RETURN(const int64_t events_max, Integer(json, "events_max", 1, 1 << 30));
  welcome.events_max = static_cast<uint32_t>(events_max);
  return welcome;
}

Result<std::string> ReadText(const MessageHeader& header, PieceReader& in) {
  if (header.rows != in.left() || header.rows > kTextBytesMax)
    return Wrong("a text of " + std::to_string(in.left()) + " bytes, " +
                 std::to_string(header.rows) + " announced, at most " +
                 std::to_string(kTextBytesMax));
  std::string text(header.rows, '\0');
  in.Read(text.data(), text.size());
  return text;
}

}  // namespace samara
