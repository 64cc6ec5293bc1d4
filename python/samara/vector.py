# SPDX-License-Identifier: Apache-2.0 OR MIT
"""samara's environment fleet as a gymnasium.vector.VectorEnv, with EnvPool's send and recv next to step."""

from __future__ import annotations

import functools
import json
import os
import sys
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from samara.program import CONFIG, Error, prepare_actors, refuse_in_actor
from samara.spaces import Actions, action_space, observation_space
from samara.values import code_name, plain, whole

try:
    from samara import _engine
except ImportError as missing:
    raise ImportError(
        f"samara.make_vec needs the extension samara._engine: run `make build` (pip makes it where the package mujoco is"
        f" installed); {missing}"
    ) from None

_MODES = {
    AutoresetMode.NEXT_STEP: "next-step",
    AutoresetMode.SAME_STEP: "same-step",
    AutoresetMode.DISABLED: "disabled",
}


def make_vec(env: str | type, num_envs: int = 1, **keys: Any) -> VectorEnv:
    """Makes environments that samara steps: `env` is a native id (`CartPole-v1`: C++ threads), `atari:pong`, or any id of
    Gymnasium (`gymnasium:LunarLander-v3`, `my_module:MyTask-v0`: Python processes).

    Keys are those of VectorEnv. Raises samara.Error for an environment that cannot be made.
    """
    known = VectorEnv.__init__.__kwdefaults__
    for key in keys:
        if key not in known:
            raise TypeError(f"{key}: no key of samara.make_vec, expected one of {', '.join(known)}")
    return VectorEnv(env, num_envs, **keys)


def sb3(envs: VectorEnv) -> Any:
    """Returns `envs` as a VecEnv of Stable-Baselines3. They reset in the same step (`autoreset_mode="same-step"`).

    Raises Error 78 for other modes, and for a `batch_size` below the number of environments.
    """
    if envs.autoreset_mode is not AutoresetMode.SAME_STEP or envs.batch_size != envs.num_envs:
        raise Error(CONFIG, 'samara.vector.sb3: expected environments made with autoreset_mode="same-step", without batch_size')
    from samara.stable_baselines import Adapter

    return Adapter(envs)


