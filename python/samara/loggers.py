# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Logs runs to Weights & Biases and MLflow, through their own packages.

    samara.train("classic/cartpole-ga", callback=samara.Logger("wandb", project="mine"))
    samara.load("runs/cartpole-ga-01").log("mlflow")
    python -m samara.loggers runs/cartpole-ga-01 --to wandb --follow

Metrics have the names and steps of the run's TensorBoard file: "losses/entropy", against environment frames.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from samara.program import CONFIG, NO_INPUT, STOPPED, UNAVAILABLE, USAGE, Error, one_line

if TYPE_CHECKING:
    from samara.runs import Run

# The rules of src/storage/scalars.cc: beginnings of names, and ends behind a '*'; the first group that fits.
GROUPS = {
    "time": "seconds *_per_second",
    "charts": "return fitness elite_validation elite_test length population_mean novelty centre_mean centre_novelty"
    " coverage qd_score archive",
    "losses": "loss *_loss entropy q_mean td_error kl importance_weight clip_fraction explained_variance *gradient_norm"
    " learning_rate update_ratio",
    "counts": "generation update steps episodes evaluations solved_at frames observations_seen",
    "system": "lag queue stalls rows_per_batch live_slots environment_workers respawns",
}
EVENTS = {
    ("random_policy", "mean"): "eval/random_mean",
    ("evaluation", "mean"): "eval/return_mean",
    ("finished", "elite_mean"): "eval/final_mean",
    ("finished", "test_mean"): "eval/final_mean",
}
ARTIFACTS = ("config.toml", "report.html")
PARAMETERS_MAX = 100  # of one call of MLflow


def grouped_name(name: str) -> str:
    """Returns the name of a metric with its group, such as "losses/entropy"."""
    for group, words in GROUPS.items():
        if any(name.endswith(w[1:]) if w.startswith("*") else name.startswith(w) for w in words.split()):
            return f"{group}/{name}"
    return f"algorithm/{name}"


def scalars_of(line: Mapping[str, Any]) -> tuple[int, dict[str, float]]:
    """Returns the step, in frames, and the scalars of a line of metrics.jsonl; none for a line without scalars."""
    step = line.get("frames", line.get("generation", line.get("update", 0)))
    if "event" in line:
        tags = {name: tag for (event, name), tag in EVENTS.items() if event == line["event"]}
        return step, {tag: line[name] for name, tag in tags.items() if _is_number(line.get(name))}
    return step, {grouped_name(name): v for name, v in line.items() if name != "frames" and _is_number(v)}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


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
        self.named = "name" in keys
        self.run = wandb.init(**{"project": "samara"} | keys)

    def begin(self, run: Run) -> None:
        if not self.named:
            self.run.name = run.path.name
        self.run.config.update(run.config, allow_val_change=True)

    def log(self, values: dict[str, float], step: int) -> None:
        self.run.log(values, step=step)

    def end(self, run: Run) -> None:
        result = run.result or {}
        self.run.summary.update({f"result/{name}": v for name, v in result.items() if _is_number(v)})
        for name in ARTIFACTS:
            if (run.path / name).exists():
                self.run.save(str(run.path / name), base_path=str(run.path), policy="now")
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
        for name in ARTIFACTS:
            if (run.path / name).exists():
                self.mlflow.log_artifact(str(run.path / name))
        self.mlflow.end_run("FINISHED" if run.result else "KILLED")

    def abandon(self) -> None:
        self.mlflow.end_run("FAILED")


_BACKENDS = {"wandb": _Wandb, "mlflow": _Mlflow}


def _backend(name: str) -> Callable[..., Backend]:
    if name not in _BACKENDS:
        raise Error(CONFIG, f"{name}: expected one of {', '.join(_BACKENDS)}")
    try:
        return functools.partial(_BACKENDS[name], importlib.import_module(name))
    except ModuleNotFoundError as error:
        raise Error(NO_INPUT, f"logging to {name} needs its package: pip install {name} ({error})") from error


class Logger:
    """A callback of samara.train that logs to "wandb", to "mlflow", or to what a class of your own makes (Backend).

    Further keys go to `wandb.init` (project, mode="offline", dir, tags, ...), or to `mlflow.start_run`, with
    `experiment` and `tracking_uri` besides, or to the class. Raises Error 66 where the package is not installed, and 69,
    before a run folder is made, where its run does not start. What fails later is warned about once, and training goes
    on.
    """

    def __init__(self, to: str | Callable[..., Backend], **keys: Any) -> None:
        self._to = to if isinstance(to, str) else getattr(to, "__name__", type(to).__name__)
        self._make = functools.partial(_backend(to) if isinstance(to, str) else to, **keys)
        self._backend: Backend | None = None
        self._warned, self._strict = False, False

    def prepare(self) -> None:
        """Makes the other program's run, before samara's is started. Raises Error."""
        try:
            self._backend = self._make()
        except Exception as error:
            raise Error(UNAVAILABLE, f"logging to {self._to} did not start: {one_line(error)}") from error

    def begin(self, run: Run) -> None:
        """Names and configures the other program's run. Called before the first line, when the run folder exists."""
        if self._backend is None:
            self.prepare()
        self._attempt(self._backend.begin, run)

    def __call__(self, line: Mapping[str, Any]) -> None:
        step, values = scalars_of(line)
        if values and self._backend is not None:
            self._attempt(self._backend.log, values, step)

    def end(self, run: Run) -> None:
        """Closes it. Called after the last line."""
        backend, self._backend = self._backend, None
        if backend is not None:
            self._attempt(backend.end, run)

    def abandon(self) -> None:
        """Closes it. Called in place of `begin` and `end` where no run folder was made."""
        backend, self._backend = self._backend, None
        if backend is not None:
            self._attempt(backend.abandon)

    def _attempt(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception as error:
            if self._strict:
                raise Error(UNAVAILABLE, f"logging to {self._to} failed: {one_line(error)}") from error
            if not self._warned:
                warnings.warn(f"logging to {self._to} failed, the run goes on: {one_line(error)}", stacklevel=2)
            self._warned = True


def log(run: Run, to: str, *, follow: bool = False, **keys: Any) -> None:
    """Logs the lines of `run`; with `follow` also those that it writes until it is finished. Raises Error."""
    logger = Logger(to, **keys)
    logger._strict = True
    logger.begin(run)
    try:
        for line in run.lines(follow=follow):
            logger(line)
    finally:
        logger.end(run)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"samara: {message}; `{self.prog} --help`\n")


def main(given: list[str]) -> int:
    """Runs `python -m samara.loggers`; returns the exit code."""
    from samara.runs import load

    parser = _Parser(prog="python -m samara.loggers", description=__doc__.split("\n")[0])
    parser.add_argument("run", help="run folder")
    parser.add_argument("--to", required=True, choices=sorted(_BACKENDS))
    parser.add_argument("--project", help="of wandb, experiment of mlflow; default samara")
    parser.add_argument("--follow", action="store_true", help="until the run is finished")
    arguments = parser.parse_args(given)
    name = {"wandb": "project", "mlflow": "experiment"}[arguments.to]
    try:
        log(load(arguments.run), arguments.to, follow=arguments.follow,
            **({name: arguments.project} if arguments.project else {}))
    except Error as error:
        print(f"samara: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return STOPPED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
