"""A Gymnasium environment whose actions have parts: parts:Parts-v0, and the same with switches, parts:Switches-v0."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Parts(gymnasium.Env):
    """Ten steps; each shows what is wanted of every part, one-hot, and pays 1 for each part that did it at the last one."""

    sizes = (3, 2, 4)
    action_space = spaces.MultiDiscrete(sizes, start=[0, 1, -1])
    start = np.array([0, 1, -1])
    observation_space = spaces.Box(0, 1, (sum(sizes),), np.float32)

    def observe(self):
        self.wanted = [int(self.np_random.integers(n)) for n in self.sizes]
        return np.concatenate([np.eye(n, dtype=np.float32)[w] for n, w in zip(self.sizes, self.wanted)])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        reward = float(np.sum(np.reshape(action, -1) - self.start == self.wanted))
        return self.observe(), reward, self.steps == 10, False, {}


class Switches(Parts):
    sizes = (2, 2, 2, 2)
    action_space = spaces.MultiBinary((2, 2))
    start = 0
    observation_space = spaces.Box(0, 1, (8,), np.float32)


gymnasium.register("Parts-v0", Parts)
gymnasium.register("Switches-v0", Switches)
