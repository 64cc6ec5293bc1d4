"""samara.replica: every primitive against its definition, optimizers against torch alone, failures as users see them."""

import inspect
import json
import os
import socket
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest
from samara_cli import ROOT

torch = pytest.importorskip("torch")
replica = pytest.importorskip("samara.replica", reason="built without torch")
N = 4


@pytest.fixture(params=[1, 2, 4], ids=lambda n: f"{n}-ranks")
def ranks(request):
    return request.param


def succeed(ranks, program, **options):
    assert replica.replicate_threads(ranks, program, **{"replicas": N, **options}) == 0


def in_step(ranks, step, **options):
    """Runs step(context) once on N replicas."""
    succeed(ranks, lambda replicator: replicator.run(step), **options)


def value(i):
    """What replica i brings to a collective."""
    return torch.tensor([1.0 + i, -2.0 * i, 0.5])


def test_reductions_of_nests(ranks):
    stack = torch.stack([value(i) for i in range(N)])
    expected = {"sum": stack.sum(0), "mean": stack.mean(0), "min": stack.amin(0), "max": stack.amax(0),
                "product": stack.prod(0)}

    def step(context):
        mine = value(context.replica_id)
        for op, result in expected.items():
            got = context.all_reduce({"a": mine, "b": (mine + 1, [mine * 0]), "c": None}, op)
            assert torch.equal(got["a"], result) and got["c"] is None
            assert got["b"][0].shape == (3,) and torch.equal(got["b"][1][0], mine * 0)
            assert torch.equal(getattr(context, f"all_{op}")(mine), result)
        assert context.all_sum(context.replica_id).item() == N * (N - 1) // 2
        assert context.num_replicas == N and replica.context() is context
    in_step(ranks, step)


def test_gathers_and_exchanges(ranks):
    def step(context):
        i = context.replica_id
        assert torch.equal(context.all_gather(value(i)), torch.stack([value(j) for j in range(N)]))
        ragged = context.all_gather(torch.full((2, i), float(i)), dim=1)
        assert torch.equal(ragged, torch.cat([torch.full((2, j), float(j)) for j in range(N)], 1))
        assert torch.equal(context.broadcast([value(i)], 2)[0], value(2))
        rows = torch.arange(float(2 * N)) + 100 * i
        assert torch.equal(context.reduce_scatter(rows),
                           (torch.arange(float(2 * N)) * N + 100 * N * (N - 1) / 2)[2 * i:2 * i + 2])
        assert torch.equal(context.all_to_all(rows),
                           torch.cat([torch.arange(2 * i, 2 * i + 2.0) + 100 * j for j in range(N)]))
        context.send({"x": value(i)}, (i + 1) % N)
        before = (i - 1) % N
        assert torch.equal(context.receive({"x": value(0)}, before)["x"], value(before))
    in_step(ranks, step)


def test_maps_merges_and_groups(ranks):
    ran = []

    def square(x):
        ran.append(x)
        return {"square": torch.tensor(x * x)}

    def step(context):
        i = context.replica_id
        items = [3.0, 1.0, 2.0, 5.0, 4.0, 7.0]
        assert [r["square"].item() for r in context.map_gather(items, square)] == [x * x for x in items]
        assert context.map_reduce(items[:2], square, "sum")["square"].item() == 10
        assert context.map_gather([], square) == []
        assert context.merge_call(lambda all: [torch.stack(all).sum()], torch.tensor(i + 1.0))[0].item() == 10
        own = context.merge_call(lambda all: replica.PerReplica(x * 2 for x in all), torch.tensor(float(i)))
        assert own.item() == 2 * i
        group = context.within([[0, 3], [2, 1]])
        mates = {0: [0, 3], 3: [0, 3], 1: [2, 1], 2: [2, 1]}[i]
        assert group.size == 2 and group.index == mates.index(i)
        assert group.all_reduce(torch.tensor(float(i)), "sum").item() == sum(mates)
        assert group.all_gather(torch.tensor(i)).tolist() == mates
        assert group.broadcast(torch.tensor(i), 1).item() == mates[1]
    in_step(ranks, step)
    assert sorted(ran) == sorted([3.0, 1.0, 2.0, 5.0, 4.0, 7.0] + [3.0, 1.0])  # each item on one replica


