#include "report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "core/check.h"
#include "core/format.h"

namespace samara {
namespace {

constexpr int kColours = 6;
constexpr int kTicksY = 5;
constexpr double kCharacterWidth = 7.2;  // pixels of the 12-pixel font, generous
constexpr size_t kPointsMax = 1000;      // more cannot be told apart at these sizes
constexpr size_t kMarkersMax = 40;       // up to here each point gets a marker with a tooltip

struct Extent {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void Add(double v) {
    if (!std::isfinite(v)) return;
    low = std::min(low, v);
    high = std::max(high, v);
  }
  bool empty() const { return low > high; }
  // A range with some room that is never a single point.
  Extent Padded(double share) const {
    if (empty()) return {0, 1};
    const double span = high - low;
    if (span <= 1e-9 * std::max(std::abs(low), std::abs(high)) || span == 0) {
      const double room = low == 0 ? 1 : 0.1 * std::abs(low);
      return {low - room, high + room};
    }
    return {low - share * span, high + share * span};
  }
};

double TextWidth(std::string_view text) {
  return kCharacterWidth * static_cast<double>(std::count_if(text.begin(), text.end(), [](char c) {
           return (c & 0xC0) != 0x80;
         }));
}

// Number of a tick: as short as the distance to its neighbours allows.
std::string TickText(double value, double step) {
  if (value == 0) return "0";
  if (std::abs(value) >= 10'000 || std::abs(step) >= 1000) {
    const double size = std::abs(value);
    const auto [unit, suffix] = size >= 1e9   ? std::pair(1e9, "B")
                                : size >= 1e6 ? std::pair(1e6, "M")
                                              : std::pair(1e3, "k");
    return fmt::format("{:.6g}{}", value / unit, suffix);
  }
  return fmt::format("{:.6g}", value);
}

// Maps data to pixels inside the frame [x0, x1] x [y0, y1], y upwards.
struct Frame {
  double x0, y0, x1, y1;
  Extent x, y;
  double X(double v) const { return x0 + (v - x.low) / (x.high - x.low) * (x1 - x0); }
  double Y(double v) const { return y1 - (v - y.low) / (y.high - y.low) * (y1 - y0); }
};

constexpr int kReference = -1;  // instead of a colour

struct LegendEntry {
  std::string name;
  int colour;
  Stroke stroke;
};

const char* DashOf(Stroke stroke) {
  switch (stroke) {
    case Stroke::kDashed:
      return " stroke-dasharray=\"7 4\"";
    case Stroke::kDotted:
      return " stroke-dasharray=\"2 3\"";
    default:
      return "";
  }
}

// Entries flow over as many lines as they need, from height y; returns the height below them.
double AddLegend(std::string& svg, const std::vector<LegendEntry>& entries, double y, int width) {
  double x = 14;
  for (const auto& [name, colour, stroke] : entries) {
    const double sample = stroke == Stroke::kPoints ? 15 : 23;  // of the line, and a gap
    const double needed = sample + TextWidth(name) + 15;
    if (x + needed > width && x > 14) {
      x = 14;
      y += 18;
    }
    auto out = std::back_inserter(svg);
    if (stroke == Stroke::kPoints)
      fmt::format_to(out, "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" class=\"fill c{}\"/>", x + 5,
                     y + 6, colour);
    else if (colour == kReference)
      fmt::format_to(out, "<path d=\"M{:.1f} {:.1f}h18\" class=\"reference\"/>", x, y + 6);
    else
      fmt::format_to(out, "<path d=\"M{:.1f} {:.1f}h18\" class=\"line c{}\"{}/>", x, y + 6, colour,
                     DashOf(stroke));
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", x + sample, y + 10,
                   EscapeHtml(name));
    x += needed;
  }
  return entries.empty() ? y : y + 20;
}

// A mark under the frame with its text.
void AddTickX(std::string& svg, const Frame& f, double x, const std::string& text) {
  fmt::format_to(std::back_inserter(svg),
                 "<path d=\"M{0:.1f} {1:.1f}v5\" class=\"axis\"/>"
                 "<text x=\"{0:.1f}\" y=\"{2:.1f}\" class=\"tick\" text-anchor=\"middle\">{3}"
                 "</text>",
                 x, f.y1, f.y1 + 18, text);
}

double TickStep(const std::vector<double>& ticks) {
  return ticks.size() > 1 ? ticks[1] - ticks[0] : 0;
}

// Where a frame begins: right of its label and of the numbers next to it.
double LeftOf(const Extent& y) {
  const auto ticks = NiceTicks(y.low, y.high, kTicksY);
  double width = 0;
  for (double v : ticks) width = std::max(width, TextWidth(TickText(v, TickStep(ticks))));
  return std::max(62.0, 28 + width);
}

// All but the marks under the frame.
void AddFrame(std::string& svg, const Frame& f, const std::string& x_label,
              const std::string& y_label) {
  auto out = std::back_inserter(svg);
  const auto ticks_y = NiceTicks(f.y.low, f.y.high, kTicksY);
  for (double v : ticks_y)
    fmt::format_to(out,
                   "<path d=\"M{:.1f} {:.1f}H{:.1f}\" class=\"grid\"/>"
                   "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"tick\" text-anchor=\"end\">{}</text>",
                   f.x0, f.Y(v), f.x1, f.x0 - 7, f.Y(v) + 4, TickText(v, TickStep(ticks_y)));
  fmt::format_to(out, "<path d=\"M{:.1f} {:.1f}H{:.1f}\" class=\"axis\"/>", f.x0, f.y1, f.x1);
  fmt::format_to(out,
                 "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"label\" text-anchor=\"middle\">{}"
                 "</text>",
                 (f.x0 + f.x1) / 2, f.y1 + 36, EscapeHtml(x_label));
  const double middle = (f.y0 + f.y1) / 2;
  fmt::format_to(out,
                 "<text transform=\"translate(15 {:.1f}) rotate(-90)\" class=\"label\" "
                 "text-anchor=\"middle\">{}</text>",
                 middle, EscapeHtml(y_label));
}

void AddAxes(std::string& svg, const Frame& f, const std::string& x_label,
             const std::string& y_label) {
  AddFrame(svg, f, x_label, y_label);
  const auto ticks = NiceTicks(f.x.low, f.x.high, 6);
  for (double v : ticks) AddTickX(svg, f, f.X(v), TickText(v, TickStep(ticks)));
}

std::vector<size_t> Kept(size_t n) {
  std::vector<size_t> kept;
  const size_t stride = (n + kPointsMax - 1) / kPointsMax;
  for (size_t i = 0; i < n; i += std::max<size_t>(stride, 1)) kept.push_back(i);
  if (n > 0 && kept.back() != n - 1) kept.push_back(n - 1);
  return kept;
}

void AddBand(std::string& svg, const Frame& f, const Series& s, const std::vector<size_t>& kept) {
  std::string there, back;
  for (size_t i : kept) {
    if (!std::isfinite(s.x[i]) || !std::isfinite(s.low[i]) || !std::isfinite(s.high[i])) continue;
    const double x = f.X(s.x[i]);
    there += fmt::format("{}{:.1f} {:.1f}", there.empty() ? "M" : "L", x, f.Y(s.high[i]));
    back = fmt::format("L{:.1f} {:.1f}", x, f.Y(s.low[i])) + back;
  }
  if (!there.empty())
    svg += fmt::format("<path d=\"{}{}Z\" class=\"band c{}\"/>", there, back, s.colour % kColours);
}

size_t FiniteValues(const std::vector<double>& values) {
  return static_cast<size_t>(
      std::ranges::count_if(values, [](double v) { return std::isfinite(v); }));
}

// Mean of the finite values among the `window` around one, of fewer at the ends; that value itself
// where it is missing.
double MeanAround(const std::vector<double>& values, size_t at, size_t window) {
  if (!std::isfinite(values[at])) return values[at];
  const size_t half = window / 2, end = std::min(values.size(), at + half + 1);
  double sum = 0;
  int count = 0;
  for (size_t i = at - std::min(at, half); i < end; ++i) {
    if (!std::isfinite(values[i])) continue;
    sum += values[i];
    ++count;
  }
  return sum / count;
}

// The line through the means of `window` values, broken where a value is missing.
std::string PathOf(const Frame& f, const Series& s, const std::vector<size_t>& kept,
                   size_t window) {
  std::string path;
  bool pen_down = false;
  for (size_t i : kept) {
    const bool there = std::isfinite(s.x[i]) && std::isfinite(s.y[i]);
    if (there)
      path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", f.X(s.x[i]),
                          f.Y(MeanAround(s.y, i, window)));
    pen_down = there;
  }
  return path;
}

