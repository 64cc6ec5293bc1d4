"""metrics.jsonl and event files of a resumed run, read with Python's json and TensorBoard's own reader."""

import json
import pathlib
import subprocess

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = pathlib.Path(__file__).parent.parent


@pytest.fixture
def folder(tmp_path):
    subprocess.run([ROOT / "build" / "metrics_writer", tmp_path], check=True)
    return tmp_path


def test_each_generation_is_there_once(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["generation"] for line in lines if "event" not in line] == [1, 2, 3, 4, 5, 6]
    assert [line["event"] for line in lines if "event" in line] == ["random_policy", "resumed"]
    assert lines[1]["fitness_min"] is None


def test_tensorboard_reads_the_same_scalars(folder):
    events = EventAccumulator(str(folder)).Reload()
    assert sorted(events.Tags()["scalars"]) == [
        "charts/fitness_mean", "charts/fitness_min", "counts/generation", "eval/random_mean"]
    means = events.Scalars("charts/fitness_mean")
    assert [e.step for e in means] == [g * 10**9 for g in range(1, 7)]  # environment frames
    assert [e.value for e in means] == [float(np.float32(0.1 * g)) for g in range(1, 7)]
    assert [e.value for e in events.Scalars("counts/generation")] == [1, 2, 3, 4, 5, 6]
    assert [(e.step, e.value) for e in events.Scalars("eval/random_mean")] == [(0, 1.5)]
    assert abs(means[0].wall_time - (folder / "metrics.jsonl").stat().st_mtime) < 60


def test_one_event_file_holds_it_all(folder):
    assert [p.name for p in folder.glob("events*")] == ["events.out.tfevents.0000000002.samara"]
