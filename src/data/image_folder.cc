#include <algorithm>
#include <cctype>
#include <cmath>

#include "core/rng.h"
#include "data/jpeg.h"
#include "data/resample.h"
#include "data/sources.h"

namespace samara {
namespace {

// Names of a folder's entries in order, since the file system gives them in any.
Result<std::vector<std::string>> Names(const Path& folder, bool folders) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(".")) continue;
    std::string type = it->path().extension().string();
    for (char& c : type) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    std::error_code unseen;
    if (folders ? it->is_directory(unseen) : type == ".jpg" || type == ".jpeg")
      names.push_back(name);
  }
  if (error) return Status(Code::kNoInput, folder.string() + ": " + error.message());
  std::sort(names.begin(), names.end());
  return names;
}

struct File {
  int label = 0;
  std::string name;
};

// A random part, or the whole image's middle where ten draws do not fit.
Box RandomPart(const RgbImage& image, const CounterRng& rng) {
  const double width = image.width, height = image.height;
  for (uint64_t i = 0; i < 10; ++i) {
    const double area = width * height * (0.08 + 0.92 * rng.Uniform(3 * i));
    const double ratio = 3.0 / 4 + (4.0 / 3 - 3.0 / 4) * rng.Uniform(3 * i + 1);
    Box box{.left = 0,
            .top = 0,
            .width = std::round(std::sqrt(area * ratio)),
            .height = std::round(std::sqrt(area / ratio))};
    if (box.width < 1 || box.height < 1 || box.width > width || box.height > height) continue;
    const uint64_t place = rng.Bits64(3 * i + 2);
    const auto within = [](uint64_t bits, double room) {
      return static_cast<double>((bits & 0xFFFFFFFF) * static_cast<uint64_t>(room + 1) >> 32);
    };
    box.left = within(place, width - box.width);
    box.top = within(place >> 32, height - box.height);
    return box;
  }
  const double across = std::min(width, height * 4 / 3), down = std::min(height, width * 4 / 3);
  return {(width - across) / 2, (height - down) / 2, across, down};
}

class FolderSource : public ImageSource {
 public:
  FolderSource(Path folder, std::vector<std::string> classes, std::vector<File> files, int side,
               bool vary, uint64_t seed)
      : folder_(std::move(folder)),
        classes_(std::move(classes)),
        files_(std::move(files)),
        side_(side),
        vary_(vary),
        seed_(seed) {}
  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  ImageShape shape() const override { return {.channels = 3, .height = side_, .width = side_}; }
  int classes() const override { return static_cast<int>(classes_.size()); }

  Result<int> Read(int64_t index, int64_t epoch, std::span<uint8_t> pixels) const override {
    CHECK(index >= 0 && index < size());
    const File& file = files_[static_cast<size_t>(index)];
    const Path path = folder_ / classes_[static_cast<size_t>(file.label)] / file.name;
    ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
    auto image = DecodeJpeg(bytes);
    if (!image.ok()) return image.status().Annotate(path.string());
    if (vary_) {
      const CounterRng rng(DeriveKey(seed_, Purpose::kAugmentation, static_cast<uint64_t>(epoch),
                                     static_cast<uint64_t>(index)));
      constexpr uint64_t kMirror = 30;  // after the draws of RandomPart
      Resample(*image, RandomPart(*image, rng), side_, rng.UniformInt(kMirror, 2) == 1, pixels);
    } else {
      const double part = std::min(image->width, image->height) * (224.0 / 256);
      Resample(*image, {(image->width - part) / 2, (image->height - part) / 2, part, part}, side_,
               false, pixels);
    }
    return file.label;
  }

 private:
  const Path folder_;
  const std::vector<std::string> classes_;
  const std::vector<File> files_;
  const int side_;
  const bool vary_;
  const uint64_t seed_;
};

Result<std::shared_ptr<const ImageSource>> OpenSplit(const Path& folder,
                                                     const std::vector<std::string>& classes,
                                                     int side, bool vary, uint64_t seed) {
  ASSIGN_OR_RETURN(const auto here, Names(folder, true));
  if (here != classes)
    return Status(Code::kBadData, folder.string() + ": expected the same classes as in train");
  std::vector<File> files;
  for (size_t i = 0; i < classes.size(); ++i) {
    ASSIGN_OR_RETURN(const auto names, Names(folder / classes[i], false));
    for (const std::string& name : names) files.push_back({static_cast<int>(i), name});
  }
  if (files.empty())
    return Status(Code::kNoInput, folder.string() + ": expected CLASS/NAME.jpg, found no file");
  return std::shared_ptr<const ImageSource>(
      std::make_shared<FolderSource>(folder, classes, std::move(files), side, vary, seed));
}

}  // namespace

Result<ImageSplits> OpenImageFolder(const Path& folder, int side, uint64_t seed) {
  CHECK(side > 0);
  RETURN_IF_ERROR(CanDecodeJpeg());
  ASSIGN_OR_RETURN(const auto classes, Names(folder / "train", true));
  ASSIGN_OR_RETURN(auto train, OpenSplit(folder / "train", classes, side, true, seed));
  ASSIGN_OR_RETURN(auto test, OpenSplit(folder / "val", classes, side, false, seed));
  return ImageSplits{std::move(train), std::move(test)};
}

}  // namespace samara
