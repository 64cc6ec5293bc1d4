#include "storage/sealed_json.h"

#include <cstdlib>

#include "gtest/gtest.h"
#include "storage/build_info.h"

namespace samara {
namespace {

const nlohmann::json kObject = {{"step", 7}, {"name", "caf\u00e9\n"}, {"list", {1, 2.5, nullptr}}};

TEST(SealedJsonTest, GivesBackWhatWasSealed) {
  const std::string text = SealJson(kObject);
  EXPECT_EQ(*OpenSealedJson(text, "x"), kObject);
}

TEST(SealedJsonTest, TextHasNotChangedSinceFormat1) {
  // digest from an independent tool: printf '{\n  "a": 1\n}\n' | sha256sum
  EXPECT_EQ(SealJson({{"a", 1}}),
            "{\n  \"a\": 1,\n  \"digest\": "
            "\"5e36b6560513586ced65eca0e8b025fe88edbcab82ba2cb67a5fcb2d7b202383\"\n}\n");
}

TEST(SealedJsonTest, RefusesEveryBitFlipAndTruncation) {
  const std::string text = SealJson(kObject);
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    EXPECT_EQ(OpenSealedJson(flipped, "x").status().code(), Code::kBadData) << bit;
  }
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_EQ(OpenSealedJson(text.substr(0, size), "x").status().code(), Code::kBadData) << size;
  }
}

TEST(SealedJsonTest, RefusesWhatIsDeepHugeOrNoObject) {
  EXPECT_FALSE(ParseJson(std::string(100'000, '['), "x").ok());
  EXPECT_FALSE(OpenSealedJson(std::string(2 << 20, ' '), "x").ok());
  EXPECT_FALSE(OpenSealedJson("[1]\n", "x").ok());
  EXPECT_FALSE(OpenSealedJson("{\n  \"digest\": 3\n}\n", "x").ok());
}

TEST(SealedJsonTest, MembersHaveTheirTypes) {
  const nlohmann::json object = {{"text", "a"}, {"count", 7U}, {"real", 1.5}, {"minus", -1}};
  EXPECT_EQ(*TextMember(object, "text", "x"), "a");
  EXPECT_EQ(*CountMember(object, "count", "x"), 7U);
  for (const char* key : {"none", "count"})
    EXPECT_EQ(TextMember(object, key, "x").status().message(),
              std::string("x: damaged: no text '") + key + "'");
  for (const char* key : {"none", "text", "real", "minus"}) {
    const Status status = CountMember(object, key, "x").status();
    EXPECT_EQ(status.code(), Code::kBadData);
    EXPECT_EQ(status.message(), std::string("x: damaged: no count '") + key + "'");
  }
  for (const nlohmann::json& other : {nlohmann::json(), nlohmann::json(3), nlohmann::json::array()})
    EXPECT_FALSE(TextMember(other, "text", "x").ok() || CountMember(other, "count", "x").ok());
}

TEST(BuildInfoTest, BuildIdIsTheOneInTheProgram) {
  // readelf is the independent reader of the note
  std::FILE* pipe = ::popen("readelf -n /proc/$PPID/exe 2>/dev/null | sed -n 's/.*Build ID: //p'",
                            "r");  // NOLINT(cert-env33-c): a test
  ASSERT_NE(pipe, nullptr);
  char line[256] = {};
  (void)!std::fgets(line, sizeof line, pipe);
  ::pclose(pipe);
  const std::string expected(line, std::strcspn(line, "\n"));
  EXPECT_EQ(ThisBuild().build_id, expected.empty() ? "unknown" : expected);
}

TEST(BuildInfoTest, IdentityNamesTheRun) {
  const nlohmann::json identity =
      MakeIdentity("c0ffee", 3, std::vector<std::string>{"samara", "train"});
  EXPECT_EQ(identity["config_hash"], "c0ffee");
  EXPECT_EQ(identity["seed"], 3);
  EXPECT_EQ(identity["command"][1], "train");
  EXPECT_FALSE(identity["cpu"].get<std::string>().empty());
  EXPECT_FALSE(identity["git_revision"].get<std::string>().empty());
}

}  // namespace
}  // namespace samara
