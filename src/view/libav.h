// libav's objects with owners. Only where libav was found at configure time.
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>
}

#include <memory>
#include <string>
#include <type_traits>

namespace samara::libav {

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* p) const {
    if constexpr (std::is_invocable_v<decltype(kFree), T*>)
      kFree(p);
    else
      kFree(&p);
  }
};
using Format = std::unique_ptr<AVFormatContext, Free<avformat_free_context>>;
using Codec = std::unique_ptr<AVCodecContext, Free<avcodec_free_context>>;
using Picture = std::unique_ptr<AVFrame, Free<av_frame_free>>;
using Packet = std::unique_ptr<AVPacket, Free<av_packet_free>>;
using Scaler = std::unique_ptr<SwsContext, Free<sws_freeContext>>;

inline std::string ErrorText(int error) {
  char text[AV_ERROR_MAX_STRING_SIZE] = {};
  av_strerror(error, text, sizeof text);
  return text;
}

}  // namespace samara::libav
