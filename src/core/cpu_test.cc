// SPDX-License-Identifier: Apache-2.0 OR MIT
// ActiveIsa chooses once per process, so every case runs in a process of its own.
#include "core/cpu.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "core/status.h"

namespace samara {
namespace {

// Ends the process: prints the level, or the error, and exits with its code.
[[noreturn]] void Choose(const char* wanted) {
  setenv("SAMARA_ISA", wanted, 1);
  try {
    std::cerr << "level " << Name(ActiveIsa()) << '.';
    std::exit(0);
  } catch (const Error& error) {
    std::cerr << error.what();
    std::exit(static_cast<int>(error.status().code()));
  }
}

TEST(CpuTest, LevelsAreAllUpToTheBest) {
  const auto levels = AvailableIsaLevels();
  const IsaLevel all[] = {IsaLevel::kPortable, IsaLevel::kAvx2, IsaLevel::kAvx512};
  ASSERT_TRUE(!levels.empty() && levels.size() <= 3);
  EXPECT_TRUE(std::equal(levels.begin(), levels.end(), all));
  EXPECT_NE(CpuName(), "");
}

TEST(CpuDeathTest, TheVariableForcesWhatTheCpuHas) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto levels = AvailableIsaLevels();
  for (const IsaLevel level : {IsaLevel::kPortable, IsaLevel::kAvx2, IsaLevel::kAvx512}) {
    const std::string name(Name(level));
    if (std::find(levels.begin(), levels.end(), level) != levels.end())
      EXPECT_EXIT(Choose(name.c_str()), testing::ExitedWithCode(0), "level " + name);
    else
      EXPECT_EXIT(Choose(name.c_str()), testing::ExitedWithCode(78), "SAMARA_ISA=" + name);
  }
  EXPECT_EXIT(Choose(""), testing::ExitedWithCode(0), "level " + std::string(Name(levels.back())));
}

TEST(CpuDeathTest, AnUnknownValueIsNotIgnored) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const char* wanted : {"sse2", "AVX2", "avx2 ", "1"}) {
    EXPECT_EXIT(Choose(wanted), testing::ExitedWithCode(78),
                std::string("SAMARA_ISA=") + wanted + ": expected portable, avx2 or avx512");
  }
}

TEST(CpuTest, AQuotaIsRoundedUp) {
  EXPECT_EQ(CoresOfQuota("200000 100000\n"), 2U);
  EXPECT_EQ(CoresOfQuota("150000 100000"), 2U);  // of cores: 1.5
  EXPECT_EQ(CoresOfQuota("1000 100000"), 1U);
  for (const char* none : {"max 100000", "", "0 100000", "100000 0", "abc", "100000"})
    EXPECT_EQ(CoresOfQuota(none), std::nullopt) << none;
}

TEST(CpuDeathTest, CoresAreThoseOfTheAffinity) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto on_one = [] {
    unsetenv("SAMARA_CORES");
    cpu_set_t allowed, one;
    sched_getaffinity(0, sizeof(allowed), &allowed);
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
      if (CPU_ISSET(core, &allowed)) CPU_SET(core, &one);
    sched_setaffinity(0, sizeof(one), &one);
    std::cerr << Cores() << " core";
    std::exit(0);
  };
  EXPECT_EXIT(on_one(), testing::ExitedWithCode(0), "^1 core$");
}

TEST(CpuDeathTest, CoresAreThoseOfTheVariable) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto choose = [](const char* wanted) {
    setenv("SAMARA_CORES", wanted, 1);
    try {
      std::cerr << Cores() << " cores";
      std::exit(0);
    } catch (const Error& error) {
      std::cerr << error.what();
      std::exit(static_cast<int>(error.status().code()));
    }
  };
  EXPECT_EXIT(choose("3"), testing::ExitedWithCode(0), "^3 cores");
  EXPECT_EXIT(choose(""), testing::ExitedWithCode(0), "^[1-9][0-9]* cores");
  for (const char* wanted : {"0", "-1", "abc", "2x", "99999999999", "4097"})
    EXPECT_EXIT(choose(wanted), testing::ExitedWithCode(78),
                std::string("SAMARA_CORES=") + wanted + ": expected 1 to 4096");
}

}  // namespace
}  // namespace samara
