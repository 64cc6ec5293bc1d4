# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The context of a step: its replica, and the collectives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from samara.replica.binding import ReplicationError
from samara.replica.nest import Nest


class PerReplica(list):
    """Values of this rank's replicas, in the order of their ids; `first` is the id of the first one."""

    def __init__(self, values: Iterable[Any] = (), first: int = 0) -> None:
        super().__init__(values)
        self.first = first


class ReplicaContext:
    """The view of one replica inside a step. all_reduce and its variants, all_gather, broadcast, reduce_scatter and
    all_to_all are differentiable, under the convention that the loss is the sum of the replicas' losses."""

    def __init__(self, core: Any) -> None:
        self._inside = core

    @property
    def _core(self) -> Any:
        if self._inside is None:
            raise ReplicationError(78, "a replica's context outside its step")
        return self._inside

    replica_id = property(lambda self: self._core.replica_id)
    num_replicas = property(lambda self: self._core.num_replicas)
    rank = property(lambda self: self._core.rank)
    world_size = property(lambda self: self._core.world_size)
    step = property(lambda self: self._core.step)

    @property
    def samples(self) -> int:
        """Rows of this replica's batch, by which its gradients are weighted. Set it before the backward pass if it
        differs from the rows of the first tensor."""
        return self._core.samples

    @samples.setter
    def samples(self, samples: int) -> None:
        self._core.set_samples(samples)

    def logical_device(self, i: int) -> torch.device:
        """Returns the replica's i-th device."""
        return torch.device(self._core.logical_device(i))

    def all_reduce(self, nest: Any, op: str) -> Any:
        """Reduces over all replicas in the fixed tree. op: "sum", "mean", "min", "max" or "product"."""
        nest = Nest(nest)
        return nest.fill(self._core.reduce(nest.leaves, op, nest.structure))

    def all_sum(self, nest: Any) -> Any:
        """Returns the sum over all replicas."""
        return self.all_reduce(nest, "sum")

    def all_mean(self, nest: Any) -> Any:
        """Returns the mean over all replicas."""
        return self.all_reduce(nest, "mean")

    def all_min(self, nest: Any) -> Any:
        """Returns the minimum over all replicas."""
        return self.all_reduce(nest, "min")

    def all_max(self, nest: Any) -> Any:
        """Returns the maximum over all replicas."""
        return self.all_reduce(nest, "max")

    def all_product(self, nest: Any) -> Any:
        """Returns the product over all replicas."""
        return self.all_reduce(nest, "product")

    def all_gather(self, nest: Any, dim: int | None = None) -> Any:
        """Stacks the replicas' tensors to [N] + shape, by replica id. With `dim` concatenates along it; sizes may
        differ there."""
        nest = Nest(nest)
        if dim is None:
            return nest.fill(self._core.stack(nest.leaves, nest.structure))
        return nest.fill([self._core.all_gather_along(leaf, dim) for leaf in nest.leaves])

    def broadcast(self, nest: Any, source: int) -> Any:
        """Returns the nest of replica `source`."""
        nest = Nest(nest)
        return nest.fill(self._core.broadcast(nest.leaves, source, nest.structure))

    def reduce_scatter(self, nest: Any, op: str = "sum") -> Any:
        """Reduces, and returns this replica's part of dimension 0, which N divides."""
        nest = Nest(nest)
        return nest.fill([self._core.reduce_scatter(leaf, op) for leaf in nest.leaves])

    def all_to_all(self, nest: Any) -> Any:
        """Sends part j of dimension 0 to replica j; returns the parts that others sent, in the order of their ids."""
        nest = Nest(nest)
        return nest.fill([self._core.all_to_all(leaf) for leaf in nest.leaves])

    def send(self, nest: Any, to: int) -> None:
        """Sends to one replica, without waiting for it; no tensor may require a gradient."""
        self._core.send(Nest(nest).leaves, to)

    def receive(self, like: Any, source: int) -> Any:
        """Returns the next nest that `source` sent; `like` has its structure, shapes and types."""
        nest = Nest(like)
        return nest.fill(self._core.receive(source, nest.leaves))

    def map_gather(self, items: Iterable[Any], fn: Callable[[Any], Any]) -> list[Any]:
        """Runs fn on item i on replica i mod N; every replica gets all results, in the order of the items. Not
        differentiable."""
        items = list(items)
        mine = [Nest(fn(item)).packed() for item in items[self.replica_id::self.num_replicas]]
        return [Nest.unpacked(leaves) for leaves in self._core.exchange_items(mine, len(items))]

    def map_reduce(self, items: Iterable[Any], fn: Callable[[Any], Any], op: str) -> Any:
        """Folds the results of map_gather from left to right."""
        nests = [Nest(result) for result in self.map_gather(items, fn)]
        if not nests:
            raise ReplicationError(78, "map_reduce of no items")
        fold = {"sum": torch.add, "mean": torch.add, "min": torch.minimum, "max": torch.maximum,
                "product": torch.mul}.get(op)
        if fold is None:
            raise ReplicationError(78, f"{op}: expected sum, mean, min, max or product")
        total = nests[0].leaves
        for nest in nests[1:]:
            total = [fold(a, b) for a, b in zip(total, nest.leaves, strict=True)]
        return nests[0].fill([leaf / len(nests) for leaf in total] if op == "mean" else total)

    def merge_call(self, fn: Callable[[PerReplica], Any], nest: Any) -> Any:
        """Runs fn(values of all replicas, in order) once. Returns its value, or this replica's part of a PerReplica.
        Not differentiable."""
        nest = Nest(nest)

        def merge(values):
            result = fn(PerReplica(nest.fill(leaves) for leaves in values))
            return Nest({"each" if isinstance(result, PerReplica) else "one": list(result) if isinstance(
                result, PerReplica) else result}).packed()
        result = Nest.unpacked(self._core.merge(nest.leaves, merge, nest.structure))
        return result["one"] if "one" in result else result["each"][self.replica_id]

    def within(self, groups: Sequence[Sequence[int]]) -> SubGroups:
        """Returns collectives within the groups of a partition of all replicas, lists of ids; every replica calls them."""
        return SubGroups(self, self._core.within(groups))


class SubGroups:
    """Collectives within a group: its size, and the index of this replica in it; sources are indices in the group.
    all_reduce by sum or mean, all_gather and broadcast are differentiable."""

    def __init__(self, context: ReplicaContext, core: Any) -> None:
        self._context, self._inside = context, core

    @property
    def _core(self) -> Any:
        return self._context._core and self._inside

    size = property(lambda self: self._core.size)
    index = property(lambda self: self._core.index)

    def all_reduce(self, nest: Any, op: str) -> Any:
        """Reduces over the group, as ReplicaContext.all_reduce."""
        nest = Nest(nest)
        return nest.fill(self._core.reduce(nest.leaves, op, nest.structure))

    def all_gather(self, nest: Any) -> Any:
        """Stacks the group's tensors."""
        nest = Nest(nest)
        return nest.fill(self._core.stack(nest.leaves, nest.structure))

    def broadcast(self, nest: Any, source: int) -> Any:
        """Returns the nest of the replica with index `source`."""
        nest = Nest(nest)
        return nest.fill(self._core.broadcast(nest.leaves, source, nest.structure))
