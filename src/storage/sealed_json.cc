#include "storage/sealed_json.h"

#include "core/sha256.h"

namespace samara {
namespace {

constexpr int kDepthMax = 32;

std::string Canonical(const nlohmann::json& value) {
  return value.dump(2, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

Status Damaged(const std::string& source, const std::string& why) {
  return {Code::kBadData, source + ": damaged: " + why};
}

}  // namespace

Result<nlohmann::json> ParseJson(std::string_view text, const std::string& source) {
  bool deep = false;
  const auto limit = [&deep](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    deep = deep || depth > kDepthMax;
    return !deep;
  };
  nlohmann::json value = nlohmann::json::parse(text, limit, /*allow_exceptions=*/false);
  if (deep) return Damaged(source, "JSON deeper than " + std::to_string(kDepthMax) + " levels");
  if (value.is_discarded()) return Damaged(source, "not JSON");
  return value;
}

std::string SealJson(nlohmann::json object) {
  CHECK(object.is_object() && !object.contains("digest"));
  object["digest"] = Sha256Hex(Canonical(object));
  return Canonical(object);
}

Result<nlohmann::json> OpenSealedJson(std::string_view text, const std::string& source) {
  if (text.size() > kSealedJsonBytesMax) return Damaged(source, "larger than 1 MiB");
  ASSIGN_OR_RETURN(nlohmann::json object, ParseJson(text, source));
  if (!object.is_object()) return Damaged(source, "not a JSON object");
  if (Canonical(object) != text) return Damaged(source, "not in the form that samara writes");
  ASSIGN_OR_RETURN(const std::string found, TextMember(object, "digest", source));
  object.erase("digest");
  const std::string expected = Sha256Hex(Canonical(object));
  if (found != expected)
    return Damaged(source, "its digest is " + found + ", expected " + expected);
  return object;
}

Result<nlohmann::json> ReadSealedJson(const RootedPath& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kSealedJsonBytesMax));
  return OpenSealedJson(text, path.string());
}

Result<std::string> TextMember(const nlohmann::json& object, const char* key,
                               const std::string& source) {
  const auto member = object.find(key);
  if (member == object.end() || !member->is_string()) {
    return Damaged(source, std::string("no text '") + key + "'");
  }
  return member->get<std::string>();
}

Result<uint64_t> CountMember(const nlohmann::json& object, const char* key,
                             const std::string& source) {
  const auto member = object.find(key);
  if (member == object.end() || !member->is_number_unsigned()) {
    return Damaged(source, std::string("no count '") + key + "'");
  }
  return member->get<uint64_t>();
}

}  // namespace samara
