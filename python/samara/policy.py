# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Policies of runs, called with one observation at a time.

The network runs in a process of its own (`samara act`), so that every network that samara has is played
with the bits of `samara eval`, and this program needs no torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from samara.program import CONFIG, Error, failure, launch, text_of
from samara.spaces import Actions, action_space, observation_space
from samara.values import path_text

_FIRST, _GREEDY = 1, 2  # ActFlags in src/cli/act.cc
_REQUEST = struct.Struct("=IIfI")


class PolicyState:
    """The memory of a policy in one running episode: its frame stack, its recurrent state, its last action.

    It belongs to the policy, and every `predict` that gets it changes it; it is not a copy.
    """

    def __init__(self, policy: Policy) -> None:
        if not policy._free:
            raise Error(CONFIG, f"a policy remembers at most {policy.spec['memories']} episodes at a time")
        self._policy, self._memory = weakref.ref(policy), policy._free.pop()
        self._new = True
        weakref.finalize(self, policy._free.append, self._memory)


class Policy:
    """A policy, which maps an observation to an action. `path`: a run folder or a policy file (`samara export`).

    `individual`: as `samara eval --individual`; default: an evolution's elite, a learning run's newest agent ("best": the
    best agent of its evaluations). `trust`: also play a file whose `env.id` names code. Observations are those of the
    environment, one at a time and without batch or frame stack, as make_vec returns them with stack=0 and `samara
    check` prints them; actions are those of `action_space`. `network`: for the policy file of a run whose network is a
    module of the user, module.pt of that run (doc/networks.md). The process ends with `close`, with the `with` block, or
    when the object is garbage. Use it from one thread at a time. Raises Error.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        individual: str | int | None = None,
        *,
        network: str | os.PathLike[str] | None = None,
        trust: bool = False,
    ) -> None:
        self._path = path_text("path", path, "a run folder or a policy file")
        self._individual = individual
        chosen = [] if individual is None else ["--individual", individual]
        if network is not None:
            chosen.append(f"network.module={os.fspath(network)}")
        self._errors = tempfile.TemporaryFile()
        self._process = launch(
            # errors on stderr alone: standard output has the replies
            ["act", Path(self._path), *chosen, *(["--trust"] if trust else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip
        self._close = weakref.finalize(self, _end, self._process)
        line = self._process.stdout.readline()
        self.spec: dict[str, Any] = json.loads(line or "{}")
        if "memories" not in self.spec:
            raise self._failure(line)
        self._actions = Actions(self.spec)
        self._shape, self._dtype = tuple(self.spec["shape"]), np.dtype(self.spec["dtype"])
        self._values = 0 if self._actions.discrete else self.spec["actions"]
        self._free = list(range(self.spec["memories"]))[::-1]
        self._own: PolicyState | None = None

    def __repr__(self) -> str:
        chosen = "" if self._individual is None else f", {self._individual!r}"
        return f"samara.Policy({self._path!r}{chosen})"

    @property
    def observation_space(self) -> Any:
        """Gymnasium's space of one observation."""
        return observation_space(self.spec)

    @property
    def action_space(self) -> Any:
        """Gymnasium's space of one action."""
        return action_space(self.spec)

    def __call__(self, observation: Any, reward: float = 0.0) -> Any:
        """Returns the next action of an episode; `reset` begins the next one. `reward`: of the last step, for networks
        that read it."""
        if np.shape(observation) != self._shape:
            raise Error(CONFIG, f"an observation of shape {np.shape(observation)}, expected {self._shape}; predict takes batches")
        action, self._own = self.predict(observation, self._own, reward=reward)
        return action

    def reset(self) -> None:
        """Makes the next observation begin an episode."""
        if self._own is not None:
            self._own._new = True

    def predict(
        self,
        observation: Any,
        state: PolicyState | Sequence[PolicyState] | None = None,
        episode_start: Any = None,
        deterministic: bool | None = None,
        reward: Any = 0.0,
    ) -> tuple[Any, Any]:
        """Returns the action, and the state to pass on with the next observation; state None begins an episode, as a true
        `episode_start` does. A batch of observations takes sequences of states, rewards and `episode_start`.

        `deterministic`: takes the most probable action of a learning agent instead of drawing one; default: as the run
        tests (learn.test_greedy).
        """
        if self._dtype == np.uint8 and np.asarray(observation).dtype.kind == "f":
            raise Error(CONFIG, "an observation of floats, expected uint8")
        given = np.ascontiguousarray(observation, self._dtype)
        if self._dtype.kind == "f" and not np.isfinite(given).all():
            raise ValueError(f"an observation with {given[~np.isfinite(given)][0]}, expected finite numbers")
        if given.shape == self._shape:
            actions, states = self._ask(
                given[None], None if state is None else [state], episode_start, deterministic, reward
            )
            return actions[0], states[0]
        if given.shape[1:] != self._shape:
            raise Error(CONFIG, f"an observation of shape {given.shape}, expected {self._shape}")
        actions, states = self._ask(given, state, episode_start, deterministic, reward)
        return np.array(actions), states

    def close(self) -> None:
        """Ends the process."""
        self._close()

    def __enter__(self) -> Policy:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _ask(
        self, observations: np.ndarray, states: Any, starts: Any, deterministic: bool | None, rewards: Any
    ) -> tuple[list[Any], list[PolicyState]]:
        n = len(observations)
        states = [PolicyState(self) for _ in range(n)] if states is None else list(states)
        own = [isinstance(state, PolicyState) and state._policy() is self for state in states]
        if len(states) != n or not all(own) or len({id(state) for state in states}) != n:
            raise Error(CONFIG, f"state: expected {n} different states of this policy")
        starts = np.broadcast_to(False if starts is None else np.asarray(starts, bool), n)
        rewards = np.broadcast_to(np.asarray(rewards, np.float32), n)
        greedy = _GREEDY if (self.spec["greedy"] if deterministic is None else deterministic) else 0
        rows = zip(observations, states, starts, rewards, strict=True)
        return [self._decide(observation, state, greedy, first, reward) for observation, state, first, reward in rows], states

    def _decide(self, observation: np.ndarray, state: PolicyState, flags: int, first: bool, reward: float) -> Any:
        if state._new or first:
            flags |= _FIRST
        size = 4 + 4 * self._values
        try:
            self._process.stdin.write(_REQUEST.pack(state._memory, flags, reward, 0) + observation.tobytes())
            self._process.stdin.flush()
            reply = self._process.stdout.read(size)
        except (BrokenPipeError, ValueError) as gone:  # it has ended, or was closed
            raise self._failure(b"") from gone
        except BaseException:  # an interrupt: the next reply would be that of this request
            self.close()
            raise
        if len(reply) < size:
            raise self._failure(reply)
        state._new = False
        return self._actions.from_engine(struct.unpack_from("=i", reply)[0], np.frombuffer(reply, np.float32, offset=4))

    def _failure(self, said: bytes) -> Error:
        """Returns the reason why the process has ended."""
        if self._process.stdin.closed:
            return Error(CONFIG, "the policy is closed")
        return failure(self._process.wait(), said.decode(errors="replace"), text_of(self._errors))


def _end(process: subprocess.Popen) -> None:
    with contextlib.suppress(BrokenPipeError):  # it ended with a request unread
        process.stdin.close()
    process.stdout.close()
    process.wait()
