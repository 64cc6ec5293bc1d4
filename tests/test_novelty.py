"""Novelty search end to end: the same bits whatever plays the episodes, across kills; when a task counts as solved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from samara_cli import ok, resume, samara, train
from test_resume import kill_and_resume

MAZE = [
    "maze/hard-ga-ns",
    "run.seed=3",
    "run.random_episodes=1",
    "run.stop_when_solved=false",
    "run.video=false",
    "ga.population=30",
    "ga.parents=5",
    "ga.generations=4",
    "novelty.archive_probability=0.2",
]


@pytest.fixture(scope="module")
def maze(tmp_path_factory):
    return train(tmp_path_factory.mktemp("maze") / "run", *MAZE, "fleet.threads=1")


def metrics(run: Path) -> list[dict]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "fitness_mean" in line]


@pytest.mark.parametrize("how", [["fleet.threads=3"], ["fleet.threads=2", "fleet.native=slots", "fleet.slots=5"]])
@pytest.mark.parametrize("behaviour", ["final_position", "trajectory"])
def test_threads_and_slots_come_to_the_same_population(how, behaviour, maze, tmp_path):
    chosen = f"novelty.behaviour={behaviour}"
    want = maze if behaviour == "final_position" else train(tmp_path / "want", *MAZE, chosen, "fleet.threads=1")
    assert train(tmp_path / "run", *MAZE, chosen, *how)["population_hash"] == want["population_hash"]


def test_a_run_with_an_archive_killed_at_random_instants(tmp_path):
    settings = [*MAZE, "ga.generations=40", "fleet.threads=1", "run.checkpoint_seconds=1"]
    want = train(tmp_path / "whole", *settings)
    kill_and_resume(tmp_path, settings, want, seed=5, kills=4, span=1.0)


def test_the_last_checkpoint_alone_carries_the_archive(maze, tmp_path):
    run = tmp_path / "run"
    train(run, *MAZE, "ga.generations=3")
    assert list((run / "checkpoints").glob("ckpt-*/archive.bin"))
    (run / "checkpoints" / "journal.bin").unlink()
    assert resume(run, "ga.generations=4")["population_hash"] == maze["population_hash"]


def test_the_journal_holds_each_behaviour_once(tmp_path):
    run = tmp_path / "run"
    train(run, *MAZE, "ga.generations=12", "novelty.archive_probability=1", "run.checkpoint_seconds=1000")
    size = (run / "checkpoints" / "journal.bin").stat().st_size
    twice = tmp_path / "twice"
    train(twice, *MAZE, "ga.generations=24", "novelty.archive_probability=1", "run.checkpoint_seconds=1000")
    # genomes grow by a mutation a generation, which is 12 bytes a parent
    grown = (twice / "checkpoints" / "journal.bin").stat().st_size - 2 * size
    assert grown < 12 * 5 * 12 * 24, "the archive is written again and again"
    assert metrics(twice)[-1]["archive_size"] == 24 * 30


NSR = [
    "atari/nsr-es-desktop",
    "run.seed=3",
    "run.video=false",
    "run.random_episodes=1",
    "run.final_test_episodes=1",
    "env.frames_max=200",
    "env.test_frames_max=200",
    "es.population=4",
    "es.generations=2",
    "novelty.centres=2",
]
# a second round of pairs, whose recordings are measured too
BATCHES = ["es.cutoff=20", "es.min_steps=100", "es.sigma_schedule=linear", "es.sigma_end=0.01", "es.schedule_length=2"]


@pytest.mark.parametrize("algorithm", [*(pytest.param(a, marks=pytest.mark.slow) for a in ("nsr-es", "ns-es")), "nsra-es"])
def test_memory_of_games_through_actors_and_slots(algorithm, tmp_path):
    settings = [*NSR, f"run.algorithm={algorithm}", *(BATCHES if algorithm == "nsr-es" else [])]
    ways = [["fleet.actors=1"], ["fleet.actors=3", "fleet.slots=5"], ["fleet.inference=engine", "fleet.actors=2"]]
    ways = ways if algorithm == "nsr-es" else ways[:2]
    results = [train(tmp_path / f"run-{i}", *settings, *how) for i, how in enumerate(ways)]
    assert len({result["population_hash"] for result in results}) == 1
    line = metrics(tmp_path / "run-0")[-1]
    assert line["archive_size"] == 4 and line["novelty_mean"] > 0
    # 4 members of 20 steps, and a pair for the 20 that are missing
    assert line["evaluations"] == (12 if algorithm == "nsr-es" else 8)


@pytest.mark.slow
def test_a_run_with_recordings_killed_at_random_instants(tmp_path):
    settings = [*NSR, *BATCHES, "es.generations=6", "fleet.actors=2"]
    want = train(tmp_path / "whole", *settings)
    kill_and_resume(tmp_path, settings, want, seed=1, kills=3, span=3.0)


def test_evaluations_are_counted_and_the_run_ends_when_solved(tmp_path):
    unsolved = train(tmp_path / "unsolved", *MAZE)
    assert (unsolved["evaluations"], unsolved["solved_at"]) == (120, None)
    run = tmp_path / "run"
    pole = [
        "classic/cartpole-ga",
        "run.stop_when_solved=true",
        "ga.generations=30",
        "ga.population=64",
        "run.random_episodes=1",
    ]
    result = train(run, *pole)
    assert result["solved_at"] == result["evaluations"] == 64 * result["generation"] < 64 * 30
    lines = metrics(run)
    assert [line["solved_at"] for line in lines[:-1]] == [None] * (len(lines) - 1)
    assert lines[-1]["elite_validation_mean"] >= 475
    # the result stands; a run that shall not stop at it goes on, and keeps when it was solved
    assert resume(run)["generation"] == result["generation"]
    more = resume(run, "run.stop_when_solved=false", "ga.generations=31")
    assert more["generation"] == 31
    assert more["solved_at"] == result["solved_at"]


@pytest.mark.parametrize(
    "settings, words",
    [
        ([*MAZE, "env.id=CartPole-v1"], "final_position: native/CartPole-v1 has no position"),
        ([*MAZE, "novelty.behaviour=ram"], "expected final_position or trajectory"),
        ([*MAZE, "novelty.neighbours=0"], "novelty.neighbours"),
        (["classic/cartpole-ga", "novelty.neighbours=3"], "novelty.neighbours"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(settings, words, tmp_path):
    outcome = samara("train", *settings, "--out", tmp_path / "run")
    assert outcome.code == 78 and words in outcome.err, outcome
    assert not (tmp_path / "run").exists()


def test_presets_of_the_maze_start(tmp_path):
    for preset in ("maze/hard-ga", "maze/hard-ga-ns"):
        ok("train", preset, "--dry-run")


def test_novelty_leaves_the_dead_end_and_the_result_names_who_did(tmp_path):
    """The centre that evolution strategies hand over is still there: the member that solved it can be had."""
    run = tmp_path / "run"
    settings = ["maze/hard-ns-es", "run.seed=13", "run.random_episodes=1", "run.video=false", "es.generations=187"]
    result = train(run, *settings)  # 186 generations
    assert result["solved_at"] == 50 * (result["solved_generation"] - 1) + result["solved_individual"] + 1
    assert result["solved_generation"] == result["generation"] and result["elite_solved"] is False
    which = ["--generation", result["solved_generation"], "--individual", result["solved_individual"]]
    ok("export", run, tmp_path / "solver.safetensors", *which)
    solver = ok("eval", tmp_path / "solver.safetensors", "--episodes", 1, "--json").json["mean"]
    assert solver == metrics(run)[-1]["fitness_max"] >= -10 > result["elite_mean"]  # the goal's radius
    more = resume(run, "run.stop_when_solved=false")
    assert more["generation"] == result["generation"] + 1 == 187
    assert all(more[key] == result[key] for key in ("solved_at", "solved_generation", "solved_individual"))
