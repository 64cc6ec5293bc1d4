"""One seed, one population hash, for every evolution algorithm: over threads, actors, ranks and kills.

    .venv/bin/python tests/long/same_bits.py [--only NAME ...] [--kills 5]

The small run of each algorithm in tests/test_algorithms.py in each way, and for actors on `dummy`, an environment that actor
processes play; then a longer one, whole and killed. Prints the table of doc/testing.md and fails where hashes differ.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from samara_cli import train  # noqa: E402
from test_algorithms import ALGORITHMS, SMALL, length_of  # noqa: E402
from test_resume import kill_and_resume  # noqa: E402
from test_train_ranks import result  # noqa: E402

DUMMY = ["env.id=dummy", "network.name=linear"]
CORNERS = ["map.low=-1,-1", "map.high=1,1"]
ON_DUMMY = {"map-elites": CORNERS, "cma-mae": CORNERS, "ssga": ["fleet.inference=engine"]}


def settings(name: str, times: int) -> list[str]:
    """The small run, so many times as long."""
    key, length = length_of(SMALL[name])
    return [*SMALL[name], "run.stop_when_solved=false", f"{key}={times * int(length)}"]


def row(name: str, folder: Path, kills: int) -> list[str]:
    """A hash for each column, or what does not agree in it."""
    ways: dict[str, list[str]] = {"threads and ranks": [], "actors": []}
    for threads in (1, 2):
        ways["threads and ranks"].append(
            train(folder / f"threads{threads}", *settings(name, 2), f"fleet.threads={threads}")["population_hash"])  # fmt: skip
    for ranks in (2, 3):
        shared = result("samara", ranks, *settings(name, 2), "--out", folder / f"ranks{ranks}")
        assert shared["ranks"] == ranks
        ways["threads and ranks"].append(shared["population_hash"])
    for actors in (1, 3):
        served = [*settings(name, 2), *DUMMY, *ON_DUMMY.get(name, []), f"fleet.actors={actors}"]
        ways["actors"].append(train(folder / f"actors{actors}", *served)["population_hash"])
    columns = [hashes[0][:8] if len(set(hashes)) == 1 else f"DIFFERENT: {hashes}" for hashes in ways.values()]
    for times in (20, 60, 180, 540, 1620):
        words = [*settings(name, times), "fleet.threads=1", "run.checkpoint_seconds=1"]
        whole = train(folder / f"whole{times}", *words)
        if whole["seconds"] >= 2:
            break
    landed = kill_and_resume(folder, words, whole, seed=1, kills=kills, span=whole["seconds"] / 3)  # or it fails
    return [*columns, f"same, {landed} times" if landed == kills else f"TOO FEW: {landed} kills"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], choices=sorted(SMALL))
    parser.add_argument("--kills", type=int, default=5)
    args = parser.parse_args()
    failed = sorted(f"{name}: not here" for name in set(ALGORITHMS) - SMALL.keys())
    print("| algorithm | threads and ranks | actors | killed |\n|---|---|---|---|", flush=True)
    for name in args.only or SMALL:
        with tempfile.TemporaryDirectory() as folder:
            columns = row(name, Path(folder), args.kills)
        print("| " + " | ".join([f"`{name}`", *columns]) + " |", flush=True)
        failed += [f"{name}: {column}" for column in columns if column[0].isupper()]
    print("\n".join(failed) or "every row agrees", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
