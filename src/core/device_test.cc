// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/device.h"

#include <gtest/gtest.h>

namespace samara {
namespace {

using Kind = DeviceChoice::Kind;

TEST(DeviceTest, ParsesEveryForm) {
  const auto parsed = [](const char* text) { return ParseDevice(text).ValueOrThrow(); };
  EXPECT_EQ(parsed("auto").kind, Kind::kAuto);
  EXPECT_EQ(parsed("cpu").kind, Kind::kCpu);
  for (const auto& [text, ordinals] : std::vector<std::pair<const char*, std::vector<int>>>{
           {"cuda", {0}}, {"cuda:0", {0}}, {"cuda:12", {12}}, {"cuda:3,cuda:1", {3, 1}}}) {
    EXPECT_EQ(parsed(text).kind, Kind::kCuda) << text;
    EXPECT_EQ(parsed(text).ordinals, ordinals) << text;
  }
}

TEST(DeviceTest, RefusesEverythingElseInOneLine) {
  for (const char* text :
       {"", "gpu", "CPU", "cuda:", "cuda:x", "cuda:-1", "cuda:1 ", "cuda1", "cuda:0,", ",cuda:0",
        "cuda:0,cpu", "cuda:0,cuda:0", "cuda,cuda:0", "cuda:99999999999", "auto,cpu"}) {
    const auto choice = ParseDevice(text);
    ASSERT_FALSE(choice.ok()) << text;
    EXPECT_EQ(choice.status().code(), Code::kConfig);
    EXPECT_EQ(choice.status().message(), std::string("run.device=") + text +
                                             ": expected auto, cpu, cuda, cuda:N or cuda:N,cuda:M");
  }
}

GpuList Machine() { return {{{0, "Old", 61, 1}, {1, "New", 90, 2}, {2, "Newer", 100, 3}}, ""}; }

TEST(DeviceTest, AutoIsAGpuThatCanBeUsedForEachRankOfAHostInTurn) {
  const auto chosen = [](const GpuList& found, bool built, int local_rank = 0) {
    return ChooseDevices({}, found, built, local_rank).ValueOrThrow();
  };
  EXPECT_EQ(chosen(Machine(), true, 1), (std::vector<Device>{{true, 1}}));  // the other is unlike
  GpuList more = Machine();
  more.gpus.push_back({3, "New", 90, 2});
  EXPECT_EQ(chosen(more, true, 1), (std::vector<Device>{{true, 3}}));
  EXPECT_EQ(chosen(more, true, 2), (std::vector<Device>{{true, 1}}));
  EXPECT_EQ(chosen({{}, "none"}, true, 3), (std::vector<Device>{{}}));
  EXPECT_EQ(chosen(Machine(), true), (std::vector<Device>{{true, 1}}));
  EXPECT_EQ(chosen(Machine(), false), (std::vector<Device>{{}}));
  EXPECT_EQ(chosen({{}, "none"}, true), (std::vector<Device>{{}}));
  EXPECT_EQ(chosen({{{0, "Old", 61, 1}}, ""}, true), (std::vector<Device>{{}}));
}

TEST(DeviceTest, NamedGpusComeInTheirOrder) {
  const DeviceChoice two = ParseDevice("cuda:2,cuda:1").ValueOrThrow();
  const auto devices = ChooseDevices(two, Machine(), true).ValueOrThrow();
  EXPECT_EQ(devices, (std::vector<Device>{{true, 2}, {true, 1}}));
  EXPECT_EQ(devices[0].text(), "cuda:2");
  EXPECT_EQ(Device().text(), "cpu");
  EXPECT_EQ(NameOf(devices[0], Machine()), "Newer");
  EXPECT_EQ(NameOf({}, Machine()), "CPU");
}

TEST(DeviceTest, SaysWhyANamedGpuCannotBeUsed) {
  const auto refused = [](const char* text, const GpuList& found, bool built) {
    return ChooseDevices(ParseDevice(text).ValueOrThrow(), found, built).status();
  };
  const Status build = refused("cuda", Machine(), false);
  EXPECT_EQ(build.code(), Code::kConfig);
  EXPECT_NE(build.message().find("built without CUDA"), std::string::npos);
  const Status driver = refused("cuda", {{}, "no driver"}, true);
  EXPECT_EQ(driver.code(), Code::kUnavailable);
  EXPECT_EQ(driver.message(), "run.device=cuda:0: no driver; expected a GPU that is there, or cpu");
  const Status ordinal = refused("cuda:1,cuda:7", Machine(), true);
  EXPECT_EQ(ordinal.code(), Code::kUnavailable);
  EXPECT_NE(ordinal.message().find("cuda:7: this machine's GPUs end at cuda:2"), std::string::npos);
  const Status old = refused("cuda:0", Machine(), true);
  EXPECT_EQ(old.code(), Code::kConfig);
  EXPECT_NE(old.message().find("Old has compute capability 6.1"), std::string::npos);
}

TEST(DeviceTest, ProductsOfBfloat16AreThoseOfNewerGpus) {
  GpuList found = Machine();
  EXPECT_FALSE(HasBf16Products({}, found));
  EXPECT_FALSE(HasBf16Products({.cuda = true, .ordinal = 9}, found));
  found.gpus[1].capability = 79;
  const Device device = {.cuda = true, .ordinal = found.gpus[1].ordinal};
  EXPECT_FALSE(HasBf16Products(device, found));
  found.gpus[1].capability = 80;
  EXPECT_TRUE(HasBf16Products(device, found));
}

TEST(DeviceTest, AMachineHasGpusOrSaysWhyNot) {
  const GpuList found = FindGpus();
  EXPECT_EQ(found.gpus.empty(), !found.why_none.empty());
  for (const Gpu& gpu : found.gpus) {
    EXPECT_FALSE(gpu.name.empty());
    EXPECT_GT(gpu.capability, 10);
    EXPECT_GT(gpu.memory_bytes, 0U);
  }
}

}  // namespace
}  // namespace samara
