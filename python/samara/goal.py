# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Goal environments of Gymnasium: an observation is a Dict of ``observation``, ``achieved_goal`` and ``desired_goal``, and
``compute_reward(achieved, desired, info)`` returns the reward of a step for another goal.

A learner that replaces goals has no simulator, so this module finds the rule by calling ``compute_reward``: a rule can be
declared (src/env/goal.h) if there are two rewards, and the goals' Euclidean distance alone decides between them.
"""

from __future__ import annotations

import contextlib
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

KEYS = ("observation", "achieved_goal", "desired_goal")
NEAR, FAR = 1e-9, 1e6  # distances that no threshold but 0 is below or above
Reward = Callable[[np.ndarray, np.ndarray], float]


def is_goal_space(space: spaces.Space) -> bool:
    """Returns whether a space is that of a goal environment."""
    return isinstance(space, spaces.Dict) and set(space.spaces) == set(KEYS)


def ordered(space: spaces.Space) -> spaces.Space:
    """A goal environment's observation in the order of KEYS; any other space as it is."""
    return spaces.Dict(OrderedDict((key, space[key]) for key in KEYS)) if is_goal_space(space) else space


def declared(env: gymnasium.Env) -> dict[str, Any]:
    """Returns the fields of Spec about goals; none for an environment without goals or with another rule."""
    compute = getattr(env.unwrapped, "compute_reward", None)
    if not is_goal_space(env.observation_space) or compute is None:
        return {}
    desired = env.observation_space["desired_goal"]
    size = spaces.flatdim(desired)
    if not desired.shape or size != np.prod(desired.shape) or size != spaces.flatdim(env.observation_space["achieved_goal"]):
        return {}
    observation, _ = env.reset(seed=0)
    goal = np.asarray(observation["desired_goal"], np.float64)
    with contextlib.suppress(Exception):  # a rule that needs more than goals
        rule = find_rule(lambda achieved, given: float(compute(achieved, given, {})), goal)
        if rule is not None:
            return {"goal_size": size, **rule, "goal_terminates": terminates(env, goal)}
    return {}


def terminates(env: gymnasium.Env, goal: np.ndarray) -> bool:
    """Returns whether reaching a goal ends the episode."""
    compute = getattr(env.unwrapped, "compute_terminated", None)
    return compute is not None and bool(compute(goal, goal, {})) and not compute(goal + FAR, goal, {})


def find_rule(reward: Reward, goal: np.ndarray) -> dict[str, float] | None:
    """Returns the rule of the rewards, or None. The threshold is measured along one direction and checked along all
    others, also from other goals."""
    rng = np.random.default_rng(0)
    directions = [sign * axis for axis in np.eye(goal.size) for sign in (1, -1)] + list(rng.normal(size=(8, goal.size)))
    directions = [(d / np.linalg.norm(d)).reshape(goal.shape) for d in directions]
    reached, missed = reward(goal, goal), reward(goal + FAR * directions[0], goal)
    threshold = find_threshold(lambda distance: reward(goal + distance * directions[0], goal) == reached)
    if reached == missed or threshold is None:
        return None
    inside, outside = threshold * (1 - 1e-4), max(NEAR, threshold * (1 + 1e-4))
    for direction in directions:
        base = goal + rng.normal(size=goal.shape)
        for distance, expected in ((inside, reached), (0.5 * inside, reached), (outside, missed), (3 * outside, missed)):
            if reward(base + distance * direction, base) != expected:
                return None
    return {"goal_threshold": threshold, "goal_reached": reached + 0.0, "goal_missed": missed + 0.0}


def find_threshold(reaches: Callable[[float], bool]) -> float | None:
    """Returns the largest distance that reaches a goal, to six digits: 0 or from NEAR to FAR; None if there is none."""
    low, high = NEAR, FAR
    if not reaches(0) or reaches(high):
        return None
    if not reaches(low):
        return 0.0
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if reaches(middle) else (low, middle)
    return float(f"{low:.6g}")
