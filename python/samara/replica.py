# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Write a step for one device; run it on any number of threads, processes and hosts.

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
What each primitive means: include/samara/replicator.h, which this module binds.
"""

import atexit
import builtins
import contextlib
import inspect
import json
import os
import sys
import threading
import traceback
import weakref

import torch
from torch.utils import _pytree

try:
    from samara import _replica
except ImportError as error:
    raise ModuleNotFoundError(f"{error}: samara.replica needs its extension, built with torch (SAMARA_TORCH=ON, pip "
                              "install)") from error
from samara._replica import InputContext, SampleOrder

__all__ = ["CrossReplicaBatchNorm", "Input", "InputContext", "PerReplica", "ReplicaContext", "ReplicationError", "Replicator", "SampleOrder",
           "WrappedOptimizer", "context", "current", "load", "make_input", "ordered_batches", "replicate",
           "replicate_threads", "run", "save", "wrap"]


class ReplicationError(RuntimeError):
    """The group has failed. exit_code: 69 a rank died, froze or did not come; 70 ranks called different things, or
    diverged; 78 a configuration that cannot work; 65, 66, 74 files."""

    def __init__(self, exit_code, message):
        super().__init__(message)
        self.exit_code = exit_code


_replica.set_up(ReplicationError, [os.path.dirname(os.path.abspath(__file__)) + os.sep,
                                   os.path.dirname(torch.__file__) + os.sep])
_local = threading.local()  # .replicator of a rank that is a thread, .context within a step
_open = weakref.WeakSet()  # replicators that from_environment made and nobody has shut down


class _Nest:
    """The tensors of a nest, and what makes the nest again from others. Numbers become tensors, None stays."""

    def __init__(self, nest):
        leaves, self.spec = _pytree.tree_flatten(nest)
        self.none = [i for i, leaf in enumerate(leaves) if leaf is None]
        self.leaves = [self._tensor(leaf) for leaf in leaves if leaf is not None]

    @staticmethod
    def _tensor(leaf):
        if isinstance(leaf, torch.Tensor):
            return leaf
        if isinstance(leaf, (bool, int, float)):
            return torch.tensor(leaf, dtype=torch.float64 if isinstance(leaf, float) else None)
        raise ReplicationError(78, f"a nest with a {type(leaf).__name__}: expected tensors, numbers or None")

    def fill(self, leaves):
        leaves = list(leaves)
        for i in self.none:
            leaves.insert(i, None)
        return _pytree.tree_unflatten(leaves, self.spec)

    @property
    def structure(self):
        count = iter(range(self.spec.num_leaves))

        def text(spec):
            if spec.is_leaf():
                return "-" if next(count) in self.none else "*"
            keys = spec.context if spec.type is dict else None
            inner = [text(child) for child in spec.children()]
            if keys is not None:
                return "{" + "".join(f"{key}:{part}" for key, part in zip(keys, inner)) + "}"
            mark = {tuple: "()", list: "[]"}.get(spec.type)
            return mark[0] + " ".join(inner) + mark[1] if mark else f"{spec.type.__name__}({' '.join(inner)})"
        return text(self.spec)

    def packed(self):
        """The leaves and, as the last one, the structure: for replicas that have no such nest."""
        words = json.dumps([_pytree.treespec_dumps(self.spec), self.none]).encode()
        return [*self.leaves, torch.frombuffer(bytearray(words), dtype=torch.uint8)]

    @classmethod
    def unpacked(cls, leaves):
        made = cls.__new__(cls)
        spec, made.none = json.loads(bytes(leaves[-1].tolist()))
        made.spec, made.leaves = _pytree.treespec_loads(spec), leaves[:-1]
        return made.fill(made.leaves)


def _rows(nest):
    tensors = _Nest(nest).leaves
    return 1 if not tensors or tensors[0].dim() == 0 else tensors[0].shape[0]


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
        """Rows of this replica's batch, by which its gradients are weighted; set it where its first tensor does not
        tell."""
        return self._core.samples

    @samples.setter
    def samples(self, samples):
        self._core.set_samples(samples)

    def logical_device(self, i):
        return torch.device(self._core.logical_device(i))

    def all_reduce(self, nest, op):
        """op: "sum", "mean", "min", "max" or "product"; in the fixed tree."""
        nest = _Nest(nest)
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
        nest = _Nest(nest)
        if dim is None:
            return nest.fill(self._core.stack(nest.leaves, nest.structure))
        return nest.fill([self._core.all_gather_along(leaf, dim) for leaf in nest.leaves])

    def broadcast(self, nest, source):
        nest = _Nest(nest)
        return nest.fill(self._core.broadcast(nest.leaves, source, nest.structure))

    def reduce_scatter(self, nest, op="sum"):
        """Reduces, and gives this replica its part of dimension 0, which N divides."""
        nest = _Nest(nest)
        return nest.fill([self._core.reduce_scatter(leaf, op) for leaf in nest.leaves])

    def all_to_all(self, nest):
        """Part j of dimension 0 goes to replica j; theirs come back in the order of their ids."""
        nest = _Nest(nest)
        return nest.fill([self._core.all_to_all(leaf) for leaf in nest.leaves])

    def send(self, nest, to):
        """To one replica, without waiting for it."""
        self._core.send(_Nest(nest).leaves, to)

    def receive(self, like, source):
        """What `source` sent, in its order; `like` gives the structure."""
        nest = _Nest(like)
        return nest.fill(self._core.receive(source, len(nest.leaves)))

    def map_gather(self, items, fn):
        """fn(item) runs on replica i mod N; all get all results, in the order of the items. Not differentiable."""
        items = list(items)
        mine = [_Nest(fn(item)).packed() for item in items[self.replica_id::self.num_replicas]]
        return [_Nest.unpacked(leaves) for leaves in self._core.exchange_items(mine, len(items))]

    def map_reduce(self, items, fn, op):
        """The results of map_gather folded from left to right."""
        nests = [_Nest(result) for result in self.map_gather(items, fn)]
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
        nest = _Nest(nest)

        def merge(values):
            result = fn(PerReplica(nest.fill(leaves) for leaves in values))
            return _Nest({"each" if isinstance(result, PerReplica) else "one": list(result) if isinstance(
                result, PerReplica) else result}).packed()
        result = _Nest.unpacked(self._core.merge(nest.leaves, merge, nest.structure))
        return result["one"] if "one" in result else result["each"][self.replica_id]

    def within(self, groups):
        """Collectives within the groups of a partition of all replicas, lists of ids; every replica calls them."""
        return SubGroups(self, self._core.within(groups))


class SubGroups:
    """size, and index of this replica in its group; sources are indices in the group."""

    def __init__(self, context, core):
        self._context, self._inside = context, core

    @property
    def _core(self):
        return self._context._core and self._inside

    size = property(lambda self: self._core.size)
    index = property(lambda self: self._core.index)

    def all_reduce(self, nest, op):
        nest = _Nest(nest)
        return nest.fill(self._core.reduce(nest.leaves, op, nest.structure))

    def all_gather(self, nest):
        nest = _Nest(nest)
        return nest.fill(self._core.stack(nest.leaves, nest.structure))

    def broadcast(self, nest, source):
        nest = _Nest(nest)
        return nest.fill(self._core.broadcast(nest.leaves, source, nest.structure))


class CrossReplicaBatchNorm(torch.nn.Module):
    """Normalises channel 1 of [batch, channels, ...] with the statistics of all replicas' batches, which may differ in
    size: one message forward and one backward. Outside a step, and in eval(), an ordinary batch norm. The running
    statistics are those of a rank's first replica: evaluate outside steps."""

    def __init__(self, num_features, eps=1e-5, momentum=0.1, device=None, dtype=None):
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        at = {"device": device, "dtype": dtype}
        self.weight = torch.nn.Parameter(torch.ones(num_features, **at))
        self.bias = torch.nn.Parameter(torch.zeros(num_features, **at))
        self.register_buffer("running_mean", torch.zeros(num_features, **at))
        self.register_buffer("running_var", torch.ones(num_features, **at))

    def forward(self, x):
        inside = getattr(_local, "context", None)
        return _replica.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var, self.training,
                                   self.eps, self.momentum, inside._core if inside is not None else None)

    def extra_repr(self):
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"

    @classmethod
    def convert(cls, module, done=None):
        """`module` with every BatchNorm1d, 2d and 3d within it replaced, in place but for `module` itself; what they
        have learned stays."""
        done = {} if done is None else done  # by the module replaced: one that has several places stays one
        if id(module) not in done:
            done[id(module)] = cls._converted(module, done)
        return done[id(module)]

    @classmethod
    def _converted(cls, module, done):
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            if not module.affine or not module.track_running_stats or module.momentum is None:
                raise ReplicationError(78, f"{module}: expected affine=True, track_running_stats=True and a momentum")
            made = cls(module.num_features, module.eps, module.momentum, module.weight.device, module.weight.dtype)
            made.weight, made.bias = module.weight, module.bias
            made.running_mean, made.running_var = module.running_mean, module.running_var
            return made.train(module.training)
        for name, child in module._modules.items():
            if child is not None:
                module._modules[name] = cls.convert(child, done)
        return module


