# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Interface of environments inside an actor process, and the list of adapters.

An adapter is a module with a function ``make(config, render) -> Environment``. Its contract is that
of src/env/interface.h: one step answers one action, no action is dropped, no transition is invented,
an episode ends as terminated or truncated, and the observation that the last step wrote is the final
one. The same seed, noops, frames_max and actions give the same bits, whatever was played before in
the same process. ``samara/dummy.py`` is the template to copy.
"""

from __future__ import annotations

import importlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np

from samara.trace import traced

# exit codes (README.md) that an adapter may name
USAGE = 64  # arguments that mean nothing
NO_INPUT = 66  # a file or package is missing
CONFIG = 78  # the configuration can never work

KINDS = {
    "atari": "samara.atari",
    "dmlab": "samara.dmlab",
    "dummy": "samara.dummy",
    "envpool": "samara.envpool",
    "gym": "samara.gym",
}
# prefixes of an id that name an adapter; other words before a colon are modules
PREFIXES = ("dmlab", "envpool")


class SetupError(Exception):
    """The environment cannot be built: one line of what was given, what was expected, what to do."""

    def __init__(self, code: int, line: str) -> None:
        super().__init__(line)
        self.code = code


class InterfaceError(ValueError):
    """The environment breaks the interface, and the message says all of it: the traceback has lines of samara's own alone."""


@dataclass(frozen=True)
class Spec:
    """The fields of EnvironmentSpec (src/env/interface.h), sent to the learner process once, with Hello."""

    id: str  # "atari/frostbite", "gym/LunarLander-v3"
    version: str  # of the simulator and preset: part of the run's identity
    observation_dtype: str  # "uint8" or "float32"
    observation_shape: tuple[int, ...]  # without batch or stack
    action_discrete: bool
    action_n: int  # discrete: number of actions; box: dimensions
    action_low: tuple[float, ...] = ()  # box: the simulator's bounds
    action_high: tuple[float, ...] = ()
    action_sizes: tuple[int, ...] = ()  # discrete, of several parts: the choices of each; their product is action_n
    action_names: tuple[str, ...] = ()  # discrete, when the simulator has names
    frames_per_step: int = 1  # emulated frames of one ordinary step
    steps_max: int = 0  # truncation limit of the environment itself; 0 = none
    position: int = 0  # numbers that position() writes: of the body, for maps and novelty; 0 = no such method
    goal_size: int = 0  # numbers of a goal (src/env/goal.h), at the end of the observation: achieved, then desired; 0 = no goals
    goal_threshold: float = 0.0  # a goal is reached within this distance
    goal_reached: float = 0.0  # reward of a step that reached it
    goal_missed: float = -1.0  # and of any other
    goal_terminates: bool = False  # whether reaching it ends the episode
    memory: int = 0  # bytes that memory() writes: of the simulator, for novelty; 0 = no such method
    render_height: int = 0  # of RGB pictures, when made to render
    render_width: int = 0
    render_frames: int = 0  # largest number of pictures of a step
    render_rate: float = 30.0  # pictures a second, as the task moves in real time


class Step(NamedTuple):
    """Result of one step; a plain tuple in the same order is accepted too."""

    reward: float
    terminated: bool
    truncated: bool  # only when not terminated
    life_lost: bool
    frames: int  # emulated frames of this step; 1 for simulators without frames


class Environment(Protocol):
    """One simulator. Called by one thread; `observation` is a view of the slot in shared memory of the
    spec's dtype and shape, to be filled completely by reset and step."""

    spec: Spec

    def reset(self, seed: int, noops: int, frames_max: int, observation: np.ndarray) -> None:
        """Starts an episode. `seed`: 64-bit key of its random stream (samara._native.CounterRng);
        `noops`: no-op frames to play first (Atari); `frames_max`: truncate after so many frames, 0 = no
        limit besides the environment's own."""

    def step(self, action: int | np.ndarray, observation: np.ndarray) -> Step:
        """`action`: an index, or float32 values in [-1, 1], one per dimension, valid during the call."""

    def pictures(self, out: np.ndarray) -> int:
        """Writes the RGB pictures of the last reset or step into `out`, uint8 of shape
        (render_frames, render_height, render_width, 3), oldest first; returns how many. Called only
        when made with render=True."""

    def position(self, out: np.ndarray) -> None:
        """Writes the position of the body after the last reset or step (float32). Called only when spec.position > 0."""

    def memory(self, out: np.ndarray) -> None:
        """Writes the simulator's memory after the last step (uint8). Called only when spec.memory > 0, after steps of
        episodes that record it."""

    def save(self) -> bytes:
        """Returns the whole state of a running episode; empty when unsupported."""

    def restore(self, state: bytes) -> None:
        """Continues with the same bits as the environment that saved `state`."""

    def close(self) -> None:
        """Ends the simulator."""


