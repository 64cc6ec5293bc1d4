"""Trains, saving every second step, while memory changes one bit of rank 1's parameters: divergence.py FOLDER WHAT. WHAT:
parameter or nothing. The bit changes in the first start only. tests/test_replica_divergence.py starts it."""

import json
import os
import sys
from pathlib import Path

import torch
from samara import replica
from samara.replica import Replicator
from torch import nn

STEPS, EVERY, WHEN = 8, 2, 5
file, what = Path(sys.argv[1]) / "checkpoint.safetensors", sys.argv[2]
replicator = Replicator.from_environment(replicas=4)
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = replicator.wrap(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
state = {"modules": {"net": model}, "optimizers": {"sgd": optimizer}}
replica.load(replicator, file, **state)
print(f"starts at step {replicator.step}", file=sys.stderr)
generator = torch.Generator().manual_seed(1)
x, y = torch.randn(32, 4, generator=generator), torch.randn(32, 1, generator=generator)


def step(x, y):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()


while replicator.step < STEPS:
    replicator.run(step, x, y)
    if what == "parameter" and (replicator.step, replicator.rank) == (WHEN, 1):
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            with torch.no_grad():
                model[0].weight.view(-1)[:1].view(torch.int32).bitwise_xor_(1)
    if replicator.step % EVERY == 0:
        replica.save(replicator, file, **state)
if replicator.rank == 0:
    print(json.dumps({"parameter_hash": optimizer.parameter_hash}))
