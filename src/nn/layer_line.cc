// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/layer_line.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "core/log.h"
#include "core/suggestion.h"

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

// "relu, tanh, sigmoid, ... or lrelu0.2", with "none" where it is among the choices.
std::string ActivationWords(bool none) {
  std::string text;
  for (const auto& row : kActivationNames) {
    if (row.value == Activation::kNone && !none) continue;
    if (&row != kActivationNames) text += &row + 1 == std::end(kActivationNames) ? " or " : ", ";
    text += row.name;
  }
  return text;
}

Status ReadActivation(Words& words, const std::string& also, Activation& activation) {
  const auto value = ValueOf(std::span<const EnumName<Activation>>(kActivationNames), words.Peek());
  if (!value) return words.Bad(also + ActivationWords(/*none=*/true));
  activation = *value;
  words.Next();
  return Status::Ok();
}

constexpr EnumName<Norm> kNormWords[] = {
    {Norm::kVbn, "vbn"}, {Norm::kVbnAffine, "vbn_affine"}, {Norm::kLayer, "layer_norm"}};

// A normalization, or none, and an activation.
Status ReadFunction(Words& words, const std::string& also, Layer& layer) {
  const auto norm = ValueOf(std::span<const EnumName<Norm>>(kNormWords), words.Peek());
  const bool dense = layer.kind == Layer::Kind::kDense;
  if (!norm || (*norm == Norm::kLayer && !dense))
    return ReadActivation(words, also + "vbn, vbn_affine, " + (dense ? "layer_norm, " : ""),
                          layer.activation);
  layer.norm = *norm;
  words.Next();
  return ReadActivation(words, "", layer.activation);
}

constexpr EnumName<Layer::Kind> kRecurrentWords[] = {
    {Layer::Kind::kRnn, "rnn"}, {Layer::Kind::kLstm, "lstm"}, {Layer::Kind::kGru, "gru"}};

Status ReadRecurrent(Words& words, Layer& layer) {
  words.Next();
  RETURN_IF_ERROR(ReadCount(words, "units", layer.out));
  layer.activation = Activation::kTanh;
  if (layer.kind != Layer::Kind::kRnn || words.Take("tanh")) return Status::Ok();
  if (!words.Take("relu")) return words.Bad("tanh or relu");
  layer.activation = Activation::kRelu;
  return Status::Ok();
}

// Places in a line, which layers take in this order.
enum class Stage { kNormalize, kResidual, kConv, kDense, kEnd };

// `stage`: that of the layer before; becomes that of this one, which is there `times` times.
Result<Layer> ReadLayer(Words& words, size_t times, Stage& stage) {
  Layer layer;
  const auto recurrent =
      ValueOf(std::span<const EnumName<Layer::Kind>>(kRecurrentWords), words.Peek());
  if (stage == Stage::kNormalize && times == 1 && words.Take("normalize")) {
    stage = Stage::kResidual;
    layer.kind = Layer::Kind::kNormalize;
  } else if (stage <= Stage::kResidual && words.Take("residual")) {
    stage = Stage::kResidual;
    layer.kind = Layer::Kind::kResidual;
    RETURN_IF_ERROR(ReadCount(words, "channels", layer.out));
  } else if (stage <= Stage::kConv && words.Take("conv")) {
    stage = Stage::kConv;
    layer.kind = Layer::Kind::kConv;
    RETURN_IF_ERROR(ReadCount(words, "channels", layer.out));
    RETURN_IF_ERROR(ReadWindow(words, layer));
    const bool same = words.Take("same"), valid = !same && words.Take("valid");
    layer.padding = same ? Padding::kSame : Padding::kValid;
    RETURN_IF_ERROR(ReadFunction(words, same || valid ? "" : "same, valid, ", layer));
  } else if (stage <= Stage::kDense && words.Take("dense")) {
    stage = Stage::kDense;
    RETURN_IF_ERROR(ReadCount(words, "units", layer.out));
    RETURN_IF_ERROR(ReadFunction(words, "", layer));
  } else if (stage <= Stage::kDense && recurrent) {
    stage = Stage::kDense;
    layer.kind = *recurrent;
    RETURN_IF_ERROR(ReadRecurrent(words, layer));
  } else if (stage <= Stage::kDense && times == 1 && words.Take(kOutputName)) {
    stage = Stage::kEnd;
    layer.name = kOutputName;
    if (words.Take("diagonal")) {
      layer.kind = Layer::Kind::kDiagonal;
      layer.bias = false;
    } else {
      layer.bias = !words.Take("no_bias");
      RETURN_IF_ERROR(
          ReadActivation(words, layer.bias ? "diagonal, no_bias, " : "", layer.activation));
    }
  } else {
    const std::string last = "dense, rnn, lstm, gru or out";
    return words.Bad(stage == Stage::kEnd        ? "nothing after the output layer"
                     : stage == Stage::kDense    ? last
                     : stage == Stage::kConv     ? "conv, " + last
                     : stage == Stage::kResidual ? "residual, conv, " + last
                                                 : "normalize, residual, conv, " + last);
  }
  if (!words.Peek().empty()) return words.Bad("a comma or the end");
  return layer;
}

