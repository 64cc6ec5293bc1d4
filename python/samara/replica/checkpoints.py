# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One file for all ranks, written once and read at any number of them."""

import json
import os

import torch

from samara.replica.batch_norm import CrossReplicaBatchNorm
from samara.replica.binding import ReplicationError
from samara.replica.nest import Nest


def _module_entries(modules):
    return {f"module.{name}.{key}": value for name, module in modules.items()
            for key, value in [*module.named_parameters(), *module.named_buffers()]}


def _held_by_modules(modules):
    """What is the same on every rank, and what is each rank's own."""
    shared, own = {}, {}
    for name, module in modules.items():
        shared.update({f"module.{name}.{key}": value.detach() for key, value in module.named_parameters()})
        for prefix, part in module.named_modules(prefix=f"module.{name}"):
            entries = shared if isinstance(part, CrossReplicaBatchNorm) else own
            entries.update({f"{prefix}.{key}": value.detach()
                            for key, value in part.named_buffers(recurse=False)})
    return shared, own


def save(replicator, path, modules=None, optimizers=None, notes=None):
    """Collective, outside steps: one file, written by rank 0 and put in place by a rename, read at any number of ranks.
    modules, optimizers (wrapped ones): by name. notes: texts by name. Before it is written the ranks compare what they
    would save: a ReplicationError (70) names those that differ, and the file that was there before stays. Buffers other
    than those of CrossReplicaBatchNorm, and notes, are rank 0's own."""
    shared, own = _held_by_modules(modules or {})
    words = {f"note.{key}": str(text) for key, text in (notes or {}).items()}
    for name, optimizer in (optimizers or {}).items():
        for i, (_, parameter) in enumerate(optimizer._all):
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    shared[f"optimizer.{name}.{i}.{key}"] = value.detach()
                elif isinstance(value, (bool, int, float)):
                    shared[f"optimizer.{name}.{i}.{key}#"] = Nest(value).leaves[0]
                elif value is not None:
                    raise ReplicationError(78, f"a checkpoint of {key}, a {type(value).__name__}: expected tensors and "
                                               "numbers as an optimizer's state")
        shared[f"optimizer.{name}.updates"] = torch.tensor(optimizer.updates)
        words[f"optimizer.{name}.groups"] = json.dumps(
            [{key: value.item() if isinstance(value, torch.Tensor) else value for key, value in group.items()
              if key != "params"} for group in optimizer.param_groups])
    replicator._core.write_checkpoint(os.fspath(path), shared, own, words)


class Notes(dict):
    """The notes of a checkpoint that was loaded, texts by name: true also when there are none."""

    def __bool__(self):
        return True


def load(replicator, path, modules=None, optimizers=None):
    """Collective, outside steps. None without a file, which is false; otherwise the checkpoint's Notes, which are true.
    Fills modules, optimizers and the replicator's step on every rank; a ReplicationError (65) for a damaged file, or one
    of another program, has changed nothing, and neither has one (78) in exact mode for a file of another mode, seed or
    number of replicas."""
    path = os.fspath(path)
    read = replicator._core.read_checkpoint(path)
    if read is None:
        return None
    entries, words, step = read

    def take(key, like):
        value = entries.get(key)
        if value is None or value.shape != like.shape or value.dtype != like.dtype:
            was = "nothing" if value is None else f"{value.dtype}{list(value.shape)}"
            raise ReplicationError(65, f"{path}: {key} is {was}, expected {like.dtype}{list(like.shape)}: another "
                                       "program's?")
        return value
    changes = []
    for key, value in _module_entries(modules or {}).items():
        changes.append((value, take(key, value)))
    states = []
    for name, optimizer in (optimizers or {}).items():
        groups = json.loads(words.get(f"optimizer.{name}.groups", "null"))
        if groups is None or len(groups) != len(optimizer.param_groups):
            raise ReplicationError(65, f"{path}: no state of the optimizer {name}: another program's?")
        state = {}
        prefix = f"optimizer.{name}."
        for key, value in entries.items():
            number, _, field = key.removeprefix(prefix).partition(".")
            if not key.startswith(prefix) or not number.isdigit() or int(number) >= len(optimizer._all):
                continue
            if optimizer._reducer.owner(int(number)) == replicator.rank:
                plain = field.endswith("#")
                state.setdefault(int(number), {})[field.rstrip("#")] = value.item() if plain else value
        states.append((optimizer, state, groups, take(prefix + "updates", torch.tensor(0)).item()))
    with torch.no_grad():
        for value, new in changes:
            value.copy_(new)
    for optimizer, state, groups, updates in states:
        optimizer.state.clear()
        for i, fields in state.items():
            parameter = optimizer._all[i][1]
            optimizer.state[parameter] = {
                key: value.to(parameter.device) if isinstance(value, torch.Tensor) and key != "step" else value
                for key, value in fields.items()}
        for group, saved in zip(optimizer.param_groups, groups):
            for key, value in saved.items():
                value = tuple(value) if isinstance(value, list) else value
                if isinstance(group.get(key), torch.Tensor):
                    group[key].fill_(value)
                else:
                    group[key] = value
        optimizer._reducer.restored(updates)
    replicator.step = step
    return Notes({key.removeprefix("note."): text for key, text in words.items() if key.startswith("note.")})
