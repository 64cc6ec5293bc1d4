// Readers of IDX and CIFAR-10 files: what is written here byte by byte, and what is not whole.
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/rng.h"
#include "data/memory_source.h"
#include "data/sources.h"

namespace samara {
namespace {

// A folder of this test's own, emptied at its end.
class Folder {
 public:
  Folder()
      : path_(Path(testing::TempDir()) /
              ("data_test." + std::to_string(::getpid()) + "." +
               testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const Path& path() const { return path_; }
  void Write(const std::string& name, const std::string& bytes) const {
    std::filesystem::remove(path_ / name);
    ThrowIfError(WriteNewFile(path_ / name, bytes));
  }

 private:
  const Path path_;
};

std::string Bytes(std::initializer_list<int> values) {
  std::string bytes;
  for (const int v : values) bytes.push_back(static_cast<char>(v));
  return bytes;
}

// Three images of 2 x 3 with classes 1, 0, 2, and two with 2, 1.
const std::string kImages = Bytes({0, 0, 8, 3, 0, 0, 0, 3, 0,  0,  0,  2,  0,  0,  0,  3,  1,
                                   2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 255});
const std::string kLabels = Bytes({0, 0, 8, 1, 0, 0, 0, 3, 1, 0, 2});
const std::string kTestImages =
    Bytes({0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3, 9, 9, 9, 9, 9, 9, 8, 8, 8, 8, 8, 8});
const std::string kTestLabels = Bytes({0, 0, 8, 1, 0, 0, 0, 2, 2, 1});

void WriteIdx(const Folder& folder) {
  folder.Write("train-images-idx3-ubyte", kImages);
  folder.Write("train-labels-idx1-ubyte", kLabels);
  folder.Write("t10k-images-idx3-ubyte", kTestImages);
  folder.Write("t10k-labels-idx1-ubyte", kTestLabels);
}

TEST(IdxTest, ReadsWhatWasWritten) {
  const Folder folder;
  WriteIdx(folder);
  const ImageSplits splits = OpenIdx(folder.path()).ValueOrThrow();
  EXPECT_EQ(splits.train->size(), 3);
  EXPECT_EQ(splits.test->size(), 2);
  EXPECT_EQ(splits.train->classes(), 3);
  EXPECT_EQ(splits.test->classes(), 3);
  EXPECT_EQ(splits.train->shape(), (ImageShape{.channels = 1, .height = 2, .width = 3}));
  std::vector<uint8_t> pixels(6);
  EXPECT_EQ(splits.train->Read(2, 0, pixels).ValueOrThrow(), 2);
  EXPECT_EQ(pixels, (std::vector<uint8_t>{13, 14, 15, 16, 17, 255}));
  EXPECT_EQ(splits.test->Read(1, 7, pixels).ValueOrThrow(), 1);
  EXPECT_EQ(pixels, std::vector<uint8_t>(6, 8));
}

TEST(IdxTest, EveryFileCutAnywhereOrTooLongIsRefusedAndNamed) {
  const Folder folder;
  WriteIdx(folder);
  const std::map<std::string, std::string> files{{"train-images-idx3-ubyte", kImages},
                                                 {"train-labels-idx1-ubyte", kLabels},
                                                 {"t10k-images-idx3-ubyte", kTestImages},
                                                 {"t10k-labels-idx1-ubyte", kTestLabels}};
  for (const auto& [name, whole] : files) {
    std::vector<std::string> wrong{whole + "x"};
    for (size_t n = 0; n < whole.size(); ++n) wrong.push_back(whole.substr(0, n));
    for (const std::string& bytes : wrong) {
      folder.Write(name, bytes);
      const Status status = OpenIdx(folder.path()).status();
      EXPECT_EQ(status.code(), Code::kBadData) << name << " of " << bytes.size() << " bytes";
      EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
    }
    std::filesystem::remove(folder.path() / name);
    EXPECT_EQ(OpenIdx(folder.path()).status().code(), Code::kNoInput);
    folder.Write(name, whole);
  }
  EXPECT_TRUE(OpenIdx(folder.path()).ok());
}

// Headers with any byte changed to any of several values: an error, or what the header says.
TEST(IdxTest, ChangedHeadersAreNeverBelieved) {
  const Folder folder;
  WriteIdx(folder);
  int refused = 0;
  for (size_t at = 0; at < 16; ++at) {
    for (const int value : {0, 1, 2, 3, 4, 8, 127, 128, 255}) {
      std::string bytes = kImages;
      bytes[at] = static_cast<char>(value);
      if (bytes == kImages) continue;
      folder.Write("train-images-idx3-ubyte", bytes);
      const auto opened = OpenIdx(folder.path());
      EXPECT_FALSE(opened.ok()) << "byte " << at << " = " << value;
      EXPECT_EQ(opened.status().code(), Code::kBadData);
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

// Files that are whole, but do not belong together.
TEST(IdxTest, FilesThatDoNotFitEachOtherAreRefused) {
  const Folder folder;
  const auto expect = [&](const std::string& name, const std::string& bytes,
                          const std::string& message) {
    WriteIdx(folder);
    folder.Write(name, bytes);
    const Status status = OpenIdx(folder.path()).status();
    EXPECT_EQ(status.code(), Code::kBadData);
    EXPECT_EQ(status.message(), folder.path().string() + message);
  };
  const std::string other =
      ": the t10k files have a class or a size of images that the train files do not have";
  expect("t10k-labels-idx1-ubyte", Bytes({0, 0, 8, 1, 0, 0, 0, 2, 3, 1}), other);
  const std::string images = kTestImages.substr(16);
  const std::string two = Bytes({0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0});
  expect("t10k-images-idx3-ubyte", two + Bytes({3, 0, 0, 0, 2}) + images, other);  // 3 x 2
  expect("t10k-images-idx3-ubyte", two + Bytes({2, 0, 0, 0, 2}) + images.substr(4), other);
  expect("train-labels-idx1-ubyte", Bytes({0, 0, 8, 1, 0, 0, 0, 2, 1, 0}),
         "/train-labels-idx1-ubyte: 2 labels of 3 images");
}

std::string Record(int label, int first) {
  std::string record = Bytes({label});
  for (int i = 0; i < 3072; ++i) record.push_back(static_cast<char>((first + i * 7) % 256));
  return record;
}

void WriteCifar(const Folder& folder) {
  for (int i = 1; i <= 5; ++i) {
    folder.Write("data_batch_" + std::to_string(i) + ".bin",
                 Record(i, i) + Record((i + 3) % 10, 100 + i));
  }
  folder.Write("test_batch.bin", Record(9, 50));
}

TEST(CifarTest, ReadsWhatWasWritten) {
  const Folder folder;
  WriteCifar(folder);
  const ImageSplits splits = OpenCifar10(folder.path(), false, 1).ValueOrThrow();
  EXPECT_EQ(splits.train->size(), 10);
  EXPECT_EQ(splits.test->size(), 1);
  EXPECT_EQ(splits.train->classes(), 10);
  std::vector<uint8_t> pixels(3072);
  EXPECT_EQ(splits.train->Read(5, 0, pixels).ValueOrThrow(), 6);
  const std::string record = Record(6, 103);
  EXPECT_EQ(std::string(pixels.begin(), pixels.end()), record.substr(1));
}

TEST(CifarTest, EveryFileCutAnywhereIsRefusedAndNamed) {
  const Folder folder;
  WriteCifar(folder);
  for (const std::string name : {"data_batch_1.bin", "data_batch_5.bin", "test_batch.bin"}) {
    const std::string whole = ReadFile(folder.path() / name).ValueOrThrow();
    std::vector<std::string> wrong{"", whole + "x", whole};
    wrong.back()[0] = 10;  // no such class
    for (size_t n = 1; n < whole.size(); n += 97)
      if (n % 3073 != 0) wrong.push_back(whole.substr(0, n));
    for (const std::string& bytes : wrong) {
      folder.Write(name, bytes);
      const Status status = OpenCifar10(folder.path(), true, 1).status();
      EXPECT_EQ(status.code(), Code::kBadData) << name << " of " << bytes.size() << " bytes";
      EXPECT_NE(status.message().find(name), std::string::npos);
    }
    std::filesystem::remove(folder.path() / name);
    EXPECT_EQ(OpenCifar10(folder.path(), true, 1).status().code(), Code::kNoInput);
    folder.Write(name, whole);
  }
}

// Every variation is the sample moved over black and perhaps mirrored, all of them occur, and which
// one is a function of (seed, epoch, index).
TEST(CifarTest, VariationsAreShiftsAndMirrorImages) {
  const Folder folder;
  WriteCifar(folder);
  const auto plain = OpenCifar10(folder.path(), false, 1).ValueOrThrow().train;
  const auto varied = OpenCifar10(folder.path(), true, 1).ValueOrThrow().train;
  const auto again = OpenCifar10(folder.path(), true, 1).ValueOrThrow().train;
  const auto other = OpenCifar10(folder.path(), true, 2).ValueOrThrow().train;
  std::vector<uint8_t> whole(3072), got(3072), same(3072), different(3072);
  std::map<int, int> downs, rights, mirrors;
  int equal = 0;
  for (int64_t epoch = 0; epoch < 40; ++epoch) {
    for (int64_t index = 0; index < 10; ++index) {
      ASSERT_TRUE(plain->Read(index, epoch, whole).ok());
      ASSERT_TRUE(varied->Read(index, epoch, got).ok());
      ASSERT_TRUE(again->Read(index, epoch, same).ok());
      ASSERT_TRUE(other->Read(index, epoch, different).ok());
      EXPECT_EQ(got, same);
      equal += got == different ? 1 : 0;
      int matches = 0;
      for (int down = -4; down <= 4; ++down) {
        for (int right = -4; right <= 4; ++right) {
          for (int mirror = 0; mirror < 2; ++mirror) {
            bool match = true;
            for (int i = 0; match && i < 3072; ++i) {
              const int c = i / 1024, y = i / 32 % 32 - down,
                        x = (mirror == 1 ? 31 - i % 32 : i % 32) - right;
              const bool inside = y >= 0 && y < 32 && x >= 0 && x < 32;
              match = got[static_cast<size_t>(i)] ==
                      (inside ? whole[static_cast<size_t>(c * 1024 + y * 32 + x)] : 0);
            }
            if (!match) continue;
            ++matches;
            ++downs[down];
            ++rights[right];
            ++mirrors[mirror];
          }
        }
      }
      EXPECT_EQ(matches, 1);
    }
  }
  EXPECT_EQ(downs.size(), 9U);
  EXPECT_EQ(rights.size(), 9U);
  EXPECT_NEAR(mirrors[1], 200, 40);  // four standard deviations
  EXPECT_LT(equal, 20);              // 400 / 162 expected
}

TEST(DrawDigitsTest, SamplesAreTheirNumbersAndClassesEven) {
  const DrawnDigits options{.shape = {.channels = 3, .height = 20, .width = 24}};
  const ImageSplits a = DrawDigits(options), b = DrawDigits(options);
  std::vector<uint8_t> one(a.train->shape().bytes()), two = one, test = one;
  std::vector<int> counts(10);
  for (int64_t i = 0; i < 1000; ++i) {
    const int label = a.train->Read(i, 0, one).ValueOrThrow();
    EXPECT_EQ(b.train->Read(i, 5, two).ValueOrThrow(), label);
    EXPECT_EQ(one, two);
    ASSERT_TRUE(a.test->Read(i % 256, 0, test).ok());
    EXPECT_NE(one, test);
    ++counts.at(static_cast<size_t>(label));
  }
  for (const int n : counts) EXPECT_NEAR(n, 100, 48);  // five standard deviations
}

}  // namespace
}  // namespace samara
