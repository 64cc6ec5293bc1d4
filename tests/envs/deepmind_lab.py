"""A stand-in for DeepMind Lab's Python package, with the interface of its docs/users/python_api.md and nothing more.

It is strict where the package is undefined: a call that the documentation does not allow raises. The "level" is an episode
of a length drawn from the seed; pixels tell level settings, seed, frame and the last action.
"""

import numpy as np

LENGTHS = {"contributed/dmlab30/explore_goal_locations_small": 42}  # frames
runfiles = None


def set_runfiles_path(path):
    global runfiles
    runfiles = path


class Lab:
    made = []  # every instance, for tests to look into

    def __init__(self, level, observations, config={}, renderer="software", level_cache=None):  # noqa: B006
        if renderer not in ("software", "hardware"):
            raise ValueError(f"renderer {renderer}")
        if not all(isinstance(k, str) and isinstance(v, str) for k, v in config.items()):
            raise TypeError("config must be strings")
        for name in observations:
            if name not in ("RGB_INTERLEAVED", "RGBD_INTERLEAVED", "RGB", "RGBD", "INSTR"):
                raise ValueError(f"Unknown observation: {name}")
        if level == "nowhere":
            raise RuntimeError("Failed to find level\nnowhere")
        self.level, self.names, self.config, self.cache = level, observations, config, level_cache
        self.shape = (int(config.get("height", "240")), int(config.get("width", "320")), 3)
        self.status, self.asked = "new", []
        # one buffer for ever: whoever keeps what observations() gave sees it change
        self.buffer = np.zeros(self.shape, np.uint8)
        Lab.made.append(self)

    def reset(self, episode=-1, seed=None):
        assert self.status != "closed" and episode == -1
        assert isinstance(seed, int) and 0 <= seed < 2**31
        self.asked.append(("reset", seed))
        self.rng, self.frame, self.status = np.random.default_rng(seed), 0, "running"
        self.length = LENGTHS.get(self.level) or int(self.rng.integers(20, 60))
        self.offset = int(self.rng.integers(256))

    def is_running(self):
        return self.status == "running"

    def num_steps(self):
        return self.frame

    def step(self, action, num_steps=1):
        if self.status != "running":
            raise RuntimeError("Environment in wrong status to advance")
        low, high = (-512, -512, -1, -1, 0, 0, 0), (512, 512, 1, 1, 1, 1, 1)
        assert action.dtype == np.intc and action.shape == (7,) and (low <= action).all() and (action <= high).all()
        self.asked.append(("step", tuple(int(a) for a in action), num_steps))
        reward = 0.0
        for _ in range(num_steps):
            self.frame += 1
            reward += float(action[3]) + 0.25 * float(action[4])
            self.offset += int(action[0]) + 3 * int(action[2])
            if self.frame == self.length:
                self.status = "over"
                break
        return reward

    def observations(self):
        if self.status != "running":
            raise RuntimeError("Environment in wrong status for call to observations()")
        self.buffer[...] = (np.arange(self.buffer.size).reshape(self.shape) * 7 + self.offset + self.frame) & 255
        return {name: self.buffer for name in self.names}

    def observation_spec(self):
        return [{"name": "RGB_INTERLEAVED", "shape": self.shape, "dtype": np.uint8}]

    def action_spec(self):
        names = ("LOOK_LEFT_RIGHT_PIXELS_PER_FRAME", "LOOK_DOWN_UP_PIXELS_PER_FRAME", "STRAFE_LEFT_RIGHT")
        return [{"name": name, "min": -512, "max": 512} for name in names]

    def close(self):
        self.status = "closed"