void AddSeries(std::string& svg, const Frame& f, const Series& s) {
  const std::vector<size_t> kept = Kept(s.x.size());
  const int colour = s.colour % kColours;
  if (!s.low.empty()) AddBand(svg, f, s, kept);

  // 1. the line, over its values where it is their mean
  auto out = std::back_inserter(svg);
  const std::string path = PathOf(f, s, kept, s.window);
  if (s.stroke != Stroke::kPoints && !path.empty()) {
    if (s.window > 1)
      fmt::format_to(out, "<path d=\"{}\" class=\"thin c{}\"/>", PathOf(f, s, kept, 1), colour);
    fmt::format_to(out, "<path d=\"{}\" class=\"line c{}\"{}><title>{}</title></path>", path,
                   colour, DashOf(s.stroke), EscapeHtml(s.name));
  }

  // 2. markers: for points, and where there is room for tooltips
  if (s.stroke != Stroke::kPoints && FiniteValues(s.y) > kMarkersMax) return;
  const double radius = s.stroke == Stroke::kPoints ? 3.5 : 2.2;
  for (size_t i : kept)
    if (std::isfinite(s.x[i]) && std::isfinite(s.y[i]))
      fmt::format_to(
          out,
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" class=\"fill c{}\"><title>{}: {} "
          "at {}</title></circle>",
          f.X(s.x[i]), f.Y(s.y[i]), radius, colour, EscapeHtml(s.name), ScoreText(s.y[i]),
          TickText(s.x[i], 0));
}

