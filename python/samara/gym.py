# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Any Gymnasium environment with a Discrete, MultiDiscrete, MultiBinary or Box action space, unchanged.

``{"kind": "gym", "id": "LunarLander-v3"}``; ``"module:Name-v0"`` imports the module first, from ``"path"`` if it is
nowhere else, and ``"module:Class"`` needs no registration; ``"kwargs"`` are arguments of ``gymnasium.make``;
``"wrappers"`` are applied innermost first, each as ``"module:Class"`` or ``"module:Class?argument=value&..."``. With
``"check"`` the first observation that its space does not have is told as a line ``check: ...`` on stderr.

Observations: a uint8 Box stays as it is, every other Box becomes float32, and Dict, Tuple, Discrete, MultiDiscrete and
MultiBinary spaces are flattened to one float32 vector by ``gymnasium.spaces.flatten``, a Dict of a goal environment in
the order of samara/goal.py. Actions in [-1, 1] are rescaled to the Box's bounds; where one is infinite as
samara/spaces.py says. Each episode calls ``reset(seed=key mod 2^31)``; a step counts as one frame.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import json
import math
import os
import re
import shlex
import sys
import traceback
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from samara import goal
from samara.environment import CONFIG, NO_INPUT, InterfaceError, SetupError, Spec, Step, WithoutState, parse_options
from samara.messages import own_line
from samara.spaces import action_range

