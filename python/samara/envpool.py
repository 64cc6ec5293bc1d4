# SPDX-License-Identifier: Apache-2.0 OR MIT
"""EnvPool's tasks for one agent: Google Research Football, Procgen, dm_control, ViZDoom, Box2D and more.

``{"kind": "envpool", "id": "CoinrunEasy-v0"}``; ``"kwargs"`` goes to ``envpool.make_gymnasium``. From the command line
``env.id=envpool:Basic-v1?frame_skip=2``. Needs ``make envpool``.

EnvPool fixes its seeds when a pool is made, steps on threads of its own, and answers the step after the last one of an
episode with the next episode's first observation, whatever the action was. Here each slot has a pool of one environment on
one thread, and each episode a pool of its own, made with the episode's key as seed: so no step is ever sent to a finished
episode, and an episode does not depend on those before it. Where that costs too much (KEPT), or with ``"fresh": false``, the
pool of the first episode stays and is reset, episodes follow from each other, and `version` says "kept". `python -m
samara.actor` then steps all its slots in one pool with EnvPool's threads (EnvPoolBatch).

Observations: a uint8 image stays bytes, with the channels last, and without them when there is one; every other Box
becomes float32, and Dict, Discrete and MultiBinary spaces one float32 vector as in samara/gym.py. MuJoCo's tasks,
dm_control's among them, have images with ``from_pixels=true``, of ``render_width`` times ``render_height`` pixels (84).
Actions: Discrete or a Box of floats in [-1, 1], rescaled to its bounds. ViZDoom's buttons become one Discrete action
(``use_combined_action``).
A step that ends an episode at EnvPool's own limit is truncated, even if the task ended there by itself: EnvPool does not tell.
"""

from __future__ import annotations

import ctypes
import difflib
import importlib.metadata
import sys
import warnings
from typing import Any

import numpy as np
from gymnasium import spaces

from samara import wire
from samara.environment import CONFIG, NO_INPUT, SetupError, Spec, Step, WithoutState
from samara.gym import BoxActions, observation_space

# Why there is no OpenGL. MuJoCo, where EnvPool draws with it, looks it up among the libraries of the process and ends the
# process if there is none; the system's has to be there before the parts of it that EnvPool brings.
NO_OPENGL = "envpool was imported before samara.envpool" if "envpool" in sys.modules else ""
try:
    ctypes.CDLL("libGL.so.1", ctypes.RTLD_GLOBAL)
except OSError as error:
    NO_OPENGL = f"{error}: run `make envpool`"
try:
    import envpool
    from envpool.registration import registry
except ImportError as error:
    raise SetupError(NO_INPUT, f"environments of EnvPool need the Python package envpool ({error}): run `make envpool`") from error

# families whose pools leak about 40 MB each when they are closed
KEPT = ("gfootball/",)
# options that this adapter sets
OWN = ("num_envs", "batch_size", "num_threads", "seed", "env_seed", "render_mode", "gym_reset_return_info")
NO_LIMIT = 2**31 - 1  # EnvPool's word for no limit of steps
# EnvPool writes unbounded doubles as the smallest and the largest number
OPEN = 1e30