@pytest.mark.parametrize("name, call, alone", [
    ("sum", lambda c, x: c.all_sum(x), lambda all, i: sum(all)),
    ("mean", lambda c, x: c.all_mean(x), lambda all, i: sum(all) / N),
    ("product", lambda c, x: c.all_product(x), lambda all, i: all[0] * all[1] * all[2] * all[3]),
    ("max", lambda c, x: c.all_max(x), lambda all, i: torch.stack(all).amax(0)),
    ("gather", lambda c, x: c.all_gather(x), lambda all, i: torch.stack(all)),
    ("along", lambda c, x: c.all_gather(x, dim=0), lambda all, i: torch.cat(all)),
    ("broadcast", lambda c, x: c.broadcast(x, 1), lambda all, i: all[1]),
    ("scatter", lambda c, x: c.reduce_scatter(x), lambda all, i: sum(all)[i:i + 1]),
    ("exchange", lambda c, x: c.all_to_all(x), lambda all, i: torch.stack([x[i] for x in all])),
    ("within", lambda c, x: c.within([[0, 3], [1, 2]]).all_reduce(x, "sum") + x,
     lambda all, i: all[i] + all[3 - i] + all[i]),
    ("mean within", lambda c, x: c.within([[0], [1, 2, 3]]).all_reduce(x, "mean"),
     lambda all, i: all[0] if i == 0 else (all[1] + all[2] + all[3]) / 3),
    ("gather within", lambda c, x: c.within([[0, 3], [2, 1]]).all_gather(x),
     lambda all, i: torch.stack([all[j] for j in ([0, 3] if i in (0, 3) else [2, 1])])),
    ("broadcast within", lambda c, x: c.within([[0, 3], [2, 1]]).broadcast(x, 1),
     lambda all, i: all[3] if i in (0, 3) else all[1])])
def test_gradients_are_those_of_one_graph(name, call, alone):
    """The loss is the sum of the replicas' losses: the same written as one graph, differentiated by torch."""
    leaves = [(torch.randn(N, generator=torch.Generator().manual_seed(i)) + 2).requires_grad_() for i in range(N)]
    sum((alone(leaves, i) ** 2 * (i + 1)).sum() for i in range(N)).backward()

    def step(context):
        i = context.replica_id
        x = leaves[i].detach().clone().requires_grad_()
        (call(context, x) ** 2 * (i + 1)).sum().backward()
        expected = leaves[i].grad if leaves[i].grad is not None else torch.zeros(N)
        torch.testing.assert_close(x.grad, expected)
    in_step(2, step)


def test_batch_norm_is_one_devices_on_the_whole_batch(ranks):
    """Outputs, gradients and running statistics; 10 rows on 4 replicas: uneven batches."""
    def model():
        torch.manual_seed(5)
        return torch.nn.Sequential(torch.nn.Conv1d(2, 3, 2), torch.nn.BatchNorm1d(3), torch.nn.Flatten(),
                                   torch.nn.Linear(9, 1))
    x = torch.randn(10, 2, 4, generator=torch.Generator().manual_seed(1)) * 3 + 100
    plain = model()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        (plain(x) ** 2).mean().backward()
        optimizer.step()

    def program(replicator):
        mine = replica.CrossReplicaBatchNorm.convert(model())
        wrapped = replicator.wrap(torch.optim.SGD(mine.parameters(), lr=0.01), mine)

        def step(x):
            wrapped.zero_grad()
            (mine(x) ** 2).mean().backward()
            wrapped.step()
        for _ in range(3):
            replicator.run(step, x)
        for (name, a), b in zip(mine.state_dict().items(), [v for k, v in plain.state_dict().items()
                                                          if "num_batches" not in k]):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4, msg=lambda m, name=name: f"{name}: {m}")
        torch.testing.assert_close(mine.eval()(x), plain.eval()(x), rtol=1e-4, atol=1e-4)
        plain.train()
    succeed(ranks, program)
    with pytest.raises(replica.ReplicationError, match="affine=True"):
        replica.CrossReplicaBatchNorm.convert(torch.nn.BatchNorm1d(3, affine=False))


