#include <algorithm>

#include "data/memory_source.h"
#include "data/sources.h"

namespace samara {
namespace {

struct Idx {
  std::vector<size_t> sizes;  // of its dimensions
  std::string bytes;
};

// Two zeros, 8 for unsigned bytes, the number of dimensions, their sizes in big-endian order,
// bytes.
Result<Idx> ReadIdx(const Path& path, size_t dimensions) {
  ASSIGN_OR_RETURN(std::string file, ReadFile(path));
  const auto bad = [&](const std::string& what) {
    return Status(Code::kBadData, path.string() + ": " + what);
  };
  const auto byte = [&](size_t i) { return size_t{static_cast<uint8_t>(file[i])}; };
  const size_t head = 4 + 4 * dimensions;
  if (file.size() < head)
    return bad(std::to_string(file.size()) + " bytes: expected a header of " +
               std::to_string(head));
  if (byte(0) != 0 || byte(1) != 0 || byte(2) != 8 || byte(3) != dimensions) {
    return bad("not an IDX file of bytes in " + std::to_string(dimensions) +
               " dimensions; compressed ones are unpacked first");
  }
  Idx idx;
  size_t left = file.size() - head, expected = 1;
  for (size_t d = 0; d < dimensions; ++d) {
    const size_t at = 4 + 4 * d;
    idx.sizes.push_back(byte(at) << 24 | byte(at + 1) << 16 | byte(at + 2) << 8 | byte(at + 3));
    if (idx.sizes[d] == 0) return bad("dimension " + std::to_string(d) + " is 0");
    // cannot overflow: beyond what is left it is wrong already
    if (expected <= left) expected *= idx.sizes[d];
  }
  if (left != expected) {
    return bad(std::to_string(left) + " bytes after the header: expected " +
               (expected < left ? std::to_string(expected) : "more, as its sizes say"));
  }
  idx.bytes = file.substr(head);
  return idx;
}

struct Pair {
  Idx images;
  std::vector<uint8_t> labels;
};

Result<Pair> ReadPair(const Path& folder, const std::string& name) {
  const Path labels_path = folder / (name + "-labels-idx1-ubyte");
  ASSIGN_OR_RETURN(Idx images, ReadIdx(folder / (name + "-images-idx3-ubyte"), 3));
  ASSIGN_OR_RETURN(const Idx labels, ReadIdx(labels_path, 1));
  if (images.sizes[0] != labels.sizes[0]) {
    return Status(Code::kBadData, labels_path.string() + ": " + std::to_string(labels.sizes[0]) +
                                      " labels of " + std::to_string(images.sizes[0]) + " images");
  }
  return Pair{std::move(images), {labels.bytes.begin(), labels.bytes.end()}};
}

}  // namespace

Result<ImageSplits> OpenIdx(const Path& folder) {
  ASSIGN_OR_RETURN(Pair train, ReadPair(folder, "train"));
  ASSIGN_OR_RETURN(Pair test, ReadPair(folder, "t10k"));
  const int classes = 1 + *std::max_element(train.labels.begin(), train.labels.end());
  if (*std::max_element(test.labels.begin(), test.labels.end()) >= classes ||
      test.images.sizes[1] != train.images.sizes[1] ||
      test.images.sizes[2] != train.images.sizes[2]) {
    return Status(Code::kBadData, folder.string() +
                                      ": the t10k files have a class or a size of images that the "
                                      "train files do not have");
  }
  const auto source = [&](Pair& pair) {
    const ImageShape shape{.channels = 1,
                           .height = static_cast<int>(pair.images.sizes[1]),
                           .width = static_cast<int>(pair.images.sizes[2])};
    return std::make_shared<MemorySource>(shape, classes, std::move(pair.labels),
                                          std::move(pair.images.bytes));
  };
  return ImageSplits{source(train), source(test)};
}

}  // namespace samara
