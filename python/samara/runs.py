# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Starts, watches and reads runs.

A run is a folder (doc/run_folder_format.md) that the program `samara` makes in a process of its own. `train` waits for
its end, `start` returns at once, `load` opens an existing one.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from samara.program import (
    BAD_DATA, CONFIG, NO_INPUT, STOPPED, Error, bytes_of, call, failure, last_object, launch, refuse_in_actor, text_of
)  # fmt: skip
from samara.values import path_text, words

if TYPE_CHECKING:
    from samara.policy import Policy

Metrics = dict[str, Any]  # a line of metrics.jsonl (doc/metrics.md)
# "table.key" to a value, as in `samara train PRESET table.key=value`, or a table to its keys
Overrides = Mapping[str, Any]

_POLL = 0.05  # s between looks at what a run writes
_STARTED = re.compile(r"^run (.+?): \S+ on ", re.M)  # of its log


def train(
    preset: str | os.PathLike[str],
    overrides: Overrides | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    network: Any = None,
    callback: Callable[[Metrics], object] | None = None,
    verbose: bool = False,
) -> Run:
    """Trains to the end of the budget and returns the run.

    `preset`: a name of `samara list presets` or a .toml file. `overrides`: keys of `samara list keys`; classes are
    values of env.id and env.wrappers. `out`: the folder to create; default runs/<name>-NN. `network`: of a learning
    run, a torch.nn.Module in place of the layers of its network, from observations [N, ...] to features [N, F]
    (doc/networks.md); or the file of one as TorchScript. `callback` is called with each new line of metrics; if it
    returns what is true the run stops with everything saved (then `Run.result` is None and `Run.resume` continues). Its
    methods prepare(), before the run is started, begin(Run), before the first line, end(Run), after the last, and
    abandon(), where no run folder was made, are called if it has them (samara.Logger). `verbose` prints the log.

    Raises Error with the program's line. Ctrl-C, or an exception of `callback`, stops the run with everything saved and
    is raised on, with a note that names the folder.
    """
    arguments, made = _training(preset, overrides, out, network)
    return _watch(lambda: RunningRun(arguments, verbose, made=made), callback)


def start(
    preset: str | os.PathLike[str],
    overrides: Overrides | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    network: Any = None,
    verbose: bool = False,
) -> RunningRun:
    """Starts a run and returns at once; parameters as of `train`."""
    arguments, made = _training(preset, overrides, out, network)
    return RunningRun(arguments, verbose, made=made)


def load(path: str | os.PathLike[str]) -> Run:
    """Opens an existing run folder, finished or not. Raises Error 66 if `path` is not one."""
    return Run(path)


def _training(
    preset: str | os.PathLike[str], overrides: Overrides | None, out: str | os.PathLike[str] | None, network: Any
) -> tuple[list[str], tempfile.TemporaryDirectory | None]:
    """Returns the words after `samara`, and the folder of a module's file that was made for them."""
    name = path_text("preset", preset, "the name of a preset or a .toml file")
    if name.startswith("-"):
        raise Error(CONFIG, f"{name}: expected a preset")
    folder = [] if out is None else ["--out", path_text("out", out, "the folder to create")]
    arguments = ["train", name, *words(overrides)]
    made = None
    if network is not None:
        if any(word.startswith("network.module=") for word in arguments):
            raise Error(CONFIG, "network.module: expected it left out where network= is given")
        file, made = _module_file(network, arguments)
        arguments.append(f"network.module={file}")
    return [*arguments, *folder], made


def _module_file(network: Any, arguments: list[str]) -> tuple[str, tempfile.TemporaryDirectory | None]:
    """The file of a module as TorchScript, and the folder that was made for it."""
    if isinstance(network, (str, os.PathLike)):
        return os.fspath(network), None
    from samara.network import script

    scripted = script(network, lambda: call(*arguments, "--dry-run").get("module_input", ()))
    folder = tempfile.TemporaryDirectory(prefix="samara-")
    file = os.path.join(folder.name, "module.pt")
    scripted.save(file)
    return file, folder


def _watch(begin: Callable[[], RunningRun], callback: Callable[[Metrics], object] | None) -> Run:
    """Runs what `begin` starts to its end. An exception on the way has a note that says how to go on."""
    if callback is not None and not callable(callback):
        raise TypeError(f"callback: {type(callback).__name__}, expected a function of one line of metrics, or None")
    _call(callback, "prepare")
    began: list[Run] = []
    try:
        with begin() as running:
            try:
                _pass_lines(running, callback, began)
                return running.wait()
            except BaseException as stopped:
                running.stop()
                with contextlib.suppress(Error):  # nothing was begun yet, or its error is what is raised
                    stopped.add_note(_how_to_go_on(running.wait()))
                raise
    finally:
        if not began:
            _call(callback, "abandon")