class EnvPoolEnvironment(WithoutState):
    """A slot's environment: a pool of one environment on one thread."""

    def __init__(self, task: str, kwargs: dict[str, Any], fresh: bool, render: bool) -> None:
        self.task, self.kwargs, self.fresh, self.render = task, kwargs, fresh, render
        self.pool = self.make_pool(0)  # for its spaces
        self.seeded = False
        config = self.pool.config
        if config.get("max_num_players", 1) != 1:
            raise SetupError(CONFIG, f"envpool {task}: {config['max_num_players']} players, expected a task for one")
        self.space = self.pool.observation_space
        box, self.flatten = observation_space(f"of envpool {task}", self.space)
        image = box.dtype == np.uint8 and len(box.shape) == 3
        shape, self.channels_first = image_shape(box.shape) if image else (box.shape or (1,), False)
        self.use_actions(self.pool.action_space)
        skip = int(config.get("frame_skip", 1))
        if by_mujoco(task):  # steps of physics; a frame is what the task makes of them by itself
            self.frames_per_step = max(1, skip // int(envpool.make_spec(task).config.frame_skip))
        else:
            self.frames_per_step = skip if image else 1
        limit = int(config.get("max_episode_steps", 0))
        picture = self.draw() if render else np.zeros((0, 0, 3))
        self.spec = Spec(
            id=f"envpool/{task}",
            version=version(kwargs, fresh),
            observation_dtype=str(box.dtype),
            observation_shape=shape,
            action_discrete=self.discrete,
            action_n=self.n,
            action_low=() if self.discrete else tuple(float(v) for v in self.box.low.reshape(-1)),
            action_high=() if self.discrete else tuple(float(v) for v in self.box.high.reshape(-1)),
            frames_per_step=self.frames_per_step,
            steps_max=limit if 0 < limit < NO_LIMIT else 0,
            render_height=picture.shape[0],
            render_width=picture.shape[1],
            render_frames=1 if render else 0,
        )

    def make_pool(self, seed: int, num_envs: int = 1, num_threads: int = 1, **more: int) -> Any:
        """Makes a pool; raises SetupError for arguments that the task does not take."""
        options = self.kwargs | ({"render_mode": "rgb_array"} if self.render else {}) | more
        if NO_OPENGL and by_mujoco(self.task) and (self.render or self.kwargs.get("from_pixels")):
            raise SetupError(NO_INPUT, f"envpool {self.task}: its pictures need OpenGL: {NO_OPENGL}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of Gymnasium about the precision of EnvPool's bounds
                pool = envpool.make_gymnasium(self.task, num_envs=num_envs, num_threads=num_threads, seed=seed, **options)
                pool.observation_space  # built here, where its warnings are expected
        except ImportError as error:  # Procgen without its system packages
            line = " ".join(str(error).split())
            raise SetupError(NO_INPUT, f"envpool {self.task}: {line} (run `make envpool`)") from error
        except Exception as error:  # a keyword or value that the task does not take
            line = " ".join(str(error).split())[:200]
            raise SetupError(CONFIG, f"envpool {self.task} with {self.kwargs}: {type(error).__name__}: {line}") from error
        return pool

    def use_actions(self, space: spaces.Space) -> None:
        """Reads the action space; raises SetupError for one that is not supported."""
        self.discrete = isinstance(space, spaces.Discrete)
        if self.discrete:
            self.n, self.start = int(space.n), int(space.start)
        elif isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
            low, high = space.low.astype(np.float64), space.high.astype(np.float64)
            low[low <= -OPEN], high[high >= OPEN] = -np.inf, np.inf
            self.n, self.box = int(np.prod(space.shape)), BoxActions(space, low, high)
        else:
            raise SetupError(CONFIG, f"envpool {self.task}: action space {space}, expected Discrete or a Box of floats")

    def reset(self, seed: int, noops: int, frames_max: int, observation: np.ndarray) -> None:
        self.frames, self.frames_max = 0, frames_max
        if self.fresh or not self.seeded:
            self.pool.close()
            self.pool = None  # the old one goes before the new one comes
            self.pool = self.make_pool(seed % 2**31)
            self.seeded = True
        first, _ = self.pool.reset()
        self.observe(first, observation)

    def step(self, action: int | np.ndarray, observation: np.ndarray) -> Step:
        actions = np.asarray(action)[np.newaxis]
        result, reward, terminated, truncated, _ = self.pool.step(self.given(actions))
        self.observe(result, observation)
        self.frames += self.frames_per_step
        return self.answer(reward, terminated, truncated, 0 < self.frames_max <= self.frames)

    def answer(self, reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, capped: bool) -> Step:
        """Returns the step of a row of EnvPool's; `capped`: it reached samara's own limit of frames."""
        ended = bool(terminated[0])
        return Step(float(reward[0]), ended, (bool(truncated[0]) or capped) and not ended, False, self.frames_per_step)

    def given(self, actions: np.ndarray) -> np.ndarray:
        """Returns EnvPool's actions for samara's, a row each."""
        return self.start + actions if self.discrete else self.box.scaled(actions, (-1,))

    def observe(self, result: Any, out: np.ndarray) -> None:
        """Writes EnvPool's observation to `out`."""
        value = alone(result)
        if self.flatten is not None:
            value = spaces.flatten(self.flatten, value)
        elif self.channels_first:
            value = np.moveaxis(value, 0, -1)
        out[...] = np.reshape(value, out.shape)

    def draw(self) -> np.ndarray:
        """Returns a first picture, for its size."""
        self.pool.reset()
        try:
            image = np.asarray(self.pool.render())[0]
        except Exception as error:
            raise SetupError(CONFIG, f"envpool {self.task} cannot be rendered: {error}") from error
        if image.ndim != 3 or image.shape[2] != 3:
            raise SetupError(CONFIG, f"envpool {self.task}: a picture of shape {image.shape}, expected (height, width, 3)")
        return image

    def pictures(self, out: np.ndarray) -> int:
        out[0] = self.pool.render()[0]
        return 1

    def close(self) -> None:
        self.pool.close()


class EnvPoolBatch:
    """Environments of one task in one pool, which steps them on threads of its own (samara.environment.Batch). The pool's
    seed is that of the first episode."""

    def __init__(self, task: EnvPoolEnvironment, count: int, threads: int) -> None:
        self.task, self.spec = task, task.spec
        self.size = {"num_envs": count, "num_threads": min(count, threads), "batch_size": 1}
        self.frames = np.zeros(count, np.int64)  # of each slot's episode
        self.frames_max = np.zeros(count, np.int64)
        self.restart()

    def restart(self) -> None:
        if self.task.pool is not None:
            self.task.close()
        self.task.pool = None  # the old one goes before the new one comes
        self.first: tuple[Any, dict[str, Any]] | None = None  # observation and info of a reset, received already

    def start(self, commands: np.ndarray) -> None:
        task = self.task
        if len(commands) > 0 and task.pool is None:
            task.pool = task.make_pool(int(commands["seed"][0]) % 2**31, **self.size)
        begins = commands["kind"] == wire.RESET
        resets, steps = commands[begins], commands[~begins]
        if len(resets):
            slots = resets["slot"].astype(np.int32)
            self.frames[slots], self.frames_max[slots] = 0, resets["frames_max"]
            self.first = task.pool.reset(slots)  # sends them all, waits for one
        if len(steps):
            slots = steps["slot"].astype(np.int32)
            self.frames[slots] += task.frames_per_step
            task.pool.send(task.given(steps["argument"] if task.discrete else steps["values"]), slots)

    def finish(self, observation: np.ndarray) -> tuple[int, Step]:
        if self.first is not None:
            (result, info), self.first = self.first, None
        else:
            result, reward, terminated, truncated, info = self.task.pool.recv()
        slot = int(info["env_id"][0])
        self.task.observe(result, observation)
        if self.frames[slot] == 0:
            return slot, Step(0.0, False, False, False, 0)
        capped = 0 < self.frames_max[slot] <= self.frames[slot]
        return slot, self.task.answer(reward, terminated, truncated, capped)


def by_mujoco(task: str) -> bool:
    """Whether MuJoCo simulates and draws the task."""
    return registry.specs[task][0].startswith("envpool.mujoco.")


def alone(batch: Any) -> Any:
    """Returns the only row of a batch of one."""
    if isinstance(batch, dict):
        return {key: alone(value) for key, value in batch.items()}
    return batch[0]


def image_shape(shape: tuple[int, ...]) -> tuple[tuple[int, ...], bool]:
    """Returns the shape with the channels last, without them if there is one, and whether they came first."""
    first = shape[0] < shape[1] and shape[0] < shape[2]
    height, width, channels = (shape[1], shape[2], shape[0]) if first else shape
    return (height, width) if channels == 1 else (height, width, channels), first


def version(kwargs: dict[str, Any], fresh: bool) -> str:
    """Returns what decides the bits: the version of the wheel, which contains every simulator, the options, and the seeds."""
    parts = [f"envpool {importlib.metadata.version('envpool')}"]
    parts += [f"{key}={kwargs[key]!r}" for key in sorted(kwargs)]
    return ", ".join(parts if fresh else [*parts, "kept"])


def make(config: dict[str, Any], render: bool = False) -> EnvPoolEnvironment:
    """Checks the configuration and builds the environment."""
    return EnvPoolEnvironment(*parse(config), render)


def make_batch(config: dict[str, Any], count: int, threads: int) -> EnvPoolBatch | None:
    """Builds environments in one pool; None if each episode has a pool of its own."""
    task, kwargs, fresh = parse(config)
    return None if fresh else EnvPoolBatch(EnvPoolEnvironment(task, kwargs, fresh, render=False), count, threads)


def parse(config: dict[str, Any]) -> tuple[str, dict[str, Any], bool]:
    """Returns the task, its options, and whether each episode gets a pool of its own."""
    unknown = config.keys() - {"kind", "id", "kwargs", "fresh", "actor", "incarnation"}
    if unknown:
        raise SetupError(CONFIG, f"envpool: unknown key {min(unknown)!r}, expected id, kwargs, fresh")
    task, kwargs = config.get("id"), dict(config.get("kwargs", {}))
    fresh = kwargs.pop("fresh", config.get("fresh", not str(task).startswith(KEPT)))
    if not isinstance(task, str) or not isinstance(fresh, bool):
        raise SetupError(CONFIG, "envpool: expected id to be a text and fresh to be true or false")
    known = envpool.list_all_envs()
    if task not in known:
        near = difflib.get_close_matches(task, known, 1)
        hint = f", the nearest is {near[0]!r}" if near else ""
        raise SetupError(CONFIG, f"envpool: task {task!r} is unknown{hint}")
    own = sorted(kwargs.keys() & set(OWN))
    if own:
        raise SetupError(CONFIG, f"envpool {task}: {own[0]!r} is samara's to set, leave it out")
    if "use_combined_action" in vars_of(task):
        kwargs.setdefault("use_combined_action", True)
    return task, kwargs, fresh


def vars_of(task: str) -> tuple[str, ...]:
    """Returns the names of the options that a task takes; none if EnvPool needs them to answer."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return envpool.make_spec(task).config._fields
    except Exception:  # whatever is wrong, making the pool says it
        return ()
