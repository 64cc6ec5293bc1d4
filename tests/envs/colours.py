"""Images whose last one does not say what pays: colours:Colours-v0, in shades of gray colours:Gray-v0, and with a number
to name them by colours:Named-v0; colours:Snow-v0 is large and random."""

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


class Snow(Colours):
    """Large images that do not compress."""

    observation_space = spaces.Box(0, 255, (256, 256), np.uint8)

    def observe(self):
        super().observe()
        return self.np_random.integers(0, 256, (256, 256), np.uint8)


class Named(Colours):
    """Pays less the further the action is from -1, 0 or 1, the number of the colour before."""

    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def step(self, action):
        right = self.before - 1
        observation, _, terminated, truncated, info = super().step(0)
        return observation, 1 - abs(float(action[0]) - right), terminated, truncated, info


gymnasium.register("Colours-v0", Colours)
gymnasium.register("Named-v0", Named)
gymnasium.register("Gray-v0", Gray)
gymnasium.register("Snow-v0", Snow)