FLATTENED = (spaces.Dict, spaces.Tuple, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
# packages that decide an episode's bits: their versions are part of the run's identity
ENGINES = {"mujoco": "mujoco", "Box2D": "box2d", "ale_py": "ale-py", "pygame": "", "gymnasium": ""}

OBSERVATION_BYTES_MAX = 64 << 20  # as the learner process takes
RATES = 0.1, 1000.0  # pictures a second that the learner process takes
ATARI = re.compile(r"(?:ALE/|atari[/:])(\w+?)(?:NoFrameskip|Deterministic)?(?:-v\d+)?")
GYMNASIUM = os.path.dirname(gymnasium.__file__)


class BoxActions:
    """Actions of a Box of floats from numbers in [-1, 1], as `action_range` of samara/spaces.py has them."""

    def __init__(self, space: spaces.Box, low: np.ndarray, high: np.ndarray) -> None:
        self.shape, self.dtype = space.shape, space.dtype
        self.low, self.high = action_range(low, high)
        self.middle, self.half = (self.low + self.high) / 2.0, (self.high - self.low) / 2.0

    def scaled(self, values: np.ndarray, rows: tuple[int, ...] = ()) -> np.ndarray:
        """Returns one action, or one for each of `rows`."""
        actions = self.middle + self.half * values.reshape((*rows, *self.shape))
        return np.clip(actions, self.low, self.high).astype(self.dtype)  # rounding must not leave the bounds


class GymEnvironment(WithoutState):
    """An adapter's Environment around one of Gymnasium's."""

    def __init__(self, given: str, env: gymnasium.Env, render: bool, options: str = "") -> None:
        self.env = env
        for name in ("observation_space", "action_space"):
            if not isinstance(getattr(env, name, None), spaces.Space):
                raise SetupError(CONFIG, f"gym {given}: no {name}; expected the environment to have a gymnasium.spaces.Space")
        observation, self.flatten = observation_space(given, goal.ordered(env.observation_space))
        action = env.action_space
        self.parts = parts(given, action)
        self.discrete = isinstance(action, spaces.Discrete) or bool(self.parts)
        low = high = ()
        if self.parts:
            n = math.prod(self.parts)
            self.shape, self.dtype = action.shape, action.dtype
            self.start = np.reshape(getattr(action, "start", 0), (-1,))  # of each part, or of all
        elif self.discrete:
            n, self.start = int(action.n), int(action.start)
        elif isinstance(action, spaces.Box) and np.issubdtype(action.dtype, np.floating) and math.prod(action.shape) > 0:
            n = math.prod(action.shape)
            low, high = action.low.reshape(-1), action.high.reshape(-1)
            self.box = BoxActions(action, action.low, action.high)
        else:
            raise SetupError(
                CONFIG,
                f"gym {given}: action space {action} is not supported: expected Discrete, MultiDiscrete, MultiBinary or a Box"
                " of floats",
            )
        self.image = draw(given, env) if render else np.zeros((0, 0, 3))
        self.spec = Spec(
            id=f"gym/{given}",
            version=versions(env) + options,
            observation_dtype=str(observation.dtype),
            observation_shape=observation.shape or (1,),
            action_discrete=self.discrete,
            action_n=n,
            action_sizes=self.parts,
            action_low=tuple(float(v) for v in low),
            action_high=tuple(float(v) for v in high),
            steps_max=(env.spec.max_episode_steps or 0) if env.spec else 0,
            render_height=self.image.shape[0],
            render_width=self.image.shape[1],
            render_frames=1 if render else 0,
            render_rate=picture_rate(env),
            **goal.declared(env),
        )

    def reset(self, seed: int, noops: int, frames_max: int, observation: np.ndarray) -> None:
        self.frames, self.frames_max = 0, frames_max
        try:
            result = self.env.reset(seed=seed % 2**31)
            if not isinstance(result, tuple):  # an array of two would unpack
                raise TypeError(f"cannot unpack {type(result).__name__}")
            first, _ = result
        except (TypeError, ValueError) as error:
            explain_unpacking("reset", "(observation, info)", error)
            if "unexpected keyword argument 'seed'" in str(error) and not own_line(error):
                raise InterfaceError(f"{error}: expected reset(self, *, seed=None, options=None)") from error
            raise
        if self.flatten is None and np.size(first) != observation.size:  # NumPy would repeat one number
            raise self.misfit(first)
        self.observe(first, observation)

    def step(self, action: int | np.ndarray, observation: np.ndarray) -> Step:
        if self.parts:
            chosen = np.array(np.unravel_index(action, self.parts)) + self.start
            given = chosen.reshape(self.shape).astype(self.dtype)
        elif self.discrete:
            given = self.start + action
        else:
            given = self.box.scaled(action)
        try:
            result, reward, terminated, truncated, _ = self.env.step(given)
        except (TypeError, ValueError) as error:
            explain_unpacking("step", "(observation, reward, terminated, truncated, info)", error)
            raise
        self.observe(result, observation)
        try:
            reward = float(reward)
        except (TypeError, ValueError):
            raise InterfaceError(f"step returned a reward {reward!r}, expected a number") from None
        self.frames += 1
        truncated = truncated or 0 < self.frames_max <= self.frames
        return Step(reward, terminated, truncated and not terminated, False, 1)

    def observe(self, result: Any, out: np.ndarray) -> None:
        """Writes Gymnasium's observation to `out`; raises InterfaceError if it does not fit."""
        try:
            out[...] = result if self.flatten is None else spaces.flatten(self.flatten, result)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise self.misfit(result) from error

    def misfit(self, result: Any) -> InterfaceError:
        """Returns the error of an observation that does not fit."""
        what = f"of shape {result.shape}" if isinstance(result, np.ndarray) else f"{result!r}"
        return InterfaceError(f"an observation {what}, expected one of observation_space={self.env.observation_space}")

    def pictures(self, out: np.ndarray) -> int:
        out[0] = self.env.render()
        return 1

    def close(self) -> None:
        self.env.close()


class Reporting(gymnasium.Wrapper):
    """Prints the first observation that is outside its space, which changes nothing."""

    told = False
    steps = 0

    def reset(self, **kwargs: Any) -> Any:
        self.steps = 0
        result = self.env.reset(**kwargs)
        self.look(result, "reset")
        return result

    def step(self, action: Any) -> Any:
        self.steps += 1
        result = self.env.step(action)
        self.look(result, f"step {self.steps}")
        return result

    def look(self, result: Any, where: str) -> None:
        if self.told or not isinstance(result, tuple) or not result:  # the adapter refuses what is no tuple
            return
        if fault := outside(self.observation_space, result[0]):
            self.told = True
            print(f"check: the observation of {where} has {fault}", file=sys.stderr, flush=True)


def outside(space: spaces.Space, value: Any) -> str:
    """Returns what `value` has that `space` does not; "" if nothing. A type that can be cast is no fault."""
    if not isinstance(space, spaces.Box):
        return "" if space.contains(value) else f"the value {value!r}, which is not in {space}"
    try:
        numbers = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        return ""  # the adapter refuses it
    if numbers.shape != space.shape:
        return ""
    faults = np.argwhere((numbers < space.low) | (numbers > space.high))  # not a number ends the actor
    if not faults.size:
        return ""
    at = tuple(int(i) for i in faults[0])
    return f"{numbers[at]:g} at {list(at)}, outside [{space.low[at]:g}, {space.high[at]:g}] of the space"


def explain_unpacking(method: str, expected: str, error: Exception) -> None:
    """Raises TypeError where this file or a wrapper of Gymnasium's could not take apart what `method` returned."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    if "unpack" in str(error) and last.filename.startswith((__file__, GYMNASIUM)):
        raise TypeError(f"{method}: {error}; expected {expected}: Gymnasium's interface, not the old one of Gym") from error


def parts(given: str, space: spaces.Space) -> tuple[int, ...]:
    """Returns the number of choices of each part of a MultiDiscrete or MultiBinary action; () for other spaces."""
    if isinstance(space, spaces.MultiDiscrete):
        sizes = tuple(int(n) for n in space.nvec.reshape(-1))
    elif isinstance(space, spaces.MultiBinary):
        sizes = (2,) * int(np.prod(space.shape))
    else:
        return ()
    if math.prod(sizes) >= 2**31:
        raise SetupError(CONFIG, f"gym {given}: {space} has {math.prod(sizes)} actions, expected fewer than 2^31")
    return sizes


def observation_space(given: str, space: spaces.Space) -> tuple[spaces.Box, spaces.Space | None]:
    """Returns the Box that samara sees, and the space to flatten (None for a plain Box)."""
    flatten = None if isinstance(space, spaces.Box) else space
    if flatten is None:
        shape = space.shape
    elif isinstance(space, FLATTENED) and space.is_np_flattenable:
        shape = (spaces.flatdim(space),)
    else:
        raise SetupError(
            CONFIG,
            f"gym {given}: observation space {space} is not supported: expected a Box, Discrete, MultiDiscrete or"
            " MultiBinary, or a Dict or Tuple of these",
        )
    dtype = np.dtype(np.uint8 if flatten is None and space.dtype == np.uint8 else np.float32)
    numbers = math.prod(shape)
    if not 0 < numbers * dtype.itemsize <= OBSERVATION_BYTES_MAX:
        raise SetupError(
            CONFIG,
            f"gym {given}: observation space {space} has {numbers} numbers, expected at least one and at most 64 MiB of them",
        )
    return space if dtype == np.uint8 else spaces.Box(-np.inf, np.inf, shape, np.float32), flatten


def picture_rate(env: gymnasium.Env) -> float:
    """Returns the pictures a second that the environment declares; 30 where it says nothing that a player could use."""
    rate = (getattr(env, "metadata", None) or {}).get("render_fps")
    usable = isinstance(rate, (int, float, np.number)) and RATES[0] <= rate <= RATES[1]
    return float(rate) if usable else 30.0


def draw(given: str, env: gymnasium.Env) -> np.ndarray:
    """Returns a first picture, for its size."""
    env.reset(seed=0)
    try:
        image = env.render()
    except NotImplementedError:
        raise no_pictures(given, "it has no render()") from None
    except Exception as error:
        raise SetupError(CONFIG, f"gym {given}: render() failed: {about(error)}") from error
    if not isinstance(image, np.ndarray) or image.ndim != 3 or image.shape[2] != 3:
        what = f"an array of shape {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
        raise no_pictures(given, f"render() returned {what}")
    return image


def no_pictures(given: str, why: str) -> SetupError:
    return SetupError(
        CONFIG,
        f"gym {given} draws no pictures: {why}; they need an argument render_mode, to be 'rgb_array', and a render()"
        " that returns an array [height, width, 3] of uint8",
    )


def versions(env: gymnasium.Env) -> str:
    """Returns the versions of Gymnasium, the environment's own package and the physics engine that it loaded."""
    home = type(env.unwrapped).__module__.split(".")[0]
    found = [f"gymnasium {gymnasium.__version__}"]
    for module in sorted({home} | ENGINES.keys()):
        distribution = ENGINES.get(module, module)
        if module not in sys.modules or not distribution:
            continue
        try:
            found.append(f"{distribution} {importlib.metadata.version(distribution)}")
        except importlib.metadata.PackageNotFoundError:
            continue  # a module that belongs to no distribution has no version
    return ", ".join(found)


def make(config: dict[str, Any], render: bool = False) -> GymEnvironment:
    """Checks the configuration and builds the environment with its wrappers."""
    given = config.get("id")
    kwargs, wrappers = config.get("kwargs", {}), config.get("wrappers", [])
    unknown = config.keys() - {"kind", "id", "path", "kwargs", "wrappers", "check", "actor", "incarnation"}
    if unknown:
        raise SetupError(CONFIG, f"gym: unknown key {min(unknown)!r}, expected id, path, kwargs, wrappers")
    path = config.get("path", "")
    if not isinstance(given, str) or not isinstance(kwargs, dict) or not isinstance(path, str):
        raise SetupError(CONFIG, "gym: expected id and path to be texts and kwargs a table")
    if not isinstance(wrappers, list) or not all(isinstance(w, str) for w in wrappers):
        raise SetupError(CONFIG, "gym: expected wrappers to be a list of texts")
    folders = own_folders(path) if "path" in config else {}
    sys.path += [folder for folder in folders if folder not in sys.path]  # last: they hide nothing
    chosen = f", kwargs {json.dumps(kwargs, sort_keys=True, default=repr)}, wrappers {json.dumps(wrappers)}"
    again = check_command(given, kwargs, wrappers)
    env = build(given, kwargs | {"render_mode": "rgb_array"} if render else kwargs, folders, again)
    for wrapper in wrappers:
        env = wrap(wrapper, env, folders)
    if config.get("check"):
        env = Reporting(env)
    return GymEnvironment(given, env, render, chosen if kwargs or wrappers else "")


def own_folders(path: str) -> dict[str, str]:
    """Where modules of the user's may lie, the first looked through first, and what each is; samara/program.py sets the
    variable for runs that a script started."""
    script, *added = os.environ.get("SAMARA_SCRIPT_FOLDER", "").split(os.pathsep)
    folders = {script: "the script's folder"} | dict.fromkeys(added, "the script's sys.path") | {path: "the current folder"}
    return {folder: what for folder, what in folders.items() if folder}


def check_command(given: str, kwargs: dict[str, Any], wrappers: list[str]) -> str:
    """Returns the command that makes the same environment again."""
    options = [f"env.kwargs.{name}={toml(value)}" for name, value in kwargs.items()]
    options += [f"env.wrappers={toml(wrappers)}"] if wrappers else []
    return " ".join(["samara check", given, *map(shlex.quote, options)])


def toml(value: Any) -> str:
    """Returns a value of JSON as TOML has it in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {toml(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False, default=repr)


def build(given: str, kwargs: dict[str, Any], folders: dict[str, str], again: str) -> gymnasium.Env:
    """Calls gymnasium.make; errors become a SetupError of one line. "module:Name?key=value" has more keys of `kwargs`, which
    go first. `again` is a command that shows more of the errors."""
    if ":" in given and "?" in given:
        given, _, query = given.partition("?")
        kwargs = parse_options(given, query) | kwargs
    if given.startswith(("ALE/", "atari/")):  # also where another package has registered them
        refuse_atari(given, None)
    refuse_path("gym", given)
    try:
        # the checker that gymnasium.make adds costs time at every step and changes nothing
        return gymnasium.make(registered(given), disable_env_checker=True, **kwargs)
    except (gymnasium.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        if getattr(error, "name", "") == "atari":
            refuse_atari(given, error)
        raise SetupError(NO_INPUT, f"gym {given!r} needs a Python package: {missing(error, folders)}") from error
    except gymnasium.error.Error as error:
        refuse_atari(given, error)
        what = unnamed(given) if isinstance(error, gymnasium.error.NameNotFound) else ""
        raise SetupError(CONFIG, f"gym {given!r}: {what or error}") from error
    except TypeError as error:  # a keyword that the environment does not take, or its own
        if "unexpected keyword argument 'render_mode'" in str(error) and "render_mode" in kwargs:
            raise no_pictures(given, "it takes no render_mode") from error
        # Gymnasium raises another in place of the environment's own, which has the lines
        own = error.__context__ if isinstance(error.__context__, TypeError) else error
        raise SetupError(CONFIG, f"gym {given!r}{f' with {kwargs}' if kwargs else ''}: {about(own, again)}") from own
    except Exception as error:  # the environment's own
        raise SetupError(CONFIG, f"gym {given!r} cannot be built: {about(error, again)}") from error


def refuse_atari(given: str, error: Exception | None) -> None:
    """Raises SetupError where `given` is another library's name of an Atari game."""
    if named := ATARI.fullmatch(given):
        game = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", named[1]).lower()  # MsPacman -> ms_pacman
        raise SetupError(
            CONFIG,
            f"gym {given!r}: Atari games are samara's own: samara train takes env.game={game} with a preset of atari/"
            f" (atari/ppo-quick) and no env.id, samara check and actor take atari/{game}, make_vec takes atari:{game}",
        ) from error


def refuse_path(what: str, given: str) -> None:
    """Raises SetupError where `given` has a file or nothing in place of the module of "module:Name"."""
    place, colon, name = given.partition(":")
    folder, file = os.path.split(place)
    module = file.removesuffix(".py")
    is_path = "/" in place if colon else place.startswith((".", "/"))  # a registered id is NAMESPACE/NAME
    if is_path or file.endswith(".py"):
        where = f"the folder {folder}" if folder not in ("", ".") else f"the folder of {module}.py"
        raise SetupError(
            CONFIG,
            f"{what} {given!r}: {place} is a {'path' if is_path else 'file'}, expected MODULE:NAME with the module as Python"
            f" imports it: {module}:{name or 'NAME'}, run in {where}",
        )
    if colon and not (place and name):
        raise SetupError(CONFIG, f"{what} {given!r}: expected MODULE:NAME, such as {place or 'my_module'}:{name or 'NAME'}")


def unregistered(given: str) -> str:
    """Says that no id is `given`, with the nearest one or its spelling as MODULE:NAME."""
    module, dot, name = given.rpartition(".")
    near = difflib.get_close_matches(given, gymnasium.registry, 1, 0.75)
    meant = f"{module}:{name}" if dot else near[0] if near else ""
    if os.path.exists(f"{given}.py"):
        return f"it is the module {given}.py of this folder, expected one of its classes: {given}:NAME"
    return (
        f"no environment has this name{meant and f', the nearest is {meant}'}; expected one that `samara list envs` shows, an"
        " id that Gymnasium knows, or MODULE:NAME of a package or of a file here"
    )


def unnamed(given: str) -> str:
    """Says that there is no such environment, or that the module of "module:Name" has none, and which there are."""
    name, colon, wanted = given.partition(":")
    if not colon:
        return unregistered(given)
    module = sys.modules[name]
    classes = [n for n, c in vars(module).items() if isinstance(c, type) and issubclass(c, gymnasium.Env)
               and not c.__module__.startswith("gymnasium.")]  # fmt: skip
    known = classes + [i for i, spec in gymnasium.registry.items() if home(spec.entry_point) == name]
    have = f"it has {', '.join(known)}" if known else "it has no class of gymnasium.Env"
    if name.partition(".")[0] in sys.stdlib_module_names:
        have = "it is Python's own: give a file of yours another name"
    return f"module {name} ({getattr(module, '__file__', None) or 'built in'}) has no class {wanted}; {have}"


def home(entry_point: Any) -> str:
    """Returns the module of an entry point: "module:Class", or what is called."""
    is_text = isinstance(entry_point, str)
    return entry_point.partition(":")[0] if is_text else getattr(entry_point, "__module__", "")


def about(error: Exception, again: str = "") -> str:
    """Type and message; of an exception of the environment's own code its line, and the command `again`."""
    text = f"{type(error).__name__}: {error}"
    if not (line := own_line(error)):
        return text
    hint = f"; `{again}` shows the traceback" if again else ""
    return f"{text} ({line}){hint}"


def registered(given: str) -> str | EnvSpec:
    """Returns the argument for gymnasium.make: of "module:Class" the class, if the module registers no such name."""
    module, colon, name = given.partition(":")
    if not colon or name in gymnasium.registry:
        return given
    found = getattr(importlib.import_module(module), name, None)
    return EnvSpec(name, entry_point=found) if callable(found) and name not in gymnasium.registry else given


def wrap(wrapper: str, env: gymnasium.Env, folders: dict[str, str]) -> gymnasium.Env:
    """Returns `env` in the wrapper "module:Class", with the arguments after a question mark."""
    name, _, query = wrapper.partition("?")
    module, colon, attribute = name.partition(":")
    refuse_path("wrapper", name)
    if not colon:
        raise SetupError(CONFIG, f"wrapper {wrapper!r}: expected module:Class, such as gymnasium.wrappers:ClipReward")
    try:
        kwargs = parse_options(wrapper, query) if query else {}
        return getattr(importlib.import_module(module), attribute)(env, **kwargs)
    except SetupError:
        raise
    except ModuleNotFoundError as error:
        raise SetupError(NO_INPUT, f"wrapper {wrapper!r} needs a Python package: {missing(error, folders)}") from error
    except Exception as error:  # no such class, arguments that it does not take, its own
        raise SetupError(CONFIG, f"wrapper {wrapper!r}: {about(error)}") from error


def missing(error: Exception, folders: dict[str, str]) -> str:
    """Returns the message, and where a module was searched or is to be installed."""
    if not folders or not isinstance(error, ModuleNotFoundError):
        return f"{error}; samara's Python is {sys.executable} (-m pip)"
    where = "".join(f", then in {what} {folder}" for folder, what in folders.items())
    return f"{error}: searched where Python finds modules{where}; start samara in the module's folder, or name that in PYTHONPATH"