class WrappedOptimizer(torch.optim.Optimizer):
    """An optimizer whose step is a collective: gradients of all replicas are averaged, weighted by their samples, then
    tested, clipped and applied, once a rank and with the same bits everywhere. Schedulers take it as any other."""

    def __init__(self, replicator, base, module, options):  # the base has what an Optimizer is made of
        if isinstance(base, torch.optim.LBFGS):
            raise ReplicationError(78, "LBFGS evaluates its loss several times a step: expected an optimizer that does "
                                       "not")
        self.base, self._replicator = base, replicator
        self._all = [(g, p) for g, group in enumerate(base.param_groups) for p in group["params"]]
        me = weakref.ref(self)
        self._reducer = _replica.GradientReducer(
            replicator._core, [p for _, p in self._all], list(module.buffers()) if module is not None else [], options,
            lambda used: me()._update(used))

    param_groups = property(lambda self: self.base.param_groups)
    state = property(lambda self: self.base.state)
    defaults = property(lambda self: self.base.defaults)
    last_norm = property(lambda self: self._reducer.last_norm, doc="of the averaged gradient, before clipping")
    skipped = property(lambda self: self._reducer.skipped, doc="updates that a non-finite gradient cost")
    updates = property(lambda self: self._reducer.updates)
    parameter_hash = property(lambda self: self._reducer.parameter_hash, doc="SHA-256 over the parameters, in order")
    exposed_seconds = property(lambda self: self._reducer.exposed_seconds)

    def _update(self, used):
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

    def step(self, closure=None):
        """Inside a step of Replicator.run."""
        if closure is not None:
            raise ReplicationError(78, "a closure: expected step() after backward()")
        self._reducer.step()

    def zero_grad(self, set_to_none=True):
        self._reducer.zero_grad()

    @contextlib.contextmanager
    def no_sync(self):
        """Backward passes within add to the gradients without sending them."""
        token = self._reducer.no_sync()
        try:
            yield
        finally:
            token.release()

    def add_param_group(self, param_group):
        raise ReplicationError(78, "a parameter group after wrap: add it before")

    def state_dict(self):
        return self.base.state_dict()

    def load_state_dict(self, state_dict):
        self.base.load_state_dict(state_dict)

    def __getstate__(self):
        raise TypeError("a wrapped optimizer is not pickled: samara.replica.save has its state")


