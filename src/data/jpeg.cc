#include "data/jpeg.h"

#ifdef SAMARA_JPEG
#include <csetjmp>
#include <cstdio>
// after <cstdio>, which it needs
#include <jpeglib.h>
// after <jpeglib.h>, on whose version the numbers of its messages depend
#include <jerror.h>
#endif

namespace samara {

#ifdef SAMARA_JPEG
namespace {

constexpr int64_t kPixelsMax = int64_t{1} << 27;

// libjpeg's errors leave by a jump to `exit`; a warning that means lost data is one too.
struct Errors {
  jpeg_error_mgr base;  // first: libjpeg knows only this
  std::jmp_buf exit;
  char text[JMSG_LENGTH_MAX];
};

[[noreturn]] void Fail(j_common_ptr info) {
  auto* errors = reinterpret_cast<Errors*>(info->err);
  info->err->format_message(info, errors->text);
  std::longjmp(errors->exit, 1);
}
void Message(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_MUST_RESYNC:
    case JWRN_NOT_SEQUENTIAL:
      Fail(info);
    default:  // what many published files have, and every viewer shows
      break;
  }
}

// `image` and `inks` belong to the caller: a jump passes no destructor here.
bool Decode(jpeg_decompress_struct& info, Errors& errors, std::string_view bytes, RgbImage& image,
            std::vector<uint8_t>& inks) {
  if (setjmp(errors.exit) != 0) return false;
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&info, TRUE);
  if (int64_t{info.image_width} * info.image_height > kPixelsMax)
    ERREXIT1(&info, JERR_IMAGE_TOO_BIG, static_cast<int>(kPixelsMax));
  const bool four = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = four ? JCS_CMYK : JCS_RGB;
  info.dct_method = JDCT_ISLOW;
  jpeg_start_decompress(&info);
  image.width = static_cast<int>(info.output_width);
  image.height = static_cast<int>(info.output_height);
  const size_t row = size_t{info.output_width} * 3;
  image.pixels.resize(row * info.output_height);
  if (four) inks.resize(size_t{info.output_width} * 4);
  while (info.output_scanline < info.output_height) {
    uint8_t* out = image.pixels.data() + row * info.output_scanline;
    JSAMPROW line = four ? inks.data() : out;
    jpeg_read_scanlines(&info, &line, 1);
    // inks are written inverted: 255 is none
    for (size_t x = 0; four && x < info.output_width; ++x)
      for (size_t c = 0; c < 3; ++c)
        out[3 * x + c] = static_cast<uint8_t>(inks[4 * x + c] * inks[4 * x + 3] / 255);
  }
  jpeg_finish_decompress(&info);
  return true;
}

}  // namespace

Result<RgbImage> DecodeJpeg(std::string_view bytes) {
  jpeg_decompress_struct info{};
  Errors errors{};
  info.err = jpeg_std_error(&errors.base);
  errors.base.error_exit = Fail;
  errors.base.emit_message = Message;
  RgbImage image;
  std::vector<uint8_t> inks;
  const bool decoded = Decode(info, errors, bytes, image, inks);
  jpeg_destroy_decompress(&info);
  if (!decoded) return Status(Code::kBadData, std::string("not a whole JPEG file: ") + errors.text);
  return image;
}

Status CanDecodeJpeg() { return Status::Ok(); }

#else

Status CanDecodeJpeg() {
  return {Code::kConfig,
          "this build cannot read JPEG files: install libjpeg62-turbo-dev, configure and build "
          "again"};
}
Result<RgbImage> DecodeJpeg(std::string_view) { return CanDecodeJpeg(); }

#endif

}  // namespace samara