def _call(callback: object, method: str, *arguments: object) -> None:
    """Calls a method where the callback has it."""
    if found := getattr(callback, method, None):
        found(*arguments)


def _pass_lines(running: RunningRun, callback: Callable[[Metrics], object] | None, began: list[Run]) -> None:
    try:
        for line in running:
            if not began:
                began.append(Run(running.path))
                _call(callback, "begin", *began)
            if callback is not None and callback(line):
                running.stop()
    finally:
        if began:
            _call(callback, "end", *began)


def _how_to_go_on(run: Run) -> str:
    opened = f"samara.load({str(run.path)!r})"
    return f"samara: stopped; {opened}.resume() continues" if run.result is None else f"samara: finished; {opened} opens it"


class Run:
    """A run folder. Reading takes no lock: it works while another process writes."""

    path: Path

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path_text("path", path, "a run folder"))
        if not (self.path / "run.json").is_file():
            # of --seeds, of --sweep
            runs = sorted(file.parent for file in (*self.path.glob("*/run.json"), *self.path.glob("*=*/*/run.json")))
            several = f"; it holds {len(runs)}: name one, such as {runs[0]}" if runs else ""
            raise Error(NO_INPUT, f"{self.path}: expected a run folder, with run.json{several}")

    def __repr__(self) -> str:
        return f"samara.load({str(self.path)!r})"

    @property
    def result(self) -> dict[str, Any] | None:
        """The object that `samara train --json` prints; None for a run that is not finished."""
        file = self.path / "result.json"
        try:
            return json.loads(file.read_text())["result"]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError) as error:
            raise Error(BAD_DATA, f"{file}: damaged; `samara train --resume` makes it again") from error

    @property
    def config(self) -> dict[str, dict[str, Any]]:
        """The effective configuration: table, then key."""
        try:
            return tomllib.loads((self.path / "config.toml").read_text())
        except (ValueError, OSError) as error:
            raise Error(BAD_DATA, f"{self.path / 'config.toml'}: {error}") from error

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

    def lines(self, follow: bool = False) -> Iterator[Metrics]:
        """Every line of metrics.jsonl, events too; `follow`: also what is being written, as long as a process trains it."""
        lines = _Lines(self.path / "metrics.jsonl")
        while True:
            over = not (follow and self._held())  # looked at before the file is read, which is then complete
            yield from lines
            if over:
                return
            time.sleep(_POLL)

    def _held(self) -> bool:
        """Whether a process has the run's lock."""
        try:
            with open(self.path / "lock", "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            pass
        return False

    def log(self, to: str, *, follow: bool = False, **keys: Any) -> None:
        """Logs the metrics to "wandb" or "mlflow"; keys are those of samara.Logger, `follow` as in `lines`. Raises Error."""
        from samara.loggers import log

        log(self, to, follow=follow, **keys)

    def evaluate(
        self, episodes: int = 200, *, seed: int = 0, random: bool = False, individual: str | int | None = None
    ) -> dict[str, Any]:
        """Plays fresh episodes; returns the object of `samara eval --json`, with `mean`, `std`, `returns`, ...

        `random`: plays the random policy instead, on the same episodes. `individual`: as in `policy`. Raises Error.
        """
        chosen = [] if individual is None else ["--individual", individual]
        return call("eval", self.path, "--episodes", episodes, "--seed", seed, *chosen, *(["--random"] if random else []))

    def policy(self, individual: str | int | None = None) -> Policy:
        """Returns the policy, to be called with observations; `individual` as in samara.Policy. Raises Error."""
        from samara.policy import Policy

        return Policy(self.path, individual)

    def report(self) -> Path:
        """Writes report.html again and returns its path. Raises Error."""
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
        arguments = ["train", "--resume", str(self.path), *words(overrides)]
        return _watch(lambda: RunningRun(arguments, verbose, self), callback)


class _Lines:
    """Iterates over the objects of a growing file of lines; a further iteration continues after the last line."""

    def __init__(self, path: Path, old: bytes = b"") -> None:
        self.path, self.at = path, 0
        # lines from before a resume, which removes damaged ones, and the last ones if it computes their steps again
        self._old = [line for line in old.splitlines(True) if _object(line) is not None]

    def __iter__(self) -> Iterator[Metrics]:
        try:
            with open(self.path, "rb") as file:
                if self._old and not self._pass_old(file):
                    return
                file.seek(self.at)
                for line in file:
                    if not line.endswith(b"\n"):  # being written
                        return
                    self.at += len(line)
                    if (found := _object(line)) is not None:
                        yield found
        except FileNotFoundError:
            return

    def _pass_old(self, file: Any) -> bool:
        """Returns whether there is a new line; `at` is its position."""
        self.at = 0
        for old, line in itertools.zip_longest(self._old, file):
            if line is None or (line != old and not line.endswith(b"\n")):
                return False
            if line != old:
                self._old = []
                return True
            self.at += len(line)
        return False


def _object(line: bytes) -> Metrics | None:
    """Returns the object of a line; None for a damaged one, which a resume removes."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


class RunningRun:
    """A run in its process. Iterating yields each new line of metrics until the run ends.

    with samara.start("classic/cartpole-ga") as running:
        for line in running:
            if line.get("fitness_max", 0) > 400:
                running.stop()
        run = running.wait()

    Leaving the `with` block stops the run, and so does the end of this program, by whatever (program.launch). The error
    of a run that fails is raised by `wait`, by the end of the iteration, or on leaving the block. One thread at a time.
    """

    def __init__(
        self,
        arguments: list[str],
        verbose: bool = False,
        resumed: Run | None = None,
        made: tempfile.TemporaryDirectory | None = None,
    ) -> None:
        refuse_in_actor()
        self._resumed, self._verbose = resumed, verbose
        self._path: Path | None = resumed and resumed.path
        self._stopped = self._told = False  # told: `wait` said how it ended
        # files: a pipe that is not read would block the program
        self._output, self._log = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self._shown = 0
        self._lines: _Lines | None = None
        if resumed:  # what was written before is not new
            metrics = resumed.path / "metrics.jsonl"
            self._lines = _Lines(metrics, metrics.read_bytes() if metrics.exists() else b"")
        self._process = launch([*arguments, "--quiet", "--json"], stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._log)
        self._end = weakref.finalize(self, _end, self._process, made)  # also when this program ends

    @property
    def path(self) -> Path | None:
        """The run folder; None until it is made."""
        if self._path is None and (found := _STARTED.search(text_of(self._log))):
            self._path = Path(found[1])
        return self._path

    @property
    def running(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def __iter__(self) -> Iterator[Metrics]:
        while True:
            running = self.running  # asked before the file is read, which is then complete
            yield from self._new_lines()
            if not running:
                self._raise_failure()
                return
            time.sleep(_POLL)

    def stop(self) -> None:
        """Asks the run to save everything and end; returns at once (`wait` waits)."""
        if not self._stopped and self.running:
            self._process.send_signal(signal.SIGTERM)
        self._stopped = True

    def wait(self) -> Run:
        """Waits for the end and returns the run; raises Error. A run that `stop` ended is no error once it has a folder."""
        while self.running:
            self._show()
            time.sleep(_POLL)
        self._show()
        self._told = True
        code = self._process.returncode
        output = text_of(self._output)
        if code == STOPPED and self._stopped and self.path is not None:
            return Run(self.path)
        if code == -signal.SIGTERM and self._stopped and self.path is None:
            raise Error(STOPPED, "stopped before the run was made")
        if code != 0:
            error = failure(code, output, text_of(self._log))
            if code < 0 and self.path is not None:
                raise Error(error.exit_code, f"{error}; samara.load({str(self.path)!r}).resume() goes on")
            raise error
        return Run(last_object(output)["run"])

    def __enter__(self) -> RunningRun:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self._raise_failure()
        self.stop()
        self._process.wait()

    def _raise_failure(self) -> None:
        """Raises Error for a run that ended by itself with one, if `wait` has not."""
        if not (self._told or self._stopped or self.running):
            self.wait()

    def _new_lines(self) -> Iterator[Metrics]:
        self._show()
        if self._lines is None and self.path is not None:
            self._lines = _Lines(self.path / "metrics.jsonl")
        yield from self._lines or ()

    def _show(self) -> None:
        if not self._verbose:
            return
        new = bytes_of(self._log, self._shown)
        print(new.decode(errors="replace"), end="", file=sys.stderr, flush=True)
        self._shown += len(new)


def _end(process: subprocess.Popen, made: tempfile.TemporaryDirectory | None) -> None:
    if process.poll() is None:
        process.terminate()
        process.wait()
    if made is not None:
        made.cleanup()
