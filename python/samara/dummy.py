# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The template of an environment, and the one that tests break on purpose.

A game of guessing: every step has a target drawn from the episode's key, and the reward says how near
the action was. The same game is written in C++ in src/env/dummy.cc; both give the same bits.

To add an environment: copy this file, replace the class, name the module in environment.KINDS.
"""

from __future__ import annotations

import mmap
import os
import random
import struct
import time
from typing import Any

import numpy as np

from samara._native import CounterRng
from samara.environment import CONFIG, SetupError, Spec, Step

# Every key of the configuration with its default. A real adapter has a shorter list.
DEFAULTS: dict[str, Any] = {
    "observation": "float32",  # [4], or "uint8": [84, 84]
    "action": "discrete",  # 4 actions, or "box": 2 dimensions
    "length": 20,  # an episode has between length / 2 and length steps
    "step_us": 0,  # busy time of a step
    "reset_us": 0,  # and of a reset
    # a fault for tests: "raise", "exit", "crash", "hang", "nan", "reward", "garbage"
    "fault": "",
    "fault_step": 3,  # at this step of an episode; 0: while being built
    "fault_incarnations": 1 << 30,  # only in processes before this incarnation
}

FRAMES_PER_STEP = 4
ACTIONS = 4
DIMENSIONS = 2
DRAW_LENGTH = 1 << 40  # index of the draw that no step uses


class DummyEnvironment:
    """The template: a game of guessing a number, with every part of the interface."""

    def __init__(self, config: dict[str, Any], render: bool) -> None:
        self.config = config
        self.render = render
        self.bytes = config["observation"] == "uint8"
        self.discrete = config["action"] == "discrete"
        box = 0 if self.discrete else DIMENSIONS
        self.spec = Spec(
            id="dummy/guess",
            version="1",
            observation_dtype=config["observation"],
            observation_shape=(84, 84) if self.bytes else (4,),
            action_discrete=self.discrete,
            action_n=ACTIONS if self.discrete else DIMENSIONS,
            action_low=(-1.0,) * box,
            action_high=(1.0,) * box,
            action_names=("zero", "one", "two", "three") if self.discrete else (),
            frames_per_step=FRAMES_PER_STEP,
            steps_max=config["length"],
            position=2,
            memory=16,
            render_height=8 if render else 0,
            render_width=16 if render else 0,
            render_frames=2 if render else 0,
        )
        self.ramp = (np.arange(84 * 84, dtype=np.int64) * 7).reshape(84, 84)

    # 1. an episode is decided by its key, the no-ops and the actions, and by nothing else
    def reset(self, seed: int, noops: int, frames_max: int, observation: np.ndarray) -> None:
        spin(self.config["reset_us"])
        self.seed, self.noops, self.frames_max = seed, noops, frames_max
        self.rng = CounterRng(seed)
        half = self.config["length"] // 2
        self.length = half + self.rng.uniform_int(DRAW_LENGTH, half + 1)
        self.step_number = 0
        self.last = 0.0
        self.observe(observation)

    # 2. a step answers one action; the observation it writes is the final one if it ends the episode
    def step(self, action: int | np.ndarray, observation: np.ndarray) -> Step:
        spin(self.config["step_us"])
        reward = self.reward(action)
        self.step_number += 1
        self.observe(observation)
        if self.config["fault"] and self.step_number == self.config["fault_step"]:
            reward = fail(self.config, reward, observation)
        terminated = self.step_number >= self.length
        frames = self.step_number * FRAMES_PER_STEP
        truncated = not terminated and 0 < self.frames_max <= frames
        return Step(reward, terminated, truncated, self.step_number % 7 == 0, FRAMES_PER_STEP)

    # 3. pictures for videos; called only when made to render
    def pictures(self, out: np.ndarray) -> int:
        out[:] = self.step_number & 255
        out[1, :, :, 0] = int(self.target() * 60) & 255
        return 1 if self.step_number == 0 else 2

    # optional: where the body is and what is in the memory, for novelty and maps
    def position(self, out: np.ndarray) -> None:
        out[:] = (self.step_number, self.last)

    def memory(self, out: np.ndarray) -> None:
        out[:] = (np.arange(16) * self.step_number) & 255

    # 4. optional: the whole state, such that another process continues with the same bits
    def save(self) -> bytes:
        return struct.pack("<QiqQQd", self.seed, self.noops, self.frames_max, self.length,
                           self.step_number, self.last)

    def restore(self, state: bytes) -> None:
        (self.seed, self.noops, self.frames_max, self.length, self.step_number,
         self.last) = struct.unpack("<QiqQQd", state)
        self.rng = CounterRng(self.seed)

    def close(self) -> None:
        pass

    # the game
    def target(self) -> float:
        """Returns the number to guess at this step."""
        index = self.noops + self.step_number
        if self.discrete:
            return float(self.rng.uniform_int(index, ACTIONS))
        return self.rng.uniform(index) * 2.0 - 1.0

    def reward(self, action: int | np.ndarray) -> float:
        """Returns the reward of a guess."""
        target = self.target()
        if self.discrete:
            self.last = float(action)
            return 1.0 if self.last == target else 0.0
        first, second = float(action[0]), float(action[1])
        self.last = first
        return 1.0 - abs(first - target) - abs(second - target)

    def observe(self, out: np.ndarray) -> None:
        """Writes the observation."""
        target = self.target()
        if self.bytes:
            out[:] = (self.ramp + int(target * 60.0) + self.step_number) & 255
        else:
            out[:] = (target, self.step_number, self.length, self.last)


def fail(config: dict[str, Any], reward: float, observation: np.ndarray | None) -> float:
    """Breaks in the way that `fault` names; returns the reward to report."""
    fault = config["fault"]
    if config["incarnation"] >= config["fault_incarnations"]:
        return reward
    if fault == "raise":
        raise ValueError("the dummy was told to\nraise")
    if fault == "exit":
        print("the dummy was told to exit", flush=True)
        os._exit(3)
    if fault == "crash":
        os.abort()
    if fault == "hang":
        time.sleep(3600)
    if fault == "nan" and observation is not None:
        observation[-1] = np.nan
    if fault == "reward":
        return float("inf")
    if fault == "garbage":  # a hostile process: random bytes over the whole segment, for ever
        with mmap.mmap(4, 0) as segment:
            while True:
                segment[:] = random.randbytes(len(segment))
    return reward


def spin(microseconds: int) -> None:
    """Busy like a simulator, without giving the core away."""
    end = time.perf_counter_ns() + 1000 * microseconds
    while microseconds and time.perf_counter_ns() < end:
        pass


def make(config: dict[str, Any], render: bool = False) -> DummyEnvironment:
    """Checks the configuration and builds the environment."""
    given = {k: v for k, v in config.items() if k not in ("kind", "actor", "incarnation")}
    for key, value in given.items():
        if key not in DEFAULTS:
            raise SetupError(CONFIG, f"dummy: unknown key {key!r}, expected one of {', '.join(DEFAULTS)}")
        if type(value) is not type(DEFAULTS[key]):
            raise SetupError(CONFIG, f"dummy: {key} = {value!r}, expected {type(DEFAULTS[key]).__name__}")
    full = DEFAULTS | {"incarnation": config.get("incarnation", 0)} | given
    if full["fault_step"] == 0 and full["fault"]:
        fail(full, 0.0, None)
    return DummyEnvironment(full, render)