def model_and_data(seed=3):
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    return model, torch.randn(24, 5, generator=generator), torch.randn(24, 2, generator=generator)


def train(replicator, make_optimizer, steps=6, **options):
    model, x, y = model_and_data()
    optimizer = replicator.wrap(make_optimizer(model.parameters()), model, **options)

    def step(x, y):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()
    losses = [replicator.run(step, x, y, reduce="mean").item() for _ in range(steps)]
    return model, optimizer, losses


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


@pytest.mark.parametrize("make", [sgd, adam])
@pytest.mark.parametrize("options", [{}, {"clip_norm": 0.05}, {"shard_state": True}], ids=["plain", "clip", "zero1"])
def test_replicas_train_as_one_device_does(make, options):
    model, x, y = model_and_data()
    optimizer, expected = make(model.parameters()), []
    for _ in range(6):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        if "clip_norm" in options:
            torch.nn.utils.clip_grad_norm_(model.parameters(), options["clip_norm"])
        optimizer.step()
        expected.append(loss.item())
    hashes = []
    for ranks, mode in ((1, "exact"), (2, "exact"), (4, "exact"), (2, "fast")):
        def program(replicator):
            trained, wrapped, losses = train(replicator, make, **options)
            assert losses == pytest.approx(expected, rel=1e-4)
            for p, q in zip(trained.parameters(), model.parameters()):
                torch.testing.assert_close(p, q, rtol=1e-3, atol=2e-4)
            assert wrapped.updates == 6 and wrapped.skipped == 0 and wrapped.last_norm > 0
            if options.get("shard_state") and replicator.world_size > 1:
                assert len(wrapped.state) < 4
            if mode == "exact":
                hashes.append(wrapped.parameter_hash)
        succeed(ranks, program, mode=mode, replicas=None if mode == "fast" else N)
    assert len(set(hashes)) == 1 and len(hashes) == 7


def test_accumulation_and_schedules():
    def program(replicator):
        model, x, y = model_and_data()
        optimizer = replicator.wrap(sgd(model.parameters()))
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

        def step(x, y):
            optimizer.zero_grad()
            with optimizer.no_sync():
                (torch.nn.functional.mse_loss(model(x), y) / 2).backward()
            (torch.nn.functional.mse_loss(model(x), y) / 2).backward()
            optimizer.step()
        replicator.run(step, x, y)
        schedule.step()
        assert optimizer.param_groups[0]["lr"] == 0.05
        norms.append(optimizer.last_norm)
    norms = []
    succeed(2, program, mode="fast", replicas=None)
    model, x, y = model_and_data()
    torch.nn.functional.mse_loss(model(x), y).backward()
    whole = torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in model.parameters()])).item()
    assert norms == pytest.approx([whole, whole], rel=1e-4)


@pytest.mark.parametrize("mode", ["per_replica", "per_worker", "single"])
@pytest.mark.parametrize("prefetch", [0, 3])
def test_inputs_reach_every_replica_in_order(ranks, mode, prefetch):
    seen = []

    def input_fn(context):
        # 5 rounds' batches, less for the last pipeline
        rounds = 5 if context.input_pipeline_id == 0 else 4
        each = N // context.num_input_pipelines
        for k in range(rounds * each):
            yield {"x": torch.full((2, 1), float(context.input_pipeline_id * 1000 + k)), "none": None}

    def program(replicator):
        source = replicator.make_input(mode, input_fn, prefetch)
        while (results := replicator.run(lambda context, batch: (context.replica_id, context.samples, batch["x"]),
                                         source)) is not None:
            seen.extend((i, samples, x[0].item()) for i, samples, x in results if samples)
            assert all(samples == 2 or samples == len(x) == 0 for _, samples, x in results)
        assert replicator.step == 5
    succeed(ranks, program)
    pipelines = {"per_replica": N, "per_worker": ranks, "single": 1}[mode]
    each = N // pipelines
    expected = [(p * each + k % each, 2, p * 1000.0 + k) for p in range(pipelines)
                for k in range((5 if p == 0 else 4) * each)]
    assert sorted(seen) == sorted(expected)


