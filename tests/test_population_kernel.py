"""samara.PopulationKernel against the same networks in PyTorch."""

import numpy as np
import pytest
import samara

torch = pytest.importorskip("torch")


def rows(kernel, n, seed=0):
    return np.random.default_rng(seed).normal(scale=0.3, size=(n, kernel.parameter_count)).astype(np.float32)


def test_every_individual_has_its_own_network():
    kernel = samara.PopulationKernel("mlp-16-8-tanh", inputs=5, outputs=3)
    population, x = rows(kernel, 7), np.random.default_rng(1).normal(size=(7, 5)).astype(np.float32)
    kernel.load(population)
    outputs = kernel(x)
    assert outputs.shape == (7, 3) and (kernel(x, threads=3) == outputs).all()
    assert torch.equal(kernel(torch.from_numpy(x)), torch.from_numpy(outputs))
    for i in range(7):
        w = {name: torch.from_numpy(values) for name, values in kernel.to_torch(population[i]).items()}
        hidden = torch.from_numpy(x[i])
        for name in ("fc1", "fc2"):
            hidden = torch.tanh(w[f"{name}.weight"] @ hidden + w[f"{name}.bias"])
        expected = w["out.weight"] @ hidden + w["out.bias"]
        assert np.allclose(outputs[i], expected, atol=1e-5)


def test_convolutions_and_state_dicts():
    net = torch.nn.Sequential()
    for name, module in [("conv1", torch.nn.Conv2d(2, 4, 3, stride=2)), ("relu", torch.nn.ReLU()),
                         ("flatten", torch.nn.Flatten()), ("out", torch.nn.Linear(4 * 4 * 4, 3))]:  # fmt: skip
        net.add_module(name, module)
    kernel = samara.PopulationKernel("conv 4 3x3/2 relu", inputs=(9, 9, 2), outputs=3)
    row = kernel.from_torch(net.state_dict())
    kernel.load(np.stack([row, 2 * row]))
    images = torch.randn(2, 9, 9, 2)
    assert np.allclose(kernel(images)[0], net(images[:1].permute(0, 3, 1, 2)).detach()[0], atol=1e-5)
    back = kernel.to_torch(row)
    assert back.keys() == net.state_dict().keys() and all(np.array_equal(back[k], v) for k, v in net.state_dict().items())


def test_recurrent_states_are_kept():
    kernel = samara.PopulationKernel("gru 6", inputs=3, outputs=2)
    population = rows(kernel, 2)
    kernel.load(population)
    cells = []
    for row in population:
        w = {name: torch.from_numpy(values) for name, values in kernel.to_torch(row).items()}
        cell = torch.nn.GRUCell(3, 6)
        cell.load_state_dict({k.removeprefix("gru1."): v for k, v in w.items() if k.startswith("gru1.")})
        cells.append((cell, w, torch.zeros(1, 6)))
    for x in np.random.default_rng(2).normal(size=(5, 2, 3)).astype(np.float32):
        outputs = kernel(x)
        for i, (cell, w, state) in enumerate(cells):
            state = cell(torch.from_numpy(x[i][None]), state).detach()
            cells[i] = (cell, w, state)
            assert np.allclose(outputs[i], state[0] @ w["out.weight"].T + w["out.bias"], atol=1e-5)
    first = kernel(x)
    kernel.reset()
    assert not np.allclose(kernel(x), first)


@pytest.mark.parametrize(("call", "words"), [
    (lambda k: samara.PopulationKernel("mlp-16-rely", 4, 2), "rely"),
    (lambda k: k.load(np.zeros((2, 3))), "expected one row of"),
    (lambda k: k.load(np.full((2, k.parameter_count), np.nan)), "expected finite numbers"),
    (lambda k: k(np.zeros((1, 4))), "for each of 2 individuals"),
    (lambda k: k(np.zeros((2, 5))), "one observation of 4 numbers"),
    (lambda k: k.to_torch(np.zeros(3)), "expected .* parameters"),
    (lambda k: k.from_torch({"fc1.weight": np.zeros((2, 2))}), "1 tensors, network mlp-8-relu has 4"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(call, words):
    kernel = samara.PopulationKernel("mlp-8-relu", 4, 2)
    kernel.load(np.zeros((2, kernel.parameter_count)))
    with pytest.raises(samara.Error, match=words):
        call(kernel)
