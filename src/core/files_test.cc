// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/files.h"

#include <sys/stat.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace samara {
namespace {

class FilesTest : public testing::Test {
 protected:
  FilesTest() : folder_(TemporaryName(Path(testing::TempDir()) / "files_test")) {
    EXPECT_TRUE(MakeFolder(folder_).ok());
  }
  ~FilesTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Path Folder(const std::string& name, mode_t mode) const {
    const Path path = folder_ / name;
    std::filesystem::create_directories(path);
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  const Path folder_;
};

TEST_F(FilesTest, FolderOfTheUserAloneIsTrusted) {
  for (const mode_t mode : {0700, 0755, 0500}) {
    const auto trust = InspectTrust(Folder("own", mode));
    ASSERT_TRUE(trust.ok());
    EXPECT_TRUE(trust->trusted()) << trust->why;
  }
  EXPECT_EQ(InspectTrust(folder_ / "missing").status().code(), Code::kNoInput);
}

TEST_F(FilesTest, FolderThatOthersMayWriteToIsNot) {
  const Path open = Folder("open", 0777);
  EXPECT_TRUE(InspectTrust(open)->writable);
  EXPECT_EQ(InspectTrust(open)->why, open.string() + ": other users may write to it (mode 0777)");
  // whoever may write to a folder may replace what is in it
  const auto inner = InspectTrust(Folder("open/inner", 0700));
  EXPECT_FALSE(inner->trusted());
  EXPECT_FALSE(inner->writable);
  EXPECT_EQ(inner->parent, std::filesystem::canonical(open));
  EXPECT_NE(inner->why.find("may replace it, since they may write to"), std::string::npos);
  // but not in a sticky one, such as /tmp
  ASSERT_EQ(::chmod(open.c_str(), 01777), 0);
  EXPECT_TRUE(InspectTrust(open / "inner")->trusted());
  // a link is judged by where it leads
  std::filesystem::create_directory_symlink(open, folder_ / "link");
  EXPECT_TRUE(InspectTrust(folder_ / "link")->writable);
}

TEST_F(FilesTest, FolderOfAnotherUserIsNot) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: a folder is given to another user";
  const Path other = Folder("other", 0755);
  ASSERT_EQ(::chown(other.c_str(), 12345, 12345), 0);
  EXPECT_TRUE(InspectTrust(other)->foreign);
  EXPECT_EQ(InspectTrust(other)->why, other.string() + ": belongs to another user (12345)");
  // its sticky bit keeps others than its owner from replacing what is in it
  ASSERT_EQ(::chmod(other.c_str(), 01777), 0);
  EXPECT_FALSE(InspectTrust(Folder("other/inner", 0700))->parent.empty());
}

}  // namespace
}  // namespace samara
