#include "evo/evaluate/reference.h"

#include <set>

#include "evo/evaluate/evaluate_test_util.h"
#include "evo/genome/decode.h"
#include "nn/safetensors.h"

namespace samara::reference_test {
namespace {

constexpr char kLine[] = "normalize, dense 6 vbn relu, dense 5 vbn_affine tanh";

std::vector<float> Collect(const PolicyModel& model, uint64_t seed, uint32_t slots,
                           uint32_t threads) {
  const auto fleet = MakeThreadFleet(Native("CartPole-v1"), slots, threads).ValueOrThrow();
  return CollectReference(model, {}, seed, *fleet).ValueOrThrow();
}

TEST(ReferenceTest, IsAFunctionOfTheSeedForEveryFleet) {
  const auto model = ModelFor(Native("CartPole-v1"), kLine);
  const std::vector<float> inputs = Collect(*model, 3, 1, 0);
  ASSERT_EQ(inputs.size(), ReferenceInputs(*model) * 4);
  EXPECT_EQ(Collect(*model, 3, 4, 2), inputs);
  EXPECT_NE(Collect(*model, 4, 1, 0), inputs);
  // consecutive observations of several episodes, which random actions end
  std::set<std::vector<float>> different;
  for (size_t i = 0; i < inputs.size(); i += 4)
    different.insert({inputs.begin() + static_cast<ptrdiff_t>(i),
                      inputs.begin() + static_cast<ptrdiff_t>(i + 4)});
  EXPECT_EQ(different.size(), ReferenceInputs(*model));
}

TEST(ReferenceTest, IsSavedExactly) {
  const auto model = ModelFor(Native("CartPole-v1"), kLine);
  const std::vector<float> inputs = Collect(*model, 3, 1, 0);
  const std::string bytes = EncodeReference(*model, inputs);
  EXPECT_EQ(DecodeReference(*model, bytes).ValueOrThrow(), inputs);
  EXPECT_EQ(DecodeReference(*model, bytes.substr(0, bytes.size() - 1)).status().code(),
            Code::kBadData);
  const PolicyModel wider(Network(kLine, 5, 2), {}, model->action());
  EXPECT_EQ(DecodeReference(wider, bytes).status().code(), Code::kBadData);

  // files that hold another tensor, or one of another shape
  const auto refused = [&](const std::string& name, const Tensor& tensor) {
    Safetensors file;
    file.tensors[name] = tensor;
    const Status status = DecodeReference(*model, FormatSafetensors(file).ValueOrThrow()).status();
    EXPECT_EQ(status.code(), Code::kBadData);
    EXPECT_EQ(status.message(), "the run's reference batch is damaged or of another input");
  };
  refused("input", Tensor::OfFloats({1}, std::vector<float>{1}));
  refused("inputs", Tensor::OfFloats({}, std::vector<float>{1}));
  refused("inputs", Tensor::OfFloats({2, 1, 1, 4}, std::vector<float>(8)));

  const PolicyModel bytes_model(Network(kLine, 8, 2),
                                {.stacked = false, .stack = {}, .dtype = DType::kUint8},
                                model->action());
  std::vector<float> levels;
  for (size_t i = 0; i < 8 * ReferenceInputs(*model); ++i)
    levels.push_back(static_cast<float>(i % 256) / 255.0F);
  const std::string small = EncodeReference(bytes_model, levels);
  EXPECT_LT(small.size(), levels.size() + 500);
  EXPECT_EQ(DecodeReference(bytes_model, small).ValueOrThrow(), levels);
}

// Writes the parameters of a genome.
class GenomeSource : public ParameterSource {
 public:
  explicit GenomeSource(const NetworkDescription& network) : network_(network) {}
  void Write(PolicyHandle policy, std::span<float> canonical) const override {
    Genome genome;
    genome.initial = policy.id;
    DecodeParameters(genome, network_, canonical);
  }

 private:
  const NetworkDescription& network_;
};

// Defect of the released distributed program: statistics shared by the networks that are
// alive.
TEST(ReferenceTest, AGenomesOutputsDoNotDependOnWhatOtherSlotsHold) {
  const auto model = ModelFor(Native("CartPole-v1"), kLine);
  model->SetReference(Collect(*model, 3, 1, 0));
  const NetworkDescription& network = model->kernel().network();
  const GenomeSource source(network);
  const std::vector<float> x = {0.1F, -0.4F, 0.7F, 0.2F};
  const auto outputs = [&](PolicyState& state, PolicyWorkspace& workspace, uint32_t genome) {
    state.Load(workspace, {genome, 0}, source);
    state.StartEpisode({.seed = 1});
    state.Decide(workspace, std::as_bytes(std::span(x)));
    return std::vector<float>(state.outputs().begin(), state.outputs().end());
  };
  PolicyWorkspace alone(*model), shared(*model);
  PolicyState first(*model), second(*model), third(*model);
  const auto want = outputs(first, alone, 7);
  EXPECT_NE(outputs(second, shared, 8), want);
  EXPECT_EQ(outputs(third, shared, 7), want);
  outputs(third, shared, 9);
  EXPECT_EQ(outputs(second, shared, 7), want);
  EXPECT_EQ(outputs(first, shared, 7), want);

  // a policy that carries its statistics plays the same without a reference
  std::vector<float> carried(network.parameter_count);
  source.Write({7, 0}, carried);
  model->ComputeStatistics(shared, carried);
  const auto without = ModelFor(Native("CartPole-v1"), kLine);
  PolicyWorkspace workspace(*without);
  PolicyState state(*without);
  state.Load(workspace, {0, 0}, FixedParameters(carried));
  state.StartEpisode({.seed = 1});
  state.Decide(workspace, std::as_bytes(std::span(x)));
  EXPECT_EQ(std::vector<float>(state.outputs().begin(), state.outputs().end()), want);
}

}  // namespace
}  // namespace samara::reference_test
