// Configuration files of 2018 with one member changed: the line that it becomes, or the refusal.
#include "config/import_2018.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/files.h"

namespace samara {
namespace {

using Json = nlohmann::json;

Json FileOf2018(const std::string& name) {
  const Path path = Path(SAMARA_SOURCE_DIR) / "tests/data/config_2018" / (name + ".json");
  return Json::parse(ReadFile(path).ValueOrThrow());
}

// `member` of the file becomes `value`; null: it is taken out.
struct Change {
  const char *file, *member;
  Json value;
  std::string expected;
  const char* program = "";
};

Result<ImportedConfig> ImportChanged(const Change& change) {
  Json json = FileOf2018(change.file);
  const Json::json_pointer member(change.member);
  if (!change.value.is_null())
    json[member] = change.value;
  else if (json.contains(member))
    json[member.parent_pointer()].erase(member.back());
  return ImportConfig2018(json.dump(), change.program);
}

TEST(ImportConfig2018Test, WhatIsWrongIsNamed) {
  const std::string a_number = ", expected a number";
  const std::string word = ", expected a text of letters, digits and -_.:,/";
  const Json huge = 1e300, linear = {{"type", "LinearSchedule"}, {"schedule", 5}};
  const Change cases[] = {
      {"accelerated_ga", "/game", nullptr, "game: missing; expected an Atari game or gym.ID"},
      {"accelerated_ga", "/game", 5, "game is 5" + word},
      {"accelerated_ga", "/game", "a b", "game is \"a b\"" + word},
      {"accelerated_ga", "/model", nullptr,
       "model: missing; expected a network such as LargeModel"},
      {"accelerated_ga", "/model", "Big",
       "model is \"Big\", expected one of LargeModel, LinearClassifier, Model, ModelVirtualBN, "
       "SimpleClassifier"},
      {"accelerated_ga", "/population_size", "5", "population_size is \"5\"" + a_number},
      {"accelerated_ga", "/population_size", -1,
       "population_size is -1, expected a whole number, 0 or more"},
      {"accelerated_ga", "/population_size", 0.5,
       "population_size is 0.5, expected a whole number, 0 or more"},
      {"accelerated_ga", "/population_size", huge,
       "population_size is 1e+300, expected a whole number, 0 or more"},
      {"accelerated_ga", "/population_size", nullptr,
       "population_size: missing; expected a whole number"},
      {"accelerated_ga", "/mutation_power", nullptr, "mutation_power: missing; expected a number"},
      {"accelerated_ga", "/mutation_power", "x", "mutation_power is \"x\"" + a_number},
      {"accelerated_ga", "/mutation_power", Json::object(),
       "mutation_power is {}, expected a number, or a ConstantSchedule, LinearSchedule or "
       "ExponentialSchedule"},
      {"accelerated_ga", "/mutation_power", linear,
       "mutation_power.field: expected timesteps_so_far"},
      {"accelerated_ga", "/mutation_power/initial_p", nullptr,
       "mutation_power: expected initial_p and final_p"},
      {"accelerated_ga", "/mutation_power/final_p", nullptr,
       "mutation_power: expected initial_p and final_p"},
      {"accelerated_ga",
       "/mutation_power",
       {{"type", "ConstantSchedule"}, {"rate", 1}},
       "mutation_power.rate: unknown key; the nearest known one is mutation_power.type"},
      {"accelerated_ga", "/episode_cutoff_mode", "adaptive:1",
       "episode_cutoff_mode is \"adaptive:1\", expected a number of steps or env_default"},
      {"accelerated_es", "/episode_cutoff_mode", "never",
       "episode_cutoff_mode is \"never\", expected a number of steps, env_default or adaptive:..."},
      {"accelerated_es", "/episode_cutoff_mode", -5,
       "episode_cutoff_mode is -5, expected a whole number, 0 or more"},
      {"accelerated_es", "/episode_cutoff_mode", 2.5, "episode_cutoff_mode is 2.5" + word},
      {"accelerated_es", "/optimizer/type", nullptr,
       "optimizer.type: missing: expected adam or sgd"},
      {"accelerated_es", "/optimizer", 3, "optimizer: expected an object"},
      {"accelerated_es", "/return_proc_mode", "rank",
       "return_proc_mode is \"rank\", expected centered_rank, sign or centered_sign_rank"},
      {"accelerated_ga", "/game", "seaquest",
       "that program has ga, rs and es; expected one of them as --program", "ns"},
      {"accelerated_ga", "/game", "seaquest", "deep: expected ga, rs, es, ns or nsr", "deep"},
      {"distributed_es", "/policy/type", nullptr,
       "policy.type: missing: expected GAAtariPolicy, ESAtariPolicy or MujocoPolicy"},
      {"distributed_es",
       "/policy/args/hidden_dims",
       {5, "x"},
       "policy.args.hidden_dims is [5,\"x\"], expected whole numbers"},
      {"distributed_es", "/policy/args/hidden_dims", 5,
       "policy.args.hidden_dims: expected a list of layers' sizes"},
      {"distributed_es", "/policy/args/hidden_dims", nullptr,
       "policy.args.hidden_dims: expected a list of layers' sizes"},
      {"distributed_es", "/policy/args/nonlin_type", "elu",
       "policy.args.nonlin_type is elu, expected relu or tanh"},
      {"distributed_es", "/policy/args/ac_bins", "uniform:5x",
       "policy.args.ac_bins is \"uniform:5x\", expected continuous: or uniform: and 2 or more "
       "values"},
      {"distributed_es", "/policy/args/ac_bins", "uniform:",
       "policy.args.ac_bins is \"uniform:\", expected continuous: or uniform: and 2 or more "
       "values"},
      {"distributed_es", "/policy/args/ac_bins", "custom:5",
       "policy.args.ac_bins is \"custom:5\", expected continuous: or uniform: and 2 or more "
       "values"},
      {"distributed_es", "/config/calc_obstat_prob", 1.5,
       "config.calc_obstat_prob is \"1.5\", expected a share of episodes, 0 to 1"},
      {"distributed_es", "/optimizer/args/epsilon", 0.5,
       "optimizer.args.epsilon is 0.5: expected 1e-08, which is fixed here"},
      {"distributed_ga", "/population_size", nullptr,
       "population_size: missing; expected the number of parents"},
      {"distributed_nsr", "/config/return_proc_mode", "sign",
       "return_proc_mode is \"sign\", expected centered_sign_rank"},
      {"distributed_nsr", "/algo_type", "es", "algo_type is \"es\", expected ns or nsr"},
      {"accelerated_es", "/optimizer/type", "lbfgs",
       "optimizer.type is lbfgs: expected adam or sgd"},
      {"accelerated_ga", "/selection_threshold", nullptr,
       "selection_threshold: missing; expected a whole number"},
      {"distributed_es", "/env_id", nullptr,
       "env_id: missing; expected an id of Gym such as FrostbiteNoFrameskip-v4"},
      {"distributed_es", "/policy/args/hidden_dims", Json::array(),
       "policy.args.hidden_dims: expected a list of layers' sizes"},
      {"distributed_es", "/policy/args/connection_type", "resff",
       "policy.args.connection_type is \"resff\", expected ff"},
      {"distributed_es", "/policy/args/ac_bins", "uniform:1",
       "policy.args.ac_bins is \"uniform:1\", expected continuous: or uniform: and 2 or more "
       "values"},
      {"distributed_es", "/policy/type", "Policy",
       "policy.type is Policy: expected GAAtariPolicy, ESAtariPolicy or MujocoPolicy"},
      {"distributed_es", "/config", nullptr,
       "config.episodes_per_batch: missing; expected a whole number"},
      {"distributed_nsr", "/novelty_search/selection_method", "best",
       "novelty_search.selection_method is \"best\", expected novelty_prob or round_robin"},
  };
  for (const Change& c : cases) {
    const Status status = ImportChanged(c).status();
    EXPECT_EQ(status.code(), Code::kConfig) << c.file << c.member;
    // members of an inner object are named with their path
    EXPECT_TRUE(status.message().ends_with(c.expected)) << status.message() << "\n" << c.expected;
  }
  EXPECT_EQ(ImportConfig2018(R"({"policy": {}})", "").status().message(),
            "env_id: missing; expected an id of Gym such as FrostbiteNoFrameskip-v4");
  for (const char* text : {"", "[]", "{", "5", "{\"population_size\": 1e999}"}) {
    EXPECT_EQ(ImportConfig2018(text, "").status().code(), Code::kBadData);
    EXPECT_EQ(ImportConfig2018(text, "").status().message(), "not a JSON object");
    EXPECT_FALSE(IsConfig2018(text)) << text;
  }
}

TEST(ImportConfig2018Test, MembersBecomeLines) {
  const Json constant = {{"type", "ConstantSchedule"}, {"value", 0.25}};
  const Json exponential = {{"type", "ExponentialSchedule"},
                            {"initial_p", 0.5},
                            {"final_p", 0.125},
                            {"schedule", 10},
                            {"field", "timesteps_so_far"}};
  const Json noisy = {{"type", "MujocoPolicy"},
                      {"args", {{"hidden_dims", {8}}, {"ac_noise_std", 0.5}}}};
  const Change cases[] = {
      {"accelerated_ga", "/mutation_power", 0.5, "mutation_power = 0.5"},
      {"accelerated_ga", "/episode_cutoff_mode", 900'000'000'000'000, "frames_max"},
      {"accelerated_es", "/episode_cutoff_mode", "adaptive:100,0.5,2,1000",
       "cutoff = \"adaptive:100,0.5,2,1000\""},
      {"accelerated_es", "/return_proc_mode", "sign", "shaping = \"sign\""},
      {"accelerated_es", "/num_validation_episodes", nullptr, "population = 24"},
      {"accelerated_rs", "/num_test_episodes", 5, "algorithm = \"random-search\""},
      {"distributed_es", "/env_id", "Pong2NoFrameskip-v4", "game = \"pong2\""},
      {"distributed_es", "/env_id", "CartPole", "id = \"CartPole\""},
      {"distributed_es", "/policy/args/ac_bins", "uniform:10", "action_bins = 10"},
      {"distributed_ga", "/policy", noisy,
       "# policy.args.ac_noise_std: actions of a genetic algorithm have no noise here"},
      {"distributed_ga", "/exp_prefix", "a", "algorithm = \"random-search\"", "rs"},
      {"accelerated_ga", "/mutation_power", constant, "mutation_power = 0.25"},
      {"accelerated_ga", "/mutation_power", exponential, "mutation_schedule = \"exponential\""},
      {"accelerated_ga", "/num_validation_episodes", nullptr, "validation_candidates = 4"},
      {"accelerated_ga", "/num_test_episodes", nullptr, "population = 100"},
      {"accelerated_ga", "/episode_cutoff_mode", nullptr, "population = 100"},
      {"accelerated_ga", "/game", "gym.CartPole-v1", "id = \"CartPole-v1\""},
      {"accelerated_es", "/num_validation_episodes", 0, "population = 24"},
      {"accelerated_es", "/return_proc_mode", nullptr, "population = 24"},
      {"accelerated_es", "/mutation_power", nullptr, "population = 24"},
      {"accelerated_es", "/l2coeff", nullptr, "population = 24"},
      {"accelerated_es", "/population_size", 23, "population = 24"},
      {"accelerated_es", "/optimizer/args/stepsize", nullptr, "optimizer = \"sgd_classic\""},
      {"accelerated_es", "/optimizer/args/momentum", nullptr, "optimizer = \"sgd_classic\""},
      {"accelerated_rs", "/selection_threshold", 5, "parents = 5"},
      {"accelerated_ga", "/game", "pong", "algorithm = \"random-search\"", "rs"},
      {"distributed_es", "/config/episodes_per_batch", 29, "population = 30"},
      {"distributed_es", "/config/noise_stdev", nullptr, "population = 30"},
      {"distributed_es", "/config/l2coeff", nullptr, "population = 30"},
      {"distributed_es", "/config/timesteps_per_batch", nullptr, "population = 30"},
      {"distributed_es", "/config/eval_prob", nullptr, "population = 30"},
      {"distributed_es", "/config/calc_obstat_prob", 0.5, "observation_share = 0.5"},
      {"distributed_es", "/exp_prefix", nullptr, "population = 30"},
      {"distributed_es", "/env_id", "Hopper-v5", "id = \"Hopper-v5\""},
      {"distributed_es", "/env_id", "CartPole-v0", "id = \"CartPole-v0\""},
      {"distributed_es", "/env_id", "FrostbiteNoFrameskip-v4", "game = \"frostbite\""},
      {"distributed_es", "/optimizer/type", "sgd", "optimizer.args.beta1: unknown key"},
      {"distributed_es",
       "/policy",
       {{"type", "ESAtariPolicy"}, {"args", {{"nonlin_type", "tanh"}}}},
       "vbn_affine tanh"},
      {"distributed_es", "/policy/args/nonlin_type", nullptr, "dense 32 relu, dense 16 relu"},
      {"distributed_es", "/policy/args/connection_type", nullptr, "dense 32 tanh"},
      {"distributed_es", "/policy/args/ac_bins", nullptr, "dense 32 tanh"},
      {"distributed_es", "/policy/args/ac_noise_std", 0.25, "action_noise = 0.25"},
      {"distributed_es", "/policy/args/ac_noise_std", 0, "dense 32 tanh"},
      {"distributed_es", "/novelty_search", Json::object(),
       "# novelty_search: has no effect on es"},
      {"distributed_ga", "/num_elites", nullptr, "elites = 1"},
      {"distributed_ga", "/config/noise_stdev", nullptr, "parents = 6"},
      {"distributed_ga", "/config/eval_prob", nullptr, "parents = 6"},
      {"distributed_nsr", "/algo_type", "ns", "algorithm = \"ns-es\""},
      {"distributed_nsr", "/algo_type", "ns", "algorithm = \"nsr-es\"", "nsr"},
      {"distributed_nsr", "/novelty_search/k", nullptr, "centres = 3"},
      {"distributed_nsr", "/novelty_search/population_size", nullptr, "neighbours = 7"},
      {"distributed_nsr", "/novelty_search/num_rollouts", nullptr, "neighbours = 7"},
      {"distributed_nsr", "/novelty_search/selection_method", nullptr, "neighbours = 7"},
      {"distributed_nsr", "/novelty_search/selection_method", "novelty_prob", "pick = \"novelty\""},
      {"distributed_nsr", "/env_id", "FrostbiteNoFrameskip-v4", "behaviour = \"ram\""},
      {"distributed_nsr", "/config/calc_obstat_prob", 0.5, "# config.calc_obstat_prob: the stat"},
  };
  for (const Change& c : cases) {
    const auto imported = ImportChanged(c);
    const std::string text = imported.ok() ? imported->toml : imported.status().message();
    EXPECT_NE(text.find(c.expected), std::string::npos) << c.file << c.member << "\n" << text;
  }
}

TEST(ImportConfig2018Test, IsKnownByItsMembers) {
  for (const char* name : {"model", "config", "env_id", "population_size"})
    EXPECT_TRUE(IsConfig2018(Json{{name, 1}}.dump())) << name;
  EXPECT_FALSE(IsConfig2018(Json{{"game", "pong"}}.dump()));
}

}  // namespace
}  // namespace samara
