#include "view/video.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "core/check.h"
#include "core/venv.h"

#ifndef SAMARA_LIBAV

namespace samara {

Result<std::unique_ptr<VideoWriter>> VideoWriter::Open(const RootedPath& path,
                                                       const VideoOptions&) {
  return Status(
      Code::kConfig,
      fmt::format("cannot write video {}: this build has no libav: {}, or set run.video=false",
                  path.string(),
                  HowToBuildWith("libavcodec-dev libavformat-dev libavutil-dev libswscale-dev",
                                 "SAMARA_VIDEO")));
}

}  // namespace samara

#else

extern "C" {
#include <libavutil/opt.h>
}

#include "view/libav.h"

namespace samara {
namespace {

// libav's buffer before the file, which may have replaced the one it was made with.
struct FreeOutput {
  void operator()(AVIOContext* output) const {
    av_freep(&output->buffer);
    avio_context_free(&output);
  }
};
using Output = std::unique_ptr<AVIOContext, FreeOutput>;

#if LIBAVFORMAT_VERSION_MAJOR >= 61
using BytesToWrite = const uint8_t;
#else
using BytesToWrite = uint8_t;
#endif

// The file as libav sees it: `file` is a NewFile.
int WriteTo(void* file, BytesToWrite* bytes, int count) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
  return static_cast<NewFile*>(file)->Write(text).ok() ? count : AVERROR(errno);
}
int64_t SeekIn(void* file, int64_t offset, int whence) {
  auto* const target = static_cast<NewFile*>(file);
  if (whence == AVSEEK_SIZE) return target->size();
  const int64_t at = target->Seek(offset, whence & ~AVSEEK_FORCE);
  return at < 0 ? AVERROR(errno) : at;
}

constexpr int kBufferBytes = 1 << 16;
constexpr int kHeightWanted = 420;

int ScaleOf(const VideoOptions& o) {
  if (o.scale > 0) return o.scale;
  return std::clamp(static_cast<int>(std::lround(double{kHeightWanted} / o.height)), 1, 8);
}

int Even(int n) { return n + (n & 1); }

class LibavWriter : public VideoWriter {
 public:
  LibavWriter(RootedPath path, const VideoOptions& options)
      : path_(std::move(path)), options_(options) {}

  Status Start();
  Status AddFrame(std::span<const uint8_t> rgb) override;
  Status Close() override;
  int64_t frames() const override { return frames_; }

 private:
  Status OpenCodec();
  Status Drain();  // every packet the encoder has ready goes to the file
  Status Failed(const char* doing, int error) const {
    const Code code = error == AVERROR(EINVAL) ? Code::kConfig : Code::kIoError;
    return {code,
            fmt::format("video {}: {} failed: {}", path_.string(), doing, libav::ErrorText(error))};
  }

