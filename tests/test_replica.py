"""Replicated programs as processes: the same bits under every launcher, resumed at another size; ranks that die, freeze,
or disagree are named by every survivor, in time."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from replica_util import MLP, available, command, environment, result, run
from samara_cli import BINARY
from test_launch import gone, until

STEPS = 30


@pytest.fixture(scope="module")
def alone():
    done = run("threads", 1, "--steps", STEPS)
    return result(done)


@pytest.mark.parametrize("launcher,ranks", [("threads", 2), ("threads", 8), ("samara", 2), ("samara", 4), ("torchrun", 2),
                                            ("mpirun", 2), ("srun", 4)])
def test_the_same_bits_under_every_launcher(alone, launcher, ranks):
    if not available(launcher):
        pytest.skip(f"no {launcher} here")
    got = result(run(launcher, ranks, "--steps", STEPS))
    assert got == {**alone, "world_size": ranks}


def test_the_same_bits_over_gloo(alone):
    got = result(run("samara", 2, "--steps", STEPS, SAMARA_TRANSPORT="gloo"))
    assert got["parameter_hash"] == alone["parameter_hash"]


def test_fast_mode_comes_close(alone):
    got = result(run("samara", 2, "--steps", STEPS, "--mode", "fast"))
    assert got["loss"] == pytest.approx(alone["loss"], rel=1e-3)


def test_resumed_at_another_size(alone, tmp_path):
    out = tmp_path / "run"
    for steps, (launcher, ranks) in zip((10, 20, STEPS), (("samara", 2), ("threads", 4), ("samara", 1)), strict=True):
        got = result(run(launcher, ranks, "--steps", steps, "--out", out))
        assert got["steps"] == steps
    assert got["parameter_hash"] == alone["parameter_hash"] and got["loss"] == alone["loss"]
    assert [path.name for path in out.iterdir()] == ["checkpoint.safetensors"]


def test_a_damaged_checkpoint_is_refused(tmp_path):
    out = tmp_path / "run"
    result(run("threads", 1, "--steps", 10, "--out", out))
    file = out / "checkpoint.safetensors"
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:8] + b"x" + whole[9:], b""):
        file.write_bytes(damaged)
        done = run("samara", 2, "--steps", 20, "--out", out)
        assert done.returncode == 65 and "checkpoint.safetensors" in done.stderr, done.stderr
        assert file.read_bytes() == damaged


@pytest.mark.parametrize("args,code,words", [
    (["--steps", "0"], 78, "--steps 0: expected a number of at least 1"),
    (["--mode", "quick"], 78, "--mode quick: expected exact or fast"),
    (["--stepz", "3"], 64, "--stepz: no such option"),
    (["--steps"], 64, "--steps: expected a value"),
    (["--threads-as-ranks", "3"], 78, "8 replicas on 3 ranks: expected a multiple of the ranks; set SAMARA_REPLICAS=9"),
])
def test_bad_input_gets_one_line(args, code, words):
    done = subprocess.run([str(MLP), *args], capture_output=True, text=True, timeout=60, env=environment())
    assert done.returncode == code and words in done.stderr
    assert done.stdout == ""


class Ranks:
    """Ranks started by hand, so that what each of them says and does is seen."""

    def __init__(self, n: int, port: int, out, steps: int = 1_000_000, started: range | None = None, **variables: str):
        self.processes = []
        for rank in started if started is not None else range(n):
            env = environment(RANK=str(rank), WORLD_SIZE=str(n), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(n),
                              MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), **variables)
            arguments = [str(MLP), "--steps", str(steps)] + (["--out", str(out)] if out else [])
            self.processes.append(subprocess.Popen(arguments, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                                   text=True))

    def say(self, seconds: float) -> list[tuple[int, str, float]]:
        """Of every rank: exit code, what it said, and how long after now it ended."""
        start, told = time.monotonic(), []
        for process in self.processes:
            try:
                _, error = process.communicate(timeout=max(0.1, start + seconds - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                _, error = process.communicate()
                told.append((-999, error, seconds))
                continue
            told.append((process.returncode, error, time.monotonic() - start))
        return told


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(file, seconds=60.0):
    end = time.monotonic() + seconds
    while not file.exists():
        assert time.monotonic() < end, "no checkpoint"
        time.sleep(0.02)


@pytest.mark.parametrize("transport", ["shared", "gloo"])
@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_rank_is_named_by_all_survivors(tmp_path, victim, transport):
    ranks = Ranks(4, free_port(), tmp_path / "run", SAMARA_TRANSPORT=transport)
    wait_for(tmp_path / "run" / "checkpoint.safetensors")
    ranks.processes[victim].send_signal(signal.SIGKILL)
    for rank, (code, said, seconds) in enumerate(ranks.say(30)):
        if rank == victim:
            assert code == -signal.SIGKILL
        else:
            assert code == 69 and f"rank {victim} died" in said, said
            assert seconds < 10


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_rank_that_dies_while_another_is_awaited_is_named(victim):
    ranks = Ranks(4, free_port(), None, started=range(3))
    said = ranks.processes[0].stderr.readline()
    assert "waiting for rank 3 of 4, 600 s at most" in said, said
    ranks.processes[victim].kill()
    code, said, seconds = ranks.say(30)[1 - victim]
    assert code == 69 and f"rank {victim} died" in said and seconds < 10, said


def test_a_rank_without_rank_0_says_what_it_waits_for():
    ranks = Ranks(2, free_port(), None, started=range(1, 2))
    said = ranks.processes[0].stderr.readline()
    ranks.processes[0].kill()
    ranks.say(10)
    assert "rank 1 waits for rank 0, 600 s at most" in said, said


def test_a_frozen_rank_is_named(tmp_path):
    ranks = Ranks(4, free_port(), tmp_path / "run")
    wait_for(tmp_path / "run" / "checkpoint.safetensors")
    frozen = ranks.processes[1]
    frozen.send_signal(signal.SIGSTOP)
    start = time.monotonic()
    others = [p for i, p in enumerate(ranks.processes) if i != 1]
    for process in others:
        process.wait(timeout=30)
    assert time.monotonic() - start < 15
    frozen.send_signal(signal.SIGKILL)
    for rank, (code, said, _) in enumerate(ranks.say(10)):
        if rank != 1:
            assert code == 69 and re.search(r"rank 1 .*silent", said), said


def test_no_rank_outlives_an_agent_that_is_killed(tmp_path):
    agent = subprocess.Popen([*command("torchrun", 2), "--steps", "1000000", "--out", str(tmp_path / "run")],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
    wait_for(tmp_path / "run" / "checkpoint.safetensors")
    ranks = [int(pid) for pid in Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()]
    ranks = [pid for pid in ranks if Path(f"/proc/{pid}/comm").read_text().strip() == MLP.name]
    assert len(ranks) == 2
    agent.kill()
    agent.wait()
    until(lambda: all(map(gone, ranks)), 5)


def launched(port: int, *args: object) -> subprocess.Popen:
    command = [str(BINARY), "launch", "-n", "2", "--port", str(port), str(MLP), *map(str, args)]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_second_launch_on_a_port_is_told_so_and_the_first_goes_on(tmp_path):
    port = free_port()
    first = launched(port, "--steps", 1_000_000, "--out", tmp_path / "run")
    wait_for(tmp_path / "run" / "checkpoint.safetensors")
    second = launched(port, "--steps", 1)
    _, said = second.communicate(timeout=60)
    assert second.returncode == 73, said
    assert "another launch has this port" in said and "another launch or another program has it" in said, said
    before = committed(tmp_path / "run")
    until(lambda: committed(tmp_path / "run") > before)
    first.terminate()
    _, said = first.communicate(timeout=60)
    assert first.returncode == 75 and "warning: store: refused" in said, said


def test_a_rank_of_another_launch_takes_no_place_while_ranks_are_awaited():
    port = free_port()
    ranks = Ranks(2, port, None, 1, started=range(1), SAMARA_LAUNCH_SECRET="of the first")
    [(code, said, _)] = Ranks(2, port, None, 1, started=range(1, 2), SAMARA_LAUNCH_SECRET="of another").say(60)
    assert code == 73 and "another launch has this port" in said, said
    ranks.processes += Ranks(2, port, None, 1, started=range(1, 2), SAMARA_LAUNCH_SECRET="of the first").processes
    assert [code for code, _, _ in ranks.say(60)] == [0, 0]


def test_idle_connections_delay_no_start():
    """A hundred to the ranks' port, made as soon as it listens."""
    def seconds(idle: int) -> float:
        port, held, start = free_port(), [], time.monotonic()
        ranks = launched(port, "--steps", 1)
        while len(held) < idle:
            assert time.monotonic() < start + 30 and ranks.poll() is None
            try:
                held.append(socket.create_connection(("127.0.0.1", port), 1))
            except OSError:
                time.sleep(0.001)
        _, said = ranks.communicate(timeout=60)
        assert ranks.returncode == 0, said
        return time.monotonic() - start
    alone = seconds(0)
    assert seconds(100) < alone + 3  # 1 but for what else the machine does; it was 10


