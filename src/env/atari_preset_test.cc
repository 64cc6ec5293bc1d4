#include "env/atari_preset.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace samara::atari_preset_test {
namespace {

TEST(AtariPresetTest, HasThePresetsOfPublishedAgents) {
  for (const char* name : {"ale-v5", "ale-vector", "envpool", "seed", "seed-sticky", "dqn-zoo",
                           "dopamine", "dqn-noframeskip-v4", "deepga", "deepga-gpu", "ale-v5-raw",
                           "cleanba", "r2d2-paper", "ale-sticky", "envpool-lives"}) {
    const auto preset = FindAtariPreset(name);
    ASSERT_TRUE(preset.ok()) << name;
    EXPECT_EQ(preset->name, name);
  }
  EXPECT_EQ(AtariPresetNames().size(), 15U);
}

TEST(AtariPresetTest, NamesTheNearestWhenUnknown) {
  const auto preset = FindAtariPreset("deepga-gp");
  ASSERT_FALSE(preset.ok());
  EXPECT_EQ(preset.status().code(), Code::kConfig);
  EXPECT_NE(preset.status().message().find("deepga-gpu"), std::string::npos);
}

TEST(AtariPresetTest, ASizeIsPartOfTheName) {
  const auto small = FindAtariPreset("ale-vector:42x40");
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(small->name, "ale-vector:42x40");
  EXPECT_EQ(small->height, 42);
  EXPECT_EQ(small->width, 40);
  EXPECT_EQ(small->sticky, FindAtariPreset("ale-vector")->sticky);
  EXPECT_NE(small->Hash(), FindAtariPreset("ale-vector")->Hash());
  for (const auto* wrong : {"ale-vector:", "ale-vector:42", "ale-vector:42x", "ale-vector:x42",
                            "ale-vector:42x42x42", "ale-vector:15x42", "ale-vector:42x257",
                            "ale-vector:-42x42", "ale-v5-raw:42x42", "ale-victor:42x42"}) {
    const auto preset = FindAtariPreset(wrong);
    ASSERT_FALSE(preset.ok()) << wrong;
    EXPECT_EQ(preset.status().code(), Code::kConfig);
  }
}

TEST(AtariPresetTest, HashesTellPresetsAndRowsApart) {
  std::set<std::string> hashes;
  for (const auto& name : AtariPresetNames()) hashes.insert(FindAtariPreset(name)->Hash());
  EXPECT_EQ(hashes.size(), AtariPresetNames().size());
  AtariPreset changed = *FindAtariPreset("ale-v5");
  changed.stack.depth = 3;
  EXPECT_FALSE(hashes.contains(changed.Hash()));
}

// The rows of deepga-gpu agree with what doc/atari.md says of it.
TEST(AtariPresetTest, JsonHoldsThePresetsRows) {
  const auto json = nlohmann::json::parse(FindAtariPreset("deepga-gpu")->ToJson());
  const auto& rows = json["rows"];
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(rows["sticky"], 0.0);
  EXPECT_EQ(rows["noops_min"], 1);
  EXPECT_EQ(rows["noops_max"], 30);
  EXPECT_EQ(rows["gray"], "y-unit");
  EXPECT_EQ(rows["resize"], "aligned");
  EXPECT_EQ(rows["dtype"], "float32");
  EXPECT_EQ(rows["stack_reset"], "zeros");
  EXPECT_EQ(rows["frames_max"], 400'000);
  EXPECT_EQ(rows["limit_counts_reset"], false);
  const auto sent =
      nlohmann::json::parse(AtariEnvironmentJson(*FindAtariPreset("envpool"), "pong\"\\\n"));
  EXPECT_EQ(sent["game"], "pong\"\\");
  EXPECT_EQ(sent["preset"]["name"], "envpool");
}

TEST(AtariPresetTest, PrintsOneLineARow) {
  const auto preset = *FindAtariPreset("seed");
  const std::string text = preset.ToText();
  EXPECT_EQ(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')),
            preset.Rows().size() + 1);
  EXPECT_NE(text.find(preset.Hash().substr(0, 12)), std::string::npos);
}

TEST(AtariPresetTest, DrawsNoopsUniformlyFromTheEpisodeSeed) {
  const auto range = [](const char* name, bool fire) {
    const AtariPreset preset = *FindAtariPreset(name);
    std::map<int32_t, int> counts;
    for (uint64_t seed = 0; seed < 30'000; ++seed) ++counts[DrawNoops(preset, seed, fire)];
    return counts;
  };
  const auto counts = range("deepga-gpu", true);
  EXPECT_EQ(counts.begin()->first, 1);
  EXPECT_EQ(counts.rbegin()->first, 30);
  // 30 cells of 1,000: the 99.99 % point of chi-square with 29 degrees of freedom is 66
  double chi_square = 0;
  for (const auto& [noops, count] : counts)
    chi_square += (count - 1000.0) * (count - 1000.0) / 1000;
  EXPECT_LT(chi_square, 66);
  EXPECT_EQ(range("envpool", true).begin()->first, 0);
  EXPECT_EQ(range("envpool", true).rbegin()->first, 29);
  EXPECT_EQ(range("envpool", false).rbegin()->first, 30);
  EXPECT_EQ(range("ale-vector", true).begin()->first, 0);
  EXPECT_EQ(range("dopamine", true).size(), 1U);
  const AtariPreset preset = *FindAtariPreset("ale-v5");
  EXPECT_EQ(DrawNoops(preset, 7, false), DrawNoops(preset, 7, false));
}

}  // namespace
}  // namespace samara::atari_preset_test