  const RootedPath path_;
  const VideoOptions options_;
  // set by Start, in this order; destroyed in the opposite one
  std::unique_ptr<NewFile> file_;
  Output output_;
  libav::Format format_;
  libav::Codec codec_;
  libav::Picture picture_;
  libav::Packet packet_;
  libav::Scaler scaler_;
  AVStream* stream_ = nullptr;  // owned by format_
  int64_t frames_ = 0;
  bool closed_ = false;
};

Status LibavWriter::Start() {
  const int scale = ScaleOf(options_);
  const int width = Even(options_.width * scale), height = Even(options_.height * scale);

  // 1. container
  AVFormatContext* raw = nullptr;
  if (int e = avformat_alloc_output_context2(&raw, nullptr, "mp4", nullptr); e < 0)
    return Failed("choosing the mp4 container", e);
  format_.reset(raw);

  // 2. encoder: x264 where libav has it, else whatever writes H.264
  const AVCodec* encoder = avcodec_find_encoder_by_name("libx264");
  if (!encoder) encoder = avcodec_find_encoder(AV_CODEC_ID_H264);
  if (!encoder)
    return {Code::kConfig, "cannot write a video: this libav has no H.264 encoder (libx264)"};
  codec_.reset(avcodec_alloc_context3(encoder));
  codec_->width = width;
  codec_->height = height;
  codec_->pix_fmt = AV_PIX_FMT_YUV420P;
  codec_->time_base = av_inv_q(av_d2q(options_.fps, 100'000));
  codec_->framerate = av_d2q(options_.fps, 100'000);
  codec_->sample_aspect_ratio = av_d2q(options_.pixel_aspect, 1000);
  codec_->gop_size = 120;  // a key frame at least every two seconds of 60 frames, for seeking
  // what swscale produces by default, said aloud so that players do not guess
  codec_->colorspace = AVCOL_SPC_SMPTE170M;
  codec_->color_range = AVCOL_RANGE_MPEG;
  RETURN_IF_ERROR(OpenCodec());

  // 3. one frame, one packet, the conversion between them
  picture_.reset(av_frame_alloc());
  picture_->format = codec_->pix_fmt;
  picture_->width = width;
  picture_->height = height;
  if (int e = av_frame_get_buffer(picture_.get(), 0); e < 0) return Failed("allocating", e);
  packet_.reset(av_packet_alloc());
  // nearest neighbour: pixels stay pixels
  scaler_.reset(sws_getContext(options_.width, options_.height, AV_PIX_FMT_RGB24, width, height,
                               codec_->pix_fmt, SWS_POINT | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INP,
                               nullptr, nullptr, nullptr));
  if (!scaler_) return {Code::kInternal, "video: no conversion from RGB to yuv420p"};

  // 4. file
  auto file = NewFile::Create(path_);
  if (!file.ok()) return {Code::kCannotCreate, "video " + file.status().message()};
  file_ = std::move(*file);
  output_.reset(avio_alloc_context(static_cast<unsigned char*>(av_malloc(kBufferBytes)),
                                   kBufferBytes, /*write_flag=*/1, file_.get(), nullptr, WriteTo,
                                   SeekIn));
  if (!output_) return Failed("allocating", AVERROR(ENOMEM));
  format_->pb = output_.get();
  if (int e = avformat_write_header(format_.get(), nullptr); e < 0)
    return Failed("writing the header", e);
  return Status::Ok();
}

Status LibavWriter::OpenCodec() {
  if (format_->oformat->flags & AVFMT_GLOBALHEADER) codec_->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
  // options only x264 knows; another encoder ignores them
  av_opt_set(codec_->priv_data, "preset", "veryfast", 0);
  av_opt_set_double(codec_->priv_data, "crf", options_.quality, 0);
  if (int e = avcodec_open2(codec_.get(), nullptr, nullptr); e < 0)
    return Failed("opening the H.264 encoder", e);
  stream_ = avformat_new_stream(format_.get(), nullptr);
  stream_->time_base = codec_->time_base;
  stream_->sample_aspect_ratio = codec_->sample_aspect_ratio;
  stream_->avg_frame_rate = codec_->framerate;
  if (int e = avcodec_parameters_from_context(stream_->codecpar, codec_.get()); e < 0)
    return Failed("describing the stream", e);
  return Status::Ok();
}

Status LibavWriter::AddFrame(std::span<const uint8_t> rgb) {
  CHECK(!closed_);
  CHECK_EQ(rgb.size(), size_t{3} * options_.width * options_.height);
  if (int e = av_frame_make_writable(picture_.get()); e < 0) return Failed("allocating", e);
  const uint8_t* const rows[] = {rgb.data()};
  const int strides[] = {3 * options_.width};
  sws_scale(scaler_.get(), rows, strides, 0, options_.height, picture_->data, picture_->linesize);
  picture_->pts = frames_++;
  if (int e = avcodec_send_frame(codec_.get(), picture_.get()); e < 0) return Failed("encoding", e);
  return Drain();
}

Status LibavWriter::Drain() {
  for (;;) {
    const int e = avcodec_receive_packet(codec_.get(), packet_.get());
    if (e == AVERROR(EAGAIN) || e == AVERROR_EOF) return Status::Ok();
    if (e < 0) return Failed("encoding", e);
    // without a duration the last frame lasts no time and some players drop it
    packet_->duration = 1;
    packet_->stream_index = stream_->index;
    av_packet_rescale_ts(packet_.get(), codec_->time_base, stream_->time_base);
    if (int w = av_interleaved_write_frame(format_.get(), packet_.get()); w < 0)
      return Failed("writing", w);
  }
}

Status LibavWriter::Close() {
  CHECK(!closed_);
  // 1. what the encoder still holds, then the index
  if (int e = avcodec_send_frame(codec_.get(), nullptr); e < 0) return Failed("encoding", e);
  RETURN_IF_ERROR(Drain());
  if (int e = av_write_trailer(format_.get()); e < 0) return Failed("writing the index", e);
  avio_flush(format_->pb);
  if (format_->pb->error < 0) return Failed("writing", format_->pb->error);
  // 2. on disk before it gets its name
  closed_ = true;
  return file_->Commit();
}

}  // namespace

Result<std::unique_ptr<VideoWriter>> VideoWriter::Open(const RootedPath& path,
                                                       const VideoOptions& options) {
  const auto sane = [](int n) { return n >= 1 && n <= 8192; };
  if (!sane(options.width) || !sane(options.height) || options.scale < 0 || options.scale > 16 ||
      !(options.fps > 0 && options.fps <= 1000))
    return Status(
        Code::kConfig,
        fmt::format("video {}: {}x{} at {} frames/s, scale {}: expected 1..8192 pixels, "
                    "up to 1000 frames/s, scale 0..16",
                    path.string(), options.width, options.height, options.fps, options.scale));
  av_log_set_level(AV_LOG_ERROR);
  auto writer = std::make_unique<LibavWriter>(path, options);
  RETURN_IF_ERROR(writer->Start());
  return Result<std::unique_ptr<VideoWriter>>(std::move(writer));
}

}  // namespace samara

#endif
