# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Names, groups and steps of scalars, those of a run's TensorBoard file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The rules of src/storage/scalars.cc: beginnings of names, and ends behind a '*'; the first group that fits.
GROUPS = {
    "time": "seconds *_per_second",
    "charts": "return fitness elite_validation elite_test length population_mean novelty centre_mean centre_novelty"
    " coverage qd_score archive",
    "losses": "loss *_loss entropy q_mean td_error kl importance_weight clip_fraction explained_variance *gradient_norm"
    " learning_rate update_ratio",
    "counts": "generation update steps episodes evaluations solved_at solved_generation solved_individual frames"
    " observations_seen",
    "system": "lag queue stalls rows_per_batch live_slots environment_workers respawns",
}
EVENTS = {
    ("random_policy", "mean"): "eval/random_mean",
    ("evaluation", "mean"): "eval/return_mean",
    ("finished", "elite_mean"): "eval/final_mean",
    ("finished", "test_mean"): "eval/final_mean",
}


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
        return step, {tag: line[name] for name, tag in tags.items() if is_number(line.get(name))}
    return step, {grouped_name(name): v for name, v in line.items() if name != "frames" and is_number(v)}


def is_number(value: Any) -> bool:
    """Returns whether a value of a line is a scalar."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