def test_ordered_batches_bring_each_sample_once():
    order, seen = replica.SampleOrder(samples=22, global_batch=8), []
    assert order.steps_per_epoch == 3

    def program(replicator):
        source = replicator.make_input("per_replica", lambda context: replica.ordered_batches(
            context, order, lambda indices: torch.tensor(indices, dtype=torch.int64), epochs=2))
        while (results := replicator.run(lambda batch: batch, source)) is not None:
            seen.extend(int(i) for batch in results for i in batch)
    succeed(2, program)
    assert sorted(seen) == sorted(2 * list(range(22)))


def test_an_input_a_step_and_a_merge_that_raise():
    def broken(context):
        yield torch.zeros(1)
        raise OSError("the disk is gone")

    def program(replicator):
        source = replicator.make_input("per_replica", broken)
        replicator.run(lambda batch: None, source)
        with pytest.raises(OSError, match="the disk is gone"):
            replicator.run(lambda batch: None, source)
    succeed(1, program)
    done = []  # a failed assertion ends with a code too

    def failing(replicator):
        with pytest.raises(ZeroDivisionError) as raised:
            replicator.run(lambda context: 1 // (context.replica_id - 1))
        assert raised.traceback[-1].frame.code.name == "<lambda>"
        with pytest.raises(replica.ReplicationError, match="ZeroDivisionError") as after:
            replicator.run(lambda: None)
        assert after.value.exit_code == 70
        done.append("step")
    assert replica.replicate_threads(1, failing, replicas=N) != 0  # its group is gone, the end says so

    def merging(replicator):
        def merge(values):
            raise ValueError(f"{len(values)} is no number of values")

        with pytest.raises(ValueError, match="4 is no number of values") as raised:
            replicator.run(lambda context: context.merge_call(merge, torch.zeros(1)))
        assert raised.traceback[-1].frame.code.name == "merge"
        done.append("merge")
    assert replica.replicate_threads(1, merging, replicas=N) != 0
    assert done == ["step", "merge"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_different_calls_are_named_by_file_and_line(ranks, capfd):
    def step(context):
        if context.replica_id >= 2:
            return context.all_sum(torch.ones(3))
        return context.all_sum(torch.ones(3))
    assert replica.replicate_threads(ranks, lambda replicator: replicator.run(step), replicas=N) == 70
    error, first = capfd.readouterr().err, inspect.getsourcelines(step)[1]
    for line in (first + 2, first + 3):
        assert f"test_replica_python.py:{line}" in error


def test_backward_passes_fail_with_the_group():
    def program(replicator):
        def step(context):
            x = torch.ones(2, requires_grad=True)
            y = context.all_sum(x)
            if context.replica_id != 3:
                y.sum().backward()
        with pytest.raises(replica.ReplicationError, match="replica 3: ended its step") as error:
            replicator.run(step)
        assert error.value.exit_code == 70
        raise replica.ReplicationError(65, "as expected")
    assert replica.replicate_threads(2, program, replicas=N) == 65


def test_errors_within_autograd_keep_their_kind_and_code():
    """backward() itself raises them; torch would make each a RuntimeError."""
    seen = []

    def program(replicator):
        weight = torch.nn.Parameter(torch.ones(2))
        optimizer = replicator.wrap(torch.optim.SGD([weight], lr=0.1))

        def step():
            weight.sum().backward()
            with pytest.raises(replica.ReplicationError, match="a second backward pass") as error:
                weight.sum().backward()
            seen.append(error.value.exit_code)
            optimizer.step()
        replicator.run(step)
    succeed(2, program, mode="fast", replicas=None)
    assert seen == [78, 78]


DIES_IN_BACKWARD = """
    import os, signal
    import torch
    import samara.replica
    x = torch.ones(2, requires_grad=True)
    def step(context):
        y = context.all_sum(x)
        if context.rank == 1:
            END
        y.sum().backward()
    samara.replica.run(step)
"""


@pytest.mark.parametrize("end, codes, words", [
    ("os.kill(os.getpid(), signal.SIGKILL)", [69, -9], "rank 1 died"),
    ("raise samara.replica.ReplicationError(78, 'out of luck')", [78, 78], "out of luck")])
def test_a_backward_pass_that_waits_for_a_rank_that_ends(tmp_path, end, codes, words):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    with ThreadPoolExecutor() as threads:
        ranks = [threads.submit(script, tmp_path, DIES_IN_BACKWARD.replace("END", end), RANK=str(r), WORLD_SIZE="2",
                                LOCAL_RANK=str(r), LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
                 for r in range(2)]
        done = [rank.result() for rank in ranks]
    assert [rank.returncode for rank in done] == codes, done[0].stderr
    assert f"samara: rank 1 gave up: {words}" in done[0].stderr or f"samara: {words}" in done[0].stderr
    assert "Traceback" not in done[0].stderr


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize("clip", [
    lambda model: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01),
    lambda model: [p.grad.data.clamp_(-1e-3, 1e-3) for p in model.parameters()],
    lambda model: [setattr(p, "grad", p.grad / 2) for p in model.parameters()]], ids=["norm", "data", "another"])
def test_gradients_are_not_written_before_they_are_averaged(mode, clip, capfd):
    def program(replicator):
        model, x, y = model_and_data()
        optimizer = replicator.wrap(sgd(model.parameters()))

        def step(x, y):
            torch.nn.functional.mse_loss(model(x), y).backward()
            clip(model)
            optimizer.step()
        replicator.run(step, x, y)
        moved.append(optimizer.last_norm)
    moved = []
    assert replica.replicate_threads(2, program, mode=mode, replicas=N if mode == "exact" else None) == 78
    error = capfd.readouterr().err
    assert "wrap(optimizer, clip_norm=1.0)" in error and "test_replica_python.py:" in error and not moved
    succeed(1, program, mode=mode, replicas=1)  # alone they are its own
    assert moved


def test_messages_are_like_what_is_expected():
    def step(context):
        peer = (context.replica_id + 2) % N
        with pytest.raises(replica.ReplicationError, match="requires a gradient") as error:
            context.send(torch.ones(2, requires_grad=True), peer)
        assert error.value.exit_code == 78
        context.send({"x": torch.ones(3, dtype=torch.int64)}, peer)
        with pytest.raises(replica.ReplicationError, match=r"int64\[3\].*float32\[2\]") as error:
            context.receive({"x": torch.ones(2)}, peer)
        assert error.value.exit_code == 78
    for ranks in (1, 2):
        in_step(ranks, step)


@pytest.mark.slow
def test_a_message_is_awaited_in_silence(tmp_path):
    text = """
        import time
        import torch
        import samara.replica
        def step(context):
            if context.rank == 1:
                time.sleep(0.5)
                context.send(torch.full((2,), 3.0), 0)
                context.send(torch.full((2,), 4.0), 0)
            else:
                print([context.receive(torch.zeros(2), 1).tolist() for _ in range(2)])
        samara.replica.run(step)
    """
    done = script(tmp_path, text, command=["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
                  SAMARA_MODE="fast", OMP_NUM_THREADS="1")
    assert done.returncode == 0 and done.stdout.strip() == "[[3.0, 3.0], [4.0, 4.0]]", done.stderr
    assert "c10d" not in done.stderr


@pytest.mark.parametrize("mode", ["per_replica", "per_worker", "single"])
def test_an_input_without_a_first_batch_gets_ones_without_rows(ranks, mode):
    seen = []

    def input_fn(context):
        for k in range(3 if context.input_pipeline_id == context.num_input_pipelines - 1 else 0):
            yield {"x": torch.full((2, 3), float(k)), "none": None}

    def program(replicator):
        source = replicator.make_input(mode, input_fn)
        while (results := replicator.run(lambda batch: batch, source)) is not None:
            for batch in results:
                assert batch["x"].shape[1] == 3 and batch["none"] is None
                seen.extend(batch["x"][:, 0].tolist())
    succeed(ranks, program)
    assert sorted(seen) == [0, 0, 1, 1, 2, 2]


def test_checkpoints_go_on_at_another_size(tmp_path):
    file, hashes = tmp_path / "folder/checkpoint.safetensors", []

    def program(replicator, steps, save, options):
        model, x, y = model_and_data()
        optimizer = replicator.wrap(torch.optim.AdamW(model.parameters(), lr=0.02), **options)
        state = {"modules": {"net": model}, "optimizers": {"adam": optimizer}}
        notes = replica.load(replicator, file, **state)
        assert (notes is None) == (not file.exists()) and (notes is None or notes == {"by": "ä test"})

        def step(x, y):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(torch.nn.functional.dropout(x, 0.2)), y).backward()
            optimizer.step()
        while replicator.step < steps:
            replicator.run(step, x, y)
        if save:
            optimizer.param_groups[0]["lr"] = 0.01
            replica.save(replicator, file, **state, notes={"by": "ä test"})
        hashes.append((optimizer.parameter_hash, optimizer.updates))
    for ranks, steps, save, options in ((4, 3, True, {}), (1, 6, False, {}), (2, 6, False, {"shard_state": True})):
        succeed(ranks, lambda r: program(r, steps, save, options))
    after = hashes[4:]
    assert len(after) == 3 and len(set(after)) == 1 and after[0][1] == 6
    # and as torch itself goes on from the same weights and state
    text = file.read_bytes()
    file.write_bytes(text[:-1])

    def damaged(replicator):
        with pytest.raises(replica.ReplicationError) as error:
            replica.load(replicator, file)
        assert error.value.exit_code == 65
    succeed(2, damaged)
    file.write_bytes(text)

    def another(replicator):
        model = torch.nn.Sequential(torch.nn.Linear(4, 8))
        before = [p.clone() for p in model.parameters()]
        with pytest.raises(replica.ReplicationError, match="net.0.weight") as error:
            replica.load(replicator, file, modules={"net": model})
        assert error.value.exit_code == 65
        assert all(torch.equal(p, q) for p, q in zip(before, model.parameters()))
    succeed(2, another)


def test_a_checkpoint_knows_what_decides_the_bits(tmp_path):
    file = tmp_path / "checkpoint.safetensors"

    def program(replicator, save=False):
        model, x, y = model_and_data()
        state = {"modules": {"net": model}, "optimizers": {"sgd": replicator.wrap(sgd(model.parameters()))}}
        if save:
            replica.save(replicator, file, **state)
        loaded = replica.load(replicator, file, **state)
        assert loaded == {} and bool(loaded), "a checkpoint without notes was loaded"
        assert not replica.load(replicator, tmp_path / "none", **state), "there is none"
    succeed(2, lambda replicator: program(replicator, save=True))
    for options, words in (({"replicas": 2}, "replicas 4, and this run has 2"), ({"seed": 5}, "seed 1, and this run has 5")):
        def refused(replicator, words=words):
            with pytest.raises(replica.ReplicationError, match=words) as error:
                program(replicator)
            assert error.value.exit_code == 78
        succeed(2, refused, **options)
    succeed(2, program, mode="fast", replicas=None)
    # a file of an earlier build says nothing of them
    whole = file.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:8 + size])
    for name in ("mode", "replicas", "seed", "crc32c"):
        del header["__metadata__"][name]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + size:])
    succeed(2, program, replicas=2)


