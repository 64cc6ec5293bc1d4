"""Gymnasium environments that samara has no native copy of train unchanged, through Python actors."""

import json

import gymnasium
import pytest
from samara_cli import CARTPOLE, TESTS, ok, resume, train

SHORT = [*CARTPOLE, "env.frames_max=60", "env.test_frames_max=60", "fleet.actors=2", "ga.population=8", "ga.generations=2"]


@pytest.mark.parametrize(
    "name",
    [
        "MountainCarContinuous-v0",  # Box actions
        "Taxi-v4",  # Discrete observations, flattened
        "Blackjack-v1",  # a Tuple of three
        "CliffWalking-v1",
        "FrozenLake-v1",
        "gymnasium.envs.classic_control:Acrobot-v1",  # module:Name imports the module first
    ],
)
def test_a_gymnasium_environment_trains_unchanged(name, tmp_path):
    run = tmp_path / "run"
    result = train(run, *SHORT, f"env.id={name}")
    assert result["generation"] == 2 and result["frames"] > 0
    identity = json.loads((run / "run.json").read_text())
    assert gymnasium.__version__ in json.dumps(identity)
    evaluated = ok("eval", run, "--episodes", 3, "--json").json
    assert evaluated["episodes"] == 3 and all(1 <= frames <= 60 for frames in evaluated["frames"])
    ok("fsck", run)


def test_actors_give_one_hash_however_many(tmp_path):
    hashes = {
        train(tmp_path / str(n), *SHORT, "env.id=Taxi-v4", f"fleet.actors={n}", f"fleet.slots={2 * n}")["population_hash"]
        for n in (1, 3)
    }
    assert len(hashes) == 1


def test_a_module_of_ones_own(tmp_path):
    options = ["env.id=faulty:Fine-v0"]
    run = tmp_path / "run"
    path = {"PYTHONPATH": str(TESTS / "envs")}
    result = train(run, *SHORT, *options, **path)
    # Fine ends after ten steps and pays the action: the best policy gets ten
    assert result["frames"] % 10 == 0 and 0 <= result["elite_mean"] <= 10
    assert resume(run, "ga.generations=3", **path)["generation"] == 3


def test_frames_cap_episodes(tmp_path):
    run = tmp_path / "run"
    train(run, *SHORT, "env.id=MountainCarContinuous-v0")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if "fitness_mean" in line][-1]
    # nobody reaches the flag in 60 steps: every episode is cut, 8 + 2 * 2 of them a generation
    assert last["frames"] == 2 * (8 + 2 * 2) * 60 and last["episodes"] == 24


def test_every_part_of_an_action_is_evolved(tmp_path):
    run = tmp_path / "run"
    result = train(run, *CARTPOLE, "env.id=parts:Parts-v0", "network.name=linear", "ga.population=100", "ga.parents=10",
                   "ga.mutation_power=0.5", "ga.generations=12", "fleet.actors=2", PYTHONPATH=str(TESTS / "envs"))
    # by chance 10 * (1/3 + 1/2 + 1/4) = 10.8 of 30
    assert result["elite_mean"] > 20 > 14 > result["random_mean"], result


@pytest.mark.slow
def test_every_part_of_an_action_is_learned(tmp_path):
    words = ["classic/catch-vtrace", "env.id=parts:Parts-v0", "learn.frames=150000", "learn.test_episodes=20",
             "run.random_episodes=20"]
    result = train(tmp_path / "run", *words, PYTHONPATH=str(TESTS / "envs"))
    assert result["test_mean"] > 27 > 14 > result["random_mean"], result
    # the last action as an input, and the same bits twice
    words += ["learn.frames=3000", "learn.mode=deterministic", "network.lstm=16", "network.action_input=true"]
    hashes = {train(tmp_path / f"{i}", *words, PYTHONPATH=str(TESTS / "envs"))["parameter_hash"] for i in range(2)}
    assert len(hashes) == 1
