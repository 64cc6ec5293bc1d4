// Folders of JPEG files: which entries count, which samples they give, and what is refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "data/jpeg_test_util.h"
#include "data/sources.h"

namespace samara {
namespace {

#ifdef SAMARA_JPEG

// An image of one colour.
std::string Plain(int width, int height, uint8_t grey) {
  return EncodeJpeg(
      {width, height, std::vector<uint8_t>(static_cast<size_t>(width * height * 3), grey)});
}

class ImageFolderTest : public testing::Test {
 protected:
  ImageFolderTest()
      : path_(Path(testing::TempDir()) / ("image_folder." + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    for (const char* split : {"train", "val"})
      for (const char* label : {"cat", "dog"})
        std::filesystem::create_directories(path_ / split / label);
    Write("train/cat/b.JPG", Plain(40, 30, 50));
    Write("train/cat/a.jpeg", Plain(30, 40, 100));
    Write("train/dog/c.jpg", Plain(30, 30, 150));
    Write("val/dog/d.jpg", Plain(300, 2, 200));
  }
  ~ImageFolderTest() override { std::filesystem::remove_all(path_); }
  void Write(const std::string& name, const std::string& bytes) const {
    ThrowIfError(WriteFileAtomic(path_ / name, bytes));
  }
  void ExpectRefused(Code code, const std::string& message) const {
    const Status status = OpenImageFolder(path_, 8, 1).status();
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(status.message(), path_.string() + message);
  }

  const Path path_;
};

TEST_F(ImageFolderTest, FilesCountByTheirEndingInTheOrderOfNames) {
  Write("train/cat/notes.txt", "not an image");
  Write("train/cat/.hidden.jpg", "not an image");
  Write("train/readme.jpg", "no class");
  std::filesystem::create_directories(path_ / "train/.cache");
  const ImageSplits splits = OpenImageFolder(path_, 8, 1).ValueOrThrow();
  EXPECT_EQ(splits.train->size(), 3);
  EXPECT_EQ(splits.test->size(), 1);
  EXPECT_EQ(splits.train->classes(), 2);
  EXPECT_EQ(splits.train->shape(), (ImageShape{.channels = 3, .height = 8, .width = 8}));
  std::vector<uint8_t> pixels(3 * 8 * 8);
  const std::pair<int, int> samples[] = {{0, 100}, {0, 50}, {1, 150}};  // class, grey
  for (int64_t i = 0; i < 3; ++i) {
    // any part of an image of one colour is of that colour
    for (int64_t epoch = 0; epoch < 20; ++epoch) {
      EXPECT_EQ(splits.train->Read(i, epoch, pixels).ValueOrThrow(), samples[i].first);
      for (const uint8_t x : pixels) EXPECT_NEAR(x, samples[i].second, 2);
    }
  }
  EXPECT_EQ(splits.test->Read(0, 0, pixels).ValueOrThrow(), 1);
  for (const uint8_t x : pixels) EXPECT_NEAR(x, 200, 2);
}

// No random part of a line of pixels has a ratio of 3:4 to 4:3 and a row: the middle is taken.
TEST_F(ImageFolderTest, AnImageWithoutSuchAPartGivesItsMiddle) {
  Write("train/dog/c.jpg", Plain(2000, 1, 150));
  Write("train/cat/a.jpeg", Plain(1, 2000, 100));
  Write("train/cat/b.JPG", Plain(1, 1, 50));
  const ImageSplits splits = OpenImageFolder(path_, 4, 1).ValueOrThrow();
  std::vector<uint8_t> pixels(3 * 4 * 4);
  for (int64_t epoch = 0; epoch < 10; ++epoch) {
    EXPECT_EQ(splits.train->Read(2, epoch, pixels).ValueOrThrow(), 1);
    EXPECT_NEAR(pixels[0], 150, 2);
    EXPECT_EQ(splits.train->Read(0, epoch, pixels).ValueOrThrow(), 0);
    EXPECT_NEAR(pixels[0], 100, 2);
  }
  for (int64_t epoch = 0; epoch < 100; ++epoch) {
    EXPECT_EQ(splits.train->Read(1, epoch, pixels).ValueOrThrow(), 0);
    EXPECT_NEAR(pixels[0], 50, 2);
  }
}

TEST_F(ImageFolderTest, AFileThatIsNoImageIsNamedWhenItIsRead) {
  Write("train/dog/c.jpg", "not an image");
  const ImageSplits splits = OpenImageFolder(path_, 8, 1).ValueOrThrow();
  std::vector<uint8_t> pixels(3 * 8 * 8);
  const Status status = splits.train->Read(2, 0, pixels).status();
  EXPECT_EQ(status.code(), Code::kBadData);
  EXPECT_EQ(status.message().find((path_ / "train/dog/c.jpg").string() + ": not a whole JPEG"), 0U)
      << status.message();
  std::filesystem::remove(path_ / "train/dog/c.jpg");
  EXPECT_EQ(splits.train->Read(2, 0, pixels).status().code(), Code::kNoInput);
}

TEST_F(ImageFolderTest, FoldersThatDoNotFitAreRefused) {
  std::filesystem::create_directories(path_ / "val/cow");
  ExpectRefused(Code::kBadData, "/val: expected the same classes as in train");
  std::filesystem::remove(path_ / "val/cow");
  std::filesystem::remove(path_ / "val/dog/d.jpg");
  ExpectRefused(Code::kNoInput, "/val: expected CLASS/NAME.jpg, found no file");
  std::filesystem::remove_all(path_ / "val");
  ExpectRefused(Code::kNoInput, "/val: No such file or directory");
}

#endif

}  // namespace
}  // namespace samara