// "65 x": how often the layer that follows is there.
Status ReadRepetition(Words& words, size_t layers, size_t& times) {
  times = 1;
  std::string_view word = words.Peek();
  const bool digit = !word.empty() && word[0] >= '0' && word[0] <= '9';
  const auto number = TakeNumber(word);
  if (digit) {
    if (!number || !word.empty()) return words.Bad("a number of layers, such as 3 x dense 64 tanh");
    words.Next();
    if (!words.Take("x")) return words.Bad("x, such as 3 x dense 64 tanh");
    times = static_cast<size_t>(std::min<int64_t>(*number, kLayersMax));
  }
  if (layers + times >= kLayersMax)  // the output layer is one more
    return words.Bad("at most " + std::to_string(kLayersMax - 1) + " layers");
  return Status::Ok();
}

// "fc", "conv", ...
std::string_view Prefix(Layer::Kind kind) {
  switch (kind) {
    case Layer::Kind::kResidual:
      return "stack";
    case Layer::Kind::kConv:
      return "conv";
    case Layer::Kind::kDense:
      return "fc";
    case Layer::Kind::kNormalize:
      return "normalize";
    case Layer::Kind::kRnn:
    case Layer::Kind::kLstm:
    case Layer::Kind::kGru:
    case Layer::Kind::kDiagonal:
      break;
  }
  return NameOf(std::span<const EnumName<Layer::Kind>>(kRecurrentWords), kind);
}

