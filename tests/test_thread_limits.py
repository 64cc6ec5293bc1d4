"""Threads that cannot be started: one line, exit code 71, at once, whichever thread it is."""

import resource
import subprocess
import time

import pytest
from samara_cli import BINARY, CARTPOLE, ROOT, environment, resume, samara, train

FAILING = ROOT / "build" / "samara-fail-thread"
SECONDS = 20  # until a command counts as hung, on a busy machine
EVOLUTION = [*CARTPOLE, "ga.generations=1", "fleet.threads=2"]
LEARNING = ["classic/cartpole-vtrace", "run.seed=1", "learn.updates=2", "learn.environments=8", "learn.batch=4", "learn.unroll=5",
            "learn.shards=2", "learn.threads=2", "learn.mode=deterministic", "fleet.threads=2", "run.random_episodes=4",
            "learn.test_episodes=4", "run.video=false"]  # fmt: skip


def refused(code: int, err: str, seconds: float) -> None:
    lines = err.strip().splitlines()
    assert code == 71, err
    assert "cannot start thread" in lines[-1] and "fleet.threads" in lines[-1] and "ulimit" in lines[-1], err
    assert sum(line.startswith("samara:") for line in lines) == 1 and "internal error" not in err, err
    assert seconds < SECONDS, err


def fail_each_thread(command: list, folder, at_most: int = 100) -> int:
    """Runs it with the first thread failing, then the second, ... Returns how many threads failed."""
    for n in range(1, at_most + 1):
        words = [FAILING, n, *command, *(["--out", folder / str(n)] if command[0] == "train" else [])]
        start = time.monotonic()
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=120, cwd=folder, env=environment())
        if "no thread N" in done.stderr:
            assert done.returncode == 0, done.stderr
            return n - 1
        refused(done.returncode, done.stderr, time.monotonic() - start)
    return at_most


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("limits") / "run"
    train(folder, *EVOLUTION)
    return folder


def test_evolution(tmp_path):
    assert fail_each_thread(["train", *EVOLUTION], tmp_path) >= 7
    # what was begun goes on
    started = [folder for folder in tmp_path.iterdir() if (folder / "run.json").exists()]
    assert len(started) >= 7
    want = train(tmp_path / "whole", *EVOLUTION)["population_hash"]
    assert {resume(folder)["population_hash"] for folder in started[::4]} == {want}


@pytest.mark.slow
def test_evolution_over_slots(tmp_path):
    assert fail_each_thread(["train", *EVOLUTION, "--quiet", "fleet.native=slots", "run.random_episodes=0"], tmp_path) >= 5


def test_learning(tmp_path):
    assert fail_each_thread(["train", *LEARNING], tmp_path) >= 7


@pytest.mark.slow
def test_eval(run, tmp_path):
    assert fail_each_thread(["eval", run, "--episodes", 5], tmp_path) == 2


@pytest.mark.slow
def test_bench(tmp_path):
    assert fail_each_thread(["bench", "noise", "--seconds", 0.05], tmp_path, at_most=2) == 2


def test_a_limit_on_memory(tmp_path):
    """300 stacks of 8 MB do not fit."""
    start = time.monotonic()
    done = subprocess.run(
        [BINARY, "train", *CARTPOLE, "fleet.threads=300", "--out", tmp_path / "run", "--json"], capture_output=True, text=True,
        timeout=120, env=environment(), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)))  # fmt: skip
    refused(done.returncode, done.stderr, time.monotonic() - start)
    assert '"exit":71' in done.stdout.replace(" ", "")
    outcome = samara("train", "--resume", tmp_path / "run", "fleet.threads=2", "--quiet")
    assert outcome.code == 0, outcome
