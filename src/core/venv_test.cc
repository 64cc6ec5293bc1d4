// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/venv.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace samara {
namespace {

class VenvTest : public testing::Test {
 protected:
  VenvTest() : folder_(std::filesystem::path(testing::TempDir()) / "venv_test") {
    std::filesystem::create_directories(folder_ / "bin");
    std::filesystem::create_directories(folder_ / "lib/python3.11/site-packages/frog");
    std::ofstream(folder_ / "bin/python").put('\n');
  }
  ~VenvTest() override {
    unsetenv("SAMARA_VENV");
    std::filesystem::remove_all(folder_);
  }
  const Path folder_;
};

TEST_F(VenvTest, TheVariableWins) {
  setenv("SAMARA_VENV", folder_.c_str(), 1);
  EXPECT_EQ(*FindVenv(), folder_);
  EXPECT_EQ(*FindVenvPackage("frog"), folder_ / "lib/python3.11/site-packages/frog");
}

TEST_F(VenvTest, AMissingPackageSaysWhatToDo) {
  setenv("SAMARA_VENV", folder_.c_str(), 1);
  const auto package = FindVenvPackage("toad");
  EXPECT_EQ(package.status().code(), Code::kNoInput);
  EXPECT_NE(package.status().message().find("toad"), std::string::npos);
  EXPECT_NE(package.status().message().find("make setup"), std::string::npos);
}

TEST_F(VenvTest, AWrongVariableIsNotIgnored) {
  setenv("SAMARA_VENV", "/nonexistent", 1);
  EXPECT_EQ(FindVenv().status().code(), Code::kNoInput);
  EXPECT_NE(FindVenv().status().message().find("/nonexistent"), std::string::npos);
}

TEST_F(VenvTest, TheReleaseOfTorchIsThatOfItsPackage) {
  const Path site = folder_ / "lib/python3.11/site-packages";
  EXPECT_EQ(TorchIn(site), "");
  std::filesystem::create_directories(site / "torch");
  std::ofstream(site / "torch/version.py") << "from typing import Optional\n"
                                              "__version__ = '2.13.0+cpu'\ndebug = False\n";
  EXPECT_EQ(TorchIn(site), "2.13.0+cpu");
  std::ofstream(site / "torch/version.py") << "__version__ = '2.13";
  EXPECT_EQ(TorchIn(site), "2.13");
}

TEST_F(VenvTest, ATestIsNoProgramOfAPackage) {
  EXPECT_EQ(SitePackagesOfProgram(), Path());
  EXPECT_EQ(HowToBuildWith("libfrog-dev", "SAMARA_FROG"),
            "install libfrog-dev, remove build/ and build again");
}

}  // namespace
}  // namespace samara
