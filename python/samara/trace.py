# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Records when an environment worked, to the nanosecond, for the picture of `samara bench schedule`.

A record is six int64: core, kind, begin and end on the monotonic clock, processor time of the thread at begin and
end. A file holds the records of one environment, in order.
"""

from __future__ import annotations

import os
import time
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from samara.environment import Environment, Step

RESET, STEP, LAST_STEP, INFERENCE = range(4)  # SpanKind in src/bench/spans.h
FLUSH = 6 * 1024  # numbers


class Recorder:
    """Appends records to a new file in `folder`."""

    def __init__(self, folder: str, core: int) -> None:
        self.core = core
        self.records = array("q")
        self.path = os.path.join(folder, f"{os.getpid()}-{id(self)}.spans")

    def begin(self) -> None:
        """Starts a record."""
        self.cpu = time.thread_time_ns()
        self.start = time.monotonic_ns()

    def end(self, kind: int) -> None:
        """Ends the record."""
        now = time.monotonic_ns()
        self.records.extend((self.core, kind, self.start, now, self.cpu, time.thread_time_ns()))
        if len(self.records) >= FLUSH:
            self.flush()

    def flush(self) -> None:
        """Writes the records to the file."""
        with open(self.path, "ab") as file:
            self.records.tofile(file)
        del self.records[:]


def pin(core: int) -> None:
    """Binds this process to one core: the `core`-th of those that it may use."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[core % len(cores)]})


class Traced:
    """An environment that records its resets and steps."""

    def __init__(self, inner: Environment, recorder: Recorder) -> None:
        self.inner, self.recorder = inner, recorder
        self.spec = inner.spec

    def reset(self, seed: int, noops: int, frames_max: int, observation: np.ndarray) -> None:
        self.recorder.begin()
        self.inner.reset(seed, noops, frames_max, observation)
        self.recorder.end(RESET)

    def step(self, action: int | np.ndarray, observation: np.ndarray) -> Step:
        self.recorder.begin()
        result = self.inner.step(action, observation)
        self.recorder.end(LAST_STEP if result[1] or result[2] else STEP)
        return result

    def __getattr__(self, name: str) -> Any:  # pictures, save, restore
        return getattr(self.inner, name)

    def close(self) -> None:
        self.recorder.flush()
        self.inner.close()


def traced(environment: Environment, config: dict[str, Any], actor: int) -> Traced:
    """`config`: {"folder": ..., "core": of actor 0}; the next actor runs on the next core."""
    core = config["core"] + actor
    pin(core)
    return Traced(environment, Recorder(config["folder"], core))
