// Policy files of unknown origin, with one text of their metadata or one tensor changed.
#include "play/saved_policy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/sha256.h"
#include "evo/algorithms/ga.h"
#include "evo/algorithms/registry.h"
#include "evo/evaluate/evaluate_test_util.h"
#include "evo/evaluate/reference.h"
#include "evo/genome/decode.h"
#include "nn/safetensors.h"
#include "play/initial_policy.h"
#include "storage/checkpoint.h"
#include "storage/evolution_journal.h"
#include "storage/run_folder.h"

namespace samara {
namespace {

class SavedPolicyTest : public testing::Test {
 protected:
  SavedPolicyTest() : file_(Path(testing::TempDir()) / ("policy." + std::to_string(::getpid()))) {
    policy_.config.env.id = "CartPole-v1";
    policy_.network = MakeNetwork("mlp-3-tanh", 1, 1, 4, 2).ValueOrThrow();
    policy_.parameters.assign(policy_.network.parameter_count, 0.5F);
    policy_.genome = Genome{};
  }
  ~SavedPolicyTest() override { std::filesystem::remove(file_); }

  Safetensors Good() const {
    return ParseSafetensors(FormatPolicy(policy_, Storage::kFloat32).ValueOrThrow()).ValueOrThrow();
  }
  // A file of a learner's weights as `samara export` writes it.
  static Safetensors Agent() {
    Safetensors file;
    file.metadata = {{"format", "samara-agent-2"}, {"config", "[run]\nalgorithm = \"vtrace\"\n"}};
    file.tensors["value.bias"] = Tensor::OfFloats({1}, std::vector<float>{2});
    return file;
  }
  static Result<Policy> Parse(const Safetensors& file) {
    return ParsePolicy(FormatSafetensors(file).ValueOrThrow(), "some.file");
  }
  static void ExpectRefused(const Safetensors& file, const std::string& message,
                            Code code = Code::kBadData) {
    const Status status = Parse(file).status();
    EXPECT_EQ(status.code(), code) << message;
    EXPECT_EQ(status.message(), message);
  }
  void Write(const Safetensors& file) const {
    ThrowIfError(WriteFileAtomic(file_, FormatSafetensors(file).ValueOrThrow()));
  }

