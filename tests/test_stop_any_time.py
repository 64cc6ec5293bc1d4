"""A stop at any moment of a command's start, work and end: it ends soon, with 75, and leaves nothing half made."""

import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

import pytest
from samara_cli import ATARI, BINARY, CARTPOLE, Running, catches, environment, ok, samara, train
from test_launch import until

GRACE = 20  # s, on a busy machine; alone they take less than one
LEARNING = ["classic/cartpole-vtrace", "run.seed=1", "learn.frames=30000", "run.random_episodes=4", "learn.test_episodes=10",
            "run.checkpoint_seconds=1"]  # fmt: skip
EXACT = [*LEARNING, "learn.mode=deterministic", "learn.environments=32"]


class Place:
    """A folder of its own for one command after the other: working folder, temporary files, what it must leave clean."""

    def __init__(self, path: Path, seed: int) -> None:
        self.short = tempfile.TemporaryDirectory(prefix="s")  # sockets lie in it, whose paths are short
        self.path, self.temporary = path, Path(self.short.name)
        path.mkdir(parents=True)
        self.draws = random.Random(seed)

    def stop(self, command: list, span: float, number: int = signal.SIGTERM) -> int:
        """Starts it, sends the signal after a random part of `span` seconds and checks what is left. Its exit code."""
        mark = f"SAMARA_STOPPED={uuid.uuid4()}"
        delay = span * self.draws.random() ** 2  # rather early: where most phases are short
        log = self.path / "log"
        with open(log, "wb") as file:
            process = subprocess.Popen(
                list(map(str, command)), cwd=self.path, stdout=file, stderr=file, start_new_session=True,
                env=environment(TMPDIR=str(self.temporary), **dict([mark.split("=")])))  # fmt: skip
        time.sleep(delay)
        sent = time.monotonic()
        running = process.poll() is None
        process.send_signal(number)
        code = process.wait(GRACE)
        text = log.read_text(errors="replace")
        said = f"{command} stopped after {delay:.3f} s: exit {code}\n{text}"
        assert time.monotonic() - sent < GRACE
        # before main the system ends it, with nothing begun
        assert code in (0, 75) or (code == -number and running and text == ""), said
        assert "internal error" not in text and sum(line.startswith("samara: ") for line in text.splitlines()) <= 1, said
        end = time.monotonic() + 10
        while left := processes(mark):
            assert time.monotonic() < end, f"{said}\nstill there: {left}"
            time.sleep(0.01)
        # an actor that is killed while the emulator reads the palette's cartridge cannot remove it
        left = [p for p in self.temporary.iterdir() if not p.name.startswith("samara-palette-")]
        assert left == [], said
        halves = [p for p in self.path.iterdir() if p.name.endswith((".tmp", ".gone"))]
        assert halves == [], said
        return code


