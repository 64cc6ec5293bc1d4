"""Floods of HTTP/2 frames by strangers against a training run that listens: memory and training rate, a line each.

    PYTHONPATH=build/python .venv/bin/python tests/long/remote_floods.py [--seconds 20] [--binary build/samara] [NAME ...]

Each run of CartPole, played by one remote actor, is measured undisturbed and then under floods, one after the other (8 MB of
streams that are reset at once, or a header of a gigabyte, over 8 connections). The flooding process has the lowest priority:
what it takes of this machine by itself is not the engine's loss. Exit 1 where memory grew by 64 MB or more, or the rate fell
below 0.9. `--binary` names another build, to compare.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import train_faults as faults  # noqa: E402
from remote_flood import flood_by  # noqa: E402
from samara_cli import ok  # noqa: E402

MEGABYTES = {"resets": 8, "continuations": 1000}
STRANGERS = ("of-another-user", "of-this-user", "without-a-certificate", "token-only")
NOBODY, CONNECTIONS = 65534, 8
GROWTH_MAX_KB, RATE_MIN = 64_000, 0.9


def memory_kb(pid: int, name: str) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().split(f"{name}:")[1].split()[0])


def measure(folder: Path, stranger: str, kind: str, seconds: float) -> dict:
    ok("token", folder / "token")
    terms, secrets, tls = ["--token-file", folder / "token"], ["--token-file", folder / "token"], []
    off_loopback = stranger in ("without-a-certificate", "token-only")
    if off_loopback:
        pki = folder / "pki"
        ok("certificates", pki, "--host", "127.0.0.1")
        terms += ["--certificate", pki / "engine.pem", "--key", pki / "engine.key"]
        help_text = subprocess.run([faults.BINARY, "train", "--help"], capture_output=True, text=True, check=True).stdout
        if stranger == "without-a-certificate":
            terms += ["--client-ca", pki / "ca.pem"]
        elif "--token-only" in help_text:
            terms += ["--token-only"]
        secrets += ["--ca", pki / "ca.pem", "--certificate", pki / "actor.pem", "--key", pki / "actor.key"]
        tls = [pki / "ca.pem"]
    training = faults.Training(folder / "run", *faults.CARTPOLE, faults.FOREVER, terms=terms,
                               listen="0.0.0.0:0" if off_loopback else "127.0.0.1:0")
    actor = None
    try:
        while "listens at" not in training.text():
            assert training.running(), training.text()
            time.sleep(0.05)
        address = training.text().split("listens at ")[1].split(": samara actor")[0].replace("0.0.0.0", "127.0.0.1")
        actor = faults.Actor(folder, address, 32, *secrets)
        training.wait_for_updates(20)
        calm = faults.rate(training, seconds)
        pid = training.process.pid
        before = memory_kb(pid, "VmRSS")
        begin, start, floods = training.wait_for_updates(1), time.monotonic(), []
        while time.monotonic() - start < seconds:
            floods.append(flood_by(NOBODY if stranger == "of-another-user" else None, folder, address, kind,
                                   MEGABYTES[kind], CONNECTIONS, *tls))
        last = training.wait_for_updates(1, seconds=600)
        under = (last["frames"] - begin["frames"]) / (last["seconds"] - begin["seconds"])
        grown = memory_kb(pid, "VmHWM") - before
        drops = {k: n for k, n in faults.counted(last["drops"]).items() if k.startswith("remote_")}
    finally:
        for process in (actor, training):
            if process is not None:
                process.kill()
    return {"stranger": stranger, "kind": kind, "floods": len(floods), "bytes": sum(f["bytes"] for f in floods),
            "frames_per_second_before": round(calm), "meanwhile": round(under), "ratio": round(under / calm, 2),
            "grown_kb": grown, "drops": drops}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [f"{stranger}-{kind}" for stranger in STRANGERS for kind in MEGABYTES]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--binary", type=Path, default=faults.BINARY)
    arguments = parser.parse_args()
    faults.BINARY = arguments.binary.resolve()
    held = True
    for name in arguments.names or names:
        stranger, _, kind = name.rpartition("-")
        folder = Path(tempfile.mkdtemp(prefix="samara-floods-"))
        counts = measure(folder, stranger, kind, arguments.seconds)
        good = counts["grown_kb"] < GROWTH_MAX_KB and counts["ratio"] >= RATE_MIN
        held = held and good
        print(json.dumps(counts | {"held": good}), flush=True)
        shutil.rmtree(folder)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
