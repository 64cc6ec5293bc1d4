"""CartPole on many seeds: how many generations until the test of the elite, or centre, reaches 475.

    .venv/bin/python src/bench/micro/cartpole_seeds.py            # prints a Markdown table, then one line of JSON
    .venv/bin/python src/bench/micro/cartpole_seeds.py --preset classic/cartpole-es

A seed is solved in the first generation whose elite has a mean of at least 475 over 100 fresh episodes
(ga.test_every=1, es.test_every=1; test episodes are not counted in frames and decide nothing).
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOLVED = 475.0


def run_seed(samara: str, preset: str, seed: int, overrides: list[str], folder: Path) -> dict:
    """One run; the generation and frames at which it was solved (None: never), and the final test."""
    out = folder / str(seed)
    table = preset.rsplit("-", 1)[-1]
    keys = [f"run.seed={seed}", f"{table}.test_every=1", f"{table}.test_episodes=100", *overrides]
    done = subprocess.run([samara, "train", preset, *keys, "--out", str(out), "--json"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"seed {seed}: exit {done.returncode}: {done.stderr.strip().splitlines()[-1]}")
    result = json.loads(done.stdout.splitlines()[-1])
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    solved = next((line for line in lines if line.get("elite_test_mean", 0) >= SOLVED), {})
    return {"seed": seed, "generation": solved.get("generation"), "frames": solved.get("frames"),
            "final_mean": result["elite_mean"], "random_mean": result["random_mean"],
            "seconds": result["seconds"]}


def table(runs: list[dict]) -> str:
    """The distribution as Markdown: generations, seeds solved in them, and how many by then."""
    rows = ["| generation | seeds solved in it | solved so far |", "| --- | --- | --- |"]
    generations = [r["generation"] for r in runs if r["generation"] is not None]
    for g in sorted(set(generations)):
        so_far = sum(other <= g for other in generations)
        rows.append(f"| {g} | {generations.count(g)} | {so_far} of {len(runs)} |")
    never = len(runs) - len(generations)
    if never:
        rows.append(f"| not within the budget | {never} | |")
    return "\n".join(rows)


def summary(runs: list[dict]) -> dict:
    """The numbers next to the table; medians over the solved seeds."""
    solved = [r for r in runs if r["generation"] is not None]
    return {"seeds": len(runs), "solved": len(solved),
            "generations_median": statistics.median(r["generation"] for r in solved) if solved else None,
            "generations_max": max((r["generation"] for r in solved), default=None),
            "frames_median": statistics.median(r["frames"] for r in solved) if solved else None,
            "solved_at_the_end": sum(r["final_mean"] >= SOLVED for r in runs),
            "final_mean_min": min(r["final_mean"] for r in runs),
            "random_mean": statistics.mean(r["random_mean"] for r in runs),
            "seconds_median": statistics.median(r["seconds"] for r in runs), "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="classic/cartpole-ga", help="or classic/cartpole-es")
    parser.add_argument("--first", type=int, default=1, help="the first run.seed")
    parser.add_argument("--seeds", type=int, default=30, help="how many, one after another")
    parser.add_argument("--samara", default=str(ROOT / "build" / "samara"))
    parser.add_argument("overrides", nargs="*", help="key=value, as for samara train")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = [run_seed(args.samara, args.preset, s, args.overrides, Path(folder)) for s in range(args.first, args.first + args.seeds)]
    print(table(runs))
    print(json.dumps(summary(runs)))


if __name__ == "__main__":
    main()
