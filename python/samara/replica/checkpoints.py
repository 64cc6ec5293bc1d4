# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One file for all ranks, written once and read at any number of them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from samara.replica.batch_norm import CrossReplicaBatchNorm
from samara.replica.binding import ReplicationError
from samara.replica.nest import Nest
from samara.replica.optimizer import WrappedOptimizer
from samara.replica.replicator import Replicator

Modules = Mapping[str, torch.nn.Module]
Optimizers = Mapping[str, WrappedOptimizer]


def _module_entries(modules: Modules) -> dict[str, torch.Tensor]:
    return {f"module.{name}.{key}": value for name, module in modules.items()
            for key, value in [*module.named_parameters(), *module.named_buffers()]}


def _held_by_modules(modules: Modules) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Returns the tensors that are the same on every rank, and those that are each rank's own."""
    shared, own = {}, {}
    for name, module in modules.items():
        shared.update({f"module.{name}.{key}": value.detach() for key, value in module.named_parameters()})
        for prefix, part in module.named_modules(prefix=f"module.{name}"):
            entries = shared if isinstance(part, CrossReplicaBatchNorm) else own
            entries.update({f"{prefix}.{key}": value.detach()
                            for key, value in part.named_buffers(recurse=False)})
    return shared, own


def _optimizer_entries(name: str, optimizer: WrappedOptimizer) -> dict[str, torch.Tensor]:
    """Returns the state of an optimizer as tensors; the names of numbers end with #."""
    prefix = f"optimizer.{name}"
    entries = {}
    for i, (_, parameter) in enumerate(optimizer._all):
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, torch.Tensor):
                entries[f"{prefix}.{i}.{key}"] = value.detach()
            elif isinstance(value, (bool, int, float)):
                entries[f"{prefix}.{i}.{key}#"] = Nest(value).leaves[0]
            elif value is not None:
                raise ReplicationError(78, f"a checkpoint of {key}, a {type(value).__name__}: expected tensors and "
                                           "numbers as an optimizer's state")
    return entries | {f"{prefix}.updates": torch.tensor(optimizer.updates)}


def _groups(optimizer: WrappedOptimizer) -> str:
    """Returns the settings of an optimizer's parameter groups as JSON."""
    return json.dumps([{key: value.item() if isinstance(value, torch.Tensor) else value for key, value in group.items()
                        if key != "params"} for group in optimizer.param_groups])


def save(replicator: Replicator, path: str | os.PathLike[str], modules: Modules | None = None,
         optimizers: Optimizers | None = None, notes: Mapping[str, object] | None = None) -> None:
    """Writes one file, which can be read at any number of ranks. A collective, to be called outside steps: rank 0 writes
    the file and puts it in place by a rename.

    modules, optimizers (wrapped ones): by name. notes: texts by name. The ranks first compare what they would save: a
    ReplicationError (70) names those that differ, and the former file stays. Buffers other than those of
    CrossReplicaBatchNorm, and notes, are rank 0's own."""
    shared, own = _held_by_modules(modules or {})
    words = {f"note.{key}": str(text) for key, text in (notes or {}).items()}
    for name, optimizer in (optimizers or {}).items():
        shared |= _optimizer_entries(name, optimizer)
        words[f"optimizer.{name}.groups"] = _groups(optimizer)
    replicator._core.write_checkpoint(os.fspath(path), shared, own, words)


class Notes(dict):
    """The notes of a loaded checkpoint, texts by name; true even if there are none."""

    def __bool__(self) -> bool:
        return True


class _Read(NamedTuple):
    """The content of a checkpoint."""

    path: str
    entries: dict[str, torch.Tensor]
    words: dict[str, str]
    step: int

    def take(self, key: str, like: torch.Tensor) -> torch.Tensor:
        """Returns the tensor `key`; raises ReplicationError unless it has the shape and type of `like`."""
        value = self.entries.get(key)
        if value is None or value.shape != like.shape or value.dtype != like.dtype:
            was = "nothing" if value is None else f"{value.dtype}{list(value.shape)}"
            raise ReplicationError(65, f"{self.path}: {key} is {was}, expected {like.dtype}{list(like.shape)}: another "
                                       "program's?")
        return value


class _OptimizerState:
    """The state of one optimizer in a checkpoint: checked when it is made, then installed."""

    def __init__(self, read: _Read, name: str, optimizer: WrappedOptimizer, rank: int) -> None:
        self.optimizer, prefix = optimizer, f"optimizer.{name}."
        self.groups = json.loads(read.words.get(prefix + "groups", "null"))
        if self.groups is None or len(self.groups) != len(optimizer.param_groups):
            raise ReplicationError(65, f"{read.path}: no state of the optimizer {name}: another program's?")
        self.updates = read.take(prefix + "updates", torch.tensor(0)).item()
        self.fields: dict[int, dict[str, Any]] = {}  # of this rank's parameters, by number
        for key, value in read.entries.items():
            number, _, field = key.removeprefix(prefix).partition(".")
            if not key.startswith(prefix) or not number.isdigit() or int(number) >= len(optimizer._all):
                continue
            if optimizer._reducer.owner(int(number)) == rank:
                self.fields.setdefault(int(number), {})[field.rstrip("#")] = value.item() if field.endswith("#") else value

    def install(self) -> None:
        """Replaces the state, the groups' settings and the count of updates."""
        optimizer = self.optimizer
        optimizer.state.clear()
        for i, fields in self.fields.items():
            parameter = optimizer._all[i][1]
            optimizer.state[parameter] = {
                key: value.to(parameter.device) if isinstance(value, torch.Tensor) and key != "step" else value
                for key, value in fields.items()}
        for group, saved in zip(optimizer.param_groups, self.groups):
            for key, value in saved.items():
                value = tuple(value) if isinstance(value, list) else value
                if isinstance(group.get(key), torch.Tensor):
                    group[key].fill_(value)
                else:
                    group[key] = value
        optimizer._reducer.restored(self.updates)


def load(replicator: Replicator, path: str | os.PathLike[str], modules: Modules | None = None,
         optimizers: Optimizers | None = None) -> Notes | None:
    """Fills modules, optimizers and the replicator's step on every rank. A collective, to be called outside steps.

    Returns the checkpoint's Notes, which are true, or None if there is no file. A ReplicationError has changed nothing:
    65 for a damaged file or one of another program, in exact mode 78 for a file of another mode, seed or number of
    replicas."""
    path = os.fspath(path)
    found = replicator._core.read_checkpoint(path)
    if found is None:
        return None
    read = _Read(path, *found)
    tensors = [(value, read.take(key, value)) for key, value in _module_entries(modules or {}).items()]
    states = [_OptimizerState(read, name, optimizer, replicator.rank) for name, optimizer in (optimizers or {}).items()]
    with torch.no_grad():
        for value, new in tensors:
            value.copy_(new)
    for state in states:
        state.install()
    replicator.step = read.step
    return Notes({key.removeprefix("note."): text for key, text in read.words.items() if key.startswith("note.")})