def processes(mark: str) -> list[str]:
    """Command lines of processes with the environment variable `mark`; zombies have none."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            pass
    return found


@pytest.fixture(scope="module")
def evolved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stop") / "evolved"
    train(folder, *CARTPOLE)
    return folder


def train_until_done(place: Place, words: list, span: float, trials: int) -> None:
    """Each start goes on with what the last one left; a run that is finished makes room for the next."""
    run = place.path / "run"
    for _ in range(trials):
        place.stop([BINARY, "train", *words, "--out", run, "--resume", "auto", "--quiet"], span,
                   place.draws.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP]))  # fmt: skip
        if run.exists():
            ok("fsck", run)
        if (run / "result.json").exists():
            shutil.rmtree(run)
    done = samara("train", *words, "--out", run, "--resume", "auto", "--quiet", "--json", cwd=place.path)
    assert done.code == 0, done


TRAINING = {
    "evolution": (CARTPOLE, 0.4, 4),
    "evolution with actor processes": (ATARI, 4.0, 2),
    "learning": (LEARNING, 3.0, 3),
    "exact learning": (EXACT, 3.0, 1),
}
OTHERS = {
    "eval": (["eval", "RUN", "--episodes", 2000], 0.3, 2),
    "play": (["play", "RUN", "--video", "episode.mp4"], 0.5, 2),
    "report": (["report", "RUN", "--out", "report.html"], 0.2, 2),
    "bench": (["bench", "inference", "--model", "null", "--transport", "unix", "--seconds", 0.2], 1.0, 2),
    "actor": (["actor", "--connect", "127.0.0.1:9", "--env", "CartPole-v1"], 0.6, 1),
    "certificates": (["certificates", "keys", "--host", "localhost"], 0.2, 1),
    "launch": (["launch", "-n", 2, BINARY, "train", *LEARNING, "--out", "ranks", "--resume", "auto", "--quiet"], 4.0, 1),
}  # fmt: skip


def others(name: str, place: Place, run: Path, trials: int) -> None:
    words, span, _ = OTHERS[name]
    for _ in range(trials):
        place.stop([BINARY, *(run if word == "RUN" else word for word in words)], span)
        made = sorted(p.name for p in place.path.iterdir() if p.name not in ("log", "tmp"))
        if name == "certificates" and made:
            assert {"actor.key", "engine.key"} <= {p.name for p in (place.path / "keys").iterdir()}
        if name == "launch" and made:
            ok("fsck", place.path / "ranks")
        for left in made:
            (shutil.rmtree if (place.path / left).is_dir() else os.remove)(place.path / left)


@pytest.mark.parametrize("name", TRAINING)
def test_training_stops_at_any_time_and_goes_on(name, tmp_path):
    words, span, trials = TRAINING[name]
    train_until_done(Place(tmp_path / "place", 1), words, span, trials)


@pytest.mark.parametrize("name", OTHERS)
def test_other_commands_stop_at_any_time(name, evolved, tmp_path):
    others(name, Place(tmp_path / "place", 2), evolved, OTHERS[name][2])


@pytest.mark.slow
def test_a_stop_does_not_wait_for_a_round_without_end(tmp_path):
    run = Running(tmp_path / "log", "train", "classic/cartpole-a2c", "run.random_episodes=0", "learn.unroll=100000", "--out",
                  tmp_path / "run", "--quiet")  # fmt: skip
    run.wait_for("a2c on")
    time.sleep(2)  # the round takes minutes
    run.process.terminate()
    assert run.process.wait(GRACE) == 75 and "the round did not end" in run.log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINING)
def test_training_stops_at_a_hundred_moments(name, tmp_path):
    words, span, _ = TRAINING[name]
    train_until_done(Place(tmp_path / "place", 3), words, span, 100)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_other_commands_stop_at_a_hundred_moments(name, evolved, tmp_path):
    others(name, Place(tmp_path / "place", 4), evolved, 100)


def test_a_pipe_without_a_writer_does_not_delay_a_stop(evolved, tmp_path):
    os.mkfifo(tmp_path / "preset.toml")
    process = subprocess.Popen([BINARY, "train", tmp_path / "preset.toml"], stderr=subprocess.PIPE, cwd=tmp_path)
    until(lambda: catches(process.pid, signal.SIGTERM))
    time.sleep(0.3)  # until it waits for the other end of the pipe
    process.terminate()
    _, err = process.communicate(timeout=GRACE)
    assert process.returncode in (65, 66, 75), err


def test_a_signal_from_before_the_start_still_prints_the_object():
    def ask():  # in the child, before it becomes samara
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        os.kill(os.getpid(), signal.SIGTERM)

    done = subprocess.run([BINARY, "list", "--json"], capture_output=True, text=True, preexec_fn=ask, timeout=GRACE)
    assert done.returncode == 75 and done.stderr == "samara: stopped\n"
    assert json.loads(done.stdout) == {"error": "stopped", "exit": 75}


def test_a_second_signal_still_prints_the_object(tmp_path):
    """Whichever comes first, the save or the second signal: one line, one object, and they do not contradict each other."""
    for pause in (0, 0.01, 0.099, 0.101, 0.103, 0.105, 0.11):
        run = tmp_path / str(pause)
        command = [BINARY, "train", *CARTPOLE, "ga.generations=100000", "--out", run, "--quiet", "--json"]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=environment())  # fmt: skip
        try:
            end = time.monotonic() + GRACE
            while not ((run / "metrics.jsonl").exists() and '"generation"' in (run / "metrics.jsonl").read_text()):
                assert time.monotonic() < end and process.poll() is None
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            time.sleep(pause)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=GRACE)
        finally:
            process.kill()
        last = json.loads(out.strip().splitlines()[-1])
        lines = [line for line in err.splitlines() if line.startswith("samara: ")]
        assert process.returncode == last["exit"] == 75 and len(lines) == 1, err
        assert lines[0] == f"samara: {last['error']}" and "--resume" in lines[0]
        assert ("without a last save" in lines[0]) + ("saved" in lines[0].replace("a last save", "")) <= 1, lines
