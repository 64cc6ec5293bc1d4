# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Logs a run to Weights & Biases or MLflow."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from samara.loggers.backends import BACKENDS
from samara.loggers.logger import log
from samara.program import STOPPED, USAGE, Error
from samara.runs import load


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"samara: {message}; `{self.prog} --help`\n")


def main(given: list[str]) -> int:
    """Runs `python -m samara.loggers`; returns the exit code."""
    parser = _Parser(prog="python -m samara.loggers", description=__doc__)
    parser.add_argument("run", help="run folder")
    parser.add_argument("--to", required=True, choices=sorted(BACKENDS))
    parser.add_argument("--project", help="of wandb, experiment of mlflow; default samara")
    parser.add_argument("--follow", action="store_true", help="as long as a process trains the run")
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
