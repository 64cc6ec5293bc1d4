# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs: started, watched, read.

A run is a folder (doc/run_folder_format.md) that the program `samara` makes in a process of its own. `train` waits for
its end, `start` returns at once, `load` opens one that is there.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from samara.program import NO_INPUT, STOPPED, Error, call, failure, last_object, launch

if TYPE_CHECKING:
    from samara.policy import Policy

Metrics = dict[str, Any]  # a line of metrics.jsonl (doc/metrics.md)
Overrides = Mapping[str, Any]  # "table.key" to a value, as in `samara train PRESET table.key=value`

_POLL = 0.05  # s between looks at what a run writes
_STARTED = re.compile(r"^run (.+?): \S+ on ", re.M)  # of its log


def train(
    preset: str | os.PathLike[str],
    overrides: Overrides | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    callback: Callable[[Metrics], object] | None = None,
    verbose: bool = False,
) -> Run:
    """Trains to the end of the budget and returns the run.

    `preset`: a name of `samara list presets` or a .toml file. `overrides`: keys of `samara list keys`. `out`: the
    folder to create; default runs/<name>-NN. `callback` gets each new line of metrics; where it returns True the run
    stops with everything saved (then `Run.result` is None and `Run.resume` continues). `verbose` prints the log.

    Raises Error with the program's line. Ctrl-C stops the run with everything saved, then raises KeyboardInterrupt,
    whose note names the folder.
    """
    return _watch(start(preset, overrides, out, verbose=verbose), callback)


def start(
    preset: str | os.PathLike[str],
    overrides: Overrides | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    verbose: bool = False,
) -> RunningRun:
    """Starts a run and returns at once; parameters as of `train`."""
    folder = [] if out is None else ["--out", os.fspath(out)]
    return RunningRun(["train", os.fspath(preset), *_words(overrides), *folder], verbose)


def load(path: str | os.PathLike[str]) -> Run:
    """A run folder that is there, finished or not. Raises Error 66 where `path` is none."""
    return Run(path)


def _words(overrides: Overrides | None) -> list[str]:
    def word(value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value)

    return [f"{key}={word(value)}" for key, value in (overrides or {}).items()]


def _watch(running: RunningRun, callback: Callable[[Metrics], object] | None) -> Run:
    with running:
        try:
            for line in running:
                if callback is not None and callback(line) is True:
                    running.stop()
            return running.wait()
        except KeyboardInterrupt as stopped:
            running.stop()
            stopped.add_note(f"samara: stopped; samara.load({str(running.wait().path)!r}).resume() continues")
            raise


class Run:
    """A run folder. Reading takes no lock: it works beside the process that writes."""

    path: Path

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not (self.path / "run.json").is_file():
            raise Error(NO_INPUT, f"{self.path}: expected a run folder, with run.json")

    def __repr__(self) -> str:
        return f"samara.load({str(self.path)!r})"

    @property
    def result(self) -> dict[str, Any] | None:
        """The object that `samara train --json` prints; None for a run that is not finished."""
        try:
            return json.loads((self.path / "result.json").read_text())["result"]
        except FileNotFoundError:
            return None

    @property
    def config(self) -> dict[str, dict[str, Any]]:
        """The effective configuration: table, then key."""
        return tomllib.loads((self.path / "config.toml").read_text())

    def metrics(self, events: bool = False) -> Any:
        """The lines of metrics.jsonl (doc/metrics.md): a pandas.DataFrame, or a list of dicts without pandas.

        `events`: instead the lines that have an "event".
        """
        lines = [line for line in _Lines(self.path / "metrics.jsonl") if ("event" in line) == events]
        try:
            import pandas
        except ModuleNotFoundError:
            return lines
        return pandas.DataFrame(lines)

    def evaluate(
        self, episodes: int = 200, *, seed: int = 0, random: bool = False, individual: str | None = None
    ) -> dict[str, Any]:
        """Fresh episodes of the policy: the object of `samara eval --json`, with `mean`, `std`, `returns`, ...

        `random`: of the random policy instead, on the same episodes. `individual`: as of `policy`. Raises Error.
        """
        chosen = ["--individual", individual] if individual else []
        return call("eval", self.path, "--episodes", episodes, "--seed", seed, *chosen, *(["--random"] if random else []))

    def policy(self, individual: str | None = None) -> Policy:
        """The policy, to be called with observations; `individual` as of samara.Policy. Raises Error."""
        from samara.policy import Policy

        return Policy(self.path, individual)

    def report(self) -> Path:
        """Makes report.html again, and returns its path. Raises Error."""
        call("report", self.path)
        return self.path / "report.html"

    def resume(
        self,
        overrides: Overrides | None = None,
        *,
        callback: Callable[[Metrics], object] | None = None,
        verbose: bool = False,
    ) -> Run:
        """Continues a stopped run, or a finished one with a larger budget; see `train`."""
        return _watch(RunningRun(["train", "--resume", str(self.path), *_words(overrides)], verbose, self), callback)