class _ReadAhead:
    """A pipeline and the thread that reads it ahead. The thread knows only this, so that its owner may go."""

    def __init__(self, source, depth):
        if callable(source) and not hasattr(source, "__iter__"):
            source = iter(source, None)
        self._source, self._depth = iter(source), depth
        self._changed = threading.Condition()
        self._ready, self._ended, self._quit, self._error = [], False, False, None
        if depth > 0:
            threading.Thread(target=self._read, name="input", daemon=True).start()

    def _read(self):
        try:
            for batch in self._source:
                with self._changed:
                    self._changed.wait_for(lambda: self._quit or len(self._ready) < self._depth)
                    if self._quit:
                        return
                    self._ready.append(batch)
                    self._changed.notify_all()
        except Exception as error:  # for whoever asks next
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def next(self):
        """None at the end."""
        if self._depth == 0:
            return next(self._source, None)
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._ended)
            if self._ready:
                self._changed.notify_all()
                return self._ready.pop(0)
        if self._error is not None:
            raise self._error
        return None

    def close(self):
        with self._changed:
            self._quit = True
            self._changed.notify_all()


class Input:
    """This rank's pipelines; made by Replicator.make_input."""

    def __init__(self, mode, sources, batches, prefetch):
        self.mode, self._batches, self._last, self._like = mode, batches, None, None
        self._readers = [_ReadAhead(source, prefetch * batches) for source in sources]
        weakref.finalize(self, lambda readers: [reader.close() for reader in readers], self._readers)

    def _next(self, core):
        """A batch for each local replica; None when all replicas have run out."""
        read = [reader.next() for reader in self._readers for _ in range(self._batches)]
        nests = [None if batch is None else _Nest(batch) for batch in read]
        # other ranks than rank 0 learn the structure from the batch itself
        packed = self.mode == "single" and core.world_size > 1
        shared = core.share_batches(self.mode, [n and (n.packed() if packed else n.leaves) for n in nests], self._last)
        if shared is None:
            return None
        batches, self._last = shared
        if packed:
            self._spec = next((leaves[-1] for leaves in batches if len(leaves[-1])), getattr(self, "_spec", None))
            return [_Nest.unpacked([*leaves[:-1], self._spec]) for leaves in batches]
        self._like = next((nest for nest in nests if nest is not None), self._like)
        return [self._like.fill(leaves) for leaves in batches]


