"""What every evolution algorithm owes its user: one schema of records, limits that hold everywhere, and policies that play again."""

from __future__ import annotations

import json
import re

import pytest
from samara_cli import CARTPOLE, ROOT, ok, samara, train

# A run of well under a second, two generations or the like, on CartPole.
COMMON = ["env.id=CartPole-v1", "network.name=mlp-8-relu", "run.seed=3", "run.final_test_episodes=4",
          "run.random_episodes=2", "run.video=false"]  # fmt: skip
SMALL = {
    "deep-ga": [*CARTPOLE, *COMMON, "ga.generations=2"],
    "random-search": [*CARTPOLE, *COMMON, "ga.generations=2", "run.algorithm=random-search"],
    "ars": ["classic/cartpole-ars", *COMMON, "ars.directions=4", "ars.top=2"],
}
for name, table in [("es", "es"), ("pgpe", "pgpe"), ("snes", "snes"), ("sep-cma-es", "cma"), ("cma-es", "cma")]:
    SMALL[name] = [f"classic/cartpole-{name}", *COMMON, f"{table}.population=8"]
for name, words in SMALL.items():
    table = {"sep-cma-es": "cma", "cma-es": "cma"}.get(name, name)
    if table in ("es", "pgpe", "snes", "cma", "ars"):
        words += [f"{table}.{word}" for word in ("generations=2", "validation_episodes=4", "test_episodes=2", "test_every=1")]
MAZE = ["env.id=HardMaze", "env.frames_max=60", *COMMON[1:]]
SMALL["ga-ns"] = ["maze/hard-ga-ns", *MAZE, "ga.population=12", "ga.parents=4", "ga.generations=2", "ga.test_episodes=2",
                  "novelty.neighbours=3", "run.stop_when_solved=false"]  # fmt: skip
SMALL["map-elites"] = ["maze/hard-map-elites", *MAZE, "ga.population=12", "ga.generations=2", "ga.test_episodes=2",
                       "run.stop_when_solved=false"]  # fmt: skip
SMALL["cma-mae"] = ["maze/hard-cma-mae", *MAZE, "map.population=6", "map.emitters=2", "map.generations=2",
                    "map.test_episodes=2", "run.stop_when_solved=false"]  # fmt: skip
SMALL["ssga"] = ["maze/breadcrumb-sm-g-so", *MAZE, "ga.population=12", "ga.births=12", "ga.window=4", "ga.evaluations=24",
                 "ga.test_episodes=2", "run.stop_when_solved=false"]  # fmt: skip
for name in ("ns-es", "nsr-es", "nsra-es"):
    SMALL[name] = ["mujoco/ant-trap-nsr-es", *MAZE, "network.layers=", f"run.algorithm={name}", "es.population=8",
                   "es.generations=2", "es.validation_episodes=2", "es.test_episodes=2", "novelty.centres=2"]  # fmt: skip
ALGORITHMS = [row["name"] for row in ok("list", "algorithms", "--json").json["algorithms"] if row["kind"] == "evolution"]


def length_of(words):
    """Key and value of the setting that says how long a run is."""
    return next(word.split("=") for word in words if word.split("=")[0].endswith((".generations", ".evaluations")))


def words_of(algorithm):
    if algorithm not in SMALL:
        pytest.skip(f"NOT TESTED: no small run of {algorithm} in tests/test_algorithms.py")
    return SMALL[algorithm]


@pytest.fixture(scope="module", params=ALGORITHMS)
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "elsewhere").mkdir()
    outcome = ok("train", *words_of(request.param), "--out", folder / "run", "--quiet", "--json", cwd=folder / "elsewhere")
    assert not list((folder / "elsewhere").iterdir()), "a run writes into its folder only"
    return folder / "run", outcome.json


def test_every_algorithm_writes_the_same_records(run):
    """A program of 2018 started no logger for one of its algorithms, and its TensorBoard writer was never made."""
    folder, result = run
    log = (folder / "log.txt").read_text()
    for generation in (1, 2):
        assert re.search(rf"generation {generation}: frames \d+, fitness best", log)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    generations = [line for line in lines if "generation" in line and "event" not in line]
    assert [line["generation"] for line in generations] == [1, 2]
    common = {"time", "seconds", "frames", "frames_test", "steps", "episodes", "fitness_mean", "fitness_median",
              "fitness_max", "fitness_min", "fitness_std", "elite_validation_mean", "population_hash",
              "frames_per_second", "seconds_population", "seconds_validation", "seconds_test", "respawns"}  # fmt: skip
    documented = set(re.findall(r"`([a-z_0-9]+)`", (ROOT / "doc" / "metrics.md").read_text()))
    for line in generations:
        assert common <= line.keys(), common - line.keys()
        assert line.keys() <= documented, line.keys() - documented
    assert {line["event"] for line in lines if "event" in line} >= {"random_policy", "finished"}
    assert [path.stat().st_size > 0 for path in folder.glob("events.out.tfevents.*")] == [True]
    assert result["population_hash"] == generations[-1]["population_hash"]
    assert result["frames"] == generations[-1]["frames"] and len(result["elite_returns"]) == 4


# the slow ones save what one of the others saves: centres, or a mean and deviations
@pytest.mark.parametrize("run", [pytest.param(name, marks=pytest.mark.slow) if name in ("nsr-es", "nsra-es", "sep-cma-es", "snes")
                                 else name for name in ALGORITHMS], indirect=True)
