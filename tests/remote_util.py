"""Engines, actors and hand-made peers for the tests of remote actors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest
from samara_cli import BINARY, ROOT, environment, samara

ENGINE = ROOT / "build" / "remote_engine"


class Engine:
    """tests/remote_engine.cc: plays on whatever actors come, prints an object a second and at the end."""

    def __init__(self, address: str, prefix: tuple[str, ...] = (), **keys: object) -> None:
        command = [*prefix, str(ENGINE), address, *(f"{k}={v}" for k, v in keys.items())]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        )
        self.lines: list[dict] = []
        self.errors: list[str] = []
        self.readers = [
            threading.Thread(target=self.read_out, daemon=True),
            threading.Thread(target=self.read_errors, daemon=True),
        ]
        for reader in self.readers:
            reader.start()

    def read_out(self) -> None:
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def read_errors(self) -> None:
        for line in self.process.stderr:
            self.errors.append(line)

    @property
    def address(self) -> str:
        self.wait_until(lambda: self.lines)
        return self.lines[0]["address"]

    @property
    def last(self) -> dict:
        return self.lines[-1]

    def wait_until(self, condition, seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.errors}"
            assert time.monotonic() < end, f"not within {seconds} s: {self.lines[-1:]} {self.errors[-5:]}"
            time.sleep(0.02)

    def wait_for_line(self, condition, seconds: float = 30) -> dict:
        """The first line from now on that meets the condition."""
        seen = len(self.lines)
        found: list[dict] = []
        self.wait_until(lambda: found.extend(x for x in self.lines[seen:] if "live" in x and condition(x)) or found,
                        seconds)
        return found[0]

    def end(self, seconds: float = 30) -> dict:
        """The last line, once the engine has ended by itself."""
        code = self.process.wait(seconds)
        for reader in self.readers:
            reader.join(10)
        assert code == 0, (code, self.errors)
        return self.last

    def stop(self) -> dict:
        self.process.terminate()
        return self.end()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)


class Actor:
    def __init__(self, address: str, *arguments: object, prefix: tuple[str, ...] = (), env="CartPole-v1",
                 slots: int = 2, python: bool = False) -> None:
        program = [str(ROOT / ".venv/bin/python"), "-m", "samara.actor"] if python else [str(BINARY), "actor"]
        command = [*prefix, *program, "--connect", address, "--env", env, "--slots", str(slots), "--json",
                   *map(str, arguments)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(PYTHONPATH=str(ROOT / "build/python")),
        )

    def end(self, seconds: float = 30) -> tuple[int, dict, str]:
        out, errors = self.process.communicate(timeout=seconds)
        lines = out.strip().splitlines()
        return self.process.returncode, json.loads(lines[-1]) if lines else {}, errors

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=10)


def socket_folder(folder: Path) -> Path:
    """A folder of the user alone with a short name: pytest's own are too long for a socket."""
    made = Path(f"/tmp/samara-{os.getpid()}-{abs(hash(folder)) % 10**6}")
    made.mkdir(mode=0o700, exist_ok=True)
    return made


needs_grpc = pytest.mark.skipif(
    "without gRPC" in samara("actor", "--connect", "unix:/nonexistent/s", "--env", "CartPole-v1",
                             "--connect-timeout", 0).err,
    reason="SKIPPED LOUDLY: this build has no gRPC (libgrpc++-dev)",
)


@pytest.fixture
def folder(tmp_path):
    made = socket_folder(tmp_path)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def started():
    """What a test starts is killed at its end."""
    things = []

    def keep(thing):
        things.append(thing)
        return thing

    yield keep
    for thing in things:
        thing.kill()