void NameLayers(std::vector<Layer>& layers) {
  const auto is_dense = [](const Layer& layer) {
    return layer.kind == Layer::Kind::kDense && layer.name.empty();
  };
  const auto first = layers.front().kind;
  const bool one = std::ranges::count_if(layers, is_dense) == 1 &&
                   (first == Layer::Kind::kConv || first == Layer::Kind::kResidual);
  std::map<Layer::Kind, int64_t> numbers;
  for (Layer& layer : layers) {
    if (layer.name == kOutputName) continue;
    const int64_t number = ++numbers[layer.kind];
    const bool plain = (one && is_dense(layer)) || layer.kind == Layer::Kind::kNormalize;
    layer.name = std::string(Prefix(layer.kind)) + (plain ? "" : std::to_string(number));
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
      {"GAAtariPolicy", "the Deep GA's small one, in its distributed program",
       "conv 16 8x8/4 same relu, conv 32 4x4/2 same relu, dense 256 relu",
       "Such et al. 2018, arXiv 1712.06567"},
      {"ModelVirtualBN", "evolution strategies' on Atari, in the released GPU program",
       "conv 16 8x8/4 same vbn relu, conv 32 4x4/2 same vbn relu, dense 256 vbn relu",
       "Such et al. 2018, arXiv 1712.06567"},
      {"ESAtariPolicy", "evolution strategies' on Atari, in the released distributed program",
       "conv 16 8x8/4 same vbn_affine relu, conv 32 4x4/2 same vbn_affine relu, "
       "dense 256 vbn_affine relu",
       "Conti et al. 2018, arXiv 1712.06560"},
      {"MujocoPolicy", "evolution strategies' on Humanoid",
       "normalize, dense 256 tanh, dense 256 tanh", "Salimans et al. 2017, arXiv 1703.03864"},
      {"SimpleClassifier", "the Deep GA's in the hard maze", "dense 16 relu, dense 16 relu",
       "Such et al. 2018, arXiv 1712.06567"},
      {"breadcrumb", "safe mutations' in the breadcrumb maze", "7 x dense 15 relu, out sigmoid",
       "Lehman et al. 2018, arXiv 1712.06563"},
      {"breadcrumb-deep", "the same with 64 matrices between hidden layers",
       "65 x dense 125 tanh, out sigmoid", "Lehman et al. 2018, arXiv 1712.06563"},
      {"parity", "safe mutations' for parity", "2 x rnn 15 tanh",
       "Lehman et al. 2018, arXiv 1712.06563"},
      {"parity-20", "the same with 20 units", "2 x rnn 20 tanh",
       "Lehman et al. 2018, arXiv 1712.06563"},
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

bool IsLine(std::string_view text) {
  return text == "normalize" || text.find_first_of(" \t,") != std::string_view::npos;
}

// The names of perceptrons that have the units of `name`, with every activation.
std::vector<std::string> WithOtherActivations(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& row : kActivationNames) {
    std::string other(name.substr(0, name.rfind('-') + 1));
    other += row.name;
    if (LineOfMlp(other)) names.push_back(std::move(other));
  }
  return names;
}

Status Unknown(std::string_view name) {
  std::vector<std::string> names = WithOtherActivations(name);
  const bool is_mlp = name.starts_with("mlp-");
  if (names.empty()) {
    names.emplace_back("mlp-64-64-tanh");
    for (const NetworkRow& row : Table().rows) names.push_back(row.name);
  }
  const std::string nearest = is_mlp ? Nearest(name, names) : Suggestion(name, names);
  return {Code::kConfig, "no network '" + Shown(name) + "'" +
                             (nearest.empty() ? "" : ", nearest is '" + nearest + "'") +
                             "; expected a name of `samara list networks`, "
                             "mlp-<units>-..-<activation> (" +
                             ActivationWords(/*none=*/false) + ") or layers such as " + kExample};
}

}  // namespace

std::string LineOfDense(std::span<const Layer> layers) {
  std::string line;
  for (const Layer& layer : layers) {
    if (!line.empty()) line += ", ";
    line += "dense " + std::to_string(layer.out) + " ";
    if (layer.norm != Norm::kNone) line += std::string(NameOf<Norm>(kNormWords, layer.norm)) + " ";
    line += NameOf<Activation>(kActivationNames, layer.activation);
  }
  return line;
}

Result<std::vector<Layer>> ParseLayers(std::string_view line) {
  std::vector<Layer> layers;
  Stage stage = Stage::kNormalize;
  for (size_t begin = 0; begin < line.size() || !layers.empty();) {
    const size_t end = std::min(line.find(',', begin), line.size());
    Words words(line, begin, end);
    size_t times = 1;
    RETURN_IF_ERROR(ReadRepetition(words, layers.size(), times));
    ASSIGN_OR_RETURN(const Layer layer, ReadLayer(words, times, stage));
    layers.insert(layers.end(), times, layer);
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
  if (text.starts_with('['))
    return Status(Code::kConfig,
                  "layers " + Shown(text) + ": a list, expected one text, as in " + kExample);
  NamedLayers found{std::string(text), std::string(text), {}};
  const auto& [rows, published] = Table();
  const auto row = std::ranges::find(rows, text, &NetworkRow::name);
  if (row != rows.end()) {
    found.line = row->layers;
    if (row - rows.begin() >= static_cast<ptrdiff_t>(published)) found.name = found.line;
  } else if (const auto mlp = LineOfMlp(text)) {
    found.line = *mlp;
  } else if (!IsLine(text)) {
    return Unknown(text);
  }
  ASSIGN_OR_RETURN(found.layers, ParseLayers(found.line));
  return found;
}

Result<std::optional<std::string>> BehindNormalize(std::string_view name_or_line) {
  ASSIGN_OR_RETURN(const NamedLayers found, FindLayers(name_or_line));
  if (found.layers.empty() || found.layers[0].kind != Layer::Kind::kNormalize)
    return std::optional<std::string>();
  const std::string_view line = found.line;
  const size_t next = line.find_first_not_of(", ", line.find(','));
  return std::optional(next == std::string_view::npos ? "linear" : std::string(line.substr(next)));
}

}  // namespace samara