def _takes_context(step, arguments):
    """Whether the step has one parameter more than there are arguments."""
    try:
        parameters = inspect.signature(step).parameters.values()
    except (TypeError, ValueError):
        return False
    return sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
               for p in parameters) == arguments + 1


class Replicator:
    """The ranks that a launcher started, and the replicas of this one."""

    def __init__(self, core):
        self._core = core

    @classmethod
    def from_environment(cls, *, mode=None, replicas=None, transport=None, deadline_s=None, trace=None, seed=1,
                         threads=0, check_every=100):
        """Blocks until all ranks have come. What is not given comes from SAMARA_MODE, SAMARA_REPLICAS,
        SAMARA_TRANSPORT, SAMARA_DEADLINE_SECONDS, SAMARA_TRACE, and then from the defaults of ReplicatorOptions.
        In a script, SAMARA_THREADS=n makes this the beginning of n ranks, each of which runs the script. A program
        that ends without an error shuts it down, one that raises ends all ranks with the error's exit code."""
        options = {name: value for name, value in locals().items() if name != "cls"}
        if getattr(_local, "replicator", None) is not None:
            return _local.replicator
        ranks = os.environ.get("SAMARA_THREADS")
        if ranks is not None and _called_by_script():
            sys.exit(_run_script(_number_of_threads(ranks), options))
        made = cls(_replica.Replicator.from_environment(options))
        if not _open:
            _watch_the_end()
        _open.add(made)
        return made

    rank = property(lambda self: self._core.rank)
    world_size = property(lambda self: self._core.world_size)
    num_replicas = property(lambda self: self._core.num_replicas)
    local_replicas = property(lambda self: self._core.local_replicas)
    first_replica = property(lambda self: self._core.first_replica)
    mode = property(lambda self: self._core.mode)
    transport = property(lambda self: self._core.transport)
    is_main = property(lambda self: self._core.rank == 0, doc="who prints and writes")

    @property
    def step(self):
        """Counts calls of run."""
        return self._core.step

    @step.setter
    def step(self, step):
        self._core.step = step

    def make_input(self, mode, input_fn, prefetch=2):
        """Pipelines of per-replica batches, read ahead by threads of their own.

        mode: "per_replica" (one pipeline a replica), "per_worker" (one a rank) or "single" (one, on rank 0).
        input_fn(InputContext) gives an iterable of batches, or a function that gives the next one and None at the end.
        """
        contexts, batches = self._core.shape(mode)
        return Input(mode, [input_fn(context) for context in contexts], batches, prefetch)

    def run(self, step, *batch, reduce=None):
        """Runs the step once on every replica of this rank.

        batch: nothing, an Input, or the whole batch, the same on every rank, of which each replica gets its contiguous
        share of dimension 0. The step gets the same arguments, after its ReplicaContext when it has one parameter more.
        Returns a PerReplica of what the steps returned, or None when the input has run out for all replicas; with
        reduce="mean" the mean over all replicas weighted by their samples, with "sum", "min", "max" or "product" that.
        An input that has run out for some replicas gives them a batch without rows, whose gradient counts nothing.
        """
        core, count = self._core, self.local_replicas
        if len(batch) == 1 and isinstance(batch[0], Input):
            batches = batch[0]._next(core)
            if batches is None:
                return None
            arguments = [(one,) for one in batches]
        elif batch:
            nest = _Nest(batch)
            arguments = [nest.fill(core.share_of(nest.leaves, core.first_replica + i)) for i in range(count)]
        else:
            arguments = [()] * count
        takes_context = _takes_context(step, len(batch))
        results = PerReplica([None] * count, core.first_replica)

        def body(local, inside):
            before = getattr(_local, "context", None), getattr(_local, "replicator", None)
            _local.context, _local.replicator = ReplicaContext(inside), self
            try:
                first = (_local.context,) if takes_context else ()
                results[local] = step(*first, *arguments[local])
            finally:
                _local.context._inside = None
                _local.context, _local.replicator = before
        core.run_bodies([_rows(one) for one in arguments], body)
        if reduce is None:
            return results
        return self.mean(results) if reduce == "mean" else self.reduce(results, reduce)

    def wrap(self, optimizer, module=None, *, clip_norm=0.0, shard_state=False, bf16=False, bucket_bytes=4 << 20,
             overlap=True, step_by_bucket=False, nonfinite_max=5):
        """Wraps a torch optimizer: its parameters become those of replica 0 everywhere, and its step a collective. With
        the module its buffers are sent too, and are each replica's own from then on; replica 0's stay in the module.

        clip_norm: largest global norm of the averaged gradient. shard_state: each rank keeps the state of its share of
        the parameters (ZeRO-1). bf16, overlap, step_by_bucket: fast mode's, see WrapOptions.
        """
        options = {name: value for name, value in locals().items() if name not in ("self", "optimizer", "module")}
        return WrappedOptimizer(self, optimizer, module, options)

    def reduce(self, values, op):
        """Outside steps: over all replicas' values; the same on every rank."""
        nests = [_Nest(value) for value in values]
        return nests[0].fill(self._core.reduce([nest.leaves for nest in nests], op, nests[0].structure))

    def mean(self, values):
        """The mean of floating-point values of the last run, weighted by the samples of the replicas' batches."""
        nests = [_Nest(value) for value in values]
        return nests[0].fill(self._core.mean([nest.leaves for nest in nests], nests[0].structure))

    def broadcast(self, nest):
        """Outside steps: the nest of rank 0."""
        nest = _Nest(nest)
        return nest.fill(self._core.broadcast(nest.leaves, nest.structure))

    def barrier(self):
        self._core.barrier()

    def abort(self, why):
        """This rank gives up: the others end with `why` instead of waiting for it."""
        _open.discard(self)
        self._core.abort(why)

    def shutdown(self):
        """An orderly end, which waits for the others."""
        _open.discard(self)
        self._core.shutdown()

    def chrome_trace(self):
        """The last collectives of this rank in Chrome's trace format."""
        return self._core.chrome_trace()


