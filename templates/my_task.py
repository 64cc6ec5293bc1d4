"""A task for samara, a Gymnasium environment: push a cart so that it comes to rest at 0.

samara check my_task:MyTask                                   makes it and plays it at random
samara train classic/cartpole-ga env.id=my_task:MyTask        with my_task.py in the current folder
samara train classic/cartpole-ga env.id=my_task:MyTask env.kwargs.force=0.2
"""

import gymnasium
import numpy as np
from gymnasium import spaces


class MyTask(gymnasium.Env):
    # pictures for `samara play` and videos; a task without pictures leaves out render_mode and render()
    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
    # what an agent observes: position and velocity; each observation has this shape and type
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    # its actions: push to the left, not at all, to the right; continuous actions are a Box
    action_space = spaces.Discrete(3)

    def __init__(self, force: float = 0.1, steps: int = 100, render_mode: str | None = None) -> None:
        """The arguments are the keys env.kwargs.force and env.kwargs.steps."""
        self.force, self.steps, self.render_mode = force, steps, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        # draw from self.np_random alone: then the same seed is the same episode
        self.position = self.np_random.uniform(-1, 1)
        self.velocity, self.step_count = 0.0, 0
        return self.observe(), {}

    def step(self, action):
        self.velocity = 0.95 * self.velocity + self.force * (action - 1)
        self.position += 0.1 * self.velocity
        self.step_count += 1
        reward = -abs(self.position)
        terminated = abs(self.position) > 2  # a failure or a success that ends the episode
        truncated = self.step_count >= self.steps  # the limit of steps
        return self.observe(), reward - 100 * terminated, terminated, truncated, {}

    def observe(self):
        return np.array([self.position, self.velocity], np.float32)

    def render(self):
        picture = np.full((64, 256, 3), 255, np.uint8)
        picture[:, 127:129] = (200, 200, 200)
        x = int(np.clip(128 + 60 * self.position, 8, 247))
        picture[24:40, x - 8 : x + 8] = (31, 119, 180)
        return picture
