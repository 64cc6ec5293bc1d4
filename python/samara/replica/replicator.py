# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The ranks of a launcher, and programs that run once on each."""

from __future__ import annotations

import atexit
import builtins
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from samara.replica.binding import ReplicationError, extension, open_replicators, this_thread
from samara.replica.collectives import PerReplica, ReplicaContext
from samara.replica.inputs import Input
from samara.replica.nest import Nest, rows
from samara.replica.optimizer import WrappedOptimizer


def _takes_context(step: Callable[..., Any], arguments: int) -> bool:
    """Returns whether the step has one parameter more than there are arguments."""
    try:
        parameters = inspect.signature(step).parameters.values()
    except (TypeError, ValueError):
        return False
    return sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
               for p in parameters) == arguments + 1


class Replicator:
    """The ranks that a launcher started, and the replicas of this one."""

    def __init__(self, core: Any) -> None:
        self._core = core

    @classmethod
    def from_environment(cls, *, mode: str | None = None, replicas: int | None = None, transport: str | None = None,
                         deadline_s: float | None = None, trace: str | None = None, seed: int = 1, threads: int = 0,
                         check_every: int = 100) -> Replicator:
        """Joins the ranks of the launcher; blocks until all have joined. Arguments that are not given come from
        SAMARA_MODE, SAMARA_REPLICAS, SAMARA_TRANSPORT, SAMARA_DEADLINE_SECONDS and SAMARA_TRACE, or are the defaults of
        ReplicatorOptions. In a script, SAMARA_THREADS=n makes this the beginning of n ranks, each of which runs the script. A program
        that ends without an error shuts it down, one that raises ends all ranks with the error's exit code."""
        options = {name: value for name, value in locals().items() if name != "cls"}
        if getattr(this_thread, "replicator", None) is not None:
            return this_thread.replicator
        ranks = os.environ.get("SAMARA_THREADS")
        if ranks is not None and _called_by_script():
            sys.exit(_run_script(_number_of_threads(ranks), options))
        made = cls(extension.Replicator.from_environment(options))
        if not open_replicators:
            _watch_the_end()
        open_replicators.add(made)
        return made

    rank = property(lambda self: self._core.rank)
    world_size = property(lambda self: self._core.world_size)
    num_replicas = property(lambda self: self._core.num_replicas)
    local_replicas = property(lambda self: self._core.local_replicas)
    first_replica = property(lambda self: self._core.first_replica)
    mode = property(lambda self: self._core.mode)
    transport = property(lambda self: self._core.transport)
    is_main = property(lambda self: self._core.rank == 0, doc="whether this is rank 0, which prints and writes")

    @property
    def step(self) -> int:
        """Number of calls of run."""
        return self._core.step

    @step.setter
    def step(self, step: int) -> None:
        self._core.step = step

    def make_input(self, mode: str, input_fn: Callable[[Any], Any], prefetch: int = 2) -> Input:
        """Makes pipelines of per-replica batches, which threads of their own read ahead.

        mode: "per_replica" (one pipeline a replica), "per_worker" (one a rank) or "single" (one, on rank 0).
        input_fn(InputContext) returns an iterable of batches, or a function that returns the next one and None at the end.
        """
        contexts, batches = self._core.shape(mode)
        return Input(mode, [input_fn(context) for context in contexts], batches, prefetch)

    def run(self, step: Callable[..., Any], *batch: Any, reduce: str | None = None) -> Any:
        """Runs the step once on every replica of this rank.

        batch: nothing, an Input, or the whole batch, the same on every rank, of which each replica gets its contiguous
        share of dimension 0. The step gets the same arguments, after its ReplicaContext when it has one parameter more.
        Returns a PerReplica of what the steps returned, or None when the input has run out for all replicas; with
        reduce="mean" the mean over all replicas weighted by their samples, with "sum", "min", "max" or "product" that.
        An input that has run out for some replicas returns a batch without rows to them, whose gradient has no weight.
        """
        core, count, whole_rows = self._core, self.local_replicas, None
        if len(batch) == 1 and isinstance(batch[0], Input):
            batches = batch[0]._next(core)
            if batches is None:
                return None
            arguments = [(one,) for one in batches]
        elif batch:
            nest = Nest(batch)
            whole_rows = rows(batch)
            arguments = [nest.fill(core.share_of(nest.leaves, core.first_replica + i)) for i in range(count)]
        else:
            arguments = [()] * count
        takes_context = _takes_context(step, len(batch))
        results = PerReplica([None] * count, core.first_replica)

        def body(local: int, inside: Any) -> None:
            before = getattr(this_thread, "context", None), getattr(this_thread, "replicator", None)
            this_thread.context, this_thread.replicator = ReplicaContext(inside), self
            try:
                first = (this_thread.context,) if takes_context else ()
                results[local] = step(*first, *arguments[local])
            finally:
                this_thread.context._inside = None
                this_thread.context, this_thread.replicator = before
        core.run_bodies([rows(one) for one in arguments], body, whole_rows)
        if reduce is None:
            return results
        return self.mean(results) if reduce == "mean" else self.reduce(results, reduce)

    def wrap(self, optimizer: torch.optim.Optimizer, module: torch.nn.Module | None = None, *, clip_norm: float = 0.0,
             shard_state: bool = False, bf16: bool = False, bucket_bytes: int = 4 << 20, overlap: bool = True,
             step_by_bucket: bool = False, nonfinite_max: int = 5) -> WrappedOptimizer:
        """Wraps a torch optimizer: its parameters become those of replica 0 everywhere, and its step a collective. With
        the module its buffers are sent too, and are each replica's own from then on; replica 0's stay in the module.

        clip_norm: largest global norm of the averaged gradient. shard_state: each rank keeps the state of its share of
        the parameters (ZeRO-1). bf16, overlap, step_by_bucket: fast mode's, see WrapOptions.
        """
        options = {name: value for name, value in locals().items() if name not in ("self", "optimizer", "module")}
        return WrappedOptimizer(self, optimizer, module, options)

    def reduce(self, values: Iterable[Any], op: str) -> Any:
        """Reduces the values of all replicas, the same result on every rank. Call it outside steps."""
        nests = [Nest(value) for value in values]
        return nests[0].fill(self._core.reduce([nest.leaves for nest in nests], op, nests[0].structure))

    def mean(self, values: Iterable[Any]) -> Any:
        """Returns the mean of floating-point values of the last run, weighted by the samples of the replicas' batches."""
        nests = [Nest(value) for value in values]
        return nests[0].fill(self._core.mean([nest.leaves for nest in nests], nests[0].structure))

    def broadcast(self, nest: Any) -> Any:
        """Returns the nest of rank 0. Call it outside steps."""
        nest = Nest(nest)
        return nest.fill(self._core.broadcast(nest.leaves, nest.structure))

    def barrier(self) -> None:
        """Waits for all ranks."""
        self._core.barrier()

    def abort(self, why: str, exit_code: int = 69) -> None:
        """Ends the group: the other ranks end with `why` and that code instead of waiting for this one."""
        open_replicators.discard(self)
        self._core.abort(why, exit_code)

    def shutdown(self) -> None:
        """Leaves the group in order; waits for the other ranks."""
        open_replicators.discard(self)
        self._core.shutdown()

    def chrome_trace(self) -> str:
        """Returns the last collectives of this rank in Chrome's trace format."""
        return self._core.chrome_trace()


