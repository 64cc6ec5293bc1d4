"""Gymnasium environments that misbehave, for the tests: faulty:Raises-v0 and its kin."""

import os
import time

import gymnasium
import numpy as np
from gymnasium import spaces


class Fine(gymnasium.Env):
    """Ten steps of nothing."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(2, np.float32), float(action), self.steps == 10, False, {}


class FailsToBuild(Fine):
    def __init__(self):
        raise RuntimeError("no licence\nfor this simulator")


class RaisesInReset(Fine):
    def reset(self, *, seed=None, options=None):
        raise ValueError("a reset that\nnever works")


class RaisesInStep(Fine):
    def step(self, action):
        if self.steps == 3:
            raise ValueError("the third step fails")
        return super().step(action)


class Dies(Fine):
    def step(self, action):
        os._exit(9)


class SpeaksNaN(Fine):
    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        return observation, float("nan"), terminated, truncated, info


class WrongShape(Fine):
    def step(self, action):
        _, *rest = super().step(action)
        return np.zeros(5, np.float32), *rest


class Mapping(Fine):
    """A Dict space, which is flattened."""

    observation_space = spaces.Dict({"a": spaces.Box(-1, 1, (2,), np.float32), "b": spaces.Discrete(3)})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"a": np.zeros(2, np.float32), "b": 1}, {}

    def step(self, action):
        _, *rest = super().step(action)
        return {"a": np.ones(2, np.float32), "b": self.steps % 3}, *rest


class Texts(Fine):
    observation_space = spaces.Text(8)


class Empty(Fine):
    observation_space = spaces.Box(-1, 1, (0,))


class Spaceless(Fine):
    observation_space = None


class Several(Fine):
    action_space = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)])


class Slow(Fine):
    def step(self, action):
        time.sleep(0.01)
        return super().step(action)


class Bursts(Fine):
    """From its FIRST step on, LENGTH steps pay what is finite itself and has no finite sum."""

    first, length = (int(n) for n in os.environ.get("FAULTY_BURST", "100,20").split(","))

    def __init__(self):
        self.lived = 0

    def step(self, action):
        observation, reward, *rest = super().step(action)
        self.lived += 1
        burst = self.first < self.lived <= self.first + self.length
        return observation, 3e38 if burst else reward, *rest


for kind in (Fine, FailsToBuild, RaisesInReset, RaisesInStep, Dies, SpeaksNaN, WrongShape, Mapping, Texts, Empty,
             Spaceless, Several, Slow, Bursts):
    gymnasium.register(f"{kind.__name__}-v0", kind)
