"""Evolution strategies and their relatives: one seed, one hash, whatever plays the episodes and whatever is killed;
names and keys of earlier builds."""

import hashlib
import shutil
from pathlib import Path

import pytest
from samara_cli import ROOT, ok, resume, samara, train
from test_resume import kill_and_resume
from test_train_ranks import result

SHORT = ["run.seed=3", "run.random_episodes=4", "run.final_test_episodes=4", "run.video=false"]


def short(table: str, *settings: str) -> list[str]:
    return [f"{table}.generations=4", f"{table}.validation_episodes=2", f"{table}.test_episodes=4", *settings]


# Every option that changes what is played, in one run.
ES = ["classic/cartpole-es", *SHORT,
      *short("es", "es.population=12", "es.episodes=2", "es.min_steps=1500", "es.cutoff=adaptive:20,0.5,2,300",
             "es.sigma_schedule=exponential", "es.sigma_end=0.05", "es.learning_rate_schedule=linear",
             "es.learning_rate_end=0.01", "es.schedule_length=3", "es.shaping=nes")]  # fmt: skip
NORMALIZED = ["classic/cartpole-es", *SHORT, "env.id=Hopper-v5", "env.frames_max=200", "network.layers=normalize, dense 8 tanh",
              "network.action_bins=5",
              *short("es", "es.population=12", "es.action_noise=0.3", "es.observation_share=0.3",
                     "es.shaping=centered_sign_rank", "es.min_steps=500", "es.init=unit_norm_0.01")]  # fmt: skip
RUNS = {
    "es": ES,
    "es-normalized": NORMALIZED,
    "cma-mae": ["maze/hard-cma-mae", *SHORT, "map.population=8", "map.generations=4", "map.test_episodes=4"],
    "map-elites": ["maze/hard-map-elites", *SHORT, "ga.population=20", "ga.generations=4", "ga.test_episodes=4"],
    "pgpe": ["classic/cartpole-pgpe", *SHORT, *short("pgpe", "pgpe.population=12")],
    "ars": ["classic/cartpole-ars", *SHORT, *short("ars", "ars.directions=6")],
    "ars-normalized": ["mujoco/hopper-ars", *SHORT, "env.frames_max=200",
                       *short("ars", "ars.directions=5", "ars.observation_share=0.5")],
    "snes": ["classic/cartpole-snes", *SHORT, *short("snes", "snes.population=12")],
    "cma-es": ["classic/cartpole-cma-es", *SHORT, *short("cma", "cma.population=12")],
    "sep-cma-es": ["classic/cartpole-sep-cma-es", *SHORT, *short("cma", "cma.population=12")],
}


@pytest.mark.parametrize("name", RUNS)
def test_one_hash_for_any_threads_and_slots(name, tmp_path):
    run = RUNS[name]
    alone = train(tmp_path / "alone", *run, "fleet.threads=1")["population_hash"]
    ways = {"threads": ["fleet.threads=3"], "slots": ["fleet.native=slots", "fleet.slots=5", "fleet.threads=2"]}
    for way, how in ways.items():
        assert train(tmp_path / way, *run, *how)["population_hash"] == alone, way


@pytest.mark.skipif(not (ROOT / "build" / "samara-torch").exists(), reason="NOT TESTED: built without torch")
@pytest.mark.parametrize("name", RUNS)
def test_one_hash_for_any_ranks(name, tmp_path):
    alone = train(tmp_path / "alone", *RUNS[name])
    shared = result("samara", 2, *RUNS[name], "--out", tmp_path / "ranks")
    assert shared["ranks"] == 2
    for same in ("population_hash", "frames", "elite_returns"):
        assert shared[same] == alone[same], same


@pytest.mark.parametrize("actors", [1, 3])
@pytest.mark.parametrize("of", [
    [*ES, "env.id=dummy", "network.name=linear", "es.min_steps=300"],
    [*NORMALIZED, "env.id=MountainCarContinuous-v0", "es.shaping=centered_rank", "es.generations=2", "es.min_steps=0"],
])  # fmt: skip
def test_one_hash_for_any_actors(of, actors, tmp_path):
    run = [*of, f"fleet.actors={actors}"]
    ways = [["fleet.inference=actor"], ["fleet.inference=engine"]]
    hashes = {train(tmp_path / str(i), *run, *how)["population_hash"] for i, how in enumerate(ways)}
    hashes.add(train(tmp_path / "two", *run, "fleet.actors=2", "fleet.slots=5")["population_hash"])
    assert len(hashes) == 1


