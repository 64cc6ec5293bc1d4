"""Resident memory of a training run stays flat: engine, its own actors, remote ones in C++ and in Python.

    PYTHONPATH=build/python .venv/bin/python tests/long/memory_flat.py [--minutes 20] [--bound-kb 2048]

CartPole (Gymnasium's, a millisecond a step) on two actor processes of the engine, one `samara actor` and one `python -m
samara.actor`, all at the lowest priority; the resident size of every process each two seconds. Growth of a process: the median of
the last quarter after warm-up less that of the first. Fails when one grew by more than the bound, died, or training stood still.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from samara_cli import BINARY, ROOT, TESTS, environment  # noqa: E402

SAMPLE_SECONDS = 2.0
PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024


def resident_kb(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_KB


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def slope_kb_per_hour(samples: list[tuple[float, int]]) -> float:
    """Least squares."""
    n = len(samples)
    mean_t, mean_y = sum(t for t, _ in samples) / n, sum(y for _, y in samples) / n
    spread = sum((t - mean_t) ** 2 for t, _ in samples)
    return 3600 * sum((t - mean_t) * (y - mean_y) for t, y in samples) / spread


class Run:
    def __init__(self, folder: Path, samara: Path) -> None:
        variables = environment(PYTHONPATH=f"{samara.parent / 'python'}:{TESTS / 'envs'}")
        address, game = f"unix:{folder}/s/socket", "paced:PacedCartPole-v0"

        def start(log: str, *command: object) -> subprocess.Popen:
            with open(folder / log, "wb") as file:
                return subprocess.Popen(["nice", "-n", "19", *map(str, command)], stdout=file, stderr=file,
                                        env=variables, cwd=ROOT)

        self.folder = folder / "run"
        self.engine = start(
            "engine.log", samara, "train", "classic/cartpole-vtrace", f"env.id={game}", "learn.environments=32",
            "learn.frames=1e15", "run.random_episodes=0", "run.checkpoint_seconds=20", "fleet.actors=2",
            "fleet.remote_slots=16", "--listen", address, "--out", self.folder, "--quiet")
        self.actors = {
            "samara actor": start("native.log", samara, "actor", "--connect", address, "--env", game, "--slots", 8,
                                  "--threads", 1),
            "python -m samara.actor": start("python.log", ROOT / ".venv/bin/python", "-m", "samara.actor", "--connect",
                                            address, "--env", game, "--slots", 8),
        }

    def last(self) -> dict:
        try:
            lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return {}
        kept = [line for line in map(json.loads, lines[-3:]) if "update" in line and "event" not in line]
        return kept[-1] if kept else {}

    def wait_until_all_play(self) -> None:
        end = time.monotonic() + 120
        while self.last().get("live_slots") != 32:
            assert self.engine.poll() is None and time.monotonic() < end, self.last()
            time.sleep(0.5)

    def processes(self) -> dict[str, int]:
        """Names and ids; `nice` has become the program it started."""
        named = {"engine": self.engine.pid}
        for i, pid in enumerate(sorted(children(self.engine.pid))):
            named[f"engine's actor {i}"] = pid
        for name, actor in self.actors.items():
            named[name] = actor.pid
            for pid in children(actor.pid):
                named[f"{name}'s simulators"] = pid
        return named

    def end(self) -> None:
        for process in (self.engine, *self.actors.values()):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in (self.engine, *self.actors.values()):
            process.wait(60)


def measure(run: Run, minutes: float) -> dict[str, list[tuple[float, int]]]:
    named = run.processes()
    samples: dict[str, list[tuple[float, int]]] = {name: [] for name in named}
    start = time.monotonic()
    while (now := time.monotonic() - start) < 60 * minutes:
        for name, pid in named.items():
            samples[name].append((now, resident_kb(pid)))
        time.sleep(SAMPLE_SECONDS)
    assert run.processes() == named, "a process died on the way"
    return samples


def judge(samples: dict[str, list[tuple[float, int]]], warm_up: float, bound_kb: int) -> list[dict]:
    rows = []
    for name, all_of_it in samples.items():
        kept = [s for s in all_of_it if s[0] >= 60 * warm_up]
        quarter = max(1, len(kept) // 4)
        begin, end = (median(y for _, y in part) for part in (kept[:quarter], kept[-quarter:]))
        rows.append({"process": name, "samples": len(kept), "begin_kb": begin, "end_kb": end, "grown_kb": end - begin,
                     "slope_kb_per_hour": round(slope_kb_per_hour(kept)), "flat": end - begin <= bound_kb})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--warm-up", type=float, help="minutes that do not count; default: a quarter")
    parser.add_argument("--bound-kb", type=int, default=2048)
    parser.add_argument("--samara", type=Path, default=BINARY)
    arguments = parser.parse_args()
    warm_up = arguments.minutes / 4 if arguments.warm_up is None else arguments.warm_up
    folder = Path(tempfile.mkdtemp(prefix="samara-memory-"))
    run = Run(folder, arguments.samara.absolute())
    try:
        run.wait_until_all_play()
        begin = run.last()
        samples = measure(run, arguments.minutes)
        last = run.last()
    finally:
        run.end()
    rows = judge(samples, warm_up, arguments.bound_kb)
    for row in rows:
        print(json.dumps(row))
    learnt = {key: last[key] - begin[key] for key in ("update", "frames", "episodes")}
    drops = {reason: n for reason, n in last["drops"].items() if n}
    good = all(row["flat"] for row in rows) and learnt["update"] > 10 * arguments.minutes and not drops
    print(json.dumps({"minutes": arguments.minutes, "warm_up": warm_up, "bound_kb": arguments.bound_kb, **learnt,
                      "respawns": last["respawns"], "drops": drops, "flat": good}))
    if good:
        shutil.rmtree(folder)
    else:
        print(f"kept: {folder}", file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
