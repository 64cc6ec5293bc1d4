#include "view/animation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#ifndef SAMARA_LIBAV

namespace samara {

Result<Animation> AnimationOf(const RootedPath& video) {
  return Status(Code::kConfig,
                fmt::format("{}: no pictures of it: this build has no libav", video.string()));
}

}  // namespace samara

#else

#include "view/libav.h"

namespace samara {
namespace {

constexpr double kSeconds = 10, kPicturesPerSecond = 5;
constexpr int kHeightMax = 210;
constexpr AVRational kTick{1, 100};  // of a GIF, s

// The colours of every picture: a cube of 6 x 6 x 6, then 36 greys between black and white that are
// not in it: libav's encoder loses the pixels of a colour that is there twice. No dithering, which
// would speckle the plain areas of games.
constexpr int kLevels = 6, kCube = kLevels * kLevels * kLevels, kGreys = 36;

uint32_t ColourOf(int index) {  // 0xAARRGGBB
  const auto level = [](int n, int steps) { return static_cast<uint32_t>(n * 255 / steps); };
  if (index >= kCube) return 0xff000000U | 0x010101U * level(index - kCube + 1, kGreys + 1);
  const auto part = [&](int n) { return level(n % kLevels, kLevels - 1); };
  return 0xff000000U | part(index / (kLevels * kLevels)) << 16 | part(index / kLevels) << 8 |
         part(index);
}

uint8_t IndexOf(const uint8_t* rgb) {
  constexpr int kGreyish = 20;  // largest difference between the parts of a grey
  const auto nearest = [](int value, int steps) { return (value * steps + 127) / 255; };
  const auto [low, high] = std::minmax({rgb[0], rgb[1], rgb[2]});
  const int grey = nearest(rgb[1], kGreys + 1);
  if (high - low <= kGreyish && grey > 0 && grey <= kGreys)
    return static_cast<uint8_t>(kCube + grey - 1);
  int index = 0;
  for (int part = 0; part < 3; ++part) index = index * kLevels + nearest(rgb[part], kLevels - 1);
  return static_cast<uint8_t>(index);
}

// Pictures of one size, as a GIF in memory.
class GifEncoder {
 public:
  ~GifEncoder() {
    uint8_t* bytes = nullptr;
    if (format_ && format_->pb) {
      avio_close_dyn_buf(format_->pb, &bytes);
      av_free(bytes);
    }
  }

  int Open(int width, int height, AVPixelFormat format) {
    AVFormatContext* container = nullptr;
    if (int e = avformat_alloc_output_context2(&container, nullptr, "gif", nullptr); e < 0)
      return e;
    format_.reset(container);
    if (int e = avio_open_dyn_buf(&format_->pb); e < 0) return e;
    const AVCodec* encoder = avcodec_find_encoder(AV_CODEC_ID_GIF);
    if (!encoder) return AVERROR_ENCODER_NOT_FOUND;
    codec_.reset(avcodec_alloc_context3(encoder));
    codec_->height = std::min(height, kHeightMax);
    codec_->width = std::max(1, width * codec_->height / height);
    codec_->pix_fmt = AV_PIX_FMT_PAL8;
    codec_->time_base = kTick;
    if (int e = avcodec_open2(codec_.get(), nullptr, nullptr); e < 0) return e;
    AVStream* stream = avformat_new_stream(format_.get(), nullptr);
    stream->time_base = kTick;
    if (int e = avcodec_parameters_from_context(stream->codecpar, codec_.get()); e < 0) return e;
    if (int e = MakePicture(); e < 0) return e;
    packet_.reset(av_packet_alloc());
    scaler_.reset(sws_getContext(width, height, format, codec_->width, codec_->height,
                                 AV_PIX_FMT_RGB24, SWS_AREA, nullptr, nullptr, nullptr));
    rgb_.resize(size_t{3} * codec_->width * codec_->height);
    return scaler_ ? avformat_write_header(format_.get(), nullptr) : AVERROR(EINVAL);
  }

  int Add(const AVFrame& frame, double seconds) {
    if (int e = av_frame_make_writable(picture_.get()); e < 0) return e;
    uint8_t* const rows[] = {rgb_.data()};
    const int strides[] = {3 * codec_->width};
    sws_scale(scaler_.get(), frame.data, frame.linesize, 0, frame.height, rows, strides);
    for (int y = 0; y < codec_->height; ++y)
      for (int x = 0; x < codec_->width; ++x)
        picture_->data[0][y * picture_->linesize[0] + x] =
            IndexOf(&rgb_[size_t{3} * (y * codec_->width + x)]);
    picture_->pts = std::llround(seconds / av_q2d(kTick));
    return Encode(picture_.get());
  }

  Result<Animation> Close() {
    if (int e = Encode(nullptr); e < 0) return Failed(e);
    if (int e = av_write_trailer(format_.get()); e < 0) return Failed(e);
    uint8_t* bytes = nullptr;
    const int size = avio_close_dyn_buf(std::exchange(format_->pb, nullptr), &bytes);
    Animation made{.gif = std::string(reinterpret_cast<char*>(bytes), static_cast<size_t>(size)),
                   .width = codec_->width,
                   .height = codec_->height};
    av_free(bytes);
    return made;
  }