def test_ranks_that_want_different_things_are_refused_at_the_start(tmp_path):
    port = free_port()
    processes = []
    for rank, mode in enumerate(("exact", "fast")):
        env = environment(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2",
                          MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        processes.append(subprocess.Popen([str(MLP), "--mode", mode], env=env, stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True))
    for process in processes:
        _, said = process.communicate(timeout=60)
        assert process.returncode == 70 and "exact mode, 8 replicas" in said and "fast mode, 2 replicas" in said, said


def committed(out: Path) -> int:
    """The step of the checkpoint that is in place; 0 without one."""
    file = out / "checkpoint.safetensors"
    if not file.exists():
        return 0
    with file.open("rb") as checkpoint:
        header = json.loads(checkpoint.read(int.from_bytes(checkpoint.read(8), "little")))
    return int(header["__metadata__"]["step"])


@pytest.mark.parametrize("transport", ["shared", "gloo"])
def test_no_rank_is_ended_by_what_it_sends_to_one_that_died(tmp_path, transport):
    """Gloo's writes would raise SIGPIPE, once in some hundred kills; it is ignored."""
    out = tmp_path / "run"
    ranks = Ranks(2, free_port(), out, 100_000, SAMARA_TRANSPORT=transport, SAMARA_TRACE="")
    wait_for(out / "checkpoint.safetensors")
    ignored = [re.search(r"SigIgn:\s*(\w+)", Path(f"/proc/{process.pid}/status").read_text())[1] for process in ranks.processes]
    for process in ranks.processes:
        process.kill()
    ranks.say(60)
    assert all(int(mask, 16) >> (signal.SIGPIPE - 1) & 1 for mask in ignored), ignored


@pytest.mark.slow
@pytest.mark.parametrize("transport,steps_per_kill", [("shared", 400), ("gloo", 150)])
def test_a_random_rank_killed_again_and_again_changes_nothing(tmp_path, transport, steps_per_kill):
    """At 2 or 4 ranks; all start again from the last committed step, and what comes out is what an undisturbed run gives."""
    kills = int(os.environ.get("SAMARA_KILLS", "5"))
    steps = steps_per_kill * kills  # more than are run between two kills
    expected = result(run("threads", 1, "--steps", steps, timeout=900))
    rng, out, resumed, seconds = random.Random(1), tmp_path / "run", [], []
    while len(resumed) < kills:
        before = committed(out)
        ranks = Ranks(rng.choice((2, 4)), free_port(), out, steps, SAMARA_TRANSPORT=transport, SAMARA_TRACE="")
        resumed.append(before)
        until_step, seen = before + 10 + rng.randrange(steps_per_kill // 2), before
        while seen < until_step:
            now = committed(out)
            assert now >= seen, f"began again at {now}, behind the committed step {seen}"
            assert all(process.poll() is None for process in ranks.processes), ranks.say(1)
            seen = now
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.02))  # between two collectives, or within one
        victim = rng.randrange(len(ranks.processes))
        ranks.processes[victim].send_signal(signal.SIGKILL)
        died = time.monotonic()
        told = ranks.say(60)
        seconds.append(time.monotonic() - died)  # until the last survivor was gone
        for rank, (code, said, _) in enumerate(told):
            assert code == (-signal.SIGKILL if rank == victim else 69), said
            assert rank == victim or f"rank {victim} died" in said, said
        assert committed(out) >= seen
    done = result(run("samara", 2, "--steps", steps, "--out", out, timeout=900, SAMARA_TRANSPORT=transport))
    print(f"{transport}: {kills} kills at steps {resumed[1:]}, the last survivor gone after {max(seconds):.2f} s at most")
    assert max(seconds) < 10 and resumed == sorted(resumed) and 0 not in resumed[1:]
    assert done["parameter_hash"] == expected["parameter_hash"]


