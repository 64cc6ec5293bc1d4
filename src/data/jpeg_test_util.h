// JPEG files that libjpeg writes for tests.
#pragma once

#ifdef SAMARA_JPEG
#include <cstdio>
// after <cstdio>, which it needs
#include <jpeglib.h>

#include <cstdlib>
#include <string>

#include "data/jpeg.h"

namespace samara {

struct JpegForm {
  bool progressive = false;
  J_COLOR_SPACE given = JCS_RGB;  // of `pixels`
  J_COLOR_SPACE stored = JCS_YCbCr;
  int restart_rows = 0;  // rows of blocks between two restart markers; 0: none
};

// `image` with four values a pixel where form.given is JCS_CMYK.
inline std::string EncodeJpeg(const RgbImage& image, const JpegForm& form = {}) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg's type
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = form.given == JCS_CMYK ? 4 : 3;
  info.in_color_space = form.given;
  jpeg_set_defaults(&info);
  jpeg_set_colorspace(&info, form.stored);
  jpeg_set_quality(&info, 95, TRUE);
  info.restart_in_rows = form.restart_rows;
  if (form.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  const size_t row_bytes =
      static_cast<size_t>(image.width) * static_cast<size_t>(info.input_components);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row =
        const_cast<uint8_t*>(image.pixels.data()) + size_t{info.next_scanline} * row_bytes;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string file(reinterpret_cast<char*>(bytes), size);
  std::free(bytes);
  return file;
}

}  // namespace samara
#endif
