// JSON objects that carry their own digest: run.json, the manifest of a checkpoint.
//
// The text is the canonical form (keys sorted, two spaces, newline at the end) of the object with
// one more member "digest": the SHA-256 of the canonical form without it. Reading compares the text
// with its own canonical form, so no byte can change unseen.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/files.h"
#include "core/status.h"

namespace samara {

constexpr size_t kSealedJsonBytesMax = size_t{1} << 20;

// REQUIRES: an object without "digest"; text that is not UTF-8 is replaced.
std::string SealJson(nlohmann::json object);
// The object without "digest". kBadData when anything is wrong; `source` names it in the message.
Result<nlohmann::json> OpenSealedJson(std::string_view text, const std::string& source);
// kNoInput when missing.
Result<nlohmann::json> ReadSealedJson(const RootedPath& path);

// JSON from outside: never throws, at most 32 levels deep. kBadData, with `source`.
Result<nlohmann::json> ParseJson(std::string_view text, const std::string& source);

// Member of an object with a check of its type. kBadData, naming `source` and `key`.
Result<std::string> TextMember(const nlohmann::json& object, const char* key,
                               const std::string& source);
Result<uint64_t> CountMember(const nlohmann::json& object, const char* key,
                             const std::string& source);

}  // namespace samara