def test_tensors_are_shared_not_copied():
    def program(replicator):
        whole = torch.arange(8.0)
        parts = replicator.run(lambda x: x, whole)
        assert [part.data_ptr() for part in parts] == [whole.data_ptr() + 8 * i for i in range(N)]
        model, x, y = model_and_data()
        addresses = [p.data_ptr() for p in model.parameters()]
        replicator.wrap(sgd(model.parameters()))
        assert addresses == [p.data_ptr() for p in model.parameters()]
    succeed(1, program)


@pytest.mark.parametrize("call, words", [
    (lambda r: r.wrap(torch.optim.LBFGS([torch.zeros(1, requires_grad=True)])), "LBFGS"),
    (lambda r: r.wrap(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1), bf16=True), "fast mode"),
    (lambda r: r.run(lambda context: context.all_sum("text")), "expected tensors"),
    (lambda r: r.run(lambda context: context.all_reduce(torch.ones(1), "median")), "median: expected sum"),
    (lambda r: r.make_input("everywhere", iter), "everywhere: expected per_replica"),
    (lambda r: r.run(lambda x: x, torch.ones(3), torch.ones(4)), "first dimensions are equal"),
    (lambda r: r.run(lambda context: context.logical_device(99)), "logical device 99: this replica has 1"),
    (lambda r: r.run(lambda context: context.logical_device(-1)), "logical device -1: this replica has 1"),
    (lambda r: r.run(lambda context: context.within([list(range(N))]).all_reduce(
        torch.ones(2, requires_grad=True), "max")), "which requires a gradient: expected sum, mean"),
    (lambda r: replica.context(), "outside steps")])
