# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Logs runs to Weights & Biases and MLflow, through their own packages.

    samara.train("classic/cartpole-ga", callback=samara.Logger("wandb", project="mine"))
    samara.load("runs/cartpole-ga-01").log("mlflow")
    python -m samara.loggers runs/cartpole-ga-01 --to wandb --follow

Metrics have the names and steps of the run's TensorBoard file: "losses/entropy", against environment frames.
"""

from __future__ import annotations

from samara.loggers.backends import Backend
from samara.loggers.logger import Logger, log
from samara.loggers.scalars import GROUPS, scalars_of

__all__ = ["GROUPS", "Backend", "Logger", "log", "scalars_of"]
