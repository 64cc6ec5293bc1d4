# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs of Weights & Biases and MLflow, through their own packages."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from samara.loggers.scalars import is_number
from samara.program import CONFIG, NO_INPUT, Error

if TYPE_CHECKING:
    from samara.runs import Run

ARTIFACTS = ("config.toml", "report.html")
PARAMETERS_MAX = 100  # of one call of MLflow


def videos_of(run: Run) -> list[Path]:
    """The films that a run made of its best policies."""
    return sorted((run.path / "videos").glob("*.mp4"))


class Backend(Protocol):
    """A run of the other program, which exists when this is made: before a run of samara that trains."""

    def begin(self, run: Run) -> None:
        """Sets its name and its configuration."""

    def log(self, values: dict[str, float], step: int) -> None:
        """Writes scalars."""

    def end(self, run: Run) -> None:
        """Writes the result and the files, and closes the run."""

    def abandon(self) -> None:
        """Closes the run in place of both where no run of samara was made."""


class _Wandb:
    def __init__(self, wandb: Any, **keys: Any) -> None:
        self.wandb, self.named = wandb, "name" in keys
        self.run = wandb.init(**{"project": "samara"} | keys)

    def begin(self, run: Run) -> None:
        if not self.named:
            self.run.name = run.path.name
        self.run.config.update(run.config, allow_val_change=True)

    def log(self, values: dict[str, float], step: int) -> None:
        self.run.log(values, step=step)

    def end(self, run: Run) -> None:
        result = run.result or {}
        self.run.summary.update({f"result/{name}": v for name, v in result.items() if is_number(v)})
        for name in ARTIFACTS:
            if (run.path / name).exists():
                self.run.save(str(run.path / name), base_path=str(run.path), policy="now")
        for video in videos_of(run):
            self.run.log({f"video/{video.stem}": self.wandb.Video(str(video), format="mp4")})
        self.run.finish()

    def abandon(self) -> None:
        self.run.finish(exit_code=1)


class _Mlflow:
    def __init__(self, mlflow: Any, **keys: Any) -> None:
        self.mlflow, self.named = mlflow, "run_name" in keys
        if uri := keys.pop("tracking_uri", None):
            mlflow.set_tracking_uri(uri)
        mlflow.set_experiment(keys.pop("experiment", "samara"))
        mlflow.start_run(**keys)

    def begin(self, run: Run) -> None:
        if not self.named:
            self.mlflow.set_tag("mlflow.runName", run.path.name)
        flat = [(f"{table}.{key}", v) for table, keys in run.config.items() for key, v in keys.items()]
        for i in range(0, len(flat), PARAMETERS_MAX):
            self.mlflow.log_params(dict(flat[i : i + PARAMETERS_MAX]))

    def log(self, values: dict[str, float], step: int) -> None:
        self.mlflow.log_metrics(values, step=step)

    def end(self, run: Run) -> None:
        for file in [*(run.path / name for name in ARTIFACTS), *videos_of(run)]:
            if file.exists():
                self.mlflow.log_artifact(str(file))
        self.mlflow.end_run("FINISHED" if run.result else "KILLED")

    def abandon(self) -> None:
        self.mlflow.end_run("FAILED")


BACKENDS = {"wandb": _Wandb, "mlflow": _Mlflow}


def find_backend(name: str) -> Callable[..., Backend]:
    """Returns what makes a backend of that name; raises Error where there is none or its package is missing."""
    if name not in BACKENDS:
        raise Error(CONFIG, f"{name}: expected one of {', '.join(BACKENDS)}")
    try:
        return functools.partial(BACKENDS[name], importlib.import_module(name))
    except ModuleNotFoundError as error:
        raise Error(NO_INPUT, f"logging to {name} needs its package: pip install {name} ({error})") from error
