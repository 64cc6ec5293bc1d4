# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A callback that logs while a run trains, and the log of a run that is there."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from samara.loggers.backends import Backend, find_backend
from samara.loggers.scalars import scalars_of
from samara.program import UNAVAILABLE, Error, one_line

if TYPE_CHECKING:
    from samara.runs import Run


class Logger:
    """A callback of samara.train that logs to "wandb", to "mlflow", or to what a class of your own makes (Backend).

    Further keys go to `wandb.init` (project, mode="offline", dir, tags, ...), or to `mlflow.start_run`, with
    `experiment` and `tracking_uri` besides, or to the class. Raises Error 66 where the package is not installed, and 69,
    before a run folder is made, where its run does not start. What fails later is warned about once, and training goes
    on.
    """

    def __init__(self, to: str | Callable[..., Backend], **keys: Any) -> None:
        self._to = to if isinstance(to, str) else getattr(to, "__name__", type(to).__name__)
        self._make = functools.partial(find_backend(to) if isinstance(to, str) else to, **keys)
        self._backend: Backend | None = None
        self._warned, self._strict = False, False

    def prepare(self) -> None:
        """Makes the other program's run, before samara's is started. Raises Error."""
        try:
            self._backend = self._make()
        except Exception as error:
            raise Error(UNAVAILABLE, f"logging to {self._to} did not start: {one_line(error)}") from error

    def begin(self, run: Run) -> None:
        """Names and configures the other program's run. Called before the first line, when the run folder exists."""
        if self._backend is None:
            self.prepare()
        self._attempt(self._backend.begin, run)

    def __call__(self, line: Mapping[str, Any]) -> None:
        step, values = scalars_of(line)
        if values and self._backend is not None:
            self._attempt(self._backend.log, values, step)

    def end(self, run: Run) -> None:
        """Closes it. Called after the last line."""
        backend, self._backend = self._backend, None
        if backend is not None:
            self._attempt(backend.end, run)

    def abandon(self) -> None:
        """Closes it. Called in place of `begin` and `end` where no run folder was made."""
        backend, self._backend = self._backend, None
        if backend is not None:
            self._attempt(backend.abandon)

    def _attempt(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception as error:
            if self._strict:
                raise Error(UNAVAILABLE, f"logging to {self._to} failed: {one_line(error)}") from error
            if not self._warned:
                warnings.warn(f"logging to {self._to} failed, the run goes on: {one_line(error)}", stacklevel=2)
            self._warned = True


def log(run: Run, to: str, *, follow: bool = False, **keys: Any) -> None:
    """Logs the lines of `run`; with `follow` also those that a process that trains it writes. Raises Error."""
    logger = Logger(to, **keys)
    logger._strict = True
    logger.begin(run)
    try:
        for line in run.lines(follow=follow):
            logger(line)
    finally:
        logger.end(run)