// Text under the frame: the values' name, and how lines were smoothed.
std::string LabelX(const LineChart& chart) {
  size_t window = 0;
  for (const Series& s : chart.series) window = std::max(window, s.window);
  if (window <= 1) return chart.x_label;
  return fmt::format("{}; means of {} values over thin lines", chart.x_label, window);
}

// Their names stand in the legend: inside the frame they would hide values or be hidden.
void AddReferences(std::string& svg, const Frame& f, const LineChart& chart) {
  for (const auto& [name, y] : chart.references)
    if (std::isfinite(y))
      fmt::format_to(std::back_inserter(svg),
                     "<path d=\"M{:.1f} {:.1f}H{:.1f}\" class=\"reference\"/>", f.x0, f.Y(y), f.x1);
}

std::string NothingYet(double x, double y) {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"label\" text-anchor=\"middle\">no data yet</text>",
      x, y);
}

}  // namespace

std::string OpenSvg(int width, int height, const std::string& title, SvgUse use) {
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {0} {1}\" "
      "width=\"{0}\" height=\"{1}\" role=\"img\" aria-label=\"{2}\">",
      width, height, EscapeHtml(title));
  if (use == SvgUse::kFile)
    svg += fmt::format("<style>{}</style><rect width=\"{}\" height=\"{}\" class=\"ground\"/>",
                       ChartCss(), width, height);
  if (!title.empty())
    svg += fmt::format("<text x=\"12\" y=\"20\" class=\"title\">{}</text>", EscapeHtml(title));
  return svg;
}