def test_what_cannot_work_is_said_in_one_line(call, words):
    def program(replicator):
        with pytest.raises(replica.ReplicationError, match=words) as error:
            call(replicator)
        assert error.value.exit_code == 78 and "\n" not in str(error.value)
        raise error.value
    assert replica.replicate_threads(1, program, replicas=N) == 78


def script(tmp_path, text, command=(), **variables):
    (tmp_path / "script.py").write_text(textwrap.dedent(text))
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SAMARA_")}
    return subprocess.run([sys.executable, *command, str(tmp_path / "script.py")], capture_output=True, text=True,
                          timeout=120, env={**clean, "PYTHONPATH": str(ROOT / "build/python"), **variables})


SCRIPT = """
    import sys
    import samara.replica
    replicator = samara.replica.Replicator.from_environment(replicas=4)
    print(f"rank {replicator.rank} of {replicator.world_size} at {__name__}\\n", end="", flush=True)
    LAST
"""


@pytest.mark.parametrize("last, code, words", [
    pytest.param("pass", 0, "", marks=pytest.mark.slow), pytest.param("sys.exit(3)", 3, "", marks=pytest.mark.slow),
    pytest.param("raise KeyError('k')", 70, "KeyError", marks=pytest.mark.slow),
    pytest.param("replicator.wrap(3)", 70, "AttributeError", marks=pytest.mark.slow),
    ("raise samara.replica.ReplicationError(65, 'a file')", 65, "samara: a file")])
def test_scripts_end_with_their_exit_codes(tmp_path, last, code, words):
    for variables, ranks in (({}, 1), ({"SAMARA_THREADS": "2"}, 2)):
        done = script(tmp_path, SCRIPT.replace("LAST", last), **variables)
        assert done.returncode == code, done.stderr
        assert sorted(done.stdout.splitlines()) == [f"rank {i} of {ranks} at __main__" for i in range(ranks)]
        assert words in done.stderr
        if words == "samara: a file":
            assert "Traceback" not in done.stderr


def test_programs_as_functions(tmp_path):
    text = """
        import sys
        import samara.replica
        def program(replicator):
            samara.replica.current().barrier()
            assert samara.replica.current() is replicator
        sys.exit(samara.replica.replicate(program, replicas=4))
    """
    for variables, code in (({}, 0), ({"SAMARA_THREADS": "4"}, 0), ({"SAMARA_THREADS": "3"}, 78),
                            ({"SAMARA_THREADS": "x"}, 78)):
        done = script(tmp_path, text, **variables)
        assert done.returncode == code and ("samara: " in done.stderr) == (code != 0), done.stderr
