# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs a training step that is written for one device on any number of threads, processes and hosts.

    import samara.replica
    ...
    optimizer = samara.replica.wrap(torch.optim.SGD(model.parameters(), lr=0.1))
    ...
    loss = samara.replica.run(step, inputs, labels, reduce="mean")

A *replica* is one copy of the computation, a *rank* a process or a thread of one, with N / ranks replicas.
Exact mode fixes N (8 unless told otherwise) and every reduction's tree: parameters have the same bits on 1, 2, 4 and 8
ranks. Fast mode has one replica a rank. Launch with torchrun, mpirun, srun, `samara launch`, or alone; with
SAMARA_THREADS=n the script runs once on each of n threads, every one a rank with a model of its own.

Collectives take and return nests: tensors in any nesting of tuples, lists and dicts (torch.utils._pytree). Every
replica calls them in the same order, or every rank gets a ReplicationError that names who called what.
include/samara/replicator.h, which this package binds, explains each primitive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from samara.replica.batch_norm import CrossReplicaBatchNorm
from samara.replica.binding import ReplicationError, extension, open_replicators, this_thread
from samara.replica.checkpoints import load, save
from samara.replica.collectives import PerReplica, ReplicaContext
from samara.replica.inputs import Input
from samara.replica.optimizer import WrappedOptimizer
from samara.replica.replicator import Replicator, replicate, replicate_threads

__all__ = ["CrossReplicaBatchNorm", "Input", "InputContext", "PerReplica", "ReplicaContext", "ReplicationError", "Replicator", "SampleOrder",
           "WrappedOptimizer", "context", "current", "load", "make_input", "ordered_batches", "replicate",
           "replicate_threads", "run", "save", "wrap"]

InputContext, SampleOrder = extension.InputContext, extension.SampleOrder


def current() -> Replicator:
    """Returns the replicator of this thread, or of the process, which the first call makes from the environment."""
    if getattr(this_thread, "replicator", None) is not None:
        return this_thread.replicator
    for replicator in open_replicators:
        return replicator
    globals()["_kept"] = Replicator.from_environment()
    return _kept


_kept: Replicator | None = None  # set by current()


def context() -> ReplicaContext:
    """Returns the ReplicaContext of the step that this thread runs."""
    if getattr(this_thread, "context", None) is None:
        raise ReplicationError(78, "a replica's context outside steps")
    return this_thread.context


def wrap(optimizer: torch.optim.Optimizer, module: torch.nn.Module | None = None, **options: Any) -> WrappedOptimizer:
    """Calls Replicator.wrap of current()."""
    return current().wrap(optimizer, module, **options)


def run(step: Callable[..., Any], *batch: Any, reduce: str | None = None) -> Any:
    """Calls Replicator.run of current()."""
    return current().run(step, *batch, reduce=reduce)


def make_input(mode: str, input_fn: Callable[[InputContext], Any], prefetch: int = 2) -> Input:
    """Calls Replicator.make_input of current()."""
    return current().make_input(mode, input_fn, prefetch)


def ordered_batches(context: InputContext, order: SampleOrder, fetch: Callable[[Any], Any], epochs: int,
                    first_step: int = 0) -> Iterator[Any]:
    """Yields batches of the samples of a SampleOrder, from step `first_step` on. fetch(indices) returns a batch, without
    rows for no indices. Every sample occurs once an epoch, whatever the number of replicas and ranks."""
    for step in range(first_step, epochs * order.steps_per_epoch):
        yield fetch(order.indices(step, context.input_pipeline_id, context.num_input_pipelines))