class WithoutState:
    """`save` and `restore` of an environment whose simulator cannot save its state."""

    spec: Spec

    def save(self) -> bytes:
        """Returns no bytes: unsupported."""
        return b""

    def restore(self, state: bytes) -> None:
        """Raises SetupError."""
        raise SetupError(CONFIG, f"{self.spec.id}: this environment cannot restore a state")


class Batch(Protocol):
    """Environments that one simulator steps together, on its own threads; `python -m samara.actor` uses it if the adapter
    has `make_batch`. Called by one thread."""

    spec: Spec

    def start(self, commands: np.ndarray) -> None:
        """Starts the resets and steps of these rows (samara.wire.command_type), at most one a slot. All of them are
        finished before the next call."""

    def finish(self, observation: np.ndarray) -> tuple[int, Step]:
        """Waits for the next finished one, in any order; returns its slot and its step (of a reset 0 frames)."""

    def restart(self) -> None:
        """Drops all episodes, after a failure."""


def spell_out(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the configuration with the adapter, name and arguments that an id such as
    ``envpool:Basic-v1?frame_skip=2`` spells out; the learner process passes every `env.id` as one of Gymnasium's."""
    given = config.get("id")
    if config.get("kind") != "gym" or not isinstance(given, str):
        return config
    prefix, _, rest = given.partition(":")
    if prefix not in PREFIXES:
        return config
    name, _, query = rest.partition("?")
    options = parse_options(given, query) if query else {}
    return config | {"kind": prefix, "id": name, "kwargs": config.get("kwargs", {}) | options}


def parse_options(given: str, query: str) -> dict[str, Any]:
    """Returns the arguments of ``key=value&key=value``; values are JSON, else strings."""
    options = {}
    for part in query.split("&"):
        key, equals, value = part.partition("=")
        if not key or not equals:
            raise SetupError(CONFIG, f"environment id {given!r}: {part!r} after '?', expected key=value, joined by '&'")
        try:
            options[key] = json.loads(value)
        except json.JSONDecodeError:
            options[key] = value
    return options


def make(config: dict[str, Any], render: bool = False) -> Environment:
    """Builds the environment that `config["kind"]` names. Every adapter checks its own keys. The actor adds "actor" and
    "incarnation", the numbers of its process, for adapters that use them. With "trace" the environment records the times
    of its work (samara/trace.py)."""
    if "trace" in config:
        rest = {key: value for key, value in config.items() if key != "trace"}
        return traced(make(rest, render), config["trace"], config["actor"])
    config = spell_out(config)
    return find_adapter(config).make(config, render)


def make_batch(config: dict[str, Any], count: int, threads: int) -> Batch | None:
    """Builds `count` environments in one simulator with `threads` threads; None if the adapter has no such simulator."""
    if "trace" in config:  # one by one
        return None
    config = spell_out(config)
    adapter = find_adapter(config)
    return adapter.make_batch(config, count, threads) if hasattr(adapter, "make_batch") else None


def how_to_install() -> str:
    """How packages are installed where this one lies, for messages; HowToInstallPackages (src/core/venv.h) is the same."""
    root = Path(os.path.abspath(__file__)).parents[3]  # of build/python/samara or libexec/python/samara
    if (root / "scripts/setup").exists():
        return "run `make setup`"
    if (root / "requirements.txt").exists():
        return f"{root / 'README'} says how to install it"
    return "install it with pip"


def find_adapter(config: dict[str, Any]) -> ModuleType:
    """Imports the adapter of `config["kind"]`."""
    kind = config.get("kind")
    if kind not in KINDS:
        raise SetupError(CONFIG, f"environment kind {kind!r}: expected one of {', '.join(sorted(KINDS))}")
    try:
        return importlib.import_module(KINDS[kind])
    except ModuleNotFoundError as error:
        raise SetupError(
            NO_INPUT, f"environment kind {kind!r} needs the Python package {error.name!r}: {how_to_install()}"
        ) from error
