"""Ways of torch to evaluate many different networks: the rivals of `samara bench population`.

    python population_rivals.py NETWORK POPULATION THREADS FRAMES SECONDS

FRAMES: float32 [n][84][84][4]. Prints evaluations per second as one JSON object: called per individual,
grouped convolutions with batched products, and torch.func.vmap. null: out of memory.
"""

import json
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

VISIT = 256

# (kind, outputs, kernel, stride, padding before and after)
NETWORKS = {
    "LargeModel": [("conv", 32, 8, 4, (2, 2)), ("conv", 64, 4, 2, (1, 2)), ("conv", 64, 3, 1, (1, 1)), ("fc", 512), ("fc", 18)],
    "Nature": [("conv", 32, 8, 4, (0, 0)), ("conv", 64, 4, 2, (0, 0)), ("conv", 64, 3, 1, (0, 0)), ("fc", 512), ("fc", 18)],
    "Model": [("conv", 16, 8, 4, (2, 2)), ("conv", 32, 4, 2, (1, 2)), ("fc", 256), ("fc", 18)],
}


def weights(layers, population):
    """Per layer (weight, bias) with the population in front, drawn with unit variance over the fan-in."""
    channels, size, tensors = 4, 84, []
    for layer in layers:
        if layer[0] == "conv":
            _, out, kernel, stride, pad = layer
            shape, fan_in = (out, channels, kernel, kernel), channels * kernel * kernel
            size = (size + sum(pad) - kernel) // stride + 1
            channels = out
        else:
            fan_in = channels * size * size
            shape, channels, size = (layer[1], fan_in), layer[1], 1
        tensors.append((torch.randn(population, *shape) / fan_in**0.5, torch.zeros(population, shape[0])))
    return tensors


def forward(layers, tensors, x):
    """One network on x: [1][channels][rows][columns]."""
    for i, (layer, (w, b)) in enumerate(zip(layers, tensors)):
        if layer[0] == "conv":
            before, after = layer[4]
            x = F.conv2d(F.pad(x, (before, after, before, after)) if before or after else x, w, b, stride=layer[3])
        else:
            x = F.linear(x.flatten(1), w, b)
        if i + 1 < len(layers):
            x = F.relu(x)
    return x


def grouped(layers, tensors, x):
    """All networks at once: x is [population][channels][rows][columns]."""
    population = x.shape[0]
    for i, (layer, (w, b)) in enumerate(zip(layers, tensors)):
        if layer[0] == "conv":
            before, after = layer[4]
            x = F.pad(x, (before, after, before, after)) if before or after else x
            x = F.conv2d(x.reshape(1, -1, *x.shape[2:]), w.flatten(0, 1), b.flatten(), stride=layer[3], groups=population)
            x = x.reshape(population, -1, *x.shape[2:])
        else:
            x = torch.baddbmm(b.unsqueeze(1), x.flatten(1).unsqueeze(1), w.transpose(1, 2)).squeeze(1)
        if i + 1 < len(layers):
            x = F.relu(x)
    return x


def rate(step, population, seconds):
    """Evaluations per second; None when memory runs out."""
    try:
        step()
        rounds, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds or rounds < 2:
            step()
            rounds += 1
        return population * rounds / (time.perf_counter() - start)
    except (RuntimeError, MemoryError):
        return None


def main():
    name, population, threads, frames, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], float(sys.argv[5])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    layers = NETWORKS[name]
    stacked = np.fromfile(frames, np.float32).reshape(-1, 84, 84, 4)
    tensors = weights(layers, population)
    with torch.inference_mode():
        images = torch.from_numpy(stacked).permute(0, 3, 1, 2).contiguous()
        x = images[torch.arange(population) % len(images)]
        own = [[(w[i], b[i]) for w, b in tensors] for i in range(population)]

        def per_individual():
            for i in range(population):
                forward(layers, own[i], x[i : i + 1])

        def staying():  # as in an episode: one network takes several frames, one after the other
            for i in range(0, population, VISIT):
                for k in range(i, min(i + VISIT, population)):
                    forward(layers, own[i], x[k : k + 1])

        batched = torch.func.vmap(lambda t, image: forward(layers, t, image.unsqueeze(0)))
        one, all_, vmapped = forward(layers, own[-1], x[-1:])[0], grouped(layers, tensors, x)[-1], batched(tensors, x)[-1, 0]
        assert torch.allclose(one, all_, atol=1e-4) and torch.allclose(one, vmapped, atol=1e-4)
        result = {
            "per_individual": max(rate(f, population, seconds) or 0 for f in (per_individual, staying)) or None,
            "grouped": rate(lambda: grouped(layers, tensors, x), population, seconds),
            "vmap": rate(lambda: batched(tensors, x), population, seconds),
        }
    print(json.dumps(result))


main()
