# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Gymnasium's spaces for observations and actions as samara describes them, and conversion of actions."""

from __future__ import annotations

from typing import Any

import numpy as np

from samara.program import CONFIG, Error

Spec = dict[str, Any]  # dtype, shape; discrete, actions, sizes, low, high (None: open), raw


def observation_space(spec: Spec, stack: int = 0) -> Any:
    """Returns the Box of one observation, or of `stack` of them."""
    from gymnasium import spaces

    shape = ((stack,) if stack else ()) + tuple(spec["shape"])
    low, high = (0, 255) if spec["dtype"] == "uint8" else (-np.inf, np.inf)
    return spaces.Box(low, high, shape, np.dtype(spec["dtype"]).type)


def action_space(spec: Spec) -> Any:
    """Returns Discrete, MultiDiscrete, or a Box with the simulator's bounds."""
    from gymnasium import spaces

    if spec["sizes"]:
        return spaces.MultiDiscrete(spec["sizes"])
    if spec["discrete"]:
        return spaces.Discrete(spec["actions"])
    low, high = bounds(spec)
    return spaces.Box(low, high, dtype=np.float32)


def bounds(spec: Spec) -> tuple[np.ndarray, np.ndarray]:
    """Returns the bounds of a continuous action; [-1, 1] if the environment declares none, infinite where open."""

    def one(key: str, default: float, open_bound: float) -> np.ndarray:
        given = spec[key] or [default] * spec["actions"]
        return np.array([open_bound if bound is None else bound for bound in given], np.float32)

    return one("low", -1.0, -np.inf), one("high", 1.0, np.inf)


def action_range(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns what -1 and 1 of an action become: the bounds where both are finite, else -1 and 1, which one finite bound
    moves where they are beyond it."""
    closed = np.isfinite(low) & np.isfinite(high)
    moved = np.maximum(low + 1, 0) + np.minimum(high - 1, 0)
    return np.where(closed, low, moved - 1), np.where(closed, high, moved + 1)


class Actions:
    """Converts actions of `action_space` to samara's form and back. A composite action is an index in which the last part
    varies fastest; the ends of `action_range` become -1 and 1."""

    def __init__(self, spec: Spec) -> None:
        self.discrete, self.sizes = bool(spec["discrete"]), tuple(spec["sizes"])
        low, high = (np.zeros(0),) * 2 if self.discrete else bounds(spec)
        low, high = (-np.ones_like(low), np.ones_like(high)) if spec["raw"] else action_range(low, high)
        self.middle, self.half = ((low + high) / 2).astype(np.float32), ((high - low) / 2).astype(np.float32)

    def to_index(self, actions: Any) -> np.ndarray:
        """Returns the indices of rows of discrete actions."""
        if np.asarray(actions).dtype.kind not in "iub":
            raise Error(CONFIG, f"actions of type {np.asarray(actions).dtype}, expected integers")
        if self.sizes:
            parts = np.asarray(actions).reshape(-1, len(self.sizes)).T
            actions = np.ravel_multi_index(tuple(parts), self.sizes)
        indices = np.asarray(actions)
        if indices.size and not -(2**31) <= indices.min() <= indices.max() < 2**31:
            raise Error(CONFIG, "actions out of range")
        return np.ascontiguousarray(indices, np.int32).reshape(-1)

    def to_values(self, actions: Any) -> np.ndarray:
        """Returns the numbers of rows of continuous actions, one row after the other."""
        given = np.asarray(actions, np.float32)
        if given.ndim == 0 or given.shape[-1] != len(self.half):
            raise Error(CONFIG, f"actions of shape {given.shape}, expected [environments, {len(self.half)}]")
        given = given.reshape(-1, len(self.half))
        if not np.isfinite(given).all():
            raise Error(CONFIG, "actions: not all are finite numbers")
        return np.ascontiguousarray((given - self.middle) / self.half).reshape(-1)

    def from_engine(self, index: int, values: np.ndarray) -> Any:
        """Returns one action: an int, an array of parts, or numbers within the bounds."""
        if not self.discrete:
            return self.middle + self.half * values
        return np.array(np.unravel_index(index, self.sizes)) if self.sizes else index
