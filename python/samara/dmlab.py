# SPDX-License-Identifier: Apache-2.0 OR MIT
"""DeepMind Lab, for those who have built its Python package `deepmind_lab`: there is no wheel of it.

Written after the package's documented interface and tested against a stand-in with that interface only; it has not met the
package itself.

``{"kind": "dmlab", "id": "explore_goal_locations_small"}``, from the command line
``env.id=dmlab:explore_goal_locations_small?test=true``; OPTIONS are the options. The id is a level of DMLab-30, for which
``contributed/dmlab30/`` is added, or the path of any other level.

The encodings are those of IMPALA and SEED: RGB_INTERLEAVED, bytes of 72 x 96 x 3; nine actions, each for four frames. The
instructions of the language levels are not part of the observation, as in SEED: those levels can be played but not learned.
An episode's key is the seed of its reset. The level also sees how many episodes this process has played, which a few may use.
An episode ends when the level says so, by its clock too, and then counts as terminated, as in SEED. DeepMind Lab shows
nothing after the end: the last observation of an episode is the one that its last action answered.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from samara.environment import CONFIG, NO_INPUT, SetupError, Spec, Step, WithoutState

try:
    import deepmind_lab
except ImportError as error:
    raise SetupError(
        NO_INPUT,
        f"dmlab levels need the Python package deepmind_lab ({error}): it has no wheel, build it from"
        " github.com/google-deepmind/lab and install it into .venv",
    ) from error

# option: default
OPTIONS: dict[str, Any] = {
    "width": 96,
    "height": 72,
    "repeat": 4,  # frames an action
    "test": False,  # the held-out levels and mazes that scores are reported on
    "renderer": "software",  # or "hardware"
    "dataset": "",  # folder of brady_konkle_oliva2008, for the psychlab levels
    "cache": "",  # folder that keeps compiled levels; several processes may share it
    "runfiles": "",  # where the package finds its files, when not next to itself
    "config": {},  # further settings of the package or the level
}
MIXER_SEED = 0x600D5EED  # of the mazes for tests

# look right, look down, strafe right, forward, fire, jump, crouch; looking in pixels a frame
ACTIONS = {
    "FORWARD": (0, 0, 0, 1, 0, 0, 0),
    "BACKWARD": (0, 0, 0, -1, 0, 0, 0),
    "STRAFE_LEFT": (0, 0, -1, 0, 0, 0, 0),
    "STRAFE_RIGHT": (0, 0, 1, 0, 0, 0, 0),
    "LOOK_LEFT": (-20, 0, 0, 0, 0, 0, 0),
    "LOOK_RIGHT": (20, 0, 0, 0, 0, 0, 0),
    "LOOK_LEFT_FORWARD": (-20, 0, 0, 1, 0, 0, 0),
    "LOOK_RIGHT_FORWARD": (20, 0, 0, 1, 0, 0, 0),
    "FIRE": (0, 0, 0, 0, 1, 0, 0),
}

# DMLab-30; the first two have a level for training and one for tests
SPLIT = ("rooms_collect_good_objects", "rooms_exploit_deferred_effects")
DMLAB30 = SPLIT + (
    "rooms_select_nonmatching_object", "rooms_watermaze", "rooms_keys_doors_puzzle",
    "language_select_described_object", "language_select_located_object", "language_execute_random_task",
    "language_answer_quantitative_question", "lasertag_one_opponent_small", "lasertag_three_opponents_small",
    "lasertag_one_opponent_large", "lasertag_three_opponents_large", "natlab_fixed_large_map",
    "natlab_varying_map_regrowth", "natlab_varying_map_randomized", "skymaze_irreversible_path_hard",
    "skymaze_irreversible_path_varied", "psychlab_arbitrary_visuomotor_mapping", "psychlab_continuous_recognition",
    "psychlab_sequential_comparison", "psychlab_visual_search", "explore_object_locations_small",
    "explore_object_locations_large", "explore_obstructed_goals_small", "explore_obstructed_goals_large",
    "explore_goal_locations_small", "explore_goal_locations_large", "explore_object_rewards_few",
    "explore_object_rewards_many",
)


class LevelCache:
    """Compiled levels in a folder, by the MD5 of their key: three digits name a folder, the rest the file, as SEED's cache
    does. A file appears whole or not at all, so any number of processes may share the folder."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def path(self, key: str) -> Path:
        """Returns the file of a level."""
        digest = hashlib.md5(key.encode(), usedforsecurity=False).hexdigest()
        return self.folder / digest[:3] / digest[3:]

    def fetch(self, key: str, pk3_path: str) -> bool:
        """Called by DeepMind Lab before it compiles a level: copies it to `pk3_path`; returns False if it is not cached."""
        try:
            shutil.copyfile(self.path(key), pk3_path)
        except OSError:
            return False
        return True

    def write(self, key: str, pk3_path: str) -> None:
        """Called with a compiled level. A cache that cannot be written costs time only."""
        path = self.path(key)
        if path.exists():
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        except OSError:
            return
        try:
            with os.fdopen(descriptor, "wb") as file, open(pk3_path, "rb") as compiled:
                shutil.copyfileobj(compiled, file)
                file.flush()
                os.fsync(file.fileno())
            os.rename(name, path)
        except OSError:
            os.unlink(name)


