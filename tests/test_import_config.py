"""Configuration files of the programs of 2018 become presets that run here."""

import json
import tomllib

import pytest
from samara_cli import ROOT, ok, samara, train

FILES = ROOT / "tests" / "data" / "config_2018"


def imported(name, tmp_path, *words):
    out = tmp_path / "imported.toml"
    outcome = ok("import", FILES / f"{name}.json", "--out", out, *words, "--json")
    warnings = outcome.json["warnings"]
    assert outcome.err.count("warning: ") == len(warnings) and outcome.json["file"] == str(out)
    ok("train", out, "--dry-run") if "id" in tomllib.loads(out.read_text())["env"] else None
    return tomllib.loads(out.read_text()), warnings


def refused(tmp_path, config, code, *words):
    file = tmp_path / "config.json"
    file.write_text(config if isinstance(config, str) else json.dumps(config))
    outcome = samara("import", file, "--out", tmp_path / "x.toml", "--json")
    assert outcome.code == code and len(outcome.err.splitlines()) == 1, outcome
    for word in words:
        assert word in outcome.json["error"], outcome
    assert not (tmp_path / "x.toml").exists()


def read(name):
    return json.loads((FILES / f"{name}.json").read_text())


def test_the_accelerated_ga(tmp_path):
    toml, warnings = imported("accelerated_ga", tmp_path)
    assert toml == {
        "run": {"algorithm": "deep-ga"},
        "env": {"game": "seaquest", "preset": "deepga-gpu", "frames_max": 5000, "test_frames_max": 400_000},
        "network": {"name": "LargeModel"},
        "ga": {
            "loop": "uber_gpu", "population": 100, "parents": 8, "validation_candidates": 4, "validation_episodes": 5,
            "test_episodes": 50, "mutation_power": 0.004, "mutation_schedule": "linear", "mutation_power_end": 0.001,
            "mutation_schedule_frames": 4_000_000, "frames": 10_000_000,
        },
    }  # fmt: skip
    told = " ".join(warnings)
    for member in "l2coeff", "return_proc_mode", "load_population":
        assert member in told
    assert len(warnings) == 3


def test_random_search_on_a_task_of_gym_runs(tmp_path):
    toml, warnings = imported("accelerated_rs", tmp_path)
    assert toml["run"]["algorithm"] == "random-search" and toml["env"] == {"id": "CartPole-v1"}
    assert toml["network"] == {"name": "mlp-16-16-relu"} and toml["ga"]["frames"] == 20_000
    assert "parents" not in toml["ga"] and [w.split(":")[0] for w in warnings] == ["mutation_power"]
    result = train(tmp_path / "run", tmp_path / "imported.toml", "run.video=false", "run.random_episodes=1")
    assert result["frames"] >= 20_000 and len(result["elite_returns"]) == 10


def test_the_accelerated_es_runs(tmp_path):
    toml, warnings = imported("accelerated_es", tmp_path)
    assert toml["run"]["algorithm"] == "es" and toml["env"] == {"id": "CartPole-v1"}
    es = toml["es"]
    assert es["cutoff"] == "500"
    assert es | {"optimizer": "sgd_classic", "momentum": 0.8, "learning_rate": 0.05, "sigma": 0.1} == es
    assert es | {"population": 24, "weight_decay": 0.001, "shaping": "centered_rank", "frames": 20_000} == es
    assert [w.split(":")[0] for w in warnings] == ["num_validation_episodes"]
    result = train(tmp_path / "run", tmp_path / "imported.toml", "run.video=false", "run.random_episodes=1")
    assert result["frames"] >= 20_000


def test_the_distributed_ga(tmp_path):
    toml, warnings = imported("distributed_ga", tmp_path)
    assert toml["run"] == {"algorithm": "deep-ga", "name": "invaders"}
    assert toml["env"] == {"game": "space_invaders", "preset": "deepga", "frames_max": 4000}
    assert toml["ga"] == {
        "loop": "uber_dist", "init": "unit_norm", "population": 200, "parents": 6, "elites": 2, "mutation_power": 0.01,
        "validation_candidates": 0, "validation_episodes": 0, "test_episodes": 10,
    }  # fmt: skip
    assert toml["network"]["layers"] == "conv 16 8x8/4 same tanh, conv 32 4x4/2 same tanh, dense 256 tanh"
    assert {w.split(":")[0] for w in warnings} == {
        "config.timesteps_per_batch", "config.calc_obstat_prob", "config.l2coeff", "config.return_proc_mode",
        "config.snapshot_freq",
    }  # fmt: skip


