"""Drives the samara binary from outside, as a script would. Shared by the end-to-end tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

# a test that was started in the background or by nohup inherits ignored signals, and its programs would too
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)

ROOT = Path(__file__).resolve().parent.parent
BINARY = ROOT / "build" / "samara"
TESTS = ROOT / "tests"

# A run of well under a second on native environments.
CARTPOLE = [
    "classic/cartpole-ga",
    "run.seed=3",
    "ga.population=12",
    "ga.generations=4",
    "ga.validation_candidates=2",
    "ga.validation_episodes=2",
    "ga.test_episodes=4",
    "run.final_test_episodes=4",
    "run.random_episodes=4",
    "run.video=false",
]
# A run of a few seconds on a real game: short episodes, the small network.
ATARI = [
    "atari/deep-ga-desktop",
    "run.seed=3",
    "run.video=false",
    "run.random_episodes=1",
    "run.final_test_episodes=1",
    "env.frames_max=200",
    "env.test_frames_max=200",
    "network.name=Model",
    "fleet.actors=1",
    "fleet.slots=2",
    "fleet.threads=1",
    "ga.population=6",
    "ga.parents=2",
    "ga.generations=2",
    "ga.validation_candidates=1",
    "ga.validation_episodes=1",
    "ga.test_episodes=1",
]


def environment(**variables: str) -> dict[str, str]:
    # ranks that are made to fail leave no records among the temporary files
    return os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "SAMARA_TRACE": ""} | variables


class Outcome:
    def __init__(self, command: list[str], code: int, out: str, err: str, seconds: float) -> None:
        self.command, self.code, self.out, self.err, self.seconds = command, code, out, err, seconds

    def __repr__(self) -> str:
        return f"{' '.join(self.command)}\nexit {self.code} after {self.seconds:.1f} s\n{self.out}\n{self.err}"

    @property
    def json(self) -> dict:
        """The last line of standard output."""
        return json.loads(self.out.strip().splitlines()[-1])


def samara(*args: object, timeout: float = 300, cwd: Path | str = ROOT, **variables: str) -> Outcome:
    command = [str(BINARY), *map(str, args)]
    start = time.monotonic()
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, cwd=cwd, env=environment(**variables)
    )
    return Outcome(command, done.returncode, done.stdout, done.stderr, time.monotonic() - start)


def ok(*args: object, **options) -> Outcome:
    outcome = samara(*args, **options)
    assert outcome.code == 0, outcome
    return outcome


def train(out: Path, *args: object, **options) -> dict:
    """The result of a whole run."""
    return ok("train", *args, "--out", out, "--quiet", "--json", **options).json


def resume(run: Path, *overrides: object, **options) -> dict:
    return ok("train", "--resume", run, *overrides, "--quiet", "--json", **options).json


class Running:
    """A samara process to be watched, signalled and killed; its standard error is a file."""

    def __init__(self, log: Path, *args: object, cwd: Path | str = ROOT, **variables: str) -> None:
        self.log = log
        self.command = [str(BINARY), *map(str, args)]
        with open(log, "wb") as file:
            self.process = subprocess.Popen(
                self.command, stdout=subprocess.DEVNULL, stderr=file, cwd=cwd, env=environment(**variables)
            )

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, words: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while words not in self.text():
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.text()}"
            assert time.monotonic() < end, f"no '{words}' within {seconds} s:\n{self.text()}"
            time.sleep(0.005)

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.process.wait(30)

    def wait(self, seconds: float = 120) -> int:
        return self.process.wait(seconds)

    def children(self) -> list[int]:
        """Process ids of the actors."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        found: list[int] = []
        for task in tasks.iterdir():
            found += map(int, (task / "children").read_text().split())
        return found


def catches(pid, number):
    """Whether the process has a handler for this signal; before its main it has none."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt")).split()[1], 16)
    return caught >> (number - 1) & 1


def reported(text: str) -> int:
    """The last generation that the log says is done; 0 before the first."""
    import re

    found = re.findall(r"generation (\d+): frames", text)
    return int(found[-1]) if found else 0
