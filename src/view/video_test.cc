// Decodes with libav's own demuxer and decoder what VideoWriter encoded.
#include "view/video.h"

#include <gtest/gtest.h>

#include <fstream>

#ifdef SAMARA_LIBAV
extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>
}

namespace samara {
namespace {

using Rgb = std::array<int, 3>;

// Contents of a video for a player: size, number of frames, length and the middle of chosen
// quarters.
struct Decoded {
  int width = 0, height = 0, frames = 0;
  double seconds = 0;
  std::vector<std::array<Rgb, 4>> quarters;  // per frame: top left, top right, bottom left, right
  std::vector<int64_t> durations;
};

std::array<Rgb, 4> Quarters(const AVFrame& frame) {
  const int w = frame.width, h = frame.height;
  std::vector<uint8_t> rgb(size_t{3} * w * h);
  SwsContext* scaler =
      sws_getContext(w, h, static_cast<AVPixelFormat>(frame.format), w, h, AV_PIX_FMT_RGB24,
                     SWS_POINT | SWS_ACCURATE_RND, nullptr, nullptr, nullptr);
  uint8_t* rows[] = {rgb.data()};
  const int strides[] = {3 * w};
  sws_scale(scaler, frame.data, frame.linesize, 0, h, rows, strides);
  sws_freeContext(scaler);
  std::array<Rgb, 4> out;
  for (int q = 0; q < 4; ++q) {
    const size_t at = 3 * (size_t(h / 4 + q / 2 * (h / 2)) * w + w / 4 + q % 2 * (w / 2));
    out[q] = {rgb[at], rgb[at + 1], rgb[at + 2]};
  }
  return out;
}

Decoded Decode(const Path& path) {
  Decoded out;
  AVFormatContext* format = nullptr;
  EXPECT_GE(avformat_open_input(&format, path.c_str(), nullptr, nullptr), 0);
  if (!format) return out;
  EXPECT_GE(avformat_find_stream_info(format, nullptr), 0);
  out.seconds = static_cast<double>(format->duration) / AV_TIME_BASE;
  const AVCodecParameters* parameters = format->streams[0]->codecpar;
  EXPECT_EQ(parameters->codec_id, AV_CODEC_ID_H264);
  EXPECT_EQ(parameters->format, AV_PIX_FMT_YUV420P);
  AVCodecContext* codec = avcodec_alloc_context3(avcodec_find_decoder(parameters->codec_id));
  avcodec_parameters_to_context(codec, parameters);
  avcodec_open2(codec, nullptr, nullptr);
  out.width = parameters->width;
  out.height = parameters->height;
  AVPacket* packet = av_packet_alloc();
  AVFrame* frame = av_frame_alloc();
  const auto receive = [&] {
    for (; avcodec_receive_frame(codec, frame) >= 0; ++out.frames)
      out.quarters.push_back(Quarters(*frame));
  };
  for (; av_read_frame(format, packet) >= 0; av_packet_unref(packet)) {
    out.durations.push_back(packet->duration);
    avcodec_send_packet(codec, packet);
    receive();
  }
  avcodec_send_packet(codec, nullptr);
  receive();
  av_frame_free(&frame);
  av_packet_free(&packet);
  avcodec_free_context(&codec);
  avformat_close_input(&format);
  return out;
}

// Four flat quarters whose colours change with the frame, as an emulator's screen would.
Rgb QuarterColour(int frame, int quarter) {
  return {(40 + 3 * frame) % 256, quarter % 2 ? 200 : 40, quarter / 2 ? 180 : 60};
}

std::vector<uint8_t> Frame(int index, int width, int height) {
  std::vector<uint8_t> rgb;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c : QuarterColour(index, (y >= height / 2) * 2 + (x >= width / 2)))
        rgb.push_back(static_cast<uint8_t>(c));
  return rgb;
}

class VideoTest : public testing::Test {
 protected:
  VideoTest() : folder_(Path(testing::TempDir()) / ("video_test_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~VideoTest() override { std::filesystem::remove_all(folder_); }

  Decoded WriteAndDecode(VideoOptions options, int frames) {
    const Path path = folder_ / "out.mp4";
    auto writer = VideoWriter::Open(path, options);
    EXPECT_TRUE(writer.ok()) << writer.status().message();
    if (!writer.ok()) return {};
    for (int i = 0; i < frames; ++i)
      EXPECT_TRUE((*writer)->AddFrame(Frame(i, options.width, options.height)).ok());
    EXPECT_FALSE(std::filesystem::exists(path)) << "appears only when complete";
    const Status closed = (*writer)->Close();
    EXPECT_TRUE(closed.ok()) << closed.message();
    return Decode(path);
  }

  Path folder_;
};

TEST_F(VideoTest, DecodesToWhatWasDrawn) {
  const Decoded d = WriteAndDecode({.width = 160, .height = 210, .fps = 60}, 60);
  EXPECT_EQ(d.width, 320);
  EXPECT_EQ(d.height, 420);
  ASSERT_EQ(d.frames, 60);
  EXPECT_NEAR(d.seconds, 1.0, 0.02);
  for (int64_t duration : d.durations) EXPECT_GT(duration, 0);
  for (int i = 0; i < 60; i += 7)
    for (int q = 0; q < 4; ++q)
      for (int c = 0; c < 3; ++c)
        EXPECT_NEAR(d.quarters[i][q][c], QuarterColour(i, q)[c], 10) << i << ' ' << q << ' ' << c;
}

TEST_F(VideoTest, OddSizesBecomeEven) {
  const Decoded d = WriteAndDecode({.width = 161, .height = 99, .fps = 30, .scale = 1}, 5);
  EXPECT_EQ(d.width, 162);
  EXPECT_EQ(d.height, 100);
  EXPECT_EQ(d.frames, 5);
}

TEST_F(VideoTest, AbandonedVideoLeavesNothing) {
  {
    auto writer = VideoWriter::Open(folder_ / "gone.mp4", {.width = 16, .height = 16});
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->AddFrame(Frame(0, 16, 16)).ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(VideoTest, BadInputIsRefused) {
  EXPECT_EQ(
      VideoWriter::Open(folder_ / "no/such/a.mp4", {.width = 16, .height = 16}).status().code(),
      Code::kCannotCreate);
  EXPECT_EQ(VideoWriter::Open(folder_ / "a.mp4", {.width = 0, .height = 16}).status().code(),
            Code::kConfig);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

}  // namespace
}  // namespace samara

#else
TEST(VideoTest, WithoutLibavOpenSaysWhatToInstall) {
  const auto writer = samara::VideoWriter::Open("a.mp4", {.width = 16, .height = 16});
  EXPECT_EQ(writer.status().code(), samara::Code::kConfig);
  EXPECT_NE(writer.status().message().find("libavcodec-dev"), std::string::npos);
}
#endif
