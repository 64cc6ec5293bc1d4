"""Native environments next to Gymnasium's own, steps per second of CPU time on one core, in turns.

    .venv/bin/python src/bench/micro/env_bench.py [SECONDS]

Each environment is measured three times alternately in C++ (build/env_bench) and in Python; the
table gives the medians. Both play random actions and reset when an episode ends.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gymnasium as gym

BENCH = Path(__file__).resolve().parents[3] / "build" / "env_bench"
ROUNDS = 3


def native(name: str, seconds: float) -> float:
    run = subprocess.run([BENCH, str(seconds), name], capture_output=True, check=True, text=True)
    return float(run.stdout.split()[1])


def gymnasium(name: str, seconds: float) -> float:
    env = gym.make(name, disable_env_checker=True)
    actions = [env.action_space.sample() for _ in range(100)]
    env.reset(seed=1)
    steps, start = 0, time.process_time()
    while time.process_time() - start < seconds:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
            steps += 1
    return steps / (time.process_time() - start)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one core, children included
    names = [line.split()[0] for line in subprocess.run([BENCH, "0"], capture_output=True, check=True, text=True).stdout.splitlines()]
    print(f"| environment | samara, steps/s | Gymnasium {gym.__version__}, steps/s | ratio |\n|---|---|---|---|")
    for name in names:
        rounds = [(native(name, seconds), gymnasium(name, seconds)) for _ in range(ROUNDS)]
        ours, theirs = (statistics.median(r) for r in zip(*rounds))
        print(f"| {name} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.1f} |", flush=True)


if __name__ == "__main__":
    # the simulator in Python writes MUJOCO_LOG.TXT where it stands
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        main()
