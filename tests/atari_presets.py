"""The Atari presets as the engine sends them, and shorthands for tests of the adapter."""

import json
import subprocess
from functools import cache
from pathlib import Path

import numpy as np

from samara import atari

ROOT = Path(__file__).resolve().parent.parent


@cache
def presets():
    return json.loads(subprocess.check_output([ROOT / "build" / "atari_presets"]))


def make(game, name, render=False, **rows):
    """An environment under preset `name`, some of its rows changed."""
    preset = json.loads(json.dumps(presets()[name]))
    preset["rows"].update(rows)
    return atari.make({"kind": "atari", "game": game, "preset": preset}, render)


def observation(environment):
    spec = environment.spec
    return np.zeros(spec.observation_shape, spec.observation_dtype)


def random_actions(environment, count, seed=0):
    return [int(a) for a in np.random.default_rng(seed).integers(0, environment.spec.action_n, count)]