def test_the_distributed_es_runs(tmp_path):
    toml, warnings = imported("distributed_es", tmp_path)
    assert toml["env"] == {"id": "Hopper-v5"} and toml["network"] == {"layers": "dense 32 tanh, dense 16 tanh"}
    es = toml["es"]
    assert es | {"population": 30, "sigma": 0.03, "weight_decay": 0.002, "learning_rate": 0.02} == es
    assert es["min_steps"] == 3000 and es["init"] == "unit_norm_0.01"
    assert es | {"optimizer": "adam", "validation_episodes": 3, "shaping": "centered_rank"} == es
    told = " ".join(warnings)
    assert "Hopper-v1 is played as Hopper-v5" in told and "policy.init_from" in told


def test_the_distributed_novelty_search(tmp_path):
    toml, _ = imported("distributed_nsr", tmp_path)
    assert toml["run"]["algorithm"] == "nsr-es" and toml["env"]["id"] == "Ant-v5"
    assert toml["novelty"] == {"behaviour": "final_position", "neighbours": 7, "centres": 3, "pick": "round_robin"}
    assert toml["es"]["validation_episodes"] == 2 and toml["es"]["min_steps"] == 1000


def test_novelty_search_has_the_cut_off_and_the_noise_of_the_file(tmp_path):
    config = read("distributed_nsr")
    config["config"]["episode_cutoff_mode"] = "adaptive:100,0.5,2,1000"
    config["policy"]["args"]["ac_noise_std"] = 0.02
    (tmp_path / "config.json").write_text(json.dumps(config))
    ok("import", tmp_path / "config.json", "--out", tmp_path / "x.toml")
    es = tomllib.loads((tmp_path / "x.toml").read_text())["es"]
    assert es["cutoff"] == "adaptive:100,0.5,2,1000" and es["action_noise"] == 0.02
    config["config"]["episode_cutoff_mode"] = 250
    (tmp_path / "config.json").write_text(json.dumps(config))
    ok("import", tmp_path / "config.json", "--out", tmp_path / "y.toml")
    toml = tomllib.loads((tmp_path / "y.toml").read_text())
    assert toml["es"]["cutoff"] == "250" and "frames_max" not in toml["env"]


def test_observations_are_normalised_where_the_file_says_so(tmp_path):
    config = read("distributed_es")
    config["config"]["calc_obstat_prob"] = 0.01
    (tmp_path / "config.json").write_text(json.dumps(config))
    warnings = ok("import", tmp_path / "config.json", "--out", tmp_path / "x.toml", "--json").json["warnings"]
    assert not any("calc_obstat_prob" in line for line in warnings)
    toml = tomllib.loads((tmp_path / "x.toml").read_text())
    assert toml["network"] == {"layers": "normalize, dense 32 tanh, dense 16 tanh"}
    assert toml["es"]["observation_share"] == 0.01


