"""The sensitivity sm_g_abs by torch: the rival of `samara bench safe-mutation`.

    python safe_mutation_rivals.py LAYERS UNITS ACTIVATION NUMBERS SECONDS

A perceptron 11-[UNITS x LAYERS]-2. NUMBERS, float32: the parameters (per layer weights [in][out], then
biases), 100 inputs, and the sensitivity that samara computed, which is compared. Prints how many a second
a loop of one backward pass per state and output computes, and torch.func.jacrev under vmap, as one JSON
object.
"""

import json
import sys
import time

import numpy as np
import torch

INPUTS, OUTPUTS, STATES = 11, 2, 100


def main() -> None:
    layers, units, activation, path, seconds = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], float(sys.argv[5])
    numbers = torch.from_numpy(np.fromfile(path, dtype=np.float32))
    act = {"relu": torch.relu, "tanh": torch.tanh}[activation]
    sizes = [INPUTS] + [units] * layers + [OUTPUTS]
    parameters, at = [], 0
    for fan_in, fan_out in zip(sizes, sizes[1:]):
        for shape in ((fan_in, fan_out), (fan_out,)):
            n = int(np.prod(shape))
            parameters.append(numbers[at : at + n].reshape(shape).clone().requires_grad_())
            at += n
    inputs = numbers[at : at + STATES * INPUTS].reshape(STATES, INPUTS)
    ours = numbers[at + STATES * INPUTS :]
    assert ours.numel() == at

    def forward(weights, x):
        for i in range(0, len(weights), 2):
            x = x @ weights[i] + weights[i + 1]
            if i + 2 < len(weights):
                x = act(x)
        return x

    def loop():
        means = [[torch.zeros_like(p) for p in parameters] for _ in range(OUTPUTS)]
        for x in inputs:
            out = forward(parameters, x)
            for k in range(OUTPUTS):
                for mean, gradient in zip(means[k], torch.autograd.grad(out[k], parameters, retain_graph=k + 1 < OUTPUTS)):
                    mean += gradient.abs() / STATES
        return [sum(means[k][i] ** 2 for k in range(OUTPUTS)).sqrt() for i in range(len(parameters))]

    detached = tuple(p.detach() for p in parameters)
    jacobians = torch.func.vmap(torch.func.jacrev(lambda weights, x: forward(weights, x)), in_dims=(None, 0))

    def func():  # ten states at once: all hundred of the large network are 800 MB
        means = [torch.zeros(OUTPUTS, *p.shape) for p in detached]
        for first in range(0, STATES, 10):
            for mean, j in zip(means, jacobians(detached, inputs[first : first + 10])):
                mean += j.abs().sum(0) / STATES
        return [(mean**2).sum(0).sqrt() for mean in means]

    result = {"torch_threads": torch.get_num_threads()}
    for name, compute in (("loop", loop), ("func", func)):
        values = torch.cat([v.flatten() for v in compute()])
        difference = float((values - ours).abs().max() / ours.abs().max())
        result["relative_difference"] = max(difference, result.get("relative_difference", 0.0))
        start, done = time.perf_counter(), 0
        while done == 0 or time.perf_counter() - start < seconds:
            compute()
            done += 1
        result[f"torch_{name}_per_second"] = done / (time.perf_counter() - start)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
