#include "evo/evaluate/reference.h"

#include <cmath>
#include <cstring>

#include "core/rng.h"
#include "nn/safetensors.h"

namespace samara {
namespace {

constexpr char kInputs[] = "inputs";
constexpr std::chrono::milliseconds kWait{100};

std::vector<int64_t> ShapeOf(const NetworkDescription& network, size_t inputs) {
  return {static_cast<int64_t>(inputs), network.height, network.width, network.channels};
}

}  // namespace

Result<std::vector<float>> CollectReference(const PolicyModel& model, const EpisodeRule& episodes,
                                            uint64_t seed, Fleet& fleet) {
  const size_t size = model.kernel().network().input_size(), count = ReferenceInputs(model);
  PolicyState state(model);
  PolicyWorkspace workspace(model);
  std::vector<float> inputs, episode;  // of finished episodes, of the running one
  uint64_t number = 0;
  const auto begin = [&] {
    const uint64_t key = DeriveKey(seed, Purpose::kReference, 0, 0, number);
    const EpisodeSpec spec = episodes.Make(key, /*test=*/false);
    episode.clear();
    state.StartEpisode(spec);
    fleet.Begin(0, number, spec);
  };
  state.LoadRandom();
  begin();
  while (inputs.size() + episode.size() < count * size) {
    SlotEvent event;
    if (fleet.Wait({&event, 1}, kWait) == 0) continue;
    switch (event.kind) {
      case SlotEvent::Kind::kObservation: {
        const float* input = state.TakeObservation(fleet.observation(0));
        episode.insert(episode.end(), input, input + size);
        if (inputs.size() + episode.size() < count * size)
          fleet.Act(0, state.Decide(workspace, fleet.observation(0)));
        break;
      }
      case SlotEvent::Kind::kEnded:
        inputs.insert(inputs.end(), episode.begin(), episode.end());
        ++number;
        begin();
        break;
      case SlotEvent::Kind::kLost:
        begin();  // the same episode again
        break;
      case SlotEvent::Kind::kFailed:
        return fleet.status();
    }
  }
  inputs.insert(inputs.end(), episode.begin(), episode.end());
  return inputs;
}

std::string EncodeReference(const PolicyModel& model, std::span<const float> inputs) {
  const NetworkDescription& network = model.kernel().network();
  const std::vector<int64_t> shape = ShapeOf(network, inputs.size() / network.input_size());
  Safetensors file;
  if (model.input().dtype == DType::kUint8) {
    Tensor bytes{.type = Tensor::Type::kUint8, .shape = shape, .bytes = {}};
    for (const float x : inputs)
      bytes.bytes += static_cast<char>(static_cast<uint8_t>(std::lround(x * 255)));
    file.tensors[kInputs] = std::move(bytes);
  } else {
    file.tensors[kInputs] = Tensor::OfFloats(shape, inputs);
  }
  return FormatSafetensors(file).ValueOrThrow();
}

Result<std::vector<float>> DecodeReference(const PolicyModel& model, std::string_view bytes) {
  const Status bad(Code::kBadData, "the run's reference batch is damaged or of another input");
  ASSIGN_OR_RETURN(const Safetensors file, ParseSafetensors(bytes));
  const auto found = file.tensors.find(kInputs);
  if (found == file.tensors.end() || found->second.shape.empty()) return bad;
  const Tensor& tensor = found->second;
  const NetworkDescription& network = model.kernel().network();
  if (tensor.shape != ShapeOf(network, ReferenceInputs(model))) return bad;
  if (tensor.type == Tensor::Type::kFloat32) return tensor.Floats();
  std::vector<float> inputs;
  inputs.reserve(tensor.bytes.size());
  for (const char c : tensor.bytes)
    inputs.push_back(static_cast<float>(static_cast<uint8_t>(c)) / 255.0F);
  return inputs;
}

}  // namespace samara
