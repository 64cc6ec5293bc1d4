# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Nests: tensors in any nesting of tuples, lists and dicts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.utils import _pytree

from samara.replica.binding import ReplicationError


class Nest:
    """The tensors of a nest and its structure, with which other tensors become such a nest. Numbers become tensors, None
    stays."""

    def __init__(self, nest: Any) -> None:
        leaves, self.spec = _pytree.tree_flatten(nest)
        self.none = [i for i, leaf in enumerate(leaves) if leaf is None]
        self.leaves = [self._tensor(leaf) for leaf in leaves if leaf is not None]

    @staticmethod
    def _tensor(leaf: Any) -> torch.Tensor:
        if isinstance(leaf, torch.Tensor):
            return leaf
        if isinstance(leaf, (bool, int, float)):
            return torch.tensor(leaf, dtype=torch.float64 if isinstance(leaf, float) else None)
        raise ReplicationError(78, f"a nest with a {type(leaf).__name__}: expected tensors, numbers or None")

    def fill(self, leaves: Iterable[Any]) -> Any:
        """Returns a nest of this structure with other leaves."""
        leaves = list(leaves)
        for i in self.none:
            leaves.insert(i, None)
        return _pytree.tree_unflatten(leaves, self.spec)

    @property
    def structure(self) -> str:
        """The structure as text, which ranks compare."""
        count = iter(range(self.spec.num_leaves))

        def text(spec: Any) -> str:
            if spec.is_leaf():
                return "-" if next(count) in self.none else "*"
            keys = spec.context if spec.type is dict else None
            inner = [text(child) for child in spec.children()]
            if keys is not None:
                return "{" + "".join(f"{key}:{part}" for key, part in zip(keys, inner)) + "}"
            mark = {tuple: "()", list: "[]"}.get(spec.type)
            return mark[0] + " ".join(inner) + mark[1] if mark else f"{spec.type.__name__}({' '.join(inner)})"
        return text(self.spec)

    def packed(self) -> list[torch.Tensor]:
        """Returns the leaves and, as the last one, the structure: for replicas that do not know it."""
        words = json.dumps([_pytree.treespec_dumps(self.spec), self.none]).encode()
        return [*self.leaves, torch.frombuffer(bytearray(words), dtype=torch.uint8)]

    @classmethod
    def unpacked(cls, leaves: Sequence[torch.Tensor]) -> Any:
        """Returns the nest that `packed` packed."""
        made = cls.__new__(cls)
        spec, made.none = json.loads(bytes(leaves[-1].tolist()))
        made.spec, made.leaves = _pytree.treespec_loads(spec), leaves[:-1]
        return made.fill(made.leaves)


def rows(nest: Any) -> int:
    """Returns the rows of the first tensor; 1 for a scalar or no tensor."""
    tensors = Nest(nest).leaves
    return 1 if not tensors or tensors[0].dim() == 0 else tensors[0].shape[0]
