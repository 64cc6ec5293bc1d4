# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a step sees: its replica, and the collectives."""

import torch

from samara.replica.binding import ReplicationError
from samara.replica.nest import Nest


class PerReplica(list):
    """Values of this rank's replicas, in the order of their ids; `first` is the id of the first one."""

    def __init__(self, values=(), first=0):
        super().__init__(values)
        self.first = first


class ReplicaContext:
    """What one replica sees inside a step. Differentiable, under the convention that the loss is the sum of the
    replicas' losses: all_reduce and its names, all_gather, broadcast, reduce_scatter, all_to_all."""

    def __init__(self, core):
        self._inside = core

    @property
    def _core(self):
        if self._inside is None:
            raise ReplicationError(78, "a replica's context outside its step")
        return self._inside

    replica_id = property(lambda self: self._core.replica_id)
    num_replicas = property(lambda self: self._core.num_replicas)
    rank = property(lambda self: self._core.rank)
    world_size = property(lambda self: self._core.world_size)
    step = property(lambda self: self._core.step)

    @property
    def samples(self):
        """Rows of this replica's batch, by which its gradients are weighted; set it before the backward pass where the
        first tensor does not tell."""
        return self._core.samples

    @samples.setter
    def samples(self, samples):
        self._core.set_samples(samples)

    def logical_device(self, i):
        return torch.device(self._core.logical_device(i))

    def all_reduce(self, nest, op):
        """op: "sum", "mean", "min", "max" or "product"; in the fixed tree."""
        nest = Nest(nest)
        return nest.fill(self._core.reduce(nest.leaves, op, nest.structure))

    def all_sum(self, nest):
        return self.all_reduce(nest, "sum")

    def all_mean(self, nest):
        return self.all_reduce(nest, "mean")

    def all_min(self, nest):
        return self.all_reduce(nest, "min")

    def all_max(self, nest):
        return self.all_reduce(nest, "max")

    def all_product(self, nest):
        return self.all_reduce(nest, "product")

    def all_gather(self, nest, dim=None):
        """Stacks: [N] + shape, index = replica id. With `dim` concatenates along it; sizes may differ there."""
        nest = Nest(nest)
        if dim is None:
            return nest.fill(self._core.stack(nest.leaves, nest.structure))
        return nest.fill([self._core.all_gather_along(leaf, dim) for leaf in nest.leaves])

    def broadcast(self, nest, source):
        nest = Nest(nest)
        return nest.fill(self._core.broadcast(nest.leaves, source, nest.structure))

    def reduce_scatter(self, nest, op="sum"):
        """Reduces, and gives this replica its part of dimension 0, which N divides."""
        nest = Nest(nest)
        return nest.fill([self._core.reduce_scatter(leaf, op) for leaf in nest.leaves])

    def all_to_all(self, nest):
        """Part j of dimension 0 goes to replica j; theirs come back in the order of their ids."""
        nest = Nest(nest)
        return nest.fill([self._core.all_to_all(leaf) for leaf in nest.leaves])

    def send(self, nest, to):
        """To one replica, without waiting for it; no tensor that requires a gradient."""
        self._core.send(Nest(nest).leaves, to)

    def receive(self, like, source):
        """What `source` sent, in its order; `like` gives the structure, shapes and types."""
        nest = Nest(like)
        return nest.fill(self._core.receive(source, nest.leaves))

    def map_gather(self, items, fn):
        """fn(item) runs on replica i mod N; all get all results, in the order of the items. Not differentiable."""
        items = list(items)
        mine = [Nest(fn(item)).packed() for item in items[self.replica_id::self.num_replicas]]
        return [Nest.unpacked(leaves) for leaves in self._core.exchange_items(mine, len(items))]

    def map_reduce(self, items, fn, op):
        """The results of map_gather folded from left to right."""
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

    def merge_call(self, fn, nest):
        """fn(values of all replicas, in order) runs once; each replica gets its own of a PerReplica that it returns,
        or the one value. Not differentiable."""
        nest = Nest(nest)

        def merge(values):
            result = fn(PerReplica(nest.fill(leaves) for leaves in values))
            return Nest({"each" if isinstance(result, PerReplica) else "one": list(result) if isinstance(
                result, PerReplica) else result}).packed()
        result = Nest.unpacked(self._core.merge(nest.leaves, merge, nest.structure))
        return result["one"] if "one" in result else result["each"][self.replica_id]

    def within(self, groups):
        """Collectives within the groups of a partition of all replicas, lists of ids; every replica calls them."""
        return SubGroups(self, self._core.within(groups))


class SubGroups:
    """size, and index of this replica in its group; sources are indices in the group. Differentiable: all_reduce by
    sum or mean, all_gather, broadcast."""

    def __init__(self, context, core):
        self._context, self._inside = context, core

    @property
    def _core(self):
        return self._context._core and self._inside

    size = property(lambda self: self._core.size)
    index = property(lambda self: self._core.index)

    def all_reduce(self, nest, op):
        nest = Nest(nest)
        return nest.fill(self._core.reduce(nest.leaves, op, nest.structure))

    def all_gather(self, nest):
        nest = Nest(nest)
        return nest.fill(self._core.stack(nest.leaves, nest.structure))

    def broadcast(self, nest, source):
        nest = Nest(nest)
        return nest.fill(self._core.broadcast(nest.leaves, source, nest.structure))
