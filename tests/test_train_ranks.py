"""Evolution over ranks: the population hash of one, under every launcher; ranks that stop, die and come back in other numbers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from replica_util import available, command
from samara_cli import ATARI, BINARY, CARTPOLE, environment, ok, resume, train
from test_launch import until


def start(launcher: str, ranks: int, *args: object, **variables: str) -> subprocess.Popen:
    return subprocess.Popen([*command(launcher, ranks, BINARY), "train", *map(str, args), "--quiet", "--json"],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**variables))


def finish(process: subprocess.Popen, timeout: float = 120) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def result(launcher: str, ranks: int, *args: object) -> dict:
    code, out, err = finish(start(launcher, ranks, *args))
    assert code == 0, err[-4000:]
    lines = [line for line in out.splitlines() if line.startswith("{")]
    assert len(lines) == 1, out  # rank 0's alone
    return json.loads(lines[0])


# Long enough to be interrupted.
LONG = [*CARTPOLE, "ga.population=400", "ga.generations=30", "run.checkpoint_seconds=1"]


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    return train(tmp_path_factory.mktemp("alone") / "run", *CARTPOLE)


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    return train(tmp_path_factory.mktemp("alone") / "run", *LONG)


@pytest.mark.parametrize("launcher, ranks", [("samara", 2), ("samara", 5), ("torchrun", 2), ("mpirun", 3), ("srun", 2)])
def test_ranks_evolve_what_one_evolves(launcher, ranks, cartpole, tmp_path):
    if not available(launcher):
        pytest.skip(f"NOT TESTED: no {launcher}")
    shared = result(launcher, ranks, *CARTPOLE, "--out", tmp_path / "run")
    assert shared["ranks"] == ranks
    for same in ("population_hash", "frames", "generation", "elite_returns", "random_returns"):
        assert shared[same] == cartpole[same]
    assert list(tmp_path.iterdir()) == [tmp_path / "run"]  # one folder, rank 0's


def test_ranks_begin_from_one_ranks_policy(cartpole, tmp_path):
    """Rank 0 reads the file; what of the larger network is fresh is the same everywhere."""
    begun = [*CARTPOLE, f"run.init_from={cartpole['run']}", "network.name=mlp-20-16-relu"]
    alone = train(tmp_path / "alone", *begun)["population_hash"]
    assert result("samara", 2, *begun, "--out", tmp_path / "run")["population_hash"] == alone


def test_atari_on_two_ranks(tmp_path):
    alone = train(tmp_path / "alone", *ATARI)["population_hash"]
    assert result("samara", 2, *ATARI, "--out", tmp_path / "run")["population_hash"] == alone


def test_several_seeds(tmp_path):
    both = result("samara", 2, *CARTPOLE, "--seeds", "3..4", "--out", tmp_path / "both")
    alone = train(tmp_path / "alone", *CARTPOLE)["population_hash"]
    assert [run["ranks"] for run in both["runs"]] == [2, 2]
    assert both["runs"][0]["population_hash"] == alone != both["runs"][1]["population_hash"]


def generations(run: Path) -> int:
    metrics = run / "metrics.jsonl"
    return metrics.read_text().count('"generation"') if metrics.exists() else 0


def ranks_of(launch: subprocess.Popen) -> list[int]:
    """Process ids of the engines, rank 0 first."""
    ranks: dict[int, int] = {}
    for task in Path(f"/proc/{launch.pid}/task").iterdir():
        for pid in map(int, (task / "children").read_text().split()):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            ranks |= {int(v.removeprefix(b"RANK=")): pid for v in variables if v.startswith(b"RANK=")}
    return [ranks[rank] for rank in sorted(ranks)]


def test_a_stop_saves_and_another_number_of_ranks_goes_on(long, tmp_path):
    run = tmp_path / "run"
    process = start("samara", 3, *LONG, "--out", run)
    until(lambda: generations(run) >= 3)
    process.send_signal(signal.SIGTERM)
    code, _, err = finish(process)
    assert code == 75 and "continue with" in err, err
    done = result("samara", 2, "--resume", run)
    assert done["population_hash"] == long["population_hash"] and done["ranks"] == 2


def test_one_rank_is_asked_to_stop_and_all_do(long, tmp_path):
    run = tmp_path / "run"
    process = start("samara", 2, *LONG, "--out", run)
    until(lambda: generations(run) >= 2)
    os.kill(ranks_of(process)[1], signal.SIGTERM)
    code, _, err = finish(process)
    assert code == 75, err
    assert resume(run)["population_hash"] == long["population_hash"]


@pytest.mark.parametrize("victim", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_killed_rank_is_named_and_the_run_goes_on(victim, long, tmp_path):
    run = tmp_path / "run"
    process = start("samara", 3, *LONG, "--out", run)
    until(lambda: generations(run) >= 3)
    ids = ranks_of(process)
    os.kill(ids[victim], signal.SIGKILL)
    killed = time.monotonic()
    code, _, err = finish(process)
    assert code not in (0, 75) and time.monotonic() - killed < 5
    assert f"rank {victim} died" in err, err
    done = result("samara", 2, "--resume", run)
    assert done["population_hash"] == long["population_hash"]


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_frozen_rank_is_named(victim, tmp_path):
    run = tmp_path / "run"
    process = start("samara", 2, *LONG, "--out", run)
    until(lambda: generations(run) >= 1)
    os.kill(ranks_of(process)[victim], signal.SIGSTOP)
    frozen = time.monotonic()
    code, _, err = finish(process)
    assert code != 0 and time.monotonic() - frozen < 15
    assert f"rank {victim} has been silent" in err, err


def test_bad_input_is_one_line(tmp_path):
    begun = time.monotonic()
    code, out, err = finish(start("samara", 2, "classic/cartpole-ga", "ga.populaton=3"))
    assert code == 78 and err.count("ga.populaton") == 1, err
    # the other rank does not wait for the one that has ended, nor say anything
    assert time.monotonic() - begun < 15 and "[rank 1]" not in err, err
    assert json.loads(out.splitlines()[-1])["exit"] == 78
    run = tmp_path / "run"
    run.mkdir()
    (run / "file").touch()
    code, _, err = finish(start("samara", 2, *CARTPOLE, "--out", run))
    assert code == 73 and err.count("choose another --out") == 1, err


def test_timeout_tells_the_launcher_and_its_group_and_nothing_is_lost(tmp_path):
    run = tmp_path / "run"
    words = [*command("samara", 2, BINARY), "train", *LONG, "ga.generations=100000", "--out", str(run), "--quiet"]
    timeout = subprocess.Popen(["timeout", "120", *words], stderr=subprocess.PIPE, text=True, env=environment())
    until(lambda: generations(run) > 0, 100)
    timeout.send_signal(signal.SIGALRM)  # the time is over
    err = timeout.communicate(timeout=60)[1]
    assert timeout.returncode == 124 and "continue with" in err and "signal 9" not in err, err
    assert generations(run) > 0
    ok("fsck", run)


def test_a_finished_run_is_recalled(cartpole, tmp_path):
    run = tmp_path / "run"
    train(run, *CARTPOLE)
    assert result("samara", 2, "--resume", run)["population_hash"] == cartpole["population_hash"]
