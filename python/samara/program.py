# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The program `samara` as a child process: where it is, one command to its end, its errors."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BAD_DATA = 65  # exit codes of the program: README.md
NO_INPUT = 66
STOPPED = 75


class Error(RuntimeError):
    """What the program refuses or fails at: its one line, and `exit_code`, the program's exit code (README.md)."""

    __module__ = "samara"  # as tracebacks name it

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def find_program() -> Path:
    """The file SAMARA_PROGRAM; else build/samara where this package is build/python/samara; else `samara` on PATH.

    Raises Error 66 without one.
    """
    if given := os.environ.get("SAMARA_PROGRAM"):
        return Path(given)
    # not resolved: the files of build/python/samara are links into the source tree
    beside = Path(os.path.abspath(__file__)).parents[2] / "samara"
    if beside.is_file():
        return beside
    if found := shutil.which("samara"):
        return Path(found)
    raise Error(
        NO_INPUT,
        f"no program `samara`: not at {beside}, not on PATH; run `make build`, or set SAMARA_PROGRAM to its path",
    )


def environment() -> dict[str, str]:
    """The variables of the program: without a .venv next to it, it takes this interpreter's environment."""
    return {"VIRTUAL_ENV": sys.prefix} | os.environ if sys.prefix != sys.base_prefix else dict(os.environ)


def launch(arguments: Sequence[object], **streams: Any) -> subprocess.Popen:
    """Starts the program, in a process group of its own: Ctrl-C in a terminal reaches the caller alone, which decides."""
    command = [str(find_program()), *map(str, arguments)]
    try:
        return subprocess.Popen(command, env=environment(), process_group=0, **streams)
    except OSError as error:
        raise Error(NO_INPUT, f"{command[0]}: {error.strerror}: expected the program `samara`") from error


def last_object(output: str) -> dict[str, Any]:
    """The object that a command with --json prints as its last line; empty when there is none."""
    lines = output.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else {}
    except json.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def failure(code: int, output: str, errors: str) -> Error:
    """The error of a command that ended with `code`, from what it printed."""
    if message := last_object(output).get("error"):
        return Error(code, message)
    if code < 0:
        return Error(128 - code, f"the program was killed by {signal.Signals(-code).name}")
    said = [line for line in errors.splitlines() if line.startswith("samara: ")]
    return Error(code, said[-1].removeprefix("samara: ") if said else f"the program ended with exit code {code}")


def bytes_of(file: Any, start: int = 0) -> bytes:
    """What is in a temporary file from `start` on; its position belongs to the process that writes."""
    return os.pread(file.fileno(), max(0, os.fstat(file.fileno()).st_size - start), start)


def text_of(file: Any) -> str:
    """All of it as text."""
    return bytes_of(file).decode(errors="replace")


def call(*arguments: object) -> dict[str, Any]:
    """One command with --json to its end; its object, or Error. Ctrl-C stops the program first."""
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
