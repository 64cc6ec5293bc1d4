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
    "gelu": lambda x: nn.functional.gelu(x, approximate="tanh"),
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


def test_normalization_is_the_documented_one(tmp_path):
    tensors, inputs, outputs = trace("normalize, dense 9 tanh", (1, 1, 11), 3, tmp_path)
    x = (torch.from_numpy(inputs).flatten(1) - tensors["normalize.mean"]) / tensors["normalize.std"].clamp_min(0.1)
    whole = torch.from_numpy(inputs).flatten(1)  # the reference batch
    torch.testing.assert_close(tensors["normalize.mean"], whole.mean(0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(tensors["normalize.std"], whole.std(0, correction=0), rtol=1e-5, atol=1e-6)
    want = module("dense", tensors, "out")(torch.tanh(module("dense", tensors, "fc1")(x.clamp(-5, 5))))
    torch.testing.assert_close(torch.from_numpy(outputs).view_as(want), want, rtol=1e-5, atol=3e-6)


def batch_norm(tensors, name, affine):
    """nn.BatchNorm in evaluation. The plain form has the layer's bias and no weight."""
    norm = (nn.BatchNorm2d if name.startswith("conv") else nn.BatchNorm1d)(tensors[f"{name}.bias"].numel(), eps=1e-3)
    parts = {k: tensors[f"{name}_vbn.{k}"] for k in ("running_mean", "running_var")}
    if affine:
        parts |= {k: tensors[f"{name}_vbn.{k}"] for k in ("weight", "bias")}
    else:
        parts |= {"weight": torch.ones_like(parts["running_mean"]), "bias": tensors[f"{name}.bias"]}
    norm.load_state_dict(parts | {"num_batches_tracked": torch.tensor(1)})
    return norm.eval()


@pytest.mark.parametrize("form", ["vbn", "vbn_affine"])
def test_virtual_batch_norm_is_pytorchs_batch_norm(form, tmp_path):
    affine = form == "vbn_affine"
    line = f"conv 5 3x3/2 {form} relu, dense 20 {form} tanh, dense 4 relu"
    tensors, inputs, outputs = trace(line, (9, 8, 2), 2, tmp_path)

    def bias(name):
        return tensors[f"{name}.bias"] if affine else None

    x = torch.from_numpy(inputs).permute(0, 3, 1, 2)
    x = nn.functional.conv2d(x, tensors["conv1.weight"], bias("conv1"), stride=2)
    x = batch_norm(tensors, "conv1", affine)(x).relu().flatten(1)
    x = batch_norm(tensors, "fc1", affine)(nn.functional.linear(x, tensors["fc1.weight"], bias("fc1"))).tanh()
    want = module("dense", tensors, "out")(module("dense", tensors, "fc2")(x).relu())
    torch.testing.assert_close(torch.from_numpy(outputs).view_as(want), want.detach(), rtol=1e-4, atol=2e-5)
    # the statistics are those of this very batch, before its normalization
    sums = nn.functional.conv2d(torch.from_numpy(inputs).permute(0, 3, 1, 2), tensors["conv1.weight"], bias("conv1"), stride=2)
    torch.testing.assert_close(tensors["conv1_vbn.running_mean"], sums.mean((0, 2, 3)), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(tensors["conv1_vbn.running_var"], sums.var((0, 2, 3), correction=0), rtol=1e-5, atol=1e-6)


def test_very_deep_networks_are_pytorchs(tmp_path):
    tensors, inputs, outputs = trace("65 x dense 125 tanh", (1, 1, 11), 2, tmp_path)
    assert sum(t.numel() for t in tensors.values()) == 1_009_752
    x = torch.from_numpy(inputs).flatten(1)
    for i in range(1, 66):
        x = torch.tanh(module("dense", tensors, f"fc{i}")(x))
    want = module("dense", tensors, "out")(x)
    torch.testing.assert_close(torch.from_numpy(outputs).view_as(want), want, rtol=1e-3, atol=2e-4)