# --- programs

def _number_of_threads(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1024:
        raise ReplicationError(78, f"SAMARA_THREADS={text}: expected a number from 1 to 1024")
    return int(text)


def _called_by_script() -> bool:
    """Returns whether the caller's module is the script that this process runs."""
    main, frame = sys.modules.get("__main__"), sys._getframe(1)
    while frame is not None and frame.f_globals.get("__package__") == __package__:
        frame = frame.f_back
    return getattr(main, "__file__", None) is not None and frame is not None and frame.f_globals is vars(main)


def _run_script(ranks: int, options: dict[str, Any]) -> int:
    main = sys.modules["__main__"]
    with open(main.__file__, "rb") as file:
        code = compile(file.read(), main.__file__, "exec")
    names = {name: getattr(main, name, None) for name in ("__file__", "__package__", "__spec__", "__loader__")}

    def program(_):
        exec(code, {"__name__": "__main__", "__builtins__": builtins, **names})
    return replicate_threads(ranks, program, **options)


def _exit_code(error: SystemExit) -> int:
    """Returns the exit code of a SystemExit."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    print(error.code, file=sys.stderr)
    return 1


def replicate_threads(ranks: int, program: Callable[[Replicator], object], **options: Any) -> int:
    """Runs `replicate` on `ranks` threads, whatever the environment says."""
    codes = []

    def one(core):
        this_thread.replicator = Replicator(core)
        try:
            program(this_thread.replicator)
        except SystemExit as error:
            codes.append(_exit_code(error))
        except ReplicationError:
            raise
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            this_thread.replicator = None
    return extension.threads(ranks, one, options) or max(codes, default=0)


def replicate(program: Callable[[Replicator], object], **options: Any) -> int:
    """Runs program(replicator) once a rank: in this process when a launcher has started it or nothing has, and with
    SAMARA_THREADS=n on n threads of it. Prints a failure and returns the exit code for sys.exit."""
    replicator = None
    try:
        ranks = os.environ.get("SAMARA_THREADS")
        if ranks is not None:
            return replicate_threads(_number_of_threads(ranks), program, **options)
        replicator = Replicator.from_environment(**options)
        program(replicator)
        replicator.shutdown()
        return 0
    except SystemExit as error:
        code = _exit_code(error)
        if replicator is not None:
            replicator.shutdown() if code == 0 else replicator.abort(f"its program ended with exit code {code}")
        return code
    except Exception as error:
        return _report(error, [replicator] if replicator is not None else [])


def _report(error: Exception, replicators: Sequence[Replicator]) -> int:
    """Prints the error, ends the other ranks, and returns the exit code."""
    if isinstance(error, ReplicationError):
        print(f"samara: {error}", file=sys.stderr)
        why, code = str(error), error.exit_code
    else:
        traceback.print_exception(error)
        why, code = "its program threw: " + f"{type(error).__name__}: {error}".split("\n")[0], 70
    for replicator in replicators:
        replicator.abort(why, code)
    return code


def _watch_the_end() -> None:
    """Makes a process with a replicator end with the documented exit codes."""
    former = sys.excepthook

    def failed(kind, error, trace):
        if not open_replicators or not isinstance(error, Exception):
            for replicator in list(open_replicators):
                replicator.abort(f"its program ended: {kind.__name__}")
            former(kind, error, trace)
            return
        code = _report(error, list(open_replicators))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def ended():
        for replicator in list(open_replicators):
            try:
                replicator.shutdown()
            except ReplicationError as error:
                print(f"samara: {error}", file=sys.stderr)
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(error.exit_code)
    sys.excepthook = failed
    atexit.register(ended)
