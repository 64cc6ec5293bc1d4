# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Batch norm over all replicas."""

from __future__ import annotations

from typing import Any

import torch

from samara.replica.binding import ReplicationError, extension, this_thread


class CrossReplicaBatchNorm(torch.nn.Module):
    """Normalizes channel 1 of [batch, channels, ...] with the statistics of all replicas' batches, which may differ in
    size: one message forward and one backward. Outside a step, and in eval(), an ordinary batch norm. The running
    statistics are those of a rank's first replica: evaluate outside steps."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, device: Any = None,
                 dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        at = {"device": device, "dtype": dtype}
        self.weight = torch.nn.Parameter(torch.ones(num_features, **at))
        self.bias = torch.nn.Parameter(torch.zeros(num_features, **at))
        self.register_buffer("running_mean", torch.zeros(num_features, **at))
        self.register_buffer("running_var", torch.ones(num_features, **at))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalizes `x`."""
        inside = getattr(this_thread, "context", None)
        return extension.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var, self.training,
                                   self.eps, self.momentum, inside._core if inside is not None else None)

    def extra_repr(self) -> str:
        """Returns the arguments, for repr."""
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"

    @classmethod
    def convert(cls, module: torch.nn.Module, done: dict[int, torch.nn.Module] | None = None) -> torch.nn.Module:
        """Returns `module` with every BatchNorm1d, 2d and 3d within it replaced, in place but for `module` itself, with
        their parameters and statistics. `done`: modules replaced so far, by id."""
        done = {} if done is None else done  # a module with several places is replaced by one
        if id(module) not in done:
            done[id(module)] = cls._converted(module, done)
        return done[id(module)]

    @classmethod
    def _converted(cls, module: torch.nn.Module, done: dict[int, torch.nn.Module]) -> torch.nn.Module:
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            if not module.affine or not module.track_running_stats or module.momentum is None:
                raise ReplicationError(78, f"{module}: expected affine=True, track_running_stats=True and a momentum")
            made = cls(module.num_features, module.eps, module.momentum, module.weight.device, module.weight.dtype)
            made.weight, made.bias = module.weight, module.bias
            made.running_mean, made.running_var = module.running_mean, module.running_var
            return made.train(module.training)
        for name, child in module._modules.items():
            if child is not None:
                module._modules[name] = cls.convert(child, done)
        return module