std::vector<double> NiceTicks(double low, double high, int count) {
  CHECK(std::isfinite(low) && std::isfinite(high) && low < high && count > 0);
  const double rough = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = power;
  for (double factor : {2.0, 5.0, 10.0})
    if (step < rough * 0.999) step = factor * power;
  std::vector<double> ticks;
  // integers times the step: no error accumulates and zero is exact
  const auto first = static_cast<int64_t>(std::ceil(low / step - 1e-9));
  const auto last = static_cast<int64_t>(std::floor(high / step + 1e-9));
  for (int64_t i = first; i <= last; ++i) ticks.push_back(static_cast<double>(i) * step);
  return ticks;
}

Series Smoothed(Series series) {
  constexpr size_t kShare = 20;
  const size_t values = FiniteValues(series.y);
  if (series.stroke != Stroke::kPoints && values > kMarkersMax)
    series.window = values / kShare | 1;  // as many on both sides
  return series;
}

std::string Svg(const LineChart& chart, SvgUse use) {
  std::string svg = OpenSvg(chart.width, chart.height, chart.title, use);
  std::vector<LegendEntry> legend;
  Extent x, y;
  for (const Series& s : chart.series) {
    CHECK_EQ(s.x.size(), s.y.size());
    CHECK(s.low.size() == s.high.size() && (s.low.empty() || s.low.size() == s.x.size()));
    Extent own;
    for (size_t i = 0; i < s.x.size(); ++i) {
      if (!std::isfinite(s.y[i])) continue;
      x.Add(s.x[i]);
      own.Add(s.y[i]);
    }
    if (own.empty()) continue;
    y.Add(own.low);
    y.Add(own.high);
    for (double v : s.low) y.Add(v);
    for (double v : s.high) y.Add(v);
    legend.push_back({s.name, s.colour % kColours, s.stroke});
  }
  const bool empty = y.empty();
  for (const auto& [name, value] : chart.references) {
    y.Add(value);
    if (!empty && std::isfinite(value))
      legend.push_back({name + " " + ScoreText(value), kReference, Stroke::kSolid});
  }

  const double top = AddLegend(svg, legend, chart.title.empty() ? 8 : 30, chart.width) + 8;
  const Frame f = {LeftOf(y.Padded(0.06)), top,           chart.width - 16.0, chart.height - 46.0,
                   x.Padded(0.02),         y.Padded(0.06)};
  AddAxes(svg, f, LabelX(chart), chart.y_label);
  if (empty) {
    svg += NothingYet((f.x0 + f.x1) / 2, (f.y0 + f.y1) / 2);
  } else {
    AddReferences(svg, f, chart);
    for (const Series& s : chart.series) AddSeries(svg, f, s);
  }
  return svg + "</svg>\n";
}

