"""Networks by a line of layers: the same runs as by name, for evolution and learning alike."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file
from samara_cli import CARTPOLE, ok, samara, train

LINE = "network.layers=dense 12 tanh, dense 8 relu"
LEARN = ["classic/cartpole-vtrace", "learn.frames=3200", "learn.mode=deterministic", "run.random_episodes=2", "learn.test_episodes=2"]


def evolution(*words):
    return [*CARTPOLE, "ga.generations=2", *words]


@pytest.mark.parametrize("preset, result", [(evolution(), "population_hash"), (LEARN, "parameter_hash")])
def test_a_line_gives_the_bits_of_the_name(preset, result, tmp_path):
    named = train(tmp_path / "named", *preset, "network.name=mlp-16-8-tanh")
    lined = train(tmp_path / "lined", *preset, "network.layers=dense 16 tanh, dense 8 tanh")
    other = train(tmp_path / "other", *preset, LINE)
    assert named[result] == lined[result] != other[result]


@pytest.mark.parametrize("preset", [evolution(), LEARN])
def test_a_line_is_played_exported_and_resumed(preset, tmp_path):
    run, policy = tmp_path / "run", tmp_path / "policy.safetensors"
    result = train(run, *preset, LINE)
    assert 'layers = "dense 12 tanh, dense 8 relu"' in (run / "config.toml").read_text()
    ok("export", run, policy)
    for source in (run, policy):
        played = ok("eval", source, "--episodes", "2", "--json").json
        assert len(played["returns"]) == 2, source
    again = ok("train", "--resume", run, "--json", "--quiet").json
    assert again["frames"] == result["frames"]
    changed = samara("train", "--resume", run, "network.layers=dense 12 tanh")
    assert changed.code == 78 and "network.layers" in changed.err
    report = json.loads(ok("list", "networks", "--json").out.splitlines()[-1])
    assert any(row["name"] == "network.layers=LINE" for row in report["networks"])


@pytest.mark.parametrize("preset", ["classic/cartpole-ga", "classic/cartpole-vtrace"])
@pytest.mark.parametrize("line, says", [
    ("dense 16 rel", "layers, column 10: 'rel', expected vbn, vbn_affine, layer_norm, relu, tanh, none"),
    ("dense 16 relu, lstn 64", "layers, column 16: 'lstn', expected dense"),
    ("dense 16 relu, normalize", "column 16: 'normalize', expected dense"),
    ("conv 16 8x8/4 relu, dense 8 relu", "needs images, the observations are vectors of 4"),
])
def test_a_line_that_is_wrong_is_refused(preset, line, says, tmp_path):
    refused = samara("train", preset, f"network.layers={line}", "--out", tmp_path / "run")
    assert refused.code == 78 and says in refused.err and len(refused.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_learners_refuse_evolutions_recurrent_layers(tmp_path):
    refused = samara("train", "classic/cartpole-vtrace", "network.layers=lstm 8, dense 8 relu", "--out", tmp_path / "run")
    assert refused.code == 78 and "network.lstm=UNITS" in refused.err and len(refused.err.splitlines()) == 1
    refused = samara("train", "classic/cartpole-vtrace", "network.layers=dense 8 vbn relu", "--out", tmp_path / "run")
    assert refused.code == 78 and "virtual batch norm" in refused.err
    refused = samara("train", "classic/cartpole-ga", "network.layers=dense 8 vbn relu", "network.storage=int8", "--out", tmp_path / "run")
    assert refused.code == 78 and "expected float32" in refused.err and len(refused.err.splitlines()) == 1


NORM = "network.layers=dense 12 layer_norm tanh, dense 8 layer_norm relu"


@pytest.mark.parametrize("preset", [
    LEARN,
    ["classic/pendulum-sac", "learn.frames=800", "replay.start=200", "run.random_episodes=2", "learn.test_episodes=2"],
])  # fmt: skip
def test_layer_normalization_is_learned_played_and_exported(preset, tmp_path):
    run, policy = tmp_path / "run", tmp_path / "policy.safetensors"
    result = train(run, *preset, NORM)
    plain = train(tmp_path / "plain", *preset, NORM.replace("layer_norm ", ""))
    assert result["parameter_hash"] != plain["parameter_hash"]
    ok("export", run, policy)
    names = load_file(policy)
    assert {"fc1_norm.weight", "fc2_norm.bias"} <= set(names)
    assert not np.array_equal(names["fc1_norm.weight"], np.ones(12))
    played = [ok("eval", source, "--episodes", "3", "--json").json["returns"] for source in (run, policy)]
    assert played[0] == played[1]


def test_populations_refuse_layer_normalization(tmp_path):
    refused = samara("train", *evolution(NORM), "--out", tmp_path / "run")
    assert refused.code == 78 and "layer_norm is trained by gradients only" in refused.err and len(refused.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("inference", [[], ["fleet.native=slots"], ["fleet.native=slots", "fleet.threads=2", "fleet.slots=5"]])
def test_a_recurrent_population_has_one_hash_on_every_fleet(inference, tmp_path):
    """Whole episodes on threads, or slots whose observations interleave."""
    base = train(tmp_path / "base", *evolution("network.layers=gru 6, lstm 5"), "fleet.threads=1")
    other = train(tmp_path / "other", *evolution("network.layers=gru 6, lstm 5"), *inference)
    assert base["population_hash"] == other["population_hash"]


VBN = "network.layers=normalize, dense 6 vbn relu, dense 5 vbn_affine tanh"


def test_virtual_batch_norm_depends_on_no_other_member(tmp_path):
    """One hash whoever plays; a policy file carries its statistics; a resumed run has the first one's reference."""
    base = train(tmp_path / "base", *evolution(VBN), "fleet.threads=1")
    slots = train(tmp_path / "slots", *evolution(VBN), "fleet.native=slots", "fleet.threads=2", "fleet.slots=5")
    assert base["population_hash"] == slots["population_hash"]
    other_seed = train(tmp_path / "seed", *evolution(VBN), "run.seed=4")
    assert base["population_hash"] != other_seed["population_hash"]
    ok("export", tmp_path / "base", tmp_path / "elite.safetensors")
    played = [ok("eval", policy, "--episodes", 20, "--json").json["returns"]
              for policy in (tmp_path / "base", tmp_path / "elite.safetensors")]  # fmt: skip
    assert played[0] == played[1]
    short = train(tmp_path / "short", *evolution(VBN), "ga.generations=1")
    resumed = ok("train", "--resume", tmp_path / "short", "ga.generations=2", "--json", "--quiet").json
    assert short["population_hash"] != resumed["population_hash"] == base["population_hash"]
    ok("fsck", tmp_path / "short")


def test_initial_weights_are_a_choice(tmp_path):
    hashes = {train(tmp_path / init, *evolution(), f"ga.init={init}", "ga.generations=1")["population_hash"]
              for init in ("fan_in", "unit_norm", "unit_norm_0.01", "xavier", "he", "uniform")}  # fmt: skip
    assert len(hashes) == 6


def test_evolution_refuses_residual_stacks(tmp_path):
    refused = samara("train", "atari/deep-ga-desktop", "network.name=impala_deep", "--out", tmp_path / "run")
    assert refused.code == 78 and "residual stacks are trained by gradients only" in refused.err
