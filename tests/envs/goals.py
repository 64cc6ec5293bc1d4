"""Gymnasium environments with goals: goals:Line-v0, a point on a line, and the same with rules that cannot be declared."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Line(gymnasium.Env):
    """Twenty steps of at most 0.2 from the middle of [-1, 1]; 0 within 0.1 of the goal, else -1."""

    action_space = spaces.Box(-1, 1, (1,), np.float32)
    observation_space = spaces.Dict({
        "observation": spaces.Box(-np.inf, np.inf, (2,), np.float64),
        "achieved_goal": spaces.Box(-1, 1, (1,), np.float64),
        "desired_goal": spaces.Box(-1, 1, (1,), np.float64),
    })

    def compute_reward(self, achieved, desired, info):
        return -float(np.linalg.norm(achieved - desired) > 0.1)

    def observe(self):
        return {"observation": np.array([self.steps / 20, self.at]), "achieved_goal": np.array([self.at]),
                "desired_goal": np.array([self.goal])}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.at, self.goal = 0, 0.0, float(self.np_random.uniform(-1, 1))
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        self.at = float(np.clip(self.at + 0.2 * float(action[0]), -1, 1))
        seen = self.observe()
        reward = self.compute_reward(seen["achieved_goal"], seen["desired_goal"], {})
        return seen, reward, self.ends(seen), self.steps == 20, {}

    def ends(self, seen):
        return False


class Ending(Line):
    """Ends at its goal; another two rewards."""

    def compute_reward(self, achieved, desired, info):
        return 1.0 if np.linalg.norm(achieved - desired) <= 0.1 else 0.0

    def compute_terminated(self, achieved, desired, info):
        return self.compute_reward(achieved, desired, info) == 1

    def ends(self, seen):
        return self.compute_terminated(seen["achieved_goal"], seen["desired_goal"], {})


class Dense(Line):
    def compute_reward(self, achieved, desired, info):
        return -float(np.linalg.norm(achieved - desired))


gymnasium.register("Line-v0", Line)
gymnasium.register("Ending-v0", Ending)
gymnasium.register("Dense-v0", Dense)
