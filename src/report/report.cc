#include "report/report.h"

#include <fmt/format.h>

#include <set>

#include "core/format.h"
#include "report/archive_chart.h"
#include "report/end_points.h"
#include "report/headline.h"
#include "report/report_sections.h"

namespace samara {
namespace {

constexpr std::string_view kBrand = "<p class=\"brand\">samara report</p>";
constexpr size_t kOpenRunsMax = 3;  // with more runs their sections start folded

constexpr const char* kCss =
    "*{box-sizing:border-box}"
    ".brand{margin:0;color:var(--soft);font-size:13px}"
    "body{margin:0 auto;padding:24px 20px 60px;max-width:1220px;background:var(--ground);"
    "color:var(--ink);font:15px/1.5 system-ui,'DejaVu Sans',sans-serif}"
    "h1{font-size:24px;margin:0 0 4px}h2{font-size:19px;display:inline;font-weight:600}"
    "h3{font-size:16px;margin:28px 0 8px}section{margin-top:20px}section>h2{display:block;"
    "margin:0 0 8px}a{color:var(--c0)}"
    ".run{margin-top:28px;border-top:1px solid var(--hair);padding-top:16px}"
    ".run>summary{cursor:pointer}.note,.warning{color:var(--soft);font-size:13px;margin:8px 0;"
    "max-width:90ch}.warning{color:var(--c1)}"
    ".tiles{display:flex;flex-wrap:wrap;gap:12px;margin:16px 0}"
    ".tile{border:1px solid var(--hair);border-radius:8px;padding:10px 14px;min-width:150px}"
    ".tile span,.tile small{display:block;color:var(--soft);font-size:12px;line-height:1.4}"
    ".tile b{font-size:24px;font-weight:600;line-height:1.35}"
    ".facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(230px,1fr));gap:6px 20px;"
    "margin:12px 0 20px;font-size:13px}.facts dt{color:var(--soft);font-size:12px}"
    ".facts dd{margin:0;overflow-wrap:anywhere}"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(480px,100%),1fr));"
    "gap:20px}figure{margin:0;min-width:0}.charts svg{width:100%;height:auto}"
    ".charts>figure:only-child{max-width:820px}.video video{max-width:100%;max-height:420px;"
    "image-rendering:pixelated;border-radius:6px}figcaption{color:var(--soft);font-size:12px}"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;margin:8px 0}"
    "th{text-align:left;color:var(--soft);font-weight:500}"
    "th,td{padding:5px 14px 5px 0;border-bottom:1px solid var(--hair);vertical-align:top}"
    "td.n{font-variant-numeric:tabular-nums;white-space:nowrap}td small{color:var(--soft)}"
    "tr.own td{font-weight:600}details>summary{cursor:pointer;margin-top:14px}"
    "pre{font-size:12px;overflow-x:auto}"
    "@media(max-width:560px){.charts figure{overflow-x:auto}.charts svg{min-width:460px}}"
    "@media print{body{max-width:none;padding:0}.charts{grid-template-columns:1fr 1fr}"
    "figure,.tile,tr{break-inside:avoid}.video{display:none}}";

std::string Page(const std::vector<RunData>& runs, const Path& page_folder) {
  std::vector<std::string> ids;
  for (size_t i = 0; i < runs.size(); ++i) ids.push_back(fmt::format("run-{}", i + 1));
  const std::string title = runs.size() == 1 ? Headline(runs[0]) : Headline(runs);
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>{0}</title>"
      "<style>{1}{2}</style></head><body>{3}<h1>{0}</h1>\n",
      EscapeHtml(title), ChartCss(), kCss, kBrand);
  if (runs.size() > 1) html += ComparisonSection(runs, ids);
  for (size_t i = 0; i < runs.size(); ++i)
    html += RunSection(runs[i], ids[i], page_folder, runs.size() <= kOpenRunsMax) + "\n";
  return html + "</body></html>\n";
}

Result<std::vector<RunData>> LoadRuns(std::span<const Path> folders) {
  if (folders.empty())
    return Status(Code::kUsage, "no run given: expected at least one run folder");
  std::vector<RunData> runs;
  std::set<Path> seen;
  for (const Path& folder : folders) {
    std::error_code error;
    const Path canonical = std::filesystem::canonical(folder, error);
    if (!error && !seen.insert(canonical).second) continue;  // named twice, counted once
    ASSIGN_OR_RETURN(RunData run, LoadRun(folder));
    runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace

Status WriteReport(std::span<const Path> folders, const RootedPath& html) {
  ASSIGN_OR_RETURN(const std::vector<RunData> runs, LoadRuns(folders));
  const Path page_folder = html.path().parent_path();
  return WriteFileAtomic(html, Page(runs, page_folder.empty() ? Path(".") : page_folder));
}

bool IsReport(std::string_view html) { return html.find(kBrand) != std::string_view::npos; }

Status WriteLearningCurve(std::span<const Path> folders, const RootedPath& svg) {
  ASSIGN_OR_RETURN(const std::vector<RunData> runs, LoadRuns(folders));
  LineChart chart;
  if (runs.size() == 1) {
    chart = LearningCurve(runs[0], CurveAxis::kFrames);
    chart.title = Title(runs[0]);
  } else {
    const std::vector<LineChart> charts = GroupLearningCurves(runs);
    if (charts.size() > 1)
      return {Code::kConfig, "one curve for runs of several games: expected runs of one"};
    chart = charts[0];
  }
  chart.width = 760;
  chart.height = 420;
  return WriteFileAtomic(svg, Svg(chart, SvgUse::kFile));
}

namespace {

Result<bool> WritePicture(const Path& folder, std::string (*draw)(const RunData&, SvgUse),
                          const RootedPath& svg) {
  ASSIGN_OR_RETURN(const RunData run, LoadRun(folder));
  const std::string picture = draw(run, SvgUse::kFile);
  if (picture.empty()) return false;
  RETURN_IF_ERROR(WriteFileAtomic(svg, picture));
  return true;
}

}  // namespace

Result<bool> WriteMap(const Path& folder, const RootedPath& svg) {
  return WritePicture(folder, RunMap, svg);
}

Result<bool> WriteArchive(const Path& folder, const RootedPath& svg) {
  return WritePicture(folder, RunArchive, svg);
}

}  // namespace samara
