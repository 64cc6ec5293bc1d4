// The timeline of `samara bench schedule` as SVG.
//
//   title
//   legend                                                    hours to a billion frames
//   schedule, operations     core 1  [emulation on top, inference below ...]    14.2 h
//   how, shares              core 2  [...]                                      19,512 frames/s
//   ...
//                                    0        20        40 ms
#include <fmt/format.h>

#include <algorithm>

#include "bench/spans.h"
#include "core/format.h"
#include "report/plot.h"

namespace samara::bench {

namespace {

constexpr double kWidth = 1200, kLeft = 290, kRight = 1060;  // of the timelines
constexpr double kTop = 78, kLane = 11, kCoreGap = 5, kPanelGap = 22, kHead = 20;
constexpr double kThinnest = 0.35;  // pixels: so that nothing that happened is invisible

struct Canvas {
  std::string svg;
  void Text(double x, double y, const char* style, const std::string& text) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>", x, y, style,
                       EscapeHtml(text));
  }
  void Box(double x, double y, double width, double height, const char* style) {
    svg += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" "
        "class=\"{}\"/>",
        x, y, width, height, style);
  }
};

double PanelHeight(const Schedule& s) { return kHead + s.cores * (2 * kLane + kCoreGap); }

// One core: emulation in the upper lane, inference in the lower one.
void DrawCore(Canvas& canvas, const Schedule& s, uint32_t core, double y, double drawn_ns) {
  canvas.Box(kLeft, y, kRight - kLeft, 2 * kLane, "track");
  const double scale = (kRight - kLeft) / drawn_ns;
  for (const Span& span : s.spans) {
    const double from = std::max(0.0, static_cast<double>(span.begin - s.begin));
    const double to = std::min(drawn_ns, static_cast<double>(span.end - s.begin));
    if (span.core != core || to <= from) continue;
    canvas.Box(kLeft + from * scale, span.inference() ? y + kLane : y,
               std::max(kThinnest, (to - from) * scale), kLane,
               span.inference() ? "infer" : "play");
  }
}

void DrawPanel(Canvas& canvas, const Schedule& s, double y, double frames_per_step,
               double drawn_ns) {
  canvas.Text(14, y + 12, "name", s.name + ", " + s.operations);
  canvas.Text(kLeft, y + 12, "label", s.how);
  const double environment = s.Share(false), inference = s.Share(true);
  canvas.Text(
      14, y + 32, "label",
      fmt::format("emulation {:.0f} %, inference {:.0f} %,", 100 * environment, 100 * inference));
  canvas.Text(
      14, y + 48, "label",
      fmt::format("neither {:.0f} % of the cores' time", 100 * (1 - environment - inference)));
  for (uint32_t core = 0; core < s.cores; ++core) {
    const double top = y + kHead + core * (2 * kLane + kCoreGap);
    canvas.Text(kLeft - 8, top + kLane + 4, "tick end", fmt::format("core {}", core + 1));
    DrawCore(canvas, s, core, top, drawn_ns);
  }
  canvas.Text(kRight + 14, y + 36, "hours",
              fmt::format("{:.1f} h", s.HoursPerBillion(frames_per_step)));
  canvas.Text(kRight + 14, y + 54, "label",
              Grouped(s.FramesPerSecond(frames_per_step)) + " frames/s");
}

void DrawLegend(Canvas& canvas) {
  double x = 14;
  for (const auto& [style, text] :
       {std::pair{"play", "emulation and pixels"}, {"infer", "inference"}, {"track", "neither"}}) {
    canvas.Box(x, 42, 22, kLane, style);
    canvas.Text(x + 28, 52, "label", text);
    x += 60 + 7.0 * static_cast<double>(std::string_view(text).size());
  }
  canvas.Text(kRight + 14, 52, "label", "to a billion frames");
}

void DrawAxis(Canvas& canvas, double bottom, double milliseconds) {
  for (const double tick : NiceTicks(0, milliseconds, 7)) {
    const double x = kLeft + (kRight - kLeft) * tick / milliseconds;
    canvas.svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2:.1f}\" class=\"grid\"/>", x,
        kTop - 8, bottom);
    canvas.Text(x, bottom + 15, "tick middle", fmt::format("{:.0f} ms", tick));
  }
}

}  // namespace

std::string Picture(const std::vector<Schedule>& schedules, double frames_per_step,
                    double milliseconds, const std::string& title) {
  double height = kTop;
  for (const Schedule& s : schedules) height += PanelHeight(s) + kPanelGap;
  Canvas canvas;
  canvas.svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" aria-label=\"{2}\"><style>{3}"
      ".chart .track{{fill:var(--hair)}}.chart .play{{fill:var(--c0)}}.chart "
      ".infer{{fill:var(--c1)}}"
      ".chart .name{{font-weight:600}}.chart .hours{{font-size:19px;font-weight:600}}"
      ".chart .end{{text-anchor:end}}.chart .middle{{text-anchor:middle}}</style>"
      "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" class=\"ground\"/>",
      kWidth, height + 12, EscapeHtml(title), ChartCss());
  canvas.Text(14, 24, "title", title);
  DrawLegend(canvas);
  DrawAxis(canvas, height - kPanelGap + 6, milliseconds);
  double y = kTop;
  for (const Schedule& s : schedules) {
    DrawPanel(canvas, s, y, frames_per_step, milliseconds * 1e6);
    y += PanelHeight(s) + kPanelGap;
  }
  return canvas.svg + "</svg>\n";
}

}  // namespace samara::bench
