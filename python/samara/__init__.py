# SPDX-License-Identifier: Apache-2.0 OR MIT
"""samara: train many agents cheaply and reproducibly.

    import samara

    run = samara.train("classic/cartpole-ga", {"run.seed": 3})
    print(run.result["elite_mean"], run.metrics())
    policy = run.policy()  # from an observation to an action

`doc/python.md` is the manual. Names are imported when they are first used: actor processes, which
import this package too, load nothing of it. `samara.replica` (replicated training for torch) is
imported by its own name.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from samara.loggers import Logger
    from samara.policy import Policy, PolicyState
    from samara.population import PopulationKernel
    from samara.program import Error
    from samara.runs import Run, RunningRun, load, start, train
    from samara.vector import VectorEnv, make_vec

__version__ = "0.1.0"

_HOME = {
    "Error": "program",
    "Logger": "loggers",
    "Policy": "policy",
    "PolicyState": "policy",
    "PopulationKernel": "population",
    "Run": "runs",
    "RunningRun": "runs",
    "VectorEnv": "vector",
    "load": "runs",
    "make_vec": "vector",
    "start": "runs",
    "train": "runs",
}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'samara' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"samara.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
