"""Layers of evolved networks against PyTorch's own modules, which read the tensors of a policy file."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
TRACE = ROOT / "build" / "network_trace"
STEPS = 25

ACTIVATIONS = {
    "none": lambda x: x, "relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "elu": nn.functional.elu, "selu": torch.selu, "silu": nn.functional.silu,
    "lrelu": nn.functional.leaky_relu, "lrelu0.2": lambda x: nn.functional.leaky_relu(x, 0.2),
}  # fmt: skip


def trace(line, shape, outputs, folder):
    subprocess.run([TRACE, line, *map(str, shape), str(outputs), str(STEPS), folder], check=True)
    inputs = np.fromfile(folder / "inputs.f32", np.float32).reshape(STEPS, *shape)
    return load_file(folder / "policy.safetensors"), inputs, np.fromfile(folder / "outputs.f32", np.float32)


def module(kind, tensors, name):
    """The module of a layer with its tensors, which must be all that it has."""
    weight = tensors.get(f"{name}.weight", tensors.get(f"{name}.weight_ih"))
    gates = {"lstm": 4, "gru": 3}.get(kind, 1)
    units, inputs = weight.shape[0] // gates, weight.shape[1]
    made = {"dense": nn.Linear, "rnn": nn.RNNCell, "lstm": nn.LSTMCell, "gru": nn.GRUCell}[kind](inputs, units)
    made.load_state_dict({k[len(name) + 1 :]: v for k, v in tensors.items() if k.startswith(name + ".")})
    return made


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_are_pytorchs(activation, tmp_path):
    tensors, inputs, outputs = trace(f"dense 40 {activation}, out {activation}", (1, 1, 7), 5, tmp_path)
    first, out = module("dense", tensors, "fc1"), module("dense", tensors, "out")
    act = ACTIVATIONS[activation]
    want = act(out(act(first(torch.from_numpy(inputs).flatten(1)))))
    torch.testing.assert_close(torch.from_numpy(outputs).view_as(want), want, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("units", [1, 15, 16, 33])
@pytest.mark.parametrize("kind", ["rnn tanh", "rnn relu", "lstm", "gru"])
def test_cells_are_pytorchs(kind, units, tmp_path):
    """Two stacked cells over a whole episode, their state included."""
    name, *activation = kind.split()
    tensors, inputs, outputs = trace(f"2 x {name} {units} {''.join(activation)}", (1, 1, 6), 3, tmp_path)
    cells = [module(name, tensors, f"{name}{i}") for i in (1, 2)]
    for cell in cells:
        cell.nonlinearity = activation[0] if activation else None
    out = module("dense", tensors, "out")
    states = [None, None]
    for x, got in zip(inputs, outputs.reshape(STEPS, 3)):
        x = torch.from_numpy(x).view(1, -1)
        for i, cell in enumerate(cells):
            states[i] = cell(x, states[i])
            x = states[i][0] if name == "lstm" else states[i]
        torch.testing.assert_close(torch.from_numpy(got), out(x)[0], rtol=1e-5, atol=3e-6)


def test_a_cell_reads_a_map_as_pytorch_flattens_it(tmp_path):
    tensors, inputs, outputs = trace("conv 3 3x3/2 tanh, gru 5, dense 4 silu", (9, 8, 2), 2, tmp_path)
    cell, dense, out = module("gru", tensors, "gru1"), module("dense", tensors, "fc"), module("dense", tensors, "out")
    state = None
    for x, got in zip(inputs, outputs.reshape(STEPS, 2)):
        x = torch.from_numpy(x).permute(2, 0, 1)[None]
        x = torch.tanh(nn.functional.conv2d(x, tensors["conv1.weight"], tensors["conv1.bias"], stride=2))
        state = cell(x.flatten(1), state)
        want = out(nn.functional.silu(dense(state)))[0]
        torch.testing.assert_close(torch.from_numpy(got), want, rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_whole_sequence_is_pytorchs_layer(kind, tmp_path):
    """nn.LSTM and nn.GRU, whose tensors end with _l0."""
    tensors, inputs, outputs = trace(f"{kind} 20", (1, 1, 4), 2, tmp_path)
    layer = {"lstm": nn.LSTM, "gru": nn.GRU}[kind](4, 20)
    layer.load_state_dict({k[len(kind) + 2 :] + "_l0": v for k, v in tensors.items() if k.startswith(kind)})
    hidden = layer(torch.from_numpy(inputs).view(STEPS, 1, 4))[0]
    want = module("dense", tensors, "out")(hidden)
    torch.testing.assert_close(torch.from_numpy(outputs).view_as(want), want, rtol=1e-5, atol=3e-6)


def test_very_deep_networks_are_pytorchs(tmp_path):
    tensors, inputs, outputs = trace("65 x dense 125 tanh", (1, 1, 11), 2, tmp_path)
    assert sum(t.numel() for t in tensors.values()) == 1_009_752
    x = torch.from_numpy(inputs).flatten(1)
    for i in range(1, 66):
        x = torch.tanh(module("dense", tensors, f"fc{i}")(x))
    want = module("dense", tensors, "out")(x)
    torch.testing.assert_close(torch.from_numpy(outputs).view_as(want), want, rtol=1e-3, atol=2e-4)
