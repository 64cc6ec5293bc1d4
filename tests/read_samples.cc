// Prints samples as the loaders read them, for comparisons with other implementations:
//
//   read_samples idx|cifar|cifar-varied|images FOLDER train|test EPOCH SIDE
//
// One line of JSON, then the bytes of every sample. A failure as one line, with its exit code.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "data/sources.h"

namespace samara {
namespace {

Result<ImageSplits> Open(const std::string& kind, const Path& folder, int side) {
  if (kind == "idx") return OpenIdx(folder);
  if (kind == "images") return OpenImageFolder(folder, side, 1);
  return OpenCifar10(folder, kind == "cifar-varied", 1);
}

int Print(int argc, char** argv) {
  if (argc != 6) return 64;
  const auto splits = Open(argv[1], argv[2], std::atoi(argv[5]));
  Status status = splits.status();
  std::string labels, bytes;
  if (status.ok()) {
    const auto& source = std::strcmp(argv[3], "train") == 0 ? *splits->train : *splits->test;
    std::vector<uint8_t> pixels(source.shape().bytes());
    for (int64_t i = 0; i < source.size() && status.ok(); ++i) {
      const auto label = source.Read(i, std::atoi(argv[4]), pixels);
      status = label.status();
      if (!label.ok()) break;
      labels += (i == 0 ? "" : ", ") + std::to_string(*label);
      bytes.append(pixels.begin(), pixels.end());
    }
    const ImageShape s = source.shape();
    if (status.ok()) {
      std::printf("{\"shape\": [%d, %d, %d], \"classes\": %d, \"labels\": [%s]}\n", s.channels,
                  s.height, s.width, source.classes(), labels.c_str());
    }
  }
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    return static_cast<int>(status.code());
  }
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
  return 0;
}

}  // namespace
}  // namespace samara

int main(int argc, char** argv) { return samara::Print(argc, argv); }