def test_the_first_weights_are_those_of_the_policy(tmp_path):
    """normc_initializer(0.01) in MujocoPolicy's output layer; ESAtariPolicy has its library's default, Glorot's."""
    config = read("distributed_es")
    config |= {"env_id": "FrostbiteNoFrameskip-v4", "policy": {"type": "ESAtariPolicy", "args": {}}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    ok("import", tmp_path / "config.json", "--out", tmp_path / "x.toml")
    assert tomllib.loads((tmp_path / "x.toml").read_text())["es"]["init"] == "xavier"
    assert imported("distributed_nsr", tmp_path)[0]["es"]["init"] == "unit_norm_0.01"
    assert "init" not in imported("accelerated_es", tmp_path)[0]["es"]


def test_bins_of_actions_are_read(tmp_path):
    config = read("distributed_es")
    config["policy"]["args"]["ac_bins"] = "uniform:10"
    (tmp_path / "config.json").write_text(json.dumps(config))
    ok("import", tmp_path / "config.json", "--out", tmp_path / "x.toml")
    assert tomllib.loads((tmp_path / "x.toml").read_text())["network"]["action_bins"] == 10


@pytest.mark.parametrize("mode", ["centered_rank", "sign", "centered_sign_rank"])
def test_every_shaping_of_2018_is_read(mode, tmp_path):
    config = read("accelerated_es")
    config["return_proc_mode"], config["population_size"] = mode, 4999
    (tmp_path / "config.json").write_text(json.dumps(config))
    ok("import", tmp_path / "config.json", "--out", tmp_path / "x.toml")
    toml = tomllib.loads((tmp_path / "x.toml").read_text())
    assert toml["es"]["shaping"] == mode and toml["es"]["population"] == 5000


def test_the_program_can_be_named(tmp_path):
    toml, _ = imported("distributed_ga", tmp_path, "--program", "rs")
    assert toml["run"]["algorithm"] == "random-search" and "parents" not in toml["ga"]


@pytest.mark.parametrize(
    ("name", "path", "value", "words"),
    [
        ("accelerated_ga", "populaton_size", 5, ["populaton_size: unknown key", "population_size"]),
        ("accelerated_ga", "mutation_power.rate", 5, ["mutation_power.rate: unknown key"]),
        ("accelerated_ga", "population_size", "many", ["population_size is", "a number"]),
        ("accelerated_ga", "population_size", 2.5, ["population_size is 2.5", "whole number"]),
        ("accelerated_ga", "population_size", None, ["population_size: missing"]),
        ("accelerated_ga", "model", "BigModel", ["model is", "LargeModel"]),
        ("accelerated_ga", "game", "a\"b", ["game is", "text"]),
        ("accelerated_ga", "game", "frostbyte", ["no such game; nearest is frostbite", "samara list games"]),
        ("distributed_ga", "env_id", "SpaceInvaderNoFrameskip-v4", ["no such game; nearest is space_invaders"]),
        ("accelerated_ga", "episode_cutoff_mode", "adaptive:1,0.5,2,9", ["episode_cutoff_mode is"]),
        ("accelerated_ga", "mutation_power.field", "iteration", ["mutation_power.field"]),
        ("accelerated_es", "return_proc_mode", "rank", ["return_proc_mode is", "centered_rank"]),
        ("accelerated_es", "optimizer.type", "lbfgs", ["optimizer.type is lbfgs", "adam"]),
        ("accelerated_es", "optimizer.args.decay", 1, ["optimizer.args.decay: unknown key"]),
        ("distributed_es", "optimizer.args.beta1", 0.5, ["optimizer.args.beta1 is 0.5", "0.9"]),
        ("distributed_es", "policy.args.ac_bins", "uniform:1", ["policy.args.ac_bins is", "uniform:"]),
        ("distributed_es", "policy.args.connection_type", "resff", ["connection_type is"]),
        ("distributed_es", "policy.args.hidden_dims", [], ["hidden_dims"]),
        ("distributed_es", "policy.type", "Policy", ["policy.type is Policy"]),
        ("distributed_es", "env_id", None, ["env_id: missing"]),
        ("distributed_es", "config.sigma", 1, ["config.sigma: unknown key"]),
        ("distributed_ga", "config.noise_stdev", -1, ["ga.mutation_power"]),
        ("distributed_nsr", "novelty_search.selection_method", "best", ["selection_method is", "novelty_prob"]),
        ("distributed_nsr", "algo_type", "es", ["algo_type is", "ns or nsr"]),
    ],
)
def test_what_nothing_here_does_is_named(name, path, value, words, tmp_path):
    config = read(name)
    *folders, last = path.split(".")
    inner = config
    for folder in folders:
        inner = inner[folder]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    refused(tmp_path, config, 78, "config.json", *words)


def test_other_files(tmp_path):
    refused(tmp_path, "[1, 2]", 65, "not a JSON object")
    refused(tmp_path, '{"game": "pong"', 65, "not a JSON object")
    twice = json.dumps(read("accelerated_ga"))
    refused(tmp_path, twice[:-1] + ', "game": "pong"}', 65, 'the member "game" is given twice')
    inner = json.dumps(read("distributed_es")).replace('"config": {', '"config": {"l2coeff": 1, ', 1)
    refused(tmp_path, inner, 65, 'the member "l2coeff" is given twice')
    refused(tmp_path, {"config": 3, "env_id": "Ant-v1"}, 78, "config: expected an object")
    out = tmp_path / "x.safetensors"
    outcome = samara("import", FILES / "accelerated_ga.json", "--out", out, "--json")
    assert outcome.code == 64 and "FILE.toml" in outcome.json["error"]
