"""What goes wrong between ranks, one thing a run: pitfalls.py NAME. tests/test_replica_pitfalls.py starts it and reads what
every rank says. Rank 1 is the one that errs."""

import os
import signal
import sys
import time

import torch
from samara.replica import Replicator
from torch import nn
from torch.nn import functional


def swapped_order(replicator):
    def step(context):
        a, b = torch.ones(4), torch.full((4,), 100.0)
        if replicator.rank == 1:
            context.all_sum(b)
        context.all_sum(a)
        if replicator.rank != 1:
            context.all_sum(b)
    replicator.run(step)


def other_type(replicator):
    dtype = torch.int32 if replicator.rank == 1 else torch.float32
    replicator.run(lambda context: context.all_sum(torch.ones(4, dtype=dtype)))


def other_count(replicator):
    replicator.run(lambda context: context.all_sum(torch.ones(5 if replicator.rank == 1 else 4)))


def other_operation(replicator):
    def step(context):
        if replicator.rank == 1:
            context.broadcast(torch.ones(4), 0)
        else:
            context.all_sum(torch.ones(4))
    replicator.run(step)


def between_two(replicator, what):
    """Rank 1 does something else between two collectives."""
    def step(context):
        context.all_sum(torch.ones(4))
        if replicator.rank == 1:
            what()
        context.all_sum(torch.ones(4))
    replicator.run(step)


def missing(replicator):
    between_two(replicator, lambda: time.sleep(30))


def frozen(replicator):
    between_two(replicator, lambda: os.kill(os.getpid(), signal.SIGSTOP))


def parameters_that_differ(replicator):
    net = nn.Linear(4, 1)
    optimizer = replicator.wrap(torch.optim.SGD(net.parameters(), lr=0.1))

    def step(x):
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
        if replicator.rank == 1:
            with torch.no_grad():
                net.bias += 1
    for _ in range(4):
        replicator.run(step, torch.ones(12, 4))


def uneven_gradients(replicator):
    """Heads that only some replicas use, met in another order on each, buckets of one parameter, gradients zeroed in both
    ways: the update is that of the mean loss."""
    torch.manual_seed(1)
    trunk, a, b, unused = (nn.Linear(4, 4) for _ in range(4))
    parameters = [p for module in (trunk, a, b, unused) for p in module.parameters()]
    alone = [p.detach().clone().requires_grad_() for p in parameters]
    optimizer = replicator.wrap(torch.optim.SGD(parameters, lr=0.1), bucket_bytes=16)
    n = replicator.num_replicas

    def loss(x, replica, weights):
        y = functional.linear(x, *weights[:2])
        heads = [functional.linear(y, *weights[2:4]).pow(2)]
        if replica != 1:
            heads.append(functional.linear(y, *weights[4:6]).sin())
        return sum(heads[::-1] if replica % 2 else heads).mean()

    def step(context, x):
        optimizer.zero_grad(set_to_none=step.count % 2 == 0)
        loss(x, context.replica_id, parameters).backward()
        optimizer.step()

    for step.count in range(4):
        x = torch.randn(2 * n, 4, generator=torch.Generator().manual_seed(step.count))
        replicator.run(step, x)
        sum(loss(x[2 * i:2 * i + 2], i, alone) / n for i in range(n)).backward()
        with torch.no_grad():
            for p in alone:
                if p.grad is not None:
                    p -= 0.1 * p.grad
                    p.grad = None
        for mine, expected in zip(parameters, alone, strict=True):
            torch.testing.assert_close(mine.detach(), expected.detach())


if __name__ == "__main__":
    globals()[sys.argv[1]](Replicator.from_environment(check_every=2))
