// Tasks are taken from the installed packages only when they are the pinned ones.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "core/files.h"
#include "core/venv.h"
#include "env/registry.h"

namespace samara::library_test {
namespace {

namespace fs = std::filesystem;

// A stand-in .venv that borrows the real MuJoCo and holds its own copy of one task.
class TaskFileTest : public testing::Test {
 protected:
  TaskFileTest() : venv_(Path(testing::TempDir()) / "task_file_test") {
    const Path mujoco = FindVenvPackage("mujoco").ValueOrThrow();
    const Path gymnasium = FindVenvPackage("gymnasium").ValueOrThrow();
    fs::remove_all(venv_);
    fs::create_directories(venv_ / "bin");
    std::ofstream(venv_ / "bin/python").put('\n');
    fs::create_directories(packages() / "gymnasium/envs/mujoco/assets");
    fs::create_directory_symlink(fs::absolute(mujoco), packages() / "mujoco");
    task_ = packages() / "gymnasium/envs/mujoco/assets/hopper.xml";
    fs::copy_file(gymnasium / "envs/mujoco/assets/hopper.xml", task_);
    setenv("SAMARA_VENV", venv_.c_str(), 1);
  }
  ~TaskFileTest() override {
    unsetenv("SAMARA_VENV");
    fs::remove_all(venv_);
  }
  Path packages() const { return venv_ / "lib/python3.11/site-packages"; }

  const Path venv_;
  Path task_;
};

TEST_F(TaskFileTest, ThePinnedFileLoads) {
  auto factory = NativeEnvironment("Hopper-v5");
  ASSERT_TRUE(factory.ok()) << factory.status().message();
  const auto hopper = (*factory)().ValueOrThrow();
  EXPECT_EQ(hopper->spec().version.rfind("mujoco ", 0), 0u) << hopper->spec().version;
  EXPECT_NE(hopper->spec().version.find("hopper.xml 3ce93a055ffd"), std::string::npos);
}

TEST_F(TaskFileTest, AnotherFileIsRefused) {
  std::ofstream(task_, std::ios::app) << "<!-- heavier -->\n";
  const auto factory = NativeEnvironment("Hopper-v5");
  EXPECT_EQ(factory.status().code(), Code::kBadData);
  EXPECT_NE(factory.status().message().find("3ce93a055ffd"), std::string::npos);
}

TEST_F(TaskFileTest, AMissingFileOrLibrarySaysWhatToDo) {
  fs::remove(task_);
  EXPECT_EQ(NativeEnvironment("Hopper-v5").status().code(), Code::kNoInput);
  fs::remove(packages() / "mujoco");
  fs::create_directories(packages() / "mujoco");
  const auto factory = NativeEnvironment("Hopper-v5");
  EXPECT_EQ(factory.status().code(), Code::kNoInput);
  EXPECT_NE(factory.status().message().find("make setup"), std::string::npos);
}

}  // namespace
}  // namespace samara::library_test