# --- programs

def _number_of_threads(text):
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1024:
        raise ReplicationError(78, f"SAMARA_THREADS={text}: expected a number from 1 to 1024")
    return int(text)


def _called_by_script():
    """Whether the caller's module is the script that this process runs."""
    main, frame = sys.modules.get("__main__"), sys._getframe(1)
    while frame is not None and frame.f_globals is globals():
        frame = frame.f_back
    return getattr(main, "__file__", None) is not None and frame is not None and frame.f_globals is vars(main)


def _run_script(ranks, options):
    main = sys.modules["__main__"]
    with open(main.__file__, "rb") as file:
        code = compile(file.read(), main.__file__, "exec")
    names = {name: getattr(main, name, None) for name in ("__file__", "__package__", "__spec__", "__loader__")}

    def program(_):
        exec(code, {"__name__": "__main__", "__builtins__": builtins, **names})
    return replicate_threads(ranks, program, **options)


def _exit_code(error):
    """Of a SystemExit."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    print(error.code, file=sys.stderr)
    return 1


def replicate_threads(ranks, program, **options):
    """replicate on `ranks` threads, whatever the environment says."""
    codes = []

    def one(core):
        _local.replicator = Replicator(core)
        try:
            program(_local.replicator)
        except SystemExit as error:
            codes.append(_exit_code(error))
        except ReplicationError:
            raise
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            _local.replicator = None
    return _replica.threads(ranks, one, options) or max(codes, default=0)


def replicate(program, **options):
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


def _report(error, replicators):
    """Tells the user and the other ranks; the exit code."""
    line = f"{type(error).__name__}: {error}".split("\n")[0]
    if isinstance(error, ReplicationError):
        print(f"samara: {error}", file=sys.stderr)
        line = str(error)
    else:
        traceback.print_exception(error)
    for replicator in replicators:
        replicator.abort(line if isinstance(error, ReplicationError) else f"its program threw: {line}")
    return error.exit_code if isinstance(error, ReplicationError) else 70


def _watch_the_end():
    """A process that has a replicator ends as the specification of exit codes says."""
    former = sys.excepthook

    def failed(kind, error, trace):
        if not _open or not isinstance(error, Exception):
            for replicator in list(_open):
                replicator.abort(f"its program ended: {kind.__name__}")
            former(kind, error, trace)
            return
        code = _report(error, list(_open))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def ended():
        for replicator in list(_open):
            try:
                replicator.shutdown()
            except ReplicationError as error:
                print(f"samara: {error}", file=sys.stderr)
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(error.exit_code)
    sys.excepthook = failed
    atexit.register(ended)


def current():
    """The replicator of this program: a thread's own, or the process's, made from the environment by the first call."""
    if getattr(_local, "replicator", None) is not None:
        return _local.replicator
    for replicator in _open:
        return replicator
    globals()["_kept"] = Replicator.from_environment()
    return _kept


_kept = None  # by current()


def context():
    """The ReplicaContext of the step that this thread runs."""
    if getattr(_local, "context", None) is None:
        raise ReplicationError(78, "a replica's context outside steps")
    return _local.context


def wrap(optimizer, module=None, **options):
    """Replicator.wrap of current()."""
    return current().wrap(optimizer, module, **options)


def run(step, *batch, reduce=None):
    """Replicator.run of current()."""
    return current().run(step, *batch, reduce=reduce)


def make_input(mode, input_fn, prefetch=2):
    """Replicator.make_input of current()."""
    return current().make_input(mode, input_fn, prefetch)


def ordered_batches(context, order, fetch, epochs, first_step=0):
    """A pipeline that fetches the samples of a SampleOrder, from step `first_step` on: fetch(indices) gives a batch,
    with no rows for no indices. Every sample comes once an epoch, whatever the number of replicas and ranks."""
    for step in range(first_step, epochs * order.steps_per_epoch):
        yield fetch(order.indices(step, context.input_pipeline_id, context.num_input_pipelines))


# --- checkpoints

def _module_entries(modules):
    return {f"module.{name}.{key}": value for name, module in modules.items()
            for key, value in [*module.named_parameters(), *module.named_buffers()]}


def save(replicator, path, modules=None, optimizers=None, notes=None):
    """Collective, outside steps: one file, written by rank 0 and put in place by a rename, read at any number of ranks.
    modules, optimizers (wrapped ones): by name. notes: texts by name."""
    entries = {key: value.detach() for key, value in _module_entries(modules or {}).items()}
    words = {f"note.{key}": str(text) for key, text in (notes or {}).items()}
    for name, optimizer in (optimizers or {}).items():
        mine = {}
        for i, (_, parameter) in enumerate(optimizer._all):
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    mine[f"optimizer.{name}.{i}.{key}"] = value.detach()
                elif isinstance(value, (bool, int, float)):
                    mine[f"optimizer.{name}.{i}.{key}#"] = _Nest(value).leaves[0]
                elif value is not None:
                    raise ReplicationError(78, f"a checkpoint of {key}, a {type(value).__name__}: expected tensors and "
                                               "numbers as an optimizer's state")
        # state that is spread over the ranks comes together
        entries.update(replicator._core.gather_entries(name, mine))
        entries[f"optimizer.{name}.updates"] = torch.tensor(optimizer.updates)
        words[f"optimizer.{name}.groups"] = json.dumps(
            [{key: value.item() if isinstance(value, torch.Tensor) else value for key, value in group.items()
              if key != "params"} for group in optimizer.param_groups])
    replicator._core.write_checkpoint(os.fspath(path), entries, words)


def load(replicator, path, modules=None, optimizers=None):
    """Collective, outside steps. The notes, or None without a file. Fills modules, optimizers and the replicator's
    step on every rank; a ReplicationError (65) for a damaged file, or one of another program, has changed nothing."""
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
    return {key.removeprefix("note."): text for key, text in words.items() if key.startswith("note.")}