class DmLabEnvironment(WithoutState):
    """A level of DeepMind Lab."""

    def __init__(self, level: str, options: dict[str, Any], render: bool) -> None:
        height, width, self.repeat = options["height"], options["width"], options["repeat"]
        if options["runfiles"]:
            deepmind_lab.set_runfiles_path(options["runfiles"])
        self.lab = deepmind_lab.Lab(
            level_path(level, options["test"]),
            ["RGB_INTERLEAVED"],
            config=lab_config(options),
            renderer=options["renderer"],
            level_cache=LevelCache(options["cache"]) if options["cache"] else None,
        )
        self.actions = [np.array(action, np.intc) for action in ACTIONS.values()]
        self.last = np.zeros((height, width, 3), np.uint8)
        self.spec = Spec(
            id=f"dmlab/{level}",
            version=version(options),
            observation_dtype="uint8",
            observation_shape=(height, width, 3),
            action_discrete=True,
            action_n=len(ACTIONS),
            action_names=tuple(ACTIONS),
            frames_per_step=self.repeat,
            render_height=height if render else 0,
            render_width=width if render else 0,
            render_frames=1 if render else 0,
            render_rate=60 / self.repeat,
        )

    def reset(self, seed: int, noops: int, frames_max: int, observation: np.ndarray) -> None:
        self.frames, self.frames_max = 0, frames_max
        self.lab.reset(seed=seed % (2**31 - 1))
        self.observe(observation)

    def step(self, action: int, observation: np.ndarray) -> Step:
        reward = self.lab.step(self.actions[action], num_steps=self.repeat)
        terminated = not self.lab.is_running()
        if terminated:
            observation[...] = self.last  # there is no observation after the end
        else:
            self.observe(observation)
        self.frames += self.repeat
        truncated = not terminated and 0 < self.frames_max <= self.frames
        return Step(float(reward), terminated, truncated, False, self.repeat)

    def observe(self, out: np.ndarray) -> None:
        """Writes the newest image to `out`."""
        self.last[...] = self.lab.observations()["RGB_INTERLEAVED"]
        out[...] = self.last

    def pictures(self, out: np.ndarray) -> int:
        out[0] = self.last
        return 1

    def close(self) -> None:
        self.lab.close()


def level_path(level: str, test: bool) -> str:
    """Returns the package's path of a level."""
    if level in SPLIT:
        level += "_test" if test else "_train"
    ours = level in DMLAB30 or level.removesuffix("_train").removesuffix("_test") in SPLIT
    return f"contributed/dmlab30/{level}" if ours else level


def lab_config(options: dict[str, Any]) -> dict[str, str]:
    """Returns the settings as the package takes them: strings only."""
    config = {"width": options["width"], "height": options["height"], "logLevel": "WARN"}
    if options["dataset"]:
        config["datasetPath"] = options["dataset"]
    if options["test"]:
        config |= {"allowHoldOutLevels": "true", "mixerSeed": MIXER_SEED}
    return {key: str(value) for key, value in (config | options["config"]).items()}


def version(options: dict[str, Any]) -> str:
    """Returns what decides the bits: the version of the package and the options other than folders."""
    try:
        found = importlib.metadata.version("deepmind_lab")
    except importlib.metadata.PackageNotFoundError:
        found = "of unknown version"
    changed = (key for key in ("repeat", "test", "renderer", "config") if options[key] != OPTIONS[key])
    return ", ".join([f"deepmind_lab {found}", *(f"{key}={options[key]!r}" for key in changed)])


def make(config: dict[str, Any], render: bool = False) -> DmLabEnvironment:
    """Checks the configuration and builds the environment."""
    unknown = config.keys() - {"kind", "id", "kwargs", "actor", "incarnation"}
    if unknown:
        raise SetupError(CONFIG, f"dmlab: unknown key {min(unknown)!r}, expected id, kwargs")
    level, given = config.get("id"), config.get("kwargs", {})
    if not isinstance(level, str) or not level:
        raise SetupError(CONFIG, f"dmlab: id {level!r}, expected a level such as {DMLAB30[-4]!r}")
    for key, value in given.items():
        if key not in OPTIONS:
            raise SetupError(CONFIG, f"dmlab {level}: unknown option {key!r}, expected one of {', '.join(OPTIONS)}")
        if type(value) is not type(OPTIONS[key]):
            raise SetupError(CONFIG, f"dmlab {level}: {key} = {value!r}, expected {type(OPTIONS[key]).__name__}")
    options = OPTIONS | given
    for key in ("width", "height", "repeat"):
        if options[key] < 1:
            raise SetupError(CONFIG, f"dmlab {level}: {key} = {options[key]}, expected at least 1")
    try:
        return DmLabEnvironment(level, options, render)
    except Exception as error:  # the package's own: an unknown level, a setting that it does not take
        line = " ".join(str(error).split())
        raise SetupError(CONFIG, f"dmlab {level} cannot be built: {type(error).__name__}: {line}") from error
