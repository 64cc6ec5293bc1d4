#include "evo/genome/import_uber.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/files.h"

namespace samara::import_uber_test {
namespace {

using Json = nlohmann::json;

const std::string& FrostbiteFile() {
  static const std::string text =
      ReadFile(Path(SAMARA_SOURCE_DIR) / "tests/data/uber_frostbite_genome.json").ValueOrThrow();
  return text;
}

TEST(ImportUberTest, ReadsThePublishedElite) {
  const UberElite elite = ImportUber(FrostbiteFile(), 4'052'658).ValueOrThrow();
  EXPECT_EQ(elite.game, "frostbite");
  EXPECT_EQ(elite.network, "LargeModel");
  EXPECT_EQ(elite.genome.noise, NoiseKind::kTable);
  EXPECT_EQ(elite.genome.init, InitKind::kFanIn);
  EXPECT_EQ(elite.genome.initial, 157'822'315u);
  ASSERT_EQ(elite.genome.mutations.size(), 265u);
  EXPECT_EQ(elite.genome.mutations.front(), (Mutation{94'987'453, 0.002f}));
  EXPECT_EQ(elite.genome.mutations.back(), (Mutation{103'521'806, 0.002f}));
  EXPECT_LT(elite.genome.Encode().size(), 4000u);
}

void ExpectBad(const std::string& text, const std::string& what, size_t parameter_count = 0) {
  const Result<UberElite> elite = ImportUber(text, parameter_count);
  ASSERT_FALSE(elite.ok()) << what;
  EXPECT_EQ(elite.status().code(), Code::kBadData);
  EXPECT_NE(elite.status().message().find(what), std::string::npos) << elite.status().message();
  EXPECT_EQ(elite.status().message().find('\n'), std::string::npos);
}

std::string With(const std::string& pointer, const Json& value) {
  Json json = Json::parse(FrostbiteFile());
  json[Json::json_pointer(pointer)] = value;
  return json.dump();
}

TEST(ImportUberTest, RefusesWhatIsNotAGenomeFile) {
  ExpectBad("", "not JSON");
  ExpectBad("[1", "not JSON");
  ExpectBad("[]", "the file is [], expected an object");
  for (size_t n = 0; n < FrostbiteFile().rfind('}'); n += 97) {
    ExpectBad(FrostbiteFile().substr(0, n), "not JSON");
  }
  const Json whole = Json::parse(FrostbiteFile());
  for (const auto& [name, value] : whole.items()) {
    Json json = whole;
    json.erase(name);
    if (name == "source") {  // for people
      EXPECT_TRUE(ImportUber(json.dump(), 0).ok());
      continue;
    }
    ExpectBad(json.dump(), "the file lacks \"" + name + "\"");
  }
  ExpectBad(With("/mutation_powers", Json::array()), "unknown member \"mutation_powers\"");
}

TEST(ImportUberTest, RefusesWrongMembers) {
  ExpectBad(With("/game", 3), "game is 3, expected a name");
  ExpectBad(With("/network", ""), "network is \"\"");
  ExpectBad(With("/noise_table", 3), "noise_table is 3, expected an object");
  ExpectBad(With("/noise_table", Json::object()), "noise_table lacks \"generator\"");
  ExpectBad(With("/noise_table/seed", 1), "noise_table has an unknown member \"seed\"");
  ExpectBad(With("/noise_table/count", 1000), "noise_table.count is 1000, expected 250000000");
  ExpectBad(With("/noise_table/generator", "PCG"), "noise_table.generator is \"PCG\"");
  ExpectBad(With("/mutation_power", 0), "mutation_power is 0");
  ExpectBad(With("/mutation_power", 1e300), "mutation_power is 1e+300");
  ExpectBad(With("/mutation_power", 11),
            "mutation_power is 11, expected a number above 0, at most");
  ExpectBad(With("/mutation_power", "x"), "mutation_power is \"x\"");
  ExpectBad(With("/mutation_indices", Json::object()), "mutation_indices is {}");
  for (const Json& bad :
       {Json(-1), Json(1.5), Json("7"), Json(nullptr), Json(250'000'000), Json(~0ull)}) {
    ExpectBad(With("/initial_index", bad), "initial_index is " + bad.dump());
    ExpectBad(With("/mutation_indices/264", bad), "mutation_indices[264] is " + bad.dump());
  }
}

TEST(ImportUberTest, IndicesLeaveRoomForTheNetwork) {
  const size_t n = 4'052'658;
  EXPECT_TRUE(ImportUber(With("/mutation_indices/3", 250'000'000 - n), n).ok());
  ExpectBad(With("/mutation_indices/3", 250'000'001 - n), "mutation_indices[3] is 245947343", n);
  ExpectBad(FrostbiteFile(), "initial_index", 250'000'001);
}

}  // namespace
}  // namespace samara::import_uber_test
