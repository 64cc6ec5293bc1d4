#include "data/memory_source.h"
#include "data/sources.h"

namespace samara {
namespace {

constexpr ImageShape kShape{.channels = 3, .height = 32, .width = 32};
constexpr int kClasses = 10, kShift = 4;

Result<std::shared_ptr<const ImageSource>> ReadRecords(const std::vector<Path>& paths) {
  const size_t record = 1 + kShape.bytes();
  std::vector<uint8_t> labels;
  std::string pixels;
  for (const Path& path : paths) {
    ASSIGN_OR_RETURN(const std::string file, ReadFile(path));
    if (file.empty() || file.size() % record != 0) {
      return Status(Code::kBadData, path.string() + ": " + std::to_string(file.size()) +
                                        " bytes: expected whole records of " +
                                        std::to_string(record));
    }
    for (size_t at = 0; at < file.size(); at += record) {
      const auto label = static_cast<uint8_t>(file[at]);
      if (label >= kClasses) {
        return Status(Code::kBadData, path.string() + ": record " + std::to_string(at / record) +
                                          " has class " + std::to_string(label) +
                                          ": expected 0 to 9");
      }
      labels.push_back(label);
      pixels.append(file, at + 1, kShape.bytes());
    }
  }
  return std::shared_ptr<const ImageSource>(
      std::make_shared<MemorySource>(kShape, kClasses, std::move(labels), std::move(pixels)));
}

}  // namespace

Result<ImageSplits> OpenCifar10(const Path& folder, bool vary, uint64_t seed) {
  std::vector<Path> batches;
  for (int i = 1; i <= 5; ++i)
    batches.push_back(folder / ("data_batch_" + std::to_string(i) + ".bin"));
  ASSIGN_OR_RETURN(auto train, ReadRecords(batches));
  ASSIGN_OR_RETURN(auto test, ReadRecords({folder / "test_batch.bin"}));
  if (vary) train = std::make_shared<ShiftAndMirror>(std::move(train), kShift, seed);
  return ImageSplits{std::move(train), std::move(test)};
}

}  // namespace samara
