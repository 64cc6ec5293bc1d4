"""Images whose last one does not say what pays: colours:Colours-v0, and in shades of gray colours:Gray-v0."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Colours(gymnasium.Env):
    """Ten steps; each shows one of three colours, and pays 1 for the action that names the colour shown before it."""

    action_space = spaces.Discrete(3)
    observation_space = spaces.Box(0, 255, (2, 2, 3), np.uint8)

    def observe(self):
        self.before, self.shown = self.shown, int(self.np_random.integers(3))
        image = np.zeros((2, 2, 3), np.uint8)
        image[..., self.shown] = 255
        return image

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.shown = 0, 0
        image = self.observe()
        self.before = self.shown  # as the first image stands in the stack
        return image, {}

    def step(self, action):
        self.steps += 1
        reward = float(action == self.before)
        return self.observe(), reward, self.steps == 10, False, {}


class Gray(Colours):
    observation_space = spaces.Box(0, 255, (2, 2), np.uint8)

    def observe(self):
        super().observe()
        return np.full((2, 2), 100 * self.shown, np.uint8)


gymnasium.register("Colours-v0", Colours)
gymnasium.register("Gray-v0", Gray)
