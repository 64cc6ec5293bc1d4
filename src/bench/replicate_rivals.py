"""One step of torch's DistributedDataParallel: the rival of `samara bench replicate`.

    torchrun --nproc-per-node RANKS replicate_rivals.py STEPS ROWS THREADS DEVICE

The three-layer perceptron of 1.9 million weights, SGD with momentum, ROWS samples and THREADS threads a rank. Over NCCL
where DEVICE is "cuda" and each rank has a GPU of its own, else over Gloo.
Rank 0 prints {"step_ms"}: the median over the steps, the first five left out.
"""

import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn


def main():
    steps, rows, threads = map(int, sys.argv[1:4])
    device = torch.device(sys.argv[4])
    torch.set_num_threads(threads)
    gpus = torch.cuda.device_count() if device.type == "cuda" else 0
    nccl = 0 < int(os.environ["LOCAL_WORLD_SIZE"]) <= gpus
    dist.init_process_group("nccl" if nccl else "gloo")
    if gpus and device.index is None:
        device = torch.device("cuda", dist.get_rank() % gpus)
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)).to(device)
    model = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(rows, 784).to(device), torch.randint(10, (rows,)).to(device)
    times = []
    for step in range(steps + 5):
        start = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if gpus:
            torch.cuda.synchronize(device)
        if step >= 5:
            times.append((time.perf_counter() - start) * 1e3)
    if dist.get_rank() == 0:
        print(json.dumps({"step_ms": statistics.median(times)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
