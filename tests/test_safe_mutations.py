"""The steady-state GA and safe mutations as a user runs them: what they solve, and one hash whatever happens."""

from __future__ import annotations

import cv2
import pytest
from samara_cli import CARTPOLE, ok, samara, train
from test_resume import kill_and_resume
from test_train_ranks import result

# Deep parents, so that a resume plays ancestors again.
MAZE = ["maze/breadcrumb-sm-g-so", "run.seed=5", "run.random_episodes=2", "ga.population=20", "ga.births=20", "ga.window=8",
        "ga.evaluations=300", "env.frames_max=60", "env.test_frames_max=60"]


def returns(result: dict) -> float:
    return result["elite_mean"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_sums_wash_out_and_magnitudes_do_not(seed, tmp_path):
    solved = -0.01
    by_abs = train(tmp_path / "abs", "toy/washout", f"run.seed={seed}")
    assert returns(by_abs) >= solved
    assert 1 < by_abs["solved_at"] <= by_abs["evaluations"] <= 2001
    by_sum = train(tmp_path / "sum", "toy/washout", f"run.seed={seed}", "ga.mutation=sm_g_sum")
    assert returns(by_sum) < -0.1
    assert (by_sum["solved_at"], by_sum["evaluations"]) == (None, 2001)


def test_a_recurrent_network_solves_parity(tmp_path):
    solved = train(tmp_path / "run", "parity/rnn", "run.seed=1")
    assert returns(solved) >= 0
    film = tmp_path / "film.mp4"  # shows that policy, whose state ends with each string, until the last step has been made
    assert ok("play", tmp_path / "run", "--video", film, "--json").json["return"] == solved["elite_mean"]
    assert cv2.VideoCapture(str(film)).get(cv2.CAP_PROP_FRAME_COUNT) == 64 + 1


@pytest.fixture(scope="module")
def maze(tmp_path_factory):
    return train(tmp_path_factory.mktemp("maze") / "run", *MAZE, "fleet.threads=1")


@pytest.mark.parametrize("how", [["fleet.threads=3"], ["fleet.native=slots", "fleet.slots=5", "fleet.threads=2"]])
def test_threads_and_slots_decide_nothing(how, maze, tmp_path):
    assert train(tmp_path / "run", *MAZE, *how)["population_hash"] == maze["population_hash"]


def test_every_instruction_set(maze, tmp_path):
    assert train(tmp_path / "run", *MAZE, SAMARA_ISA="portable")["population_hash"] == maze["population_hash"]


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_decide_nothing(ranks, maze, tmp_path):
    shared = result("samara", ranks, *MAZE, "--out", tmp_path / "run")
    assert shared["population_hash"] == maze["population_hash"]
    assert shared["elite_returns"] == maze["elite_returns"]


def test_kills_decide_nothing(maze, tmp_path):
    kill_and_resume(tmp_path, MAZE, maze, seed=1, kills=5, span=1.0)


@pytest.mark.parametrize("mutation", ["sm_r", "sm_g_abs"])
def test_the_deep_ga_takes_them(mutation, tmp_path):
    settings = [*CARTPOLE, f"ga.mutation={mutation}", "ga.mutation_clip=1"]
    want = train(tmp_path / "whole", *settings)
    assert train(tmp_path / "slots", *settings, "fleet.native=slots", "fleet.threads=3")["population_hash"] == want["population_hash"]
    assert want["population_hash"] != train(tmp_path / "plain", *CARTPOLE)["population_hash"]
    kill_and_resume(tmp_path, settings, want, seed=2, kills=2, span=0.3)


def test_the_elite_is_exported_and_played(tmp_path):
    run = tmp_path / "run"
    want = train(run, "toy/washout", "run.seed=1")
    ok("export", run, tmp_path / "elite.safetensors")
    assert ok("eval", tmp_path / "elite.safetensors", "--episodes", 1, "--json").json["mean"] == want["elite_mean"]


def test_actors_that_play_whole_episodes_are_refused(tmp_path):
    refused = samara("train", "atari/deep-ga-desktop", "ga.mutation=sm_r", "network.name=Model", "network.storage=float32",
                     "run.random_episodes=0", "--out", tmp_path / "run", "--quiet")
    assert refused.code == 78, refused
    assert "fleet.inference=engine" in refused.err.strip().splitlines()[-1]
