#include "report/metrics_csv.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "storage/metrics.h"

namespace samara {
namespace {

// A field, in quotation marks where it needs them.
std::string Field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
}

using Row = std::map<std::string, std::string>;  // by column

void Take(const std::string& name, const nlohmann::json& value, Row& row) {
  if (value.is_object()) {
    for (const auto& [member, inner] : value.items()) Take(name + "." + member, inner, row);
  } else if (value.is_null()) {
    row[name];  // the column is there
  } else if (!value.is_array()) {
    row[name] = value.is_string() ? value.get<std::string>() : value.dump();
  }
}

}  // namespace

std::string MetricsCsv(std::span<const NamedLines> runs) {
  constexpr const char* kRun = "run";
  std::vector<Row> rows;
  std::set<std::string> columns;
  for (const auto& [run, lines] : runs) {
    for (const nlohmann::json& line : lines) {
      if (line.contains("event")) continue;
      Row& row = rows.emplace_back();
      for (const auto& [name, value] : line.items()) Take(name, value, row);
      for (const auto& [name, value] : row) columns.insert(name);
      row[kRun] = run;
    }
  }
  std::string csv = kRun;
  for (const std::string& column : columns) csv += "," + Field(column);
  for (Row& row : rows) {
    csv += "\n" + Field(row[kRun]);
    for (const std::string& column : columns) csv += "," + Field(row[column]);
  }
  return csv + "\n";
}

Status WriteMetricsCsv(std::span<const Path> runs, const RootedPath& csv) {
  std::vector<NamedLines> lines;
  for (const Path& run : runs) {
    ASSIGN_OR_RETURN(auto of_run, ReadMetrics(RootedPath::Root(run) / "metrics.jsonl"));
    lines.emplace_back(run.string(), std::move(of_run));
  }
  return WriteFileAtomic(csv, MetricsCsv(lines));
}

}  // namespace samara