@pytest.mark.slow
def test_the_launcher_starts_all_again(tmp_path):
    out = tmp_path / "run"
    process = subprocess.Popen(["env", "-u", "SAMARA_THREADS", *command("samara", 2)[:4], "--restarts", "3", str(MLP), "--steps",
                                "2000", "--out", str(out)], env=environment(), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    wait_for(out / "checkpoint.safetensors")
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    os.kill(int(children[-1]), signal.SIGKILL)
    printed, said = process.communicate(timeout=200)
    assert process.returncode == 0, said
    got = json.loads(printed.splitlines()[-1])
    assert got["parameter_hash"] == result(run("threads", 1, "--steps", 2000))["parameter_hash"]


def test_a_number_that_a_disk_changed_is_found(tmp_path):
    out = tmp_path / "run"
    result(run("threads", 1, "--steps", 10, "--out", out))
    file = out / "checkpoint.safetensors"
    whole = bytearray(file.read_bytes())
    whole[-100] ^= 1
    file.write_bytes(whole)
    done = run("threads", 1, "--steps", 20, "--out", out)
    assert done.returncode == 65 and "checksum" in done.stderr, done.stderr


def test_a_checkpoint_beyond_the_steps_says_how_many_it_has(tmp_path):
    first = result(run("threads", 1, "--steps", 10, "--out", tmp_path / "run"))
    again = result(run("threads", 2, "--steps", 5, "--out", tmp_path / "run"))
    assert again["steps"] == 10 and again["parameter_hash"] == first["parameter_hash"]