  const Path file_;
  Policy policy_;
};

TEST_F(SavedPolicyTest, GivesBackWhatWasSaved) {
  const Policy back = Parse(Good()).ValueOrThrow();
  EXPECT_EQ(back.parameters, policy_.parameters);
  EXPECT_EQ(back.genome, policy_.genome);
  EXPECT_EQ(back.network.name, "mlp-3-tanh");
  EXPECT_EQ(back.config.env.id, "CartPole-v1");
  Safetensors plain = Good();
  plain.metadata.erase("genome");
  plain.metadata["network"] =  // as files were before weights had other types
      R"({"name": "mlp-3-tanh", "height": 1, "width": 1, "channels": 4, "outputs": 2})";
  EXPECT_FALSE(Parse(plain)->genome.has_value());
}

TEST_F(SavedPolicyTest, WrongMetadataIsNamed) {
  struct Case {
    const char *key, *text, *message;
  };
  const Case cases[] = {
      {"format", "",
       "not a policy file (metadata format '', expected 'samara-policy-1' or "
       "'samara-agent-2'): make one with 'samara export' or 'samara import'"},
      {"format", "x\n",
       "not a policy file (metadata format 'x\\x0a', expected 'samara-policy-1' or "
       "'samara-agent-2'): make one with 'samara export' or 'samara import'"},
      {"network", "", "the metadata lack the network"},
      {"network", "[]", "the metadata lack the network"},
      {"network", "{}", "network record: damaged: no text 'name'"},
      {"network", R"({"name": 3})", "network record: damaged: no text 'name'"},
      {"network", R"({"name": "linear"})", "network record: damaged: no count 'height'"},
      {"network", R"({"name": "linear", "height": -1})",
       "network record: damaged: no count 'height'"},
      {"network", R"({"name": "linear", "height": 1})",
       "network record: damaged: no count 'width'"},
      {"network", R"({"name": "linear", "height": 1, "width": 1})",
       "network record: damaged: no count 'channels'"},
      {"network", R"({"name": "linear", "height": 1, "width": 1, "channels": 4})",
       "network record: damaged: no count 'outputs'"},
      {"network",
       R"({"name": "linear", "height": 1, "width": 1, "channels": 4, "outputs": 2, "storage": 1})",
       "network record: damaged: no text 'storage'"},
      {"genome", "0", "a genome is not hexadecimal"},
      {"genome", "0g", "a genome is not hexadecimal"},
      {"genome", "g0", "a genome is not hexadecimal"},
      {"genome", "00", "genome: 1 bytes, expected at least 16"},
  };
  for (const Case& c : cases) {
    Safetensors file = Good();
    file.metadata[c.key] = c.text;
    ExpectRefused(file, c.message);
  }
  Safetensors file = Good();
  file.metadata["network"] =
      R"({"name": "linear", "height": 1, "width": 1, "channels": 18446744073709551615, "outputs": 2})";
  EXPECT_EQ(Parse(file).status().code(), Code::kConfig) << "not made, and no memory for it";
  file = Good();
  file.metadata["config"] = "[run]\nseeds = 3\n";
  ExpectRefused(file,
                "metadata: run.seeds: unknown key; the nearest known one is run.seed "
                "('samara list keys' shows all)",
                Code::kConfig);
  EXPECT_EQ(ParsePolicy("", "x").status().message(),
            "an empty file, expected a run folder or a policy file");
}

TEST_F(SavedPolicyTest, TensorsAreThoseOfTheNetwork) {
  Safetensors file = Good();
  file.tensors["fc1.bias"] = {Tensor::Type::kUint8, {3}, "abc"};
  ExpectRefused(file, "fc1.bias: expected float32");
  file = Good();
  file.tensors.erase("fc1.bias");
  EXPECT_EQ(Parse(file).status().code(), Code::kBadData);
}

TEST_F(SavedPolicyTest, TheEntropyCostOfAnAgentIsANumber) {
  Safetensors agent = Agent();
  EXPECT_TRUE(Parse(agent).ok()) << Parse(agent).status().message();
  agent.metadata["entropy_cost"] = "0.25";
  const Policy read = Parse(agent).ValueOrThrow();
  const Safetensors weights =
      ParseSafetensors(read.agent_files.at("weights.safetensors")).ValueOrThrow();
  EXPECT_EQ(weights.tensors.at("entropy_cost").Floats(), std::vector<float>{0.25F});
  for (const char* text : {"", "abc", "0.25x", "1e99"}) {
    agent.metadata["entropy_cost"] = text;
    ExpectRefused(agent,
                  std::string("entropy_cost is ") + text + " in the metadata, expected a number");
  }
  agent = Agent();
  agent.metadata["config"] = "[run]\nalgorithm = \"deep-ga\"\n";
  ExpectRefused(agent, "the metadata name no agent");
}

// A file of the first format is a learner's own: its tensors are read where they are needed.
TEST_F(SavedPolicyTest, AnEntropyCostThatIsNoNumberIsNotExported) {
  for (const Tensor& cost : {Tensor{Tensor::Type::kUint8, {4}, "abcd"}, Tensor::OfFloats({0}, {}),
                             Tensor::OfFloats({2}, std::vector<float>{1, 2})}) {
    Safetensors agent = Agent();
    agent.metadata["format"] = "samara-agent-1";
    agent.tensors["entropy_cost"] = cost;
    const Status status = SavePolicy(Parse(agent).ValueOrThrow(), file_);
    EXPECT_EQ(status.code(), Code::kBadData);
    EXPECT_EQ(status.message(), "entropy_cost: expected one float32");
  }
}

TEST_F(SavedPolicyTest, WeightsThatAreNoNumbersAreRefusedUnlessAsked) {
  policy_.parameters[7] = std::numeric_limits<float>::infinity();
  Write(Good());
  const std::string refusal = file_.string() +
                              ": parameter 7 is not a finite number, so what is played would mean "
                              "nothing; expected another file";
  EXPECT_EQ(LoadPolicy(file_).status().message(), refusal);
  EXPECT_EQ(LoadPolicy(file_, {.advise_nonfinite = true}).status().message(),
            refusal + ", or --allow-nonfinite");
  EXPECT_TRUE(LoadPolicy(file_, {.allow_nonfinite = true}).ok());
  Safetensors agent = Agent();
  agent.tensors["value.bias"] = Tensor::OfFloats({2}, std::vector<float>{0, std::nanf("")});
  Write(agent);
  EXPECT_NE(LoadPolicy(file_).status().message().find("weight 1 of value_bias is not a finite"),
            std::string::npos)
      << LoadPolicy(file_).status().message();
}

TEST_F(SavedPolicyTest, AFileHasOnePolicyAndRunsNoCodeUnasked) {
  Write(Good());
  for (const LoadOptions& options :
       {LoadOptions{.individual = "best"}, LoadOptions{.generation = 3}})
    EXPECT_EQ(LoadPolicy(file_, options).status().code(), Code::kUsage);
  EXPECT_EQ(LoadPolicy(file_, {.overrides = {"env.idd=3"}}).status().code(), Code::kConfig);
  EXPECT_EQ(LoadPolicy(file_.string() + ".none").status().code(), Code::kNoInput);
  policy_.config.env.id = "module:Name-v0";
  Write(Good());
  EXPECT_EQ(
      LoadPolicy(file_)->config.env.untrusted,
      file_.string() + ": its env.id=module:Name-v0 runs code of its own, such as a Python module");
  EXPECT_EQ(LoadPolicy(file_, {.trust = true})->config.env.untrusted, "");
  policy_.config.env.kwargs = "{\"a\" = 1}";
  Write(Good());
  EXPECT_NE(LoadPolicy(file_)->config.env.untrusted.find("Name-v0, its kwargs or wrappers runs"),
            std::string::npos);
  EXPECT_EQ(LoadPolicy(file_, {.overrides = {"env.id=CartPole-v1"}})->config.env.untrusted, "");
}

TEST_F(SavedPolicyTest, AConfigurationIsNoPolicy) {
  const Path toml = file_.string() + ".toml";
  ThrowIfError(WriteFileAtomic(toml, "[run]\n"));
  EXPECT_EQ(LoadPolicy(toml).status().message(),
            toml.string() + ": a TOML file; expected a run folder or a policy file");
  std::filesystem::remove(toml);
}

TEST_F(SavedPolicyTest, AnotherModuleThanThePolicysIsRefused) {
  const Path module = file_.string() + ".pt";
  ThrowIfError(WriteFileAtomic(module, "a module"));
  const std::string digest = "sha256:" + Sha256Hex("a module");
  Safetensors file = Agent();
  Write(file);
  const LoadOptions with = {.overrides = {"network.module=" + module.string()}};
  EXPECT_EQ(
      LoadPolicy(file_, with).status().message(),
      "network.module=" + digest + ": the policy has none; expected that module, or it left out");
  file.metadata["config"] += "[network]\nmodule = \"" + digest + "\"\n";
  Write(file);
  EXPECT_TRUE(LoadPolicy(file_, with).ok());
  ThrowIfError(WriteFileAtomic(module, "another"));
  EXPECT_NE(LoadPolicy(file_, with).status().message().find("the policy has " + digest),
            std::string::npos);
  std::filesystem::remove(module);
}

TEST_F(SavedPolicyTest, AnInitialPolicyIsOfTheRunsNetwork) {
  const std::string bytes = FormatPolicy(policy_, Storage::kFloat32).ValueOrThrow();
  EXPECT_EQ(ParseInitialPolicy(bytes, policy_.network)->parameters, policy_.parameters);
  const auto other = MakeNetwork("linear", 1, 1, 4, 2).ValueOrThrow();
  EXPECT_EQ(ParseInitialPolicy(bytes, other).status().message(),
            "initial.safetensors: 23 parameters, the run's network has 10");
  EXPECT_EQ(ParseInitialPolicy("", other).status().code(), Code::kBadData);
}

// The start of a policy keeps its genome where that decodes to what the policy plays.
TEST_F(SavedPolicyTest, AGenomeIsBelievedWhereItDecodesToTheParameters) {
  const auto begun = [&] {
    Write(Good());
    ExperimentConfig config;
    config.run.init_from = file_.string();
    const InitialFile file = MakeInitialFile(config, policy_.network).ValueOrThrow();
    return ParsePolicy(file.bytes, "initial")->genome.has_value();
  };
  EXPECT_FALSE(begun()) << "parameters of another genome";
  const Genome genome{.initial = 5, .mutations = {{.key = 6, .power = 0.5F}}};
  policy_.genome = genome;
  DecodeParameters(genome, policy_.network, policy_.parameters);
  EXPECT_TRUE(begun());
  const std::vector<float> exact = policy_.parameters;
  ASSERT_TRUE(SetStorage(Storage::kBf16, policy_.network).ok());
  RoundToStorage(policy_.network, policy_.parameters);
  EXPECT_TRUE(begun()) << "rounded for its file";
  EXPECT_NE(policy_.parameters, exact);
  policy_.genome->init = InitKind::kPolicy;
  EXPECT_FALSE(begun()) << "begins from a policy itself";
  policy_.genome = genome;
  policy_.genome->mutations[0].kind = MutationKind::kSmR;
  EXPECT_FALSE(begun()) << "seeds alone do not decide it";
  policy_.genome = genome;
  policy_.genome->noise = NoiseKind::kTable, policy_.genome->initial = 250'000'000;
  EXPECT_FALSE(begun()) << "beyond the table";
  policy_.genome.reset();
  EXPECT_FALSE(begun());
}

TEST_F(SavedPolicyTest, WhatOthersMayChangeIsNotTheUsersOwn) {
  Write(Good());
  EXPECT_TRUE(CheckOwn(file_).ok());
  std::filesystem::permissions(file_, std::filesystem::perms(0666));
  EXPECT_EQ(CheckOwn(file_).code(), Code::kNotPermitted);
  std::filesystem::permissions(file_, std::filesystem::perms(0600));
  if (::geteuid() != 0) return;  // only root can give a file away
  ASSERT_EQ(::chown(file_.c_str(), 65534, 65534), 0);
  EXPECT_EQ(CheckOwn(file_).code(), Code::kNotPermitted);
}

// Policies of runs, whose folders are made part by part.
class PolicyOfRunTest : public SavedPolicyTest {
 protected:
  ~PolicyOfRunTest() override { std::filesystem::remove_all(path_); }
  std::unique_ptr<RunFolder> Make(const std::string& toml, const nlohmann::json& identity) const {
    return RunFolder::Create(path_, "x", toml, identity, 0).ValueOrThrow();
  }
  void ExpectRefused(Code code, const std::string& message, const LoadOptions& options = {}) const {
    const Status status = LoadPolicy(path_, options).status();
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(status.message(), message);
  }
  const Path path_ = Path(testing::TempDir()) / ("policy_run." + std::to_string(::getpid()));
};

TEST_F(PolicyOfRunTest, OfALearningRunItIsTheLastAgents) {
  const auto run = Make("[run]\nalgorithm = \"vtrace\"\n", {{"seed", 1}});
  ExpectRefused(Code::kUsage,
                path_.string() +
                    ": a learning run holds its newest agent and, with --individual best, the best "
                    "of its evaluations; other names and --generation are for the run of an "
                    "evolution",
                {.generation = 3});
  EXPECT_EQ(LoadPolicy(path_).status().code(), Code::kNoInput);
  const auto save = [&](uint64_t update, const char* name, const std::string& bytes) {
    const std::vector<CheckpointFile> files = {{name, bytes}};
    return CheckpointWriter(run->checkpoints())
        .Save({.step = update, .incarnation = 1}, files)
        .ValueOrThrow();
  };
  const RootedPath empty = save(3, "state.bin", "state");
  ExpectRefused(Code::kBadData, empty.string() + ": holds no weights.safetensors");
  save(4, "weights.safetensors", "none");
  ExpectRefused(Code::kBadData, path_.string() + ": not a safetensors file: shorter than 8 bytes");
  Safetensors weights;
  weights.tensors["entropy_cost"] = Tensor::OfFloats({}, std::vector<float>{0.5F});
  weights.tensors["frame"] = {Tensor::Type::kUint8, {2}, "ab"};
  save(5, "weights.safetensors", FormatSafetensors(weights).ValueOrThrow());
  const Policy policy = LoadPolicy(path_).ValueOrThrow();
  EXPECT_EQ(policy.source, path_.string() + ", agent of update 5");
  EXPECT_EQ(ParameterCount(policy), 1U);
  std::filesystem::permissions(path_ / "config.toml", std::filesystem::perms(0666));
  EXPECT_NE(LoadPolicy(path_)->config.env.untrusted, "");
}

TEST_F(PolicyOfRunTest, AnExportedAgentKeepsItsEntropyCost) {
  Safetensors agent = Agent();
  agent.metadata["entropy_cost"] = "0.25";
  ASSERT_TRUE(SavePolicy(Parse(agent).ValueOrThrow(), file_).ok());
  const std::string bytes = ReadFile(file_).ValueOrThrow();
  EXPECT_EQ(ParseSafetensors(bytes)->metadata.at("entropy_cost"), "0.25");
  agent.metadata.erase("entropy_cost");
  ASSERT_TRUE(SavePolicy(Parse(agent).ValueOrThrow(), file_).ok());
  EXPECT_FALSE(ParseSafetensors(ReadFile(file_).ValueOrThrow())->metadata.contains("entropy_cost"));
}

TEST_F(PolicyOfRunTest, OfAnEvolutionItIsDecodedAndHasItsReferenceBatch) {
  const NetworkDescription network = MakeNetwork("dense 3 vbn relu", 1, 1, 4, 2).ValueOrThrow();
  const auto run = Make("[run]\nalgorithm = \"deep-ga\"\n", {{"network", ToJson(network)}});
  GaState state;
  state.generation = 1;
  state.elite = Parent{.genome = {.initial = 5, .mutations = {{.key = 6, .power = 0.5F}}}};
  const GenerationRecord record{
      .algorithm = "deep-ga", .state = state.Encode(), .fitness = {}, .seconds = 0, .metrics = ""};
  const auto journal =
      Journal::Open(run->journal(), Journal::OnDamage::kRefuse, nullptr).ValueOrThrow();
  ASSERT_TRUE(journal->Append(kGenerationRecord, record.Encode()).ok());
  ExpectRefused(Code::kBadData, path_.string() +
                                    ": the journal lacks the reference batch of dense 3 vbn relu: "
                                    "'samara train --resume' makes it again");
  ASSERT_TRUE(journal->Append(kReferenceRecord, "none").ok());
  ExpectRefused(Code::kBadData, path_.string() + ": not a safetensors file: shorter than 8 bytes");
  const PolicyModel model(network, {}, {.discrete = true, .n = 2, .low = {}, .high = {}});
  const std::vector<float> inputs(4 * ReferenceInputs(model), 0.5F);
  ASSERT_TRUE(journal->Append(kReferenceRecord, EncodeReference(model, inputs)).ok());
  const Policy policy = LoadPolicy(path_).ValueOrThrow();
  std::vector<float> expected(network.parameter_count);
  DecodeParameters(state.elite->genome, network, expected);
  EXPECT_TRUE(std::equal(expected.begin(),
                         expected.begin() + static_cast<ptrdiff_t>(network.evolved_count),
                         policy.parameters.begin()));
  EXPECT_EQ(policy.genome, state.elite->genome);
  ASSERT_FALSE(InitialPolicyOf(*run, network).ValueOrThrow().has_value());
}

TEST_F(PolicyOfRunTest, StatisticsThatAnEvolutionKeepsNeedNoReferenceBatch) {
  const NetworkDescription network =
      MakeNetwork("normalize, dense 3 tanh", 1, 1, 4, 2).ValueOrThrow();
  const auto run = Make("[run]\nalgorithm = \"es\"\n", {{"network", ToJson(network)}});
  FakeEvaluator evaluator(network.parameter_count,
                          [](const Task&, auto) { return EpisodeResult{.frames = 1}; });
  const auto es = FindEvolutionAlgorithm("es")->config()->Make({1, network, evaluator, {}});
  const GenerationRecord record{
      .algorithm = "es", .state = es->EncodeState(), .fitness = {}, .seconds = 0, .metrics = ""};
  const auto journal =
      Journal::Open(run->journal(), Journal::OnDamage::kRefuse, nullptr).ValueOrThrow();
  ASSERT_TRUE(journal->Append(kGenerationRecord, record.Encode()).ok());
  const auto policy = LoadPolicy(path_);
  ASSERT_TRUE(policy.ok()) << policy.status().message();
  EXPECT_EQ(policy->parameters.size(), network.parameter_count);
}

TEST_F(PolicyOfRunTest, AnInitialPolicyThatIsNoneIsNamedWithItsRun) {
  const std::string bytes = "no policy";
  const auto run = RunFolder::Create(path_, "x", "[run]\n",
                                     {{"initial_policy", {{"file_sha256", Sha256Hex(bytes)}}}}, 0,
                                     {{RunFolder::kInitialPolicy, bytes}})
                       .ValueOrThrow();
  const Status status = InitialPolicyOf(*run, policy_.network).status();
  EXPECT_EQ(status.code(), Code::kBadData);
  EXPECT_EQ(status.message().find(path_.string() + ": not a safetensors file"), 0U)
      << status.message();
  std::filesystem::remove_all(path_);
  const std::string good = FormatPolicy(policy_, Storage::kFloat32).ValueOrThrow();
  const auto begun = RunFolder::Create(path_, "x", "[run]\n",
                                       {{"initial_policy", {{"file_sha256", Sha256Hex(good)}}}}, 0,
                                       {{RunFolder::kInitialPolicy, good}})
                         .ValueOrThrow();
  EXPECT_EQ(InitialPolicyOf(*begun, policy_.network).ValueOrThrow()->parameters,
            policy_.parameters);
  // a network without statistics needs no reference batch
  EXPECT_TRUE(TakeReference("", policy_).ok());
}

}  // namespace
}  // namespace samara