std::string Svg(const StackedBars& chart, SvgUse use) {
  constexpr double kBar = 24, kGap = 12;
  std::vector<LegendEntry> legend;
  for (size_t i = 0; i < chart.parts.size(); ++i)
    legend.push_back({chart.parts[i], static_cast<int>(i) % kColours, Stroke::kPoints});
  // the legend decides the height, and the height stands in the opening tag
  std::string body;
  double y = AddLegend(body, legend, chart.title.empty() ? 8 : 30, chart.width) + 6;
  double label_width = 0;
  for (const auto& bar : chart.bars) label_width = std::max(label_width, TextWidth(bar.first));
  label_width = std::min(label_width, chart.width * 0.4);
  const double x0 = 14 + label_width + 8, x1 = chart.width - 90.0;
  for (const auto& [name, values] : chart.bars) {
    CHECK_EQ(values.size(), chart.parts.size());
    const auto amount = [](double v) { return std::isfinite(v) && v > 0 ? v : 0; };
    double total = 0;
    for (double v : values) total += amount(v);
    auto out = std::back_inserter(body);
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", x0 - 8,
                   y + 16, EscapeHtml(name));
    double x = x0;
    for (size_t i = 0; i < values.size() && total > 0; ++i) {
      const double share = amount(values[i]) / total, width = share * (x1 - x0);
      if (width < 0.05) continue;
      fmt::format_to(out,
                     "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" class=\"fill "
                     "c{}\"><title>{}: {} {}</title></rect>",
                     x, y, width, kBar, i % kColours, EscapeHtml(chart.parts[i]),
                     ShortNumber(values[i]), EscapeHtml(chart.unit));
      if (width > 34)
        fmt::format_to(out,
                       "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"inbar\" text-anchor=\"middle\">"
                       "{:.0f} %</text>",
                       x + width / 2, y + 16, 100 * share);
      x += width;
    }
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"tick\">{} {}</text>",
                   total > 0 ? x1 + 8 : x0, y + 16, total > 0 ? ShortNumber(total) : "no data yet",
                   total > 0 ? EscapeHtml(chart.unit) : "");
    y += kBar + kGap;
  }
  if (chart.bars.empty()) body += NothingYet(chart.width / 2.0, y += 20);
  return OpenSvg(chart.width, static_cast<int>(y) + 6, chart.title, use) + body + "</svg>\n";
}

std::string Svg(const Histogram& chart, SvgUse use) {
  std::string svg = OpenSvg(chart.width, chart.height, chart.title, use);
  Extent x;
  size_t largest = 0;
  std::vector<LegendEntry> legend;
  for (size_t i = 0; i < chart.sets.size(); ++i) {
    const auto& [name, values] = chart.sets[i];
    for (double v : values) x.Add(v);
    largest = std::max(largest, values.size());
    if (!values.empty()) legend.push_back({name, static_cast<int>(i) % kColours, Stroke::kPoints});
  }
  const double top = AddLegend(svg, legend, chart.title.empty() ? 8 : 30, chart.width) + 8;
  // 1. counts: about the square root of the number of values, common edges for all sets
  const auto bins =
      static_cast<size_t>(std::clamp(std::sqrt(2.0 * static_cast<double>(largest)), 5.0, 40.0));
  const Extent range = x.Padded(0.0);
  std::vector<std::vector<double>> shares(chart.sets.size(), std::vector<double>(bins));
  double high = 0;
  for (size_t s = 0; s < chart.sets.size(); ++s) {
    for (double v : chart.sets[s].second) {
      if (!std::isfinite(v)) continue;
      const double at = (v - range.low) / (range.high - range.low) * static_cast<double>(bins);
      shares[s][std::min(static_cast<size_t>(at), bins - 1)] += 100.0;
    }
    for (double& share : shares[s]) {
      share /= std::max<double>(static_cast<double>(chart.sets[s].second.size()), 1);
      high = std::max(high, share);
    }
  }
  // 2. bars
  const Frame f = {
      62, top, chart.width - 16.0, chart.height - 46.0, range, {0, high > 0 ? high * 1.06 : 1}};
  AddAxes(svg, f, chart.x_label, "episodes, %");
  if (x.empty()) return svg + NothingYet((f.x0 + f.x1) / 2, (f.y0 + f.y1) / 2) + "</svg>\n";
  const double step = (range.high - range.low) / static_cast<double>(bins);
  for (size_t s = 0; s < shares.size(); ++s)
    for (size_t b = 0; b < bins; ++b)
      if (shares[s][b] > 0) {
        const double left = range.low + static_cast<double>(b) * step;
        fmt::format_to(std::back_inserter(svg),
                       "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
                       "class=\"hist c{}\"><title>{} to {}: {:.0f} %</title></rect>",
                       f.X(left) + 0.5, f.Y(shares[s][b]), (f.x1 - f.x0) / bins - 1.0,
                       f.y1 - f.Y(shares[s][b]), s % kColours, ScoreText(left),
                       ScoreText(left + step), shares[s][b]);
      }
  return svg + "</svg>\n";
}