class _Lines:
    """The objects of a file of lines, as far as it is written; iterated again it goes on where it was."""

    def __init__(self, path: Path) -> None:
        self.path, self.at = path, 0

    def __iter__(self) -> Iterator[Metrics]:
        try:
            with open(self.path, "rb") as file:
                file.seek(self.at)
                for line in file:
                    if not line.endswith(b"\n"):  # being written
                        return
                    self.at += len(line)
                    yield json.loads(line)
        except FileNotFoundError:
            return


class RunningRun:
    """A run in its process. Iterating yields each new line of metrics until the run ends.

    with samara.start("classic/cartpole-ga") as running:
        for line in running:
            if line.get("fitness_max", 0) > 400:
                running.stop()
        run = running.wait()

    Leaving the `with` block stops the run. One thread at a time.
    """

    def __init__(self, arguments: list[str], verbose: bool = False, resumed: Run | None = None) -> None:
        self._resumed, self._verbose = resumed, verbose
        self._path: Path | None = resumed and resumed.path
        self._stopped = False
        # files: a pipe that is not read would block the program
        self._output, self._log = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self._shown = 0
        self._lines = _Lines(resumed.path / "metrics.jsonl") if resumed else None
        if self._lines is not None:
            for _ in self._lines:  # what was written before is not new
                pass
        self._process = launch([*arguments, "--quiet", "--json"], stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._log)

    @property
    def path(self) -> Path | None:
        """The run folder; None until it is made."""
        if self._path is None and (found := _STARTED.search(_text(self._log))):
            self._path = Path(found[1])
        return self._path

    @property
    def running(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def __iter__(self) -> Iterator[Metrics]:
        while True:
            running = self.running  # before the file is read: what an ended process wrote is there
            yield from self._new_lines()
            if not running:
                return
            time.sleep(_POLL)

    def stop(self) -> None:
        """Asks the run to save everything and end; returns at once, `wait` waits."""
        if not self._stopped and self.running:
            self._process.send_signal(signal.SIGTERM)
        self._stopped = True

    def wait(self) -> Run:
        """Waits for the end; the run, or Error. A run that `stop` ended is no error."""
        while self.running:
            self._show()
            time.sleep(_POLL)
        self._show()
        code = self._process.returncode
        output = _text(self._output)
        if code == STOPPED and self._stopped and self.path is not None:
            return Run(self.path)
        if code != 0:
            raise failure(code, output, _text(self._log))
        return Run(last_object(output)["run"])

    def __enter__(self) -> RunningRun:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
        self._process.wait()

    def _new_lines(self) -> Iterator[Metrics]:
        self._show()
        if self._lines is None and self.path is not None:
            self._lines = _Lines(self.path / "metrics.jsonl")
        yield from self._lines or ()

    def _show(self) -> None:
        if not self._verbose:
            return
        text = _text(self._log)
        print(text[self._shown :], end="", file=sys.stderr, flush=True)
        self._shown = len(text)


def _text(file: Any) -> str:
    """All that is in a temporary file, whose position belongs to the process that writes."""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, 0).decode(errors="replace")
