"""The scenarios of tests/train_faults.py at length; one line of counts each, exit 1 at the first that fails.

    PYTHONPATH=build/python .venv/bin/python tests/long/train_faults.py [NAME ...] [--minutes 3] [--keep]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import pytest  # noqa: E402
import train_faults as faults  # noqa: E402
from remote_link import Link  # noqa: E402

SIMULATED = (*faults.CARTPOLE, faults.SIMULATORS)


def cut(folder: Path, seconds: float, deterministic: bool) -> dict:
    with Link.made_or_skipped() as link:
        return faults.links_cut(folder, link, seconds, deterministic)


# name: what it does in so many minutes (budgets of deterministic runs are frames that took about so long on two busy cores)
SCENARIOS: dict[str, Callable[[Path, float], dict]] = {
    "local-actors-killed": lambda folder, minutes: faults.local_actors_killed(folder, 60 * minutes),
    "local-actors-killed-bits": lambda folder, minutes: faults.local_actors_killed_bits(
        folder, *SIMULATED, f"learn.frames={int(60_000 * minutes)}"),
    "atari-actors-killed-bits": lambda folder, minutes: faults.local_actors_killed_bits(
        folder, *faults.PONG, f"learn.updates={int(60 * minutes)}", period=4),
    "remote-actors-killed-bits": lambda folder, minutes: faults.remote_actors_killed_bits(folder, int(60_000 * minutes)),
    "local-actors-frozen": lambda folder, minutes: faults.local_actors_frozen(
        folder, *SIMULATED, f"learn.frames={int(60_000 * minutes)}"),
    "remote-actors-frozen": lambda folder, minutes: faults.remote_actors_frozen(folder, 60 * minutes),
    "engine-killed": lambda folder, minutes: faults.engine_killed(folder, int(200_000 * minutes)),
    "engine-killed-bits": lambda folder, minutes: faults.engine_killed(
        folder, int(60_000 * minutes), faults.DETERMINISTIC),
    "links-cut": lambda folder, minutes: cut(folder, 60 * minutes, False),
    "links-cut-bits": lambda folder, minutes: cut(folder, 60 * minutes, True),
    "attacked": lambda folder, minutes: faults.attacked(folder, int(1500 * minutes)),
    "attacked-bits": lambda folder, minutes: faults.attacked(folder, int(1500 * minutes), deterministic=True),
    "streams-1000": lambda folder, minutes: faults.many_streams(folder, 1000, 60 * minutes),
    "streams-4160": lambda folder, minutes: faults.many_streams(folder, 4160, 60 * minutes),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SCENARIOS)}; default: all")
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--keep", action="store_true", help="the folders too, not only after a failure")
    arguments = parser.parse_args()
    for name in arguments.names or SCENARIOS:
        folder = Path(tempfile.mkdtemp(prefix="samara-faults-"))
        begin = time.monotonic()
        try:
            counts = SCENARIOS[name](folder, arguments.minutes)
        except pytest.skip.Exception as skipped:
            counts = {"skipped": str(skipped)}
        except Exception:
            traceback.print_exc()
            print(json.dumps({"scenario": name, "failed": True, "kept": str(folder)}), flush=True)
            return 1
        print(json.dumps({"scenario": name, "took": round(time.monotonic() - begin), **counts}), flush=True)
        if not arguments.keep:
            shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
