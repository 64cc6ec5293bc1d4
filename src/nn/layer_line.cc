// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/layer_line.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "core/config.h"
#include "core/log.h"

namespace samara {
namespace {

constexpr std::string_view kBlanks = " \t";
constexpr char kExample[] = "conv 16 8x8/4 relu, dense 256 relu";

// Words of one layer, with their columns in the line.
class Words {
 public:
  Words(std::string_view line, size_t begin, size_t end) : line_(line), at_(begin), end_(end) {}

  // The next word; empty at the end of the layer.
  std::string_view Peek() {
    at_ = std::min(line_.find_first_not_of(kBlanks, at_), end_);
    return line_.substr(at_, std::min(line_.find_first_of(kBlanks, at_), end_) - at_);
  }
  std::string_view Next() {
    const std::string_view word = Peek();
    at_ += word.size();
    return word;
  }
  // True, and past it, when the next word is this one.
  bool Take(std::string_view word) {
    if (Peek() != word) return false;
    Next();
    return true;
  }
  Status Bad(const std::string& expected) {
    const std::string_view word = Peek();
    return {Code::kConfig, "layers, column " + std::to_string(at_ + 1) + ": " +
                               (word.empty() ? "nothing" : "'" + Shown(word) + "'") +
                               ", expected " + expected + ", as in " + kExample};
  }

 private:
  const std::string_view line_;
  size_t at_;
  const size_t end_;
};

// A whole number from `text` on, which is advanced.
std::optional<int64_t> TakeNumber(std::string_view& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 1) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

Status ReadCount(Words& words, const std::string& what, int64_t& count) {
  std::string_view word = words.Peek();
  const auto number = TakeNumber(word);
  if (!number || *number > kUnitsMax || !word.empty())
    return words.Bad("the number of " + what + ", 1 to " + std::to_string(kUnitsMax));
  count = *number;
  words.Next();
  return Status::Ok();
}

// "8x8/4"
Status ReadWindow(Words& words, Layer& layer) {
  std::string_view word = words.Peek();
  const auto take = [&word](char c) {
    if (!word.starts_with(c)) return false;
    word.remove_prefix(1);
    return true;
  };
  const auto rows = TakeNumber(word);
  const auto columns = rows && take('x') ? TakeNumber(word) : std::nullopt;
  const auto stride = take('/') ? TakeNumber(word) : std::optional<int64_t>(1);
  if (!columns || *columns != *rows || !stride || !word.empty() || *rows > kKernelMax ||
      *stride > *rows)
    return words.Bad("a square window and its stride, such as 8x8/4 or 3x3, at most " +
                     std::to_string(kKernelMax) + "x" + std::to_string(kKernelMax));
  layer.kernel = *rows;
  layer.stride = *stride;
  words.Next();
  return Status::Ok();
}

Status ReadActivation(Words& words, const std::string& also, Activation& activation) {
  for (const auto& [word, value] :
       {std::pair("relu", Activation::kRelu), std::pair("tanh", Activation::kTanh),
        std::pair("none", Activation::kNone)}) {
    if (!words.Take(word)) continue;
    activation = value;
    return Status::Ok();
  }
  return words.Bad(also + "relu, tanh or none");
}

// `previous`: kind of the layer before, kResidual at the start: kinds come in this order.
Result<Layer> ReadLayer(Words& words, Layer::Kind previous) {
  Layer layer;
  if (previous == Layer::Kind::kResidual && words.Take("residual")) {
    layer.kind = Layer::Kind::kResidual;
    RETURN_IF_ERROR(ReadCount(words, "channels", layer.out));
  } else if (previous != Layer::Kind::kDense && words.Take("conv")) {
    layer.kind = Layer::Kind::kConv;
    RETURN_IF_ERROR(ReadCount(words, "channels", layer.out));
    RETURN_IF_ERROR(ReadWindow(words, layer));
    const bool same = words.Take("same"), valid = !same && words.Take("valid");
    layer.padding = same ? Padding::kSame : Padding::kValid;
    RETURN_IF_ERROR(ReadActivation(words, same || valid ? "" : "same, valid, ", layer.activation));
  } else if (words.Take("dense")) {
    RETURN_IF_ERROR(ReadCount(words, "units", layer.out));
    RETURN_IF_ERROR(ReadActivation(words, "", layer.activation));
  } else {
    return words.Bad(previous == Layer::Kind::kDense  ? "dense"
                     : previous == Layer::Kind::kConv ? "conv or dense"
                                                      : "residual, conv or dense");
  }
  if (!words.Peek().empty()) return words.Bad("a comma or the end");
  return layer;
}

void NameLayers(std::vector<Layer>& layers) {
  const auto is_dense = [](const Layer& layer) { return layer.kind == Layer::Kind::kDense; };
  const bool one = std::ranges::count_if(layers, is_dense) == 1 && !is_dense(layers[0]);
  int64_t number = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    Layer& layer = layers[i];
    number = i > 0 && layers[i - 1].kind == layer.kind ? number + 1 : 1;
    layer.name = layer.kind == Layer::Kind::kResidual ? "stack"
                 : layer.kind == Layer::Kind::kConv   ? "conv"
                                                      : "fc";
    if (!is_dense(layer) || !one) layer.name += std::to_string(number);
  }
}

// "mlp-16-16-relu" -> "dense 16 relu, dense 16 relu"; nothing when the name has another form.
std::optional<std::string> LineOfMlp(std::string_view name) {
  constexpr std::string_view kPrefix = "mlp-";
  const size_t last = name.rfind('-');
  if (!name.starts_with(kPrefix) || last < kPrefix.size()) return std::nullopt;
  const std::string activation(name.substr(last + 1));
  std::string_view units = name.substr(0, last);
  std::string line;
  for (size_t dash = kPrefix.size() - 1; dash != std::string_view::npos;) {
    units.remove_prefix(dash + 1);
    dash = units.find('-');
    line += (line.empty() ? "dense " : ", dense ") + std::string(units.substr(0, dash)) + " " +
            activation;
  }
  return activation == "none" || !ParseLayers(line).ok() ? std::nullopt : std::optional(line);
}

constexpr char kNature[] =
    "conv 32 8x8/4 relu, conv 64 4x4/2 relu, conv 64 3x3 relu, dense 512 relu";

struct NetworkTable {
  std::vector<NetworkRow> rows;
  size_t published = rows.size();
};

NetworkTable& Table() {
  static NetworkTable table{{
      {"LargeModel", "the Deep GA's on Atari",
       "conv 32 8x8/4 same relu, conv 64 4x4/2 same relu, conv 64 3x3 same relu, dense 512 relu",
       "Such et al. 2018, arXiv 1712.06567"},
      {"Model", "the Deep GA's small one",
       "conv 16 8x8/4 same relu, conv 32 4x4/2 same relu, dense 256 relu",
       "Such et al. 2018, arXiv 1712.06567"},
      {"Nature", "DQN's", kNature, "Mnih et al. 2015, doi 10.1038/nature14236"},
      {"linear", "one dense layer", "", ""},
      {"impala_shallow", "IMPALA's small one",
       "conv 16 8x8/4 relu, conv 32 4x4/2 relu, dense 256 relu",
       "Espeholt et al. 2018, arXiv 1802.01561, figure 3"},
      {"impala_deep", "IMPALA's large one", "residual 16, residual 32, residual 32, dense 256 relu",
       "Espeholt et al. 2018, arXiv 1802.01561, figure 3"},
      {"football", "SEED RL's for football",
       "residual 16, residual 32, residual 32, residual 32, dense 256 relu",
       "Espeholt et al. 2020, arXiv 1910.06591"},
  }};
  return table;
}

bool IsLine(std::string_view text) { return text.find_first_of(" \t,") != std::string_view::npos; }

Status Unknown(std::string_view name) {
  std::vector<std::string> names = {"mlp-64-64-tanh"};
  for (const NetworkRow& row : Table().rows) names.push_back(row.name);
  return {Code::kConfig, "no network '" + Shown(name) + "', nearest is '" + Nearest(name, names) +
                             "'; expected a name of `samara list networks`, "
                             "mlp-<units>-..-<relu|tanh> or layers such as " +
                             kExample};
}

}  // namespace