std::string Svg(const BarChart& chart, SvgUse use) {
  std::string svg = OpenSvg(chart.width, chart.height, chart.title, use);
  Extent y;
  for (const auto& [name, value] : chart.bars) y.Add(value);
  const double top = (chart.title.empty() ? 8 : 30) + 8.0;
  const auto count = static_cast<double>(chart.bars.size());
  const Frame f = {62,
                   top,
                   chart.width - 16.0,
                   chart.height - 46.0,
                   {0, std::max(count, 1.0)},
                   {0, y.high > 0 ? y.high * 1.06 : 1}};
  AddFrame(svg, f, chart.x_label, chart.y_label);
  if (y.empty()) return svg + NothingYet((f.x0 + f.x1) / 2, (f.y0 + f.y1) / 2) + "</svg>\n";
  for (size_t i = 0; i < chart.bars.size(); ++i) {
    const auto& [name, value] = chart.bars[i];
    const double left = f.X(static_cast<double>(i)), width = (f.x1 - f.x0) / count;
    AddTickX(svg, f, left + width / 2, EscapeHtml(name));
    if (!std::isfinite(value) || value <= 0) continue;
    fmt::format_to(std::back_inserter(svg),
                   "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
                   "class=\"hist c0\"><title>{}: {}</title></rect>",
                   left + 0.1 * width, f.Y(value), 0.8 * width, f.y1 - f.Y(value), EscapeHtml(name),
                   ScoreText(value));
  }
  return svg + "</svg>\n";
}

std::string ChartCss() {
  // Okabe and Ito's hues, darker on white and lighter on black until the contrast is at least 3:1
  static constexpr std::string_view kLight =
      "--c0:#0072b2;--c1:#d55e00;--c2:#008a64;--c3:#b0508a;--c4:#a67400;--c5:#666;"
      "--ink:#1c1f23;--soft:#5f666e;--hair:#e4e6e9;--ground:#fff;--inbar:#fff;";
  static constexpr std::string_view kDark =
      "--c0:#56b4e9;--c1:#ff8f50;--c2:#2bc59a;--c3:#e49bc6;--c4:#eec14a;--c5:#a8a8a8;"
      "--ink:#e8eaed;--soft:#a0a7b0;--hair:#30353c;--ground:#14171a;--inbar:#14171a;";
  std::string css = fmt::format(
      ":root{{color-scheme:light dark;{}}}@media(prefers-color-scheme:dark){{:root{{{}}}}}", kLight,
      kDark);
  for (int i = 0; i < kColours; ++i) css += fmt::format(".chart .c{0}{{--c:var(--c{0})}}", i);
  return css +
         ".chart{font:12px system-ui,'DejaVu Sans',sans-serif;max-width:100%;height:auto}"
         ".chart text{fill:var(--ink)}.chart .title{font-size:14px;font-weight:600}"
         ".chart .tick,.chart .label{fill:var(--soft)}.chart .tick{font-size:11px}"
         ".chart .inbar{fill:var(--inbar);font-size:11px}"
         ".chart .ground{fill:var(--ground)}.chart .grid{stroke:var(--hair)}"
         ".chart .axis{stroke:var(--soft)}"
         ".chart .reference{stroke:var(--soft);stroke-dasharray:1 3;stroke-width:1.5}"
         ".chart .line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}"
         ".chart .thin{fill:none;stroke:var(--c);stroke-width:1;opacity:.35}"
         ".chart .fill{fill:var(--c)}.chart .band{fill:var(--c);opacity:.18}"
         ".chart .hist{fill:var(--c);opacity:.7}";
}

}  // namespace samara