def test_five_kills(tmp_path):
    run = [*ES, "es.generations=300", "es.population=40", "run.checkpoint_seconds=1", "fleet.threads=1"]
    kill_and_resume(tmp_path, run, train(tmp_path / "whole", *run), seed=2, kills=5, span=0.8)


def older(run: Path, copy: Path) -> Path:
    """A run folder as the first build with evolution strategies wrote its configuration."""
    shutil.copytree(run, copy)
    config = copy / "config.toml"
    header, text = config.read_text().split("\n", 1)
    text = text.replace('"es"', '"openai-es"').replace("population = 12", "pairs = 6")
    config.write_text(header[: -64] + hashlib.sha256(text.encode()).hexdigest() + "\n" + text)
    return copy


def test_names_of_earlier_builds(tmp_path):
    plain = ["classic/cartpole-es", *SHORT, *short("es", "es.population=12")]
    whole = train(tmp_path / "whole", *plain)["population_hash"]
    assert train(tmp_path / "named", *plain, "run.algorithm=openai-es")["population_hash"] == whole
    train(tmp_path / "half", *plain, "es.generations=2")
    assert resume(older(tmp_path / "half", tmp_path / "older"), "es.generations=4")["population_hash"] == whole
    evaluated = ok("eval", older(tmp_path / "whole", tmp_path / "eval"), "--episodes", "2", "--json").json
    assert evaluated["episodes"] == 2
    assert ok("inspect", tmp_path / "eval", "--json").json["individuals"] == 12
    ok("export", tmp_path / "eval", tmp_path / "0.safetensors", "--individual", "0")
    refused = samara("train", *plain, "es.pairs=6", "--out", tmp_path / "refused")
    assert refused.code == 78
    assert "es.pairs was renamed: set es.population, twice the number of pairs" in refused.err


@pytest.mark.parametrize("setting, words", [
    ("es.population=7", "expected an even number"),
    ("es.cutoff=soon", "es.cutoff=soon: expected env_default"),
    ("es.optimizer=rmsprop", "one of adam, sgd, sgd_damped, sgd_classic"),
])  # fmt: skip
def test_bad_settings_are_one_line(setting, words, tmp_path):
    refused = samara("train", "classic/cartpole-es", setting, "--out", tmp_path / "run")
    assert refused.code == 78
    assert words in refused.err and len(refused.err.strip().splitlines()) == 1


def test_sums_of_signs_solve_no_task(tmp_path):
    """Every member's sum is -1 in the maze, above the criterion of -5 for a return."""
    result = train(tmp_path / "run", "maze/hard-es", *SHORT, "es.shaping=centered_sign_rank", "es.population=10",
                   "es.generations=2", "run.stop_when_solved=true")  # fmt: skip
    assert result["solved_at"] is None and result["generation"] == 2


def test_noise_on_discrete_actions_is_refused(tmp_path):
    refused = samara("train", "classic/cartpole-es", "es.action_noise=0.1", "--out", tmp_path / "run")
    assert refused.code == 78 and "es.action_noise=0.1: the actions of" in refused.err


def test_bins_of_what_is_no_bounded_box_are_refused(tmp_path):
    for words in (["classic/cartpole-es", "network.action_bins=5"], ["mujoco/swimmer-es-desktop", "network.action_bins=1"],
                  ["parity/rnn", "network.action_bins=2"]):
        refused = samara("train", *words, "--out", tmp_path / "run")
        assert refused.code == 78 and f"{words[1]}: expected 0, or 2 or more" in refused.err


def test_members_beyond_the_least_population_are_individuals_too(tmp_path):
    run = tmp_path / "run"
    train(run, "maze/hard-es", *SHORT, "es.population=8", "es.generations=2", "es.min_steps=9000", "run.stop_when_solved=false")
    listed = ok("inspect", run, "--json").json
    last = listed["individuals"] - 1
    assert len(listed["fitness"]) == last + 1 > 8
    played = ok("eval", run, "--individual", last, "--episodes", 1, "--json").json
    assert played["returns"] == [pytest.approx(listed["fitness"][last], rel=1e-6)]


def test_a_policy_of_another_activation_is_no_beginning(tmp_path):
    train(tmp_path / "first", "classic/cartpole-es", *SHORT, "es.population=4", "es.generations=1", "network.name=mlp-8-tanh")
    refused = samara("train", "classic/cartpole-es", "network.name=mlp-8-relu", f"run.init_from={tmp_path / 'first'}",
                     "--out", tmp_path / "second")  # fmt: skip
    assert refused.code == 78 and "has the activation tanh, that of mlp-8-relu has relu" in refused.err
