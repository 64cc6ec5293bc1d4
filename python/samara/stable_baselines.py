# SPDX-License-Identifier: Apache-2.0 OR MIT
"""samara.VectorEnv as Stable-Baselines3 knows vector environments (samara.vector.sb3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv


class Adapter(VecEnv):
    """A samara.VectorEnv, which begins the next episode in the step that ends one. What Stable-Baselines3 sets or calls in
    single environments is refused: they are in C++ or in other processes."""

    def __init__(self, envs: Any) -> None:
        self.envs = envs
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> np.ndarray:
        """Begins episodes, with the numbers of `seed`, if there are some."""
        observation, _ = self.envs.reset(seed=self._seeds if any(s is not None for s in self._seeds) else None)
        self._reset_seeds()
        return observation

    def step_async(self, actions: np.ndarray) -> None:
        """Sends actions and returns."""
        self.envs.send(actions)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Returns observations, rewards, which episodes ended, and of these the last observation in their dict."""
        observation, reward, terminated, truncated, info = self.envs.recv()
        infos: list[dict[str, Any]] = [{} for _ in reward]
        for i in np.flatnonzero(terminated | truncated):
            infos[i] = {
                "terminal_observation": info["final_obs"][i],
                "TimeLimit.truncated": bool(truncated[i] and not terminated[i]),
            }
        return observation, reward.astype(np.float32), terminated | truncated, infos

    def close(self) -> None:
        """Ends threads and processes."""
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Returns an attribute of the VectorEnv for each environment."""
        return [getattr(self.envs, attr_name)] * self._count(indices)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Raises AttributeError."""
        raise AttributeError(f"{attr_name}: samara's environments have no attributes to set; make_vec takes kwargs=")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Raises AttributeError."""
        raise AttributeError(f"{method_name}: samara's environments have no methods to call; make_vec takes wrappers=")

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Returns False for each environment."""
        return [False] * self._count(indices)

    def _count(self, indices: Any) -> int:
        if indices is None:
            return self.num_envs
        return len(list(indices)) if isinstance(indices, Iterable) else 1
