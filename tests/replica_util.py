"""Starts the replicator's example programs under launchers. Shared by the replicator's tests."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from samara_cli import BINARY, ROOT, environment

MLP = ROOT / "build" / "examples" / "mlp_exact"


def command(launcher: str, ranks: int, program: Path | str = MLP) -> list[str]:
    if launcher == "torchrun":
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node",
                str(ranks), str(program)]
    if launcher == "mpirun":
        return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), str(program)]
    if launcher == "srun":
        return ["srun", "-n", str(ranks), str(program)]
    if launcher == "samara":
        return [str(BINARY), "launch", "-n", str(ranks), str(program)]
    assert launcher == "threads"
    return [str(program), "--threads-as-ranks", str(ranks)]


def available(launcher: str) -> bool:
    if launcher == "srun":  # a cluster that answers, not the program alone
        command = ["timeout", "10", "sinfo", "--noheader"]
        return shutil.which("sinfo") is not None and bool(subprocess.run(command, capture_output=True).stdout)
    return launcher != "mpirun" or shutil.which("mpirun") is not None


def run(launcher: str, ranks: int, *args: object, timeout: float = 120, program: Path | str = MLP,
        **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run(command(launcher, ranks, program) + list(map(str, args)), capture_output=True, text=True,
                          timeout=timeout, env=environment(**variables))


def result(done: subprocess.CompletedProcess) -> dict:
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])
