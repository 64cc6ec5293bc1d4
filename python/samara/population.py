# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The population kernel: many different networks of one shape, each on its own observation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from samara.program import CONFIG, Error
from samara.values import whole

try:
    from samara import _engine
except ImportError as missing:
    raise ModuleNotFoundError(
        f"{missing}: samara.PopulationKernel needs its extension; `make build` makes it, and `pip install` does where "
        "the package mujoco is installed"
    ) from missing


class PopulationKernel:
    """Networks of one shape with different parameters, evaluated with the bits of an evolution's run.

    `network`: a name or a line of layers (doc/networks.md), with a dense output layer behind it. `inputs`: the length
    of a vector, or (rows, columns, channels). Arrays are float32, of NumPy or of torch on the CPU, and outputs are of
    the observations' kind; a population's parameters are rows in the order of genomes (doc/deep-ga.md), which
    `from_torch` makes of a state_dict.

        kernel = samara.PopulationKernel("mlp-16-16-relu", inputs=4, outputs=2)
        kernel.load(np.random.default_rng(0).normal(size=(64, kernel.parameter_count)))
        outputs = kernel(observations)  # [64, 4] to [64, 2]

    Raises samara.Error for what does not fit. One thread at a time.
    """

    def __init__(self, network: str, inputs: int | tuple[int, int, int], outputs: int) -> None:
        height, width, channels = (1, 1, whole("inputs", inputs)) if np.ndim(inputs) == 0 else inputs
        self._core = _engine.Population(network, height, width, channels, outputs)
        self.outputs = outputs
        self._state: np.ndarray | None = None

    @property
    def parameter_count(self) -> int:
        """Parameters of one network."""
        return self._core.parameter_count

    def load(self, parameters: Any) -> None:
        """Takes one row of `parameter_count` for each individual, copied; recurrent states start at zero."""
        self._core.load(_floats(parameters))
        self.reset()

    def reset(self) -> None:
        """Recurrent states start at zero."""
        self._state = np.zeros((self._core.individuals, self._core.state_size), np.float32)

    def __call__(self, observations: Any, threads: int = 1) -> Any:
        """Outputs, one row for each individual, for one observation each; recurrent states move on."""
        if whole("threads", threads) < 1:
            raise Error(CONFIG, f"threads={threads}: expected 1 or more")
        if self._state is None:
            self.reset()
        outputs = np.empty((self._core.individuals, self.outputs), np.float32)
        self._core.forward(_floats(observations), outputs, self._state, threads)
        if not hasattr(observations, "detach"):
            return outputs
        import torch

        return torch.from_numpy(outputs)

    def to_torch(self, row: Any) -> dict[str, np.ndarray]:
        """The parameters of one individual as arrays, in the names and shapes of PyTorch's modules."""
        tensors = self._core.to_torch(_floats(row))
        return {name: np.array(values, np.float32).reshape(shape) for name, (shape, values) in tensors.items()}

    def from_torch(self, state_dict: Mapping[str, Any]) -> np.ndarray:
        """A row for `load` from a state_dict, of tensors or arrays."""
        return np.array(self._core.from_torch({k: _floats(v) for k, v in state_dict.items()}), np.float32)


def _floats(given: Any) -> np.ndarray:
    """A view where it can be."""
    if hasattr(given, "detach"):
        given = given.detach()
    return np.ascontiguousarray(given, np.float32)