  bool opened() const { return scaler_ != nullptr; }
  static Status Failed(int error) {
    return {Code::kInternal, "GIF: encoding failed: " + libav::ErrorText(error)};
  }

 private:
  // One picture and its palette, for all.
  int MakePicture() {
    picture_.reset(av_frame_alloc());
    picture_->format = codec_->pix_fmt;
    picture_->width = codec_->width;
    picture_->height = codec_->height;
    if (int e = av_frame_get_buffer(picture_.get(), 0); e < 0) return e;
    auto* const palette = reinterpret_cast<uint32_t*>(picture_->data[1]);
    for (int index = 0; index < 256; ++index)
      palette[index] = index < kCube + kGreys ? ColourOf(index) : 0;
    return 0;
  }

  // nullptr: what the encoder still holds.
  int Encode(const AVFrame* frame) {
    if (int e = avcodec_send_frame(codec_.get(), frame); e < 0) return e;
    for (;;) {
      const int e = avcodec_receive_packet(codec_.get(), packet_.get());
      if (e == AVERROR(EAGAIN) || e == AVERROR_EOF) return 0;
      if (e < 0) return e;
      if (int w = av_interleaved_write_frame(format_.get(), packet_.get()); w < 0) return w;
    }
  }

  libav::Format format_;
  libav::Codec codec_;
  libav::Picture picture_;
  libav::Packet packet_;
  libav::Scaler scaler_;
  std::vector<uint8_t> rgb_;  // of one picture
};

struct CloseInput {
  void operator()(AVFormatContext* input) const { avformat_close_input(&input); }
};

// The pictures of a file with their times.
class VideoReader {
 public:
  Status Open(const RootedPath& video) {
    AVFormatContext* input = nullptr;
    if (int e = avformat_open_input(&input, video.string().c_str(), nullptr, nullptr); e < 0)
      return {Code::kIoError, video.string() + ": " + libav::ErrorText(e)};
    input_.reset(input);
    const AVCodec* decoder = nullptr;
    stream_ = avformat_find_stream_info(input, nullptr) < 0
                  ? -1
                  : av_find_best_stream(input, AVMEDIA_TYPE_VIDEO, -1, -1, &decoder, 0);
    if (stream_ < 0) return {Code::kBadData, video.string() + ": no video"};
    codec_.reset(avcodec_alloc_context3(decoder));
    avcodec_parameters_to_context(codec_.get(), stream().codecpar);
    picture_.reset(av_frame_alloc());
    packet_.reset(av_packet_alloc());
    if (avcodec_open2(codec_.get(), decoder, nullptr) < 0)
      return {Code::kBadData, video.string() + ": no decoder for it"};
    return Status::Ok();
  }

  // The next one, until the following call; nullptr at the end.
  const AVFrame* Next() {
    while (avcodec_receive_frame(codec_.get(), picture_.get()) < 0) {
      av_packet_unref(packet_.get());
      if (ended_) return nullptr;
      ended_ = av_read_frame(input_.get(), packet_.get()) < 0;
      if (ended_ || packet_->stream_index == stream_)
        avcodec_send_packet(codec_.get(), ended_ ? nullptr : packet_.get());
    }
    return picture_.get();
  }

  double SecondsOf(const AVFrame& frame) const {
    return static_cast<double>(frame.best_effort_timestamp) * av_q2d(stream().time_base);
  }

 private:
  const AVStream& stream() const { return *input_->streams[stream_]; }

  std::unique_ptr<AVFormatContext, CloseInput> input_;
  libav::Codec codec_;
  libav::Picture picture_;
  libav::Packet packet_;
  int stream_ = -1;
  bool ended_ = false;
};

}  // namespace

Result<Animation> AnimationOf(const RootedPath& video) {
  av_log_set_level(AV_LOG_ERROR);
  VideoReader reader;
  RETURN_IF_ERROR(reader.Open(video));
  GifEncoder gif;
  int64_t pictures = 0;
  while (const AVFrame* frame = reader.Next()) {
    const double seconds = reader.SecondsOf(*frame);
    if (seconds >= kSeconds) break;
    // times of pictures are rounded
    if (seconds * kPicturesPerSecond < static_cast<double>(pictures) - 1e-3) continue;
    ++pictures;
    if (!gif.opened()) {
      const auto format = static_cast<AVPixelFormat>(frame->format);
      if (int e = gif.Open(frame->width, frame->height, format); e < 0)
        return GifEncoder::Failed(e);
    }
    if (int e = gif.Add(*frame, seconds); e < 0) return GifEncoder::Failed(e);
  }
  if (!gif.opened()) return Status(Code::kBadData, video.string() + ": no picture");
  return gif.Close();
}

}  // namespace samara

#endif