Result<std::vector<Layer>> ParseLayers(std::string_view line) {
  std::vector<Layer> layers;
  Layer::Kind previous = Layer::Kind::kResidual;
  for (size_t begin = 0; begin < line.size() || !layers.empty();) {
    const size_t end = std::min(line.find(',', begin), line.size());
    Words words(line, begin, end);
    if (layers.size() + 1 == kLayersMax)  // the output layer is one more
      return words.Bad("at most " + std::to_string(kLayersMax - 1) + " layers");
    ASSIGN_OR_RETURN(Layer layer, ReadLayer(words, previous));
    previous = layer.kind;
    layers.push_back(std::move(layer));
    if (end == line.size()) break;
    begin = end + 1;
  }
  if (!layers.empty()) NameLayers(layers);
  return layers;
}

const std::vector<NetworkRow>& Networks() { return Table().rows; }

Status RegisterNetwork(NetworkRow row) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  const auto refuse = [&row](const std::string& why) {
    return Status(Code::kConfig, "network '" + Shown(row.name) + "': " + why);
  };
  if (row.name.empty() || row.name.find_first_not_of(kAllowed) != std::string::npos)
    return refuse("expected a name of letters, digits, '-', '_' and '.'");
  if (row.layers.empty()) return refuse("no layers; expected at least one");
  if (FindLayers(row.name).ok()) return refuse("there is one by this name; expected another");
  if (const auto layers = ParseLayers(row.layers); !layers.ok())
    return refuse(layers.status().message());
  Table().rows.push_back(std::move(row));
  return Status::Ok();
}

Result<NamedLayers> FindLayers(std::string_view text) {
  if (text == "nature") text = "Nature";
  NamedLayers found{std::string(text), {}};
  std::string line = found.name;
  const auto& [rows, published] = Table();
  const auto row = std::ranges::find(rows, text, &NetworkRow::name);
  if (row != rows.end()) {
    line = row->layers;
    if (row - rows.begin() >= static_cast<ptrdiff_t>(published)) found.name = line;
  } else if (const auto mlp = LineOfMlp(text)) {
    line = *mlp;
  } else if (!IsLine(text)) {
    return Unknown(text);
  }
  ASSIGN_OR_RETURN(found.layers, ParseLayers(line));
  return found;
}

}  // namespace samara
