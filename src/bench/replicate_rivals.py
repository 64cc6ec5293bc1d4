"""One step of torch's DistributedDataParallel: the rival of `samara bench replicate`.

    torchrun --nproc-per-node RANKS replicate_rivals.py STEPS ROWS THREADS

The three-layer perceptron of 1.9 million weights, SGD with momentum, ROWS samples and THREADS threads a rank, Gloo.
Rank 0 prints {"step_ms"}: the median over the steps, the first five left out.
"""

import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn


def main():
    steps, rows, threads = map(int, sys.argv[1:])
    torch.set_num_threads(threads)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    model = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(rows, 784), torch.randint(10, (rows,))
    times = []
    for step in range(steps + 5):
        start = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if step >= 5:
            times.append((time.perf_counter() - start) * 1e3)
    if dist.get_rank() == 0:
        print(json.dumps({"step_ms": statistics.median(times)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
