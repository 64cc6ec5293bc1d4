#include "evo/genome/import_uber.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/log.h"
#include "evo/genome/noise.h"

namespace samara {
namespace {

using Json = nlohmann::json;

Status Bad(const std::string& member, const Json& value, const std::string& expected) {
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return {Code::kBadData,
          "genome file: " + member + " is " + Shown(text) + ", expected " + expected};
}

// `object` has the members `names`, no others.
Status CheckMembers(const Json& object, const std::string& what,
                    const std::vector<std::string>& names) {
  if (!object.is_object()) return Bad(what, object, "an object");
  for (const std::string& name : names) {
    if (!object.contains(name)) {
      return {Code::kBadData, "genome file: " + what + " lacks \"" + name + "\""};
    }
  }
  for (const auto& [name, value] : object.items()) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      return {Code::kBadData,
              "genome file: " + what + " has an unknown member \"" + Shown(name) + "\""};
    }
  }
  return Status::Ok();
}

Result<std::string> ReadText(const Json& object, const std::string& name) {
  const Json& value = object[name];
  if (!value.is_string() || value.get<std::string>().empty()) return Bad(name, value, "a name");
  return value.get<std::string>();
}

Result<uint64_t> ReadIndex(const Json& value, const std::string& what, size_t parameter_count) {
  if (value.is_number_unsigned() && parameter_count <= kNoiseTableSize) {
    const auto index = value.get<uint64_t>();
    const bool fits = index < kNoiseTableSize && index <= kNoiseTableSize - parameter_count;
    if (fits) return index;
  }
  return Bad(what, value,
             "a whole number in [0, 250000000 - " + std::to_string(parameter_count) + "]");
}

Result<float> ReadPower(const Json& object) {
  const Json& value = object["mutation_power"];
  if (value.is_number() && value.get<double>() <= kMutationPowerMax) {
    const auto power = static_cast<float>(value.get<double>());
    if (power > 0) return power;
  }
  return Bad("mutation_power", value,
             fmt::format("a number above 0, at most {}", kMutationPowerMax));
}

Status CheckTable(const Json& table) {
  RETURN_IF_ERROR(CheckMembers(table, "noise_table", {"generator", "count", "dtype"}));
  const Json expected = {{"generator", "NumPy RandomState(123).randn"},
                         {"count", kNoiseTableSize},
                         {"dtype", "float32"}};
  for (const auto& [name, value] : expected.items()) {
    if (table[name] != value) return Bad("noise_table." + name, table[name], value.dump());
  }
  return Status::Ok();
}

}  // namespace

Result<UberElite> ImportUber(std::string_view text, size_t parameter_count) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return Status(Code::kBadData, "genome file: not JSON");
  if (json.is_object()) json.erase("source");  // for people
  RETURN_IF_ERROR(CheckMembers(
      json, "the file",
      {"game", "network", "noise_table", "initial_index", "mutation_power", "mutation_indices"}));
  RETURN_IF_ERROR(CheckTable(json["noise_table"]));
  UberElite elite;
  ASSIGN_OR_RETURN(elite.game, ReadText(json, "game"));
  ASSIGN_OR_RETURN(elite.network, ReadText(json, "network"));
  elite.genome.noise = NoiseKind::kTable;
  elite.genome.init = InitKind::kFanIn;
  ASSIGN_OR_RETURN(elite.genome.initial,
                   ReadIndex(json["initial_index"], "initial_index", parameter_count));
  ASSIGN_OR_RETURN(const float power, ReadPower(json));
  const Json& indices = json["mutation_indices"];
  if (!indices.is_array()) return Bad("mutation_indices", indices, "an array");
  for (size_t i = 0; i < indices.size(); ++i) {
    ASSIGN_OR_RETURN(
        const uint64_t index,
        ReadIndex(indices[i], "mutation_indices[" + std::to_string(i) + "]", parameter_count));
    elite.genome.mutations.push_back({index, power});
  }
  return elite;
}

}  // namespace samara
