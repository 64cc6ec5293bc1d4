"""V-trace over ranks: the parameters of one learner at any number of ranks, also after stops and kills; free runs."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from samara_cli import resume, train
from test_launch import until
from test_train_ranks import finish, ranks_of, result, start

SMALL = ["run.random_episodes=6", "learn.test_episodes=6"]
CARTPOLE = ["classic/cartpole-vtrace", "learn.mode=deterministic", "learn.shards=4", *SMALL]
SHORT = [*CARTPOLE, "learn.updates=40"]
# Long enough to be interrupted.
LONG = [*CARTPOLE, "learn.updates=700", "run.checkpoint_seconds=1"]
SAME = ("parameter_hash", "frames", "updates", "episodes", "return_mean", "return_last100", "random_returns",
        "test_returns")


def numbers(outcome: dict) -> dict:
    return {name: outcome[name] for name in SAME}


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    return train(tmp_path_factory.mktemp("alone") / "run", *SHORT)


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    return train(tmp_path_factory.mktemp("alone") / "run", *LONG)


@pytest.mark.parametrize("launcher, ranks", [
    ("samara", 1), ("samara", 2), pytest.param("samara", 4, marks=pytest.mark.slow), ("torchrun", 2)])
def test_ranks_learn_what_one_learns(launcher, ranks, short, tmp_path):
    shared = result(launcher, ranks, *SHORT, "--out", tmp_path / "run")
    assert shared["ranks"] == ranks
    assert numbers(shared) == numbers(short)
    assert list(tmp_path.iterdir()) == [tmp_path / "run"]  # one folder, rank 0's
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if "update" in line and "event" not in line][-1]
    assert last["frames"] == shared["frames"] and last["live_slots"] == 32
    # every entry of every update of the line was counted, whoever learnt it
    assert sum(sum(line.get("lag_histogram", [])) for line in lines) == shared["frames"]


def test_shards_decide_the_bits_and_not_ranks(short, tmp_path):
    two = [*SHORT, "learn.shards=2"]
    alone = train(tmp_path / "alone", *two)
    assert numbers(result("samara", 2, *two, "--out", tmp_path / "run")) == numbers(alone)
    assert alone["parameter_hash"] != short["parameter_hash"]


def test_small_shards_have_the_same_bits_on_any_thread(tmp_path):
    """Of two rows torch's products depend on how many threads a thread believes to have."""
    small = [*CARTPOLE, "learn.environments=8", "learn.batch=4", "learn.unroll=5", "learn.shards=2", "learn.updates=20"]
    alone = train(tmp_path / "1", *small, "learn.threads=1")
    assert numbers(train(tmp_path / "2", *small, "learn.threads=2")) == numbers(alone)
    assert numbers(result("samara", 2, *small, "--out", tmp_path / "ranks")) == numbers(alone)


@pytest.mark.parametrize("task", [["memory/recall-vtrace"], ["classic/cartpole-vtrace", "env.id=Pendulum-v1"]],
                         ids=["recurrent", "continuous"])
def test_recurrent_states_and_continuous_actions(task, tmp_path):
    args = [*task, "learn.mode=deterministic", "learn.environments=16", "learn.batch=8", "learn.shards=2", *SMALL,
            "learn.updates=12"]
    alone = train(tmp_path / "alone", *args)
    assert numbers(result("samara", 2, *args, "--out", tmp_path / "run")) == numbers(alone)


def updates(run: Path) -> int:
    metrics = run / "metrics.jsonl"
    return metrics.read_text().count('"lag_mean"') if metrics.exists() else 0


def checkpoints(run: Path) -> int:
    return len(list(run.glob("checkpoints/ckpt-*/manifest.json")))


@pytest.mark.parametrize("whom", [pytest.param("all", marks=pytest.mark.slow), "rank 1"])
def test_a_stop_saves_and_another_number_of_ranks_goes_on(whom, long, tmp_path):
    run = tmp_path / "run"
    process = start("samara", 4 if whom == "all" else 2, *LONG, "--out", run)
    until(lambda: updates(run) >= 2)
    if whom == "all":
        process.send_signal(signal.SIGTERM)
    else:
        os.kill(ranks_of(process)[1], signal.SIGTERM)
    code, _, err = finish(process)
    assert code == 75 and err.count("continue with") == 1, err
    done = result("samara", 2, "--resume", run) if whom == "all" else resume(run)
    assert numbers(done) == numbers(long)


