# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A whole training program on the replicator, in Python: its own data, a test, checkpoints, resume.

    python examples/spirals.py                                      alone
    samara launch -n 4 python examples/spirals.py --out runs/a      four processes, the same bits; started again it goes on
"""

import argparse
import hashlib
import math
import os

import samara.replica
import torch
from torch import nn
from torch.nn import functional

arguments = argparse.ArgumentParser(description="two spirals that a multilayer perceptron tells apart")
arguments.add_argument("--steps", type=int, default=600)
arguments.add_argument("--batch", type=int, default=256, help="points, of all replicas together")
arguments.add_argument("--out", help="folder: save there every 100 steps, and continue from what is saved")
options = arguments.parse_args()


def spirals(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns points [count, 2] on two arms, and the arm of each."""
    random = torch.Generator().manual_seed(seed)
    arm = torch.randint(2, (count,), generator=random)
    turn = 3 * math.pi * torch.rand(count, generator=random).sqrt()
    angle = turn + math.pi * arm
    noise = 0.1 * torch.randn(count, 2, generator=random)
    return torch.stack([turn * angle.cos(), turn * angle.sin()], 1) / math.pi + noise, arm


torch.manual_seed(1)  # the same model on every rank
net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
optimizer = samara.replica.wrap(torch.optim.Adam(net.parameters(), 0.003))
replicator = samara.replica.current()
checkpoint = options.out and os.path.join(options.out, "checkpoint.safetensors")
saved = {"modules": {"net": net}, "optimizers": {"adam": optimizer}}
if checkpoint:
    os.makedirs(options.out, exist_ok=True)
    samara.replica.load(replicator, checkpoint, **saved)


def step(points: torch.Tensor, arm: torch.Tensor) -> torch.Tensor:
    """One step of one replica, on its share of the batch."""
    optimizer.zero_grad()
    loss = functional.cross_entropy(net(points), arm)
    loss.backward()
    optimizer.step()
    return loss.detach()


for i in range(replicator.step, options.steps):
    loss = samara.replica.run(step, *spirals(options.batch, seed=i), reduce="mean")
    if replicator.is_main and (i + 1) % 100 == 0:
        print(f"step {i + 1}: loss {loss.item():.4f}", flush=True)
    if checkpoint and ((i + 1) % 100 == 0 or i + 1 == options.steps):
        samara.replica.save(replicator, checkpoint, **saved)

if replicator.is_main:
    points, arm = spirals(2000, seed=-1)
    with torch.no_grad():
        accuracy = (net(points).argmax(1) == arm).float().mean().item()
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in net.parameters())
    print(f"accuracy {accuracy:.3f}, parameters {hashlib.sha256(weights).hexdigest()[:16]}")