class VectorEnv(gymnasium.vector.VectorEnv):
    """Gymnasium's vector environment over samara's fleet.

    `workers`: threads of native environments (0: the calling thread), processes of others; default: chosen for the
    environment. `batch_size`: results of one `recv`; default `num_envs`. `seed`: for environments that `reset` gives no
    seed. `autoreset_mode`: Gymnasium's, by value or name. `stack`: frames of an observation, in front of its shape;
    default: the Atari preset's, none elsewhere. `preset`: of Atari games (doc/atari.md). `kwargs` and
    `wrappers` (texts "module:Class", or classes): of a Gymnasium environment, as `env.kwargs` and `env.wrappers`. `frames_max`:
    truncates episodes. `step_timeout`: seconds until a silent process counts as hung.

    Episode n of an environment with seed s is the n-th of `samara eval --seed s`: the same for any number of workers.
    Observations, rewards and masks are new arrays at every call. One thread at a time.
    """

    def __init__(
        self,
        env: str | type,
        num_envs: int = 1,
        *,
        workers: int | None = None,
        batch_size: int | None = None,
        seed: int = 0,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        stack: int | None = None,
        preset: str = "ale-v5",
        kwargs: Mapping[str, Any] | None = None,
        wrappers: str | type | Sequence[str | type] = (),
        frames_max: int = 0,
        step_timeout: float = 10.0,
    ) -> None:
        num_envs = whole("num_envs", num_envs)
        batch_size = num_envs if batch_size is None else whole("batch_size", batch_size)
        if num_envs < 1 or not 1 <= batch_size <= num_envs:
            raise Error(CONFIG, f"num_envs={num_envs}, batch_size={batch_size}: expected 1 <= batch_size <= num_envs")
        for key, value in (("stack", stack), ("frames_max", frames_max), ("workers", workers)):
            if value is not None and whole(key, value) < 0:
                raise Error(CONFIG, f"{key}={value}: expected 0 or more")
        self.num_envs, self.batch_size = num_envs, batch_size
        self.autoreset_mode = _mode(autoreset_mode)
        _find_packages()
        prepare_actors(os.environ)
        env = code_name("env", env)
        if ":" in env:
            refuse_in_actor()
        wrappers = list(wrappers) if isinstance(wrappers, Sequence) and not isinstance(wrappers, str) else [wrappers]
        self._core = _engine.make(
            env, num_envs, preset, json.dumps(plain("kwargs", dict(kwargs or {}))),
            json.dumps([code_name("wrappers", wrapper) for wrapper in wrappers]), workers, -1 if stack is None else stack, frames_max, _MODES[self.autoreset_mode],
            step_timeout, sys.executable, str(Path(os.path.abspath(__file__)).parents[1]),
        )  # fmt: skip
        os.register_at_fork(after_in_child=functools.partial(_forget, weakref.ref(self)))
        self.metadata = {"autoreset_mode": self.autoreset_mode, "render_modes": []}
        self.spec_fields: dict[str, Any] = json.loads(self._core.spec)
        self.single_observation_space = observation_space(self.spec_fields, self._core.stack)
        self.single_action_space = action_space(self.spec_fields)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._own_seeds: list[int | None] = [seed + i for i in range(num_envs)]  # of first resets without one
        self._all = np.arange(num_envs, dtype=np.int32)
        self._actions = Actions(self.spec_fields)

    @property
    def workers(self) -> int:
        """Threads or processes that step; 0: the calling thread."""
        return self._core.workers

    # ---- Gymnasium

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins episodes in all environments, or in those where `options["reset_mask"]` is true, and returns the newest
        observation of each. With one number as seed, environment i gets seed + i; without, its next episode begins."""
        which = self._all
        if options and "reset_mask" in options:
            mask = np.asarray(options["reset_mask"], bool)
            if mask.shape != (self.num_envs,):
                raise Error(CONFIG, f"reset_mask of shape {mask.shape}, expected ({self.num_envs},)")
            which = np.flatnonzero(mask).astype(np.int32)
        self._drain()
        self._core.reset(which, self._seeds(seed, which))
        self._spend_seeds(which)
        rows = _Rows(len(which), self.single_observation_space)
        rows.receive(self._core, by_environment=len(which) == self.num_envs)
        observation = rows.observation
        if len(which) < self.num_envs:
            observation = np.empty((self.num_envs, *observation.shape[1:]), observation.dtype)
            for i in self._all:
                self._core.observe(i, observation[i])
        return observation, {}

    def step(
        self, actions: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps every environment; returns observations, rewards, terminated, truncated and infos."""
        self.send(actions)
        rows = _Rows(self.num_envs, self.single_observation_space)
        rows.receive(self._core, by_environment=True)
        return rows.result(self)

    def close_extras(self, **kwargs: Any) -> None:
        """Ends threads and processes."""
        self._core = _Closed()

    # ---- EnvPool

    def async_reset(self) -> None:
        """Begins episodes in all environments; `recv` returns their first observations, with reward 0."""
        self._drain()
        self._core.reset(self._all, self._seeds(None, self._all))
        self._spend_seeds(self._all)

    def send(self, actions: Any, env_ids: Any = None) -> None:
        """Sends actions to `env_ids` (default: all, in order) and returns at once."""
        which = self._all if env_ids is None else np.ascontiguousarray(env_ids, np.int32)
        if self._actions.discrete:
            self._core.send_index(which, self._actions.to_index(actions))
        else:
            self._core.send_values(which, self._actions.to_values(actions))

    def recv(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Waits for `batch_size` results, in the order in which they are ready; `info["env_id"]` says of which
        environments. All of them together come in the environments' order."""
        rows = _Rows(self.batch_size, self.single_observation_space)
        rows.receive(self._core, by_environment=self.batch_size == self.num_envs)
        return rows.result(self)

    # ----

    def _seeds(self, seed: int | Sequence[int | None] | None, which: np.ndarray) -> list[int | None]:
        given = [None] * self.num_envs if seed is None else seed
        if isinstance(given, (int, np.integer)):
            given = [given + i for i in range(self.num_envs)]
        if isinstance(given, str) or np.ndim(given) != 1:
            raise Error(CONFIG, f"seed={seed!r}: expected integers from 0, one or one for each environment")
        if any(s is not None and not (isinstance(s, (int, np.integer)) and 0 <= s < 2**63) for s in given):
            raise Error(CONFIG, f"seed={seed}: expected integers from 0")
        if len(given) != self.num_envs:
            raise Error(CONFIG, f"seed: {len(given)} numbers, expected one for each of {self.num_envs} environments")
        return [self._own_seeds[i] if given[i] is None else int(given[i]) for i in which]

    def _spend_seeds(self, which: np.ndarray) -> None:
        for i in which:
            self._own_seeds[i] = None

    def _drain(self) -> None:
        if self._core.outstanding:
            _Rows(self._core.outstanding, self.single_observation_space).receive(self._core, by_environment=False)


class _Closed:
    """Stands in for environments that are closed; every use raises Error."""

    def __init__(self, why: str = "the environments are closed") -> None:
        self._why = why

    def __getattr__(self, name: str) -> Any:
        raise Error(CONFIG, self._why)


_of_parents: list[Any] = []  # environments of the process that forked this one: never destroyed here


def _forget(env_of_parent: weakref.ref[VectorEnv]) -> None:
    if (env := env_of_parent()) is not None:
        _of_parents.append(env._core)
        env._core = _Closed("the environments belong to the process that this one was forked from")


class _Rows:
    """Arrays that the fleet fills, one row a result."""

    def __init__(self, n: int, space: gymnasium.spaces.Box) -> None:
        self.environment = np.empty(n, np.int32)
        self.observation = np.empty((n, *space.shape), space.dtype)
        self.reward = np.empty(n, np.float64)
        self.terminated, self.truncated, self.life_lost = np.empty((3, n), np.bool_)
        self.frames = np.empty(n, np.int32)

    def receive(self, core: Any, by_environment: bool) -> None:
        core.receive(self.environment, self.observation, self.reward, self.terminated, self.truncated, self.life_lost,
                     self.frames, by_environment)  # fmt: skip

    def result(self, env: VectorEnv) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        info: dict[str, Any] = {"env_id": self.environment, "life_lost": self.life_lost, "frames": self.frames}
        if env.autoreset_mode is AutoresetMode.SAME_STEP:
            ended = self.terminated | self.truncated
            if ended.any():
                info |= self._final(env, ended)
        return self.observation, self.reward, self.terminated, self.truncated, info

    def _final(self, env: VectorEnv, ended: np.ndarray) -> dict[str, Any]:
        """Returns final observations as SyncVectorEnv does: an array of objects, None where no episode ended, and the mask."""
        final = np.full(len(ended), None, object)
        for row in np.flatnonzero(ended):
            final[row] = np.empty_like(self.observation[row])
            env._core.final_observation(int(self.environment[row]), final[row])
        return {"final_obs": final, "_final_obs": ended}


def _mode(given: AutoresetMode | str) -> AutoresetMode:
    for mode, name in _MODES.items():
        if given in (mode, mode.value, name):
            return mode
    raise Error(CONFIG, f"autoreset_mode={given!r}: expected one of {', '.join(map(repr, _MODES.values()))}")


def _find_packages() -> None:
    """Makes the extension find MuJoCo's library in the environment of this interpreter."""
    if (Path(sys.prefix) / "bin" / "python").exists():
        os.environ.setdefault("VIRTUAL_ENV", sys.prefix)
