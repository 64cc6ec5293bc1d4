# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A torch optimizer whose step is a collective."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from samara.replica.binding import ReplicationError, extension

if TYPE_CHECKING:
    from samara.replica.replicator import Replicator


class WrappedOptimizer(torch.optim.Optimizer):
    """An optimizer whose step is a collective: gradients of all replicas are averaged, weighted by their samples, then
    tested, clipped and applied, once a rank and with the same bits everywhere. Schedulers take it as any other."""

    # the base class is not initialized: parameter groups and state are those of `base`
    def __init__(self, replicator: Replicator, base: torch.optim.Optimizer, module: torch.nn.Module | None,
                 options: dict[str, Any]) -> None:
        if isinstance(base, torch.optim.LBFGS):
            raise ReplicationError(78, "LBFGS evaluates its loss several times a step: expected an optimizer that does "
                                       "not")
        self.base, self._replicator = base, replicator
        self._all = [(g, p) for g, group in enumerate(base.param_groups) for p in group["params"]]
        me = weakref.ref(self)
        self._reducer = extension.GradientReducer(
            replicator._core, [p for _, p in self._all], list(module.buffers()) if module is not None else [], options,
            lambda used: me()._update(used))

    param_groups = property(lambda self: self.base.param_groups)
    state = property(lambda self: self.base.state)
    defaults = property(lambda self: self.base.defaults)
    last_norm = property(lambda self: self._reducer.last_norm, doc="of the averaged gradient, before clipping")
    skipped = property(lambda self: self._reducer.skipped, doc="updates that were skipped because of a gradient that is not finite")
    updates = property(lambda self: self._reducer.updates)
    parameter_hash = property(lambda self: self._reducer.parameter_hash, doc="SHA-256 over the parameters, in order")
    exposed_seconds = property(lambda self: self._reducer.exposed_seconds)

    def _update(self, used: Sequence[int]) -> None:
        rank, reducer = self._replicator.rank, self._reducer
        chosen = [i for i in used if reducer.owner(i) == rank]
        if len(chosen) == len(self._all):
            self.base.step()
            return
        groups = self.base.param_groups
        before = [group["params"] for group in groups]
        try:
            for g, group in enumerate(groups):
                group["params"] = [self._all[i][1] for i in sorted(chosen) if self._all[i][0] == g]
            self.base.step()
        finally:
            for group, params in zip(groups, before):
                group["params"] = params

    def step(self, closure: Any = None) -> None:
        """Averages the gradients and updates the parameters; call it inside a step of Replicator.run."""
        if closure is not None:
            raise ReplicationError(78, "a closure: expected step() after backward()")
        self._reducer.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients."""
        self._reducer.zero_grad()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """A context in which backward passes add to the gradients without sending them."""
        token = self._reducer.no_sync()
        try:
            yield
        finally:
            token.release()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Raises ReplicationError: groups are fixed by wrap."""
        raise ReplicationError(78, "a parameter group after wrap: add it before")

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of the wrapped optimizer."""
        return self.base.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads the state of the wrapped optimizer."""
        self.base.load_state_dict(state_dict)

    def __getstate__(self) -> Any:
        raise TypeError("a wrapped optimizer is not pickled: samara.replica.save has its state")