def test_every_policy_plays_again(run, tmp_path):
    """The original's player knew the policies of one task and of one algorithm only."""
    folder, _ = run
    file, film = tmp_path / "policy.safetensors", tmp_path / "film.mp4"
    ok("export", folder, file)
    played = ok("eval", folder, "--episodes", 6, "--json").json
    again = ok("eval", file, "--episodes", 6, "--json").json
    assert played["returns"] == again["returns"] and played["frames"] == again["frames"]
    watched = ok("play", file, "--video", film, "--json").json
    assert (watched["return"], watched["frames"]) == (played["returns"][0], played["frames"][0])
    assert film.stat().st_size > 0
    for row in ok("inspect", folder, "--json").json["candidates"]:
        assert ok("eval", folder, "--individual", row["name"], "--episodes", 1, "--json").json["policy"] == row["name"]
    ok("inspect", folder, "--lineage", "--json")
    ok("report", folder, "--out", tmp_path / "report.html")
    ok("fsck", folder)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("native", ["direct", "slots"])
def test_limits_hold_everywhere(algorithm, native, tmp_path):
    """Population and validation, tests, and what is played later; the original's bridge to Gym ignored the limit."""
    run = tmp_path / "run"
    words = [*words_of(algorithm), "env.frames_max=5", "env.test_frames_max=7", f"fleet.native={native}"]
    result = train(run, *words)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    generations = [line for line in lines if "generation" in line and "event" not in line]
    for line in generations:
        assert line["fitness_max"] <= 5 and line["elite_validation_mean"] <= 5
        assert all(score <= 7 for score in line.get("elite_test_returns", []))
    assert generations[-1]["frames"] <= 5 * generations[-1]["episodes"]
    # neither task can end in so few steps: every episode is as long as it may be
    assert "env.id=HardMaze" in words or result["elite_returns"] == [7] * 4
    assert set(ok("eval", run, "--episodes", 5, "--json").json["frames"]) == {7}
    assert set(ok("eval", run, "env.test_frames_max=6", "--episodes", 5, "--json").json["frames"]) == {6}
    assert ok("play", run, "--video", tmp_path / "film.mp4", "--json").json["frames"] == 7


TASKS = {"Pendulum-v1": "mlp-8-tanh", "SwimmerTrap": "mlp-8-tanh", "BreadcrumbMaze": "breadcrumb", "Parity-v0": "rnn 5 tanh"}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_plays_every_kind_of_task(algorithm, tmp_path):
    """The original's evaluator asserted discrete actions, so that the maze shipped with it could never run."""
    for task, network in TASKS.items():
        network = ["network.name=", f"network.layers={network}"] if " " in network else [f"network.name={network}"]
        words = [*words_of(algorithm), f"env.id={task}", *network, "env.frames_max=20", "env.test_frames_max=20"]
        name, _ = length_of(words)
        least = 24 if name.endswith("evaluations") else 1
        outcome = samara("train", *words, f"{name}={least}", "--out", tmp_path / task, "--quiet", "--json")
        if outcome.code == 78:  # a behaviour that the task does not have
            assert algorithm in ("ga-ns", "map-elites", "cma-mae", "ns-es", "nsr-es", "nsra-es"), outcome.err
            assert task in ("Pendulum-v1", "Parity-v0"), outcome.err
            assert "position" in outcome.json["error"], outcome.err
        else:
            assert outcome.code == 0 and len(outcome.json["elite_returns"]) == 4, outcome.err


def test_limits_hold_for_tasks_of_gymnasium(tmp_path):
    words = ["env.id=Taxi-v4", "network.name=linear", "env.frames_max=5", "env.test_frames_max=7"]
    for inference in ("actor", "engine"):
        run = tmp_path / inference
        result = train(run, *SMALL["deep-ga"], *words, f"fleet.inference={inference}", "fleet.actors=1",
                       "ga.population=4", "ga.generations=1")  # fmt: skip
        line = json.loads((run / "metrics.jsonl").read_text().splitlines()[1])
        assert line["frames"] <= 5 * line["episodes"]
        assert len(result["elite_returns"]) == 4
        assert max(ok("eval", run, "--episodes", 2, "fleet.actors=1", "--json").json["frames"]) <= 7


def test_a_centre_that_is_not_finite_ends_the_run(tmp_path):
    """Nothing of it is saved: the generations before it can be played, and go on to the same end."""
    run = tmp_path / "run"
    words = ["classic/cartpole-es", *COMMON, "es.population=8", "es.validation_episodes=1", "es.optimizer=sgd",
             "es.weight_decay=1", "es.learning_rate=1000", "es.generations=60", "run.stop_when_solved=false"]  # fmt: skip
    for command in (["train", *words, "--out", run], ["train", "--resume", run]):
        ended = samara(*command, "--quiet", "--json")
        assert ended.code == 70 and "parameters of centre are not finite" in ended.json["error"], ended
        assert "smaller learning rate" in ended.json["error"]
    assert len(ok("eval", run, "--episodes", 2, "--json").json["returns"]) == 2
    ok("fsck", run)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_unknown_key_is_named(algorithm, tmp_path):
    words = words_of(algorithm)
    key = length_of(words)[0] + "s"
    outcome = samara("train", *words, f"{key}=3", "--out", tmp_path / "run", "--json")
    assert outcome.code == 78 and f"{key}: unknown key" in outcome.json["error"], outcome
    assert key[:-1] in outcome.json["error"].split("nearest")[1]
    assert not (tmp_path / "run").exists()
