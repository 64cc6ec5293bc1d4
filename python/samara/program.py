# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Finds the program `samara`, runs its commands as child processes, and converts its errors."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import weakref
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Any

USAGE = 64  # exit codes of the program: README.md
BAD_DATA = 65
NO_INPUT = 66
UNAVAILABLE = 69
STOPPED = 75
CONFIG = 78
SCRIPT_FOLDER = "SAMARA_SCRIPT_FOLDER"  # variable that samara/gym.py reads


class Error(RuntimeError):
    """An error of the program: its message of one line, and `exit_code`, its exit code (README.md)."""

    __module__ = "samara"  # as tracebacks name it

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def find_program() -> Path:
    """Returns the file SAMARA_PROGRAM; else build/samara if this package is build/python/samara; else bin/samara of this
    package, which pip installs; else `samara` on PATH, unless that is the running command (__main__.py).

    Raises Error 66 if there is none.
    """
    if given := os.environ.get("SAMARA_PROGRAM"):
        return Path(given)
    # not resolved: the files of build/python/samara are links into the source tree
    package = Path(os.path.abspath(__file__)).parent
    places = package.parents[1] / "samara", package / "bin/samara"
    for place in places:
        if place.is_file():
            return place
    if (found := shutil.which("samara")) and os.path.realpath(found) != os.path.realpath(sys.argv[0]):
        return Path(found)
    raise Error(
        NO_INPUT,
        f"no program `samara`: neither {places[0]} nor {places[1]}, not on PATH; run `make build`, install the package"
        " again where MuJoCo's headers are, or set SAMARA_PROGRAM to its path",
    )


def environment() -> dict[str, str]:
    """Returns the program's environment variables; without a .venv next to it, the program uses this interpreter's."""
    found = {"VIRTUAL_ENV": sys.prefix} | os.environ if sys.prefix != sys.base_prefix else dict(os.environ)
    prepare_actors(found)
    return found


def prepare_actors(variables: MutableMapping[str, str]) -> None:
    """Tells Python actors where the running script lies, and which folders it has added to sys.path: they look there too
    for the module that env.id names."""
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    variables.pop(SCRIPT_FOLDER, None)
    script = os.path.dirname(os.path.realpath(file)) if file and spec is None else ""
    if script not in sys.path:  # of a script, without -P
        script = ""
    added = [folder for folder in map(os.path.abspath, filter(None, sys.path)) if _is_added(folder) and folder != script]
    if script or added:
        variables[SCRIPT_FOLDER] = os.pathsep.join([script, *dict.fromkeys(added)])


def _is_added(folder: str) -> bool:
    """Whether this folder is neither Python's own nor one that its environment variable names."""
    known = (sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.path.isdir(folder) and not folder.startswith(known) and folder not in map(os.path.abspath, filter(None, named))


def refuse_in_actor() -> None:
    """Raises Error 78 in an actor: a module that starts actors while it is imported would start them without end."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name == "samara.actor":
        raise Error(CONFIG, 'an actor imported a module that starts actors: put that under if __name__ == "__main__"')


def launch(arguments: Sequence[object], **streams: Any) -> subprocess.Popen:
    """Starts the program in a process group of its own: Ctrl-C in a terminal reaches the caller only, which decides."""
    command, variables = [str(find_program()), *map(str, arguments)], environment()
    alive, held = os.pipe()
    _held.add(held)
    try:
        child = subprocess.Popen(command, env=variables, process_group=0, pass_fds=[alive], **streams)
        weakref.finalize(child, _let_go, held)
        _terminate_on_hang_up(child, alive)
    except OSError as error:
        _let_go(held)
        raise Error(NO_INPUT, f"{command[0]}: {error.strerror}: expected the program `samara`") from error
    finally:
        os.close(alive)
    return child


_held: set[int] = set()  # ends of pipes of programs that run; a forked process must not keep them open


def _let_go(*held: int) -> None:
    for end in _held.intersection(held):
        _held.discard(end)
        os.close(end)


os.register_at_fork(after_in_child=lambda: _let_go(*_held))


def _terminate_on_hang_up(child: subprocess.Popen, alive: int) -> None:
    """The kernel sends `child` SIGTERM when no process can write to the pipe `alive` any longer: this process holds the
    only end, so that the program ends with it, however it ends. (PR_SET_PDEATHSIG fires at the end of a thread.)"""
    fcntl.fcntl(alive, fcntl.F_SETOWN, child.pid)
    fcntl.fcntl(alive, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(alive, fcntl.F_SETFL, fcntl.fcntl(alive, fcntl.F_GETFL) | os.O_ASYNC)


def last_object(output: str) -> dict[str, Any]:
    """Returns the object that a command with --json prints as its last line; empty if there is none."""
    lines = output.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else {}
    except json.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def failure(code: int, output: str, errors: str) -> Error:
    """Returns the error of a command that ended with `code`, from its output."""
    if message := last_object(output).get("error"):
        return Error(code, _in_python(message))
    if code < 0:
        return Error(128 - code, f"the program was killed by {signal.Signals(-code).name}")
    said = [line for line in errors.splitlines() if line.startswith("samara: ")]
    return Error(code, said[-1].removeprefix("samara: ") if said else f"the program ended with exit code {code}")


def _in_python(message: str) -> str:
    """Names arguments of this package where the program's message names options of its own."""
    message = message.replace("expected --trust ", "expected trust=True ").replace("another --out", "another out=")
    return re.sub(r"by --resume (.+?)$", r"by samara.load('\1').resume()", message)


def one_line(error: BaseException) -> str:
    """Type and message of an exception of other code."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")


def bytes_of(file: Any, start: int = 0) -> bytes:
    """Returns the content of a temporary file from `start` on, without moving its position, which the writer uses."""
    return os.pread(file.fileno(), max(0, os.fstat(file.fileno()).st_size - start), start)


def text_of(file: Any) -> str:
    """Returns the content of a temporary file as text."""
    return bytes_of(file).decode(errors="replace")


def call(*arguments: object) -> dict[str, Any]:
    """Runs one command with --json and returns its object; raises Error. Ctrl-C stops the program first."""
    child = launch(
        [*arguments, "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        output, errors = child.communicate()
    except BaseException:
        child.terminate()
        child.communicate()
        raise
    if child.returncode != 0:
        raise failure(child.returncode, output, errors)
    return last_object(output)
