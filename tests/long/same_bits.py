"""One seed, one population hash, for every evolution algorithm: over threads, actors, ranks and kills.

    .venv/bin/python tests/long/same_bits.py [--only NAME ...] [--kills 5]

A run of a few generations for each algorithm of `samara list algorithms` in each way, and for actors on `dummy`, an environment that
actor processes play; then a longer one, whole and killed. Prints the table of doc/testing.md and fails where hashes differ.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from samara_cli import train  # noqa: E402
from test_algorithms import ALGORITHMS  # noqa: E402
from test_resume import kill_and_resume  # noqa: E402
from test_train_ranks import result  # noqa: E402

COMMON = ["run.seed=3", "run.random_episodes=2", "run.final_test_episodes=4", "run.video=false",
          "run.stop_when_solved=false"]  # fmt: skip
DUMMY = ["env.id=dummy", "network.name=linear"]
ON_DUMMY = {"map-elites": ["map.low=-1,-1", "map.high=1,1"], "cma-mae": ["map.low=-1,-1", "map.high=1,1"],
            "ssga": ["fleet.inference=engine"]}  # fmt: skip
ES = ["es.population=12", "es.validation_episodes=2", "es.test_episodes=4", "es.test_every=0"]
GA = ["ga.population=24", "ga.test_episodes=4"]
NOVELTY = [*ES, "novelty.centres=2", "novelty.neighbours=5"]
# a preset, its settings, and the key with the number of generations or evaluations
RUNS: dict[str, tuple[str, list[str], str]] = {
    "deep-ga": ("classic/cartpole-ga", ["ga.population=24", "ga.validation_episodes=2", "ga.test_episodes=4"], "ga.generations"),
    "random-search": ("classic/cartpole-ga", ["run.algorithm=random-search", "ga.population=24", "ga.validation_episodes=2",
                                              "ga.test_episodes=4"], "ga.generations"),
    "ga-ns": ("maze/hard-ga-ns", [*GA, "ga.parents=5", "novelty.archive_probability=0.2"], "ga.generations"),
    "map-elites": ("maze/hard-map-elites", GA, "ga.generations"),
    "cma-mae": ("maze/hard-cma-mae", ["map.population=8", "map.emitters=3", "map.test_episodes=4"],
                "map.generations"),
    "es": ("classic/cartpole-es", [*ES, "es.min_steps=1500", "es.cutoff=adaptive:20,0.5,2,300"], "es.generations"),
    "ns-es": ("maze/hard-es", [*NOVELTY, "run.algorithm=ns-es"], "es.generations"),
    "nsr-es": ("maze/hard-es", [*NOVELTY, "run.algorithm=nsr-es"], "es.generations"),
    "nsra-es": ("maze/hard-es", [*NOVELTY, "run.algorithm=nsra-es"], "es.generations"),
    "ssga": ("maze/breadcrumb-sm-g-so", ["ga.population=20", "ga.births=20", "ga.window=8", "env.frames_max=60",
                                         "env.test_frames_max=60"], "ga.evaluations"),
    "ars": ("classic/cartpole-ars", ["ars.directions=6", "ars.validation_episodes=2", "ars.test_episodes=4"], "ars.generations"),
}  # fmt: skip
for name, table in [("pgpe", "pgpe"), ("snes", "snes"), ("sep-cma-es", "cma"), ("cma-es", "cma")]:
    RUNS[name] = (f"classic/cartpole-{name}",
                  [f"{table}.population=12", f"{table}.validation_episodes=2", f"{table}.test_episodes=4"],
                  f"{table}.generations")  # fmt: skip
COLUMNS = ["1 thread", "2 threads", "2 ranks", "3 ranks", "1 actor", "3 actors", "killed"]


def settings(name: str, *more: str, length: int = 4) -> list[str]:
    preset, words, key = RUNS[name]
    return [preset, *COMMON, *words, f"{key}={100 * length if key == 'ga.evaluations' else length}", *more]


def row(name: str, folder: Path, kills: int) -> tuple[list[str], list[str]]:
    """One hash for each column, and what does not agree."""
    one = ["fleet.threads=1"]
    native = settings(name)
    hashes = [train(folder / "one", *native, *one)["population_hash"],
              train(folder / "two", *native, "fleet.threads=2")["population_hash"]]  # fmt: skip
    for ranks in (2, 3):
        shared = result("samara", ranks, *native, "--out", folder / f"ranks{ranks}")
        assert shared["ranks"] == ranks
        hashes.append(shared["population_hash"])
    wrong = [] if len(set(hashes)) == 1 else ["threads or ranks"]
    served = settings(name, *DUMMY, *ON_DUMMY.get(name, []))
    hashes += [train(folder / f"actors{n}", *served, f"fleet.actors={n}")["population_hash"] for n in (1, 3)]
    if hashes[4] != hashes[5]:
        wrong.append("actors")
    for length in (40, 120, 360, 1080):
        words = settings(name, *one, "run.checkpoint_seconds=1", length=length)
        whole = train(folder / f"whole{length}", *words)
        if whole["seconds"] >= 2:
            break
    landed, kept = kill_and_resume(folder, words, whole, seed=1, kills=kills, span=whole["seconds"] / 3)  # or it fails
    hashes.append(f"same, {landed} times")
    if landed < kills or kept == 0:
        wrong.append(f"{landed} kills, the last after generation {kept}")
    return hashes, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], choices=sorted(RUNS))
    parser.add_argument("--kills", type=int, default=5)
    args = parser.parse_args()
    missing = set(ALGORITHMS) - RUNS.keys()
    print("| algorithm | " + " | ".join(COLUMNS) + " |\n|" + "---|" * (len(COLUMNS) + 1), flush=True)
    failed = sorted(f"{name}: not here" for name in missing)
    for name in args.only or RUNS:
        with tempfile.TemporaryDirectory() as folder:
            hashes, wrong = row(name, Path(folder), args.kills)
        print(f"| `{name}` | " + " | ".join(h if " " in h else h[:8] for h in hashes) + " |", flush=True)
        failed += [f"{name}: {what}" for what in wrong]
    print("\n".join(failed) or "every row agrees", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
