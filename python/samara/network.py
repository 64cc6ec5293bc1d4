# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A torch.nn.Module as the network of a learning run: written as TorchScript, which the program reads."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from samara.program import CONFIG, Error


def script(module: Any, input_shape: Callable[[], Sequence[int]]) -> Any:
    """The module as TorchScript, in evaluation mode; a module that cannot be scripted is traced.

    `input_shape`: of one observation, asked for where it is traced. Raises Error 78.
    """
    import torch

    if isinstance(module, torch.jit.ScriptModule):
        return module
    if not isinstance(module, torch.nn.Module):
        raise Error(CONFIG, f"network: a {type(module).__name__}, expected a torch.nn.Module or the file of one as TorchScript")
    module = copy.deepcopy(module).cpu().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of later forms of the same
        try:
            return torch.jit.script(module)
        except Exception as error:
            return _traced(module, input_shape(), error)


def _traced(module: Any, shape: Sequence[int], why: Exception) -> Any:
    """The module as it computes a batch of two; refused where batches of other sizes give something else."""
    import torch

    if not shape:
        raise Error(CONFIG, "network: the algorithm takes no module of yours; expected one that does, such as ppo, a2c or vtrace")
    said = f"network: not scripted ({_line(why, 0)})"
    with torch.no_grad():
        try:
            traced = torch.jit.trace(module, torch.rand(2, *shape), check_trace=False)
        except Exception as error:
            raise Error(CONFIG, f"{said}, not traced for observations {[2, *shape]} ({_line(error, -1)})") from error
        if not all(_same(module, traced, torch.rand(n, *shape)) for n in (1, 3)):
            raise Error(CONFIG, f"{said}; traced for a batch of two, it fails or gives something else for one and three")
    return traced


def _same(module: Any, traced: Any, x: Any) -> bool:
    try:
        return bool((traced(x) - module(x)).abs().max() < 1e-4)
    except Exception:
        return False


def _line(error: Exception, index: int) -> str:
    """One line of what an error says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[index].strip()