@pytest.mark.parametrize("victim", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_killed_rank_is_named_and_the_run_goes_on(victim, long, tmp_path):
    run = tmp_path / "run"
    process = start("samara", 2, *LONG, "--out", run)
    until(lambda: checkpoints(run) >= 1)
    os.kill(ranks_of(process)[victim], signal.SIGKILL)
    killed = time.monotonic()
    code, _, err = finish(process)
    assert code not in (0, 75) and time.monotonic() - killed < 5
    assert f"rank {victim} died" in err, err
    refused, _, err = finish(start("samara", 3, "--resume", run))
    assert refused == 78 and "learn.shards=4 on 3 ranks" in err, err
    assert numbers(result("samara", 4, "--resume", run)) == numbers(long)


def test_free_runs_learn_on_ranks_that_divide_nothing(tmp_path):
    args = ["classic/cartpole-vtrace", "learn.frames=150000", "run.random_episodes=6", "learn.test_episodes=20"]
    shared = result("samara", 3, *args, "--out", tmp_path / "run")
    assert shared["frames"] == shared["updates"] * 16 * 20 >= 150000
    assert shared["test_mean"] > 1.5 * shared["random_mean"]  # how far it comes depends on how busy the machine is


def test_time_ends_all_ranks_at_one_update(tmp_path):
    args = ["classic/cartpole-vtrace", "learn.frames=1e12", "run.minutes=0.05", *SMALL]
    shared = result("samara", 2, *args, "--out", tmp_path / "run")
    assert 3 <= shared["seconds"] < 10 and shared["frames"] == shared["updates"] * 16 * 20
    assert numbers(result("samara", 2, "--resume", tmp_path / "run")) == numbers(shared)  # recalled, not played again


@pytest.mark.parametrize("ranks, words, code, says", [
    (3, [], 78, "learn.shards=4 on 3 ranks"),
    (2, ["learn.shards=1"], 78, "a multiple of 2"),
    (2, ["learn.mode=free", "learn.environments=1"], 78, "learn.environments=1 on 2 ranks"),
    (2, ["--listen", "127.0.0.1:0"], 78, "--listen with several ranks"),
])
def test_what_ranks_cannot_share_is_one_line(ranks, words, code, says, tmp_path):
    ended, _, err = finish(start("samara", ranks, *SHORT, *words, "--out", tmp_path / "run"))
    said = [line for line in err.splitlines() if "] samara:" in line]
    assert ended == code and len(said) == 1 and says in said[0], err
    assert not (tmp_path / "run").exists()


def test_a_finished_run_is_recalled(short):
    assert numbers(result("samara", 3, "--resume", short["run"])) == numbers(short)


def flip_everywhere(pid: int, pattern: bytes) -> int:
    """Changes a bit of the pattern's first number wherever that process has it in memory; how often."""
    places = 0
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            area, rights, *_ = line.split()
            first, end = (int(edge, 16) for edge in area.split("-"))
            if not rights.startswith("rw-p") or end - first > 1 << 30:
                continue
            try:
                memory.seek(first)
                held = memory.read(end - first)
            except OSError:
                continue
            at = held.find(pattern)
            while at >= 0:
                memory.seek(first + at)
                memory.write(bytes([pattern[0] ^ 1]))
                places += 1
                at = held.find(pattern, at + 1)
    return places


def newest(run: Path) -> Path:
    return sorted(run.glob("checkpoints/ckpt-*/manifest.json"))[-1].parent


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: writing to another process's memory needs root")
def test_memory_that_changes_a_bit_is_found_before_it_is_saved(tmp_path):
    # without a rate no parameter changes: what a checkpoint holds is found in memory; the optimizer's state goes on
    args = [*CARTPOLE, "learn.updates=500", "run.checkpoint_seconds=1", "optimizer.learning_rate=0"]
    whole = train(tmp_path / "whole", *args)
    run = tmp_path / "run"
    process = start("samara", 2, *args, "--out", run)
    until(lambda: checkpoints(run) >= 1)
    weights = (newest(run) / "weights.safetensors").read_bytes()
    rank = ranks_of(process)[0]
    os.kill(rank, signal.SIGSTOP)
    assert flip_everywhere(rank, weights[-64:]) >= 1
    os.kill(rank, signal.SIGCONT)
    code, _, err = finish(process)
    assert code == 70, err
    assert "the last checkpoint stays: " in err and "rank 0 | rank 1 differ, and without a majority" in err, err
    assert numbers(result("samara", 2, "--resume", run)) == numbers(whole)
    for name in ("weights.safetensors", "optimizer.safetensors"):
        assert (newest(run) / name).read_bytes() == (newest(tmp_path / "whole") / name).read_bytes()
