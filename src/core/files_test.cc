// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/files.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "gtest/gtest.h"

namespace samara {
namespace {

class FilesTest : public testing::Test {
 protected:
  FilesTest() : folder_(TemporaryName(Path(testing::TempDir()) / "files_test").path()) {
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
  // a user who may write to a folder may replace what is in it
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

// Every function of files.h that takes a file of samara's own.
std::vector<std::pair<const char*, std::function<Status(const RootedPath&)>>> Users() {
  return {{"read", [](const RootedPath& p) { return ReadFile(p).status(); }},
          {"write", [](const RootedPath& p) { return WriteNewFile(p, "x"); }},
          {"append", [](const RootedPath& p) { return AppendFile::Open(p).status(); }},
          {"lock", [](const RootedPath& p) { return FileLock::Acquire(p).status(); }},
          {"list", [](const RootedPath& p) { return ListFolder(p).status(); }},
          {"sync", [](const RootedPath& p) { return SyncFolder(p); }}};
}

TEST_F(FilesTest, NoLinkIsFollowedBelowTheRoot) {
  Folder("outside/inner", 0700);
  ASSERT_TRUE(WriteNewFile(folder_ / "outside/file", "text").ok());
  const Path run = Folder("run", 0700);
  std::filesystem::create_symlink(folder_ / "outside/file", run / "file");
  std::filesystem::create_directory_symlink(folder_ / "outside", run / "folder");
  std::filesystem::create_directory_symlink(run, folder_ / "named");
  // the user's own path may hold links
  const RootedPath root = RootedPath::Root(folder_ / "named");
  ASSERT_TRUE(WriteNewFile(root / "real", "text").ok());
  EXPECT_EQ(*ReadFile(root / "real"), "text");
  EXPECT_EQ(*ReadFile(Path(folder_ / "named/file")), "text");
  EXPECT_TRUE(SyncFolder(root).ok());
  EXPECT_EQ(*ListFolder(root), (std::vector<std::string>{"file", "folder", "real"}));
  EXPECT_EQ(KindOf(root / "file"), FileKind::kLink);
  EXPECT_EQ(KindOf(root / "folder" / "file"), FileKind::kMissing);
  for (const auto& [name, use] : Users()) {
    if (std::string(name) != "write") {  // which finds the name taken
      EXPECT_EQ(use(root / "file").code(), Code::kBadData) << name;
    }
    EXPECT_EQ(use(root / "folder" / "file").code(), Code::kBadData) << name;
    EXPECT_EQ(use(root / "folder" / "inner" / "x").code(), Code::kBadData) << name;
    EXPECT_NE(use(root / "folder" / "new").message().find("named/folder: a symbolic link"),
              std::string::npos)
        << name << ": " << use(root / "folder" / "new").message();
  }
  const RootedPath inside = root / "folder" / "new";
  EXPECT_EQ(WriteFileAtomic(inside, "x").code(), Code::kBadData);
  EXPECT_EQ(MakeFolder(inside).code(), Code::kBadData);
  EXPECT_EQ(RenamePath(root / "real", inside).code(), Code::kBadData);
  EXPECT_EQ(RenamePath(root / "folder" / "file", root / "stolen").code(), Code::kBadData);
  EXPECT_EQ(RemoveTree(root / "folder" / "file").code(), Code::kBadData);
  EXPECT_EQ(NewFile::Create(inside).status().code(), Code::kBadData);
  EXPECT_EQ(FreeSpace(root / "folder" / "inner").status().code(), Code::kBadData);
  // an atomic write and a removal take the link itself away
  EXPECT_TRUE(WriteFileAtomic(root / "file", "new").ok());
  EXPECT_EQ(KindOf(root / "file"), FileKind::kFile);
  EXPECT_TRUE(RemoveTree(root / "folder").ok());
  EXPECT_FALSE(Exists(root / "folder"));
  EXPECT_EQ(*ReadFile(Path(folder_ / "outside/file")), "text");
  EXPECT_EQ(ListFolder(folder_ / "outside")->size(), 2U);
}

TEST_F(FilesTest, PipesAreRefusedWithoutWaiting) {
  const RootedPath pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.path().c_str(), 0600), 0);
  EXPECT_EQ(KindOf(pipe), FileKind::kOther);
  for (const auto& [name, use] : Users()) {
    const Status status = use(pipe);
    if (std::string(name) == "write") continue;  // which finds the name taken
    if (std::string(name) == "sync") continue;   // of folders only
    EXPECT_EQ(status.code(), Code::kBadData) << name << ": " << status.message();
  }
  EXPECT_EQ(ReadFile(pipe).status().message(), pipe.string() + ": a pipe, expected a file");
  EXPECT_EQ(ReadFile(pipe.path()).status().code(), Code::kBadData);
}

TEST_F(FilesTest, RemoveTreeRemovesAllButWhatLinksLeadTo) {
  Folder("tree/a/b", 0700);
  ASSERT_TRUE(WriteNewFile(folder_ / "tree/a/b/file", "x").ok());
  ASSERT_TRUE(WriteNewFile(folder_ / "kept", "x").ok());
  std::filesystem::create_symlink(folder_ / "kept", folder_ / "tree/link");
  EXPECT_TRUE(RemoveTree(folder_ / "tree").ok());
  EXPECT_EQ(*ListFolder(RootedPath::Root(folder_)), std::vector<std::string>{"kept"});
  EXPECT_TRUE(RemoveTree(folder_ / "tree").ok());  // nothing to remove
}

TEST_F(FilesTest, NewFileAppearsWhenItIsComplete) {
  const RootedPath path = folder_ / "video";
  {
    const auto file = NewFile::Create(path).ValueOrThrow();
    ASSERT_TRUE(file->Write("0000body").ok());
    EXPECT_EQ(file->size(), 8);
    EXPECT_EQ(file->Seek(0, SEEK_SET), 0);
    ASSERT_TRUE(file->Write("head").ok());
    EXPECT_FALSE(Exists(path));
    ASSERT_TRUE(file->Commit().ok());
  }
  EXPECT_EQ(*ReadFile(path), "headbody");
  (void)NewFile::Create(path).ValueOrThrow()->Write("gone");
  EXPECT_EQ(*ListFolder(RootedPath::Root(folder_)), std::vector<std::string>{"video"});
  EXPECT_EQ(*ReadFile(path), "headbody");
}

TEST_F(FilesTest, BeyondTheLimitOnFileSizesAWriteFails) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_DFL);
    const rlimit limit{.rlim_cur = 4096, .rlim_max = 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const Status status = WriteFileAtomic(folder_ / "large", std::string(8192, 'x'));
    const bool clear = status.message().find("ulimit -f") != std::string::npos;
    ::_exit(status.code() == Code::kIoError && clear ? 0 : 1);
  }
  int state = 0;
  ASSERT_EQ(::waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0) << state;
  EXPECT_TRUE(ListFolder(folder_)->empty());
}

}  // namespace
}  // namespace samara
