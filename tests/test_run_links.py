"""Links and pipes in a run folder: refused by every command in one line, soon, and nothing outside is touched."""

import os
import shutil

import pytest
from samara_cli import CARTPOLE, samara, train
from test_bad_input import refused

CASES = ["log.txt link", "checkpoints link", "log.txt pipe", "metrics.jsonl pipe"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("links") / "run"
    train(out, *CARTPOLE, "ga.generations=1")
    return out


@pytest.fixture
def run(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    return tmp_path / "run"


def commands(run, tmp_path):
    yield "train", "--resume", run, "ga.generations=2", "--quiet"
    yield "eval", run, "--episodes", "1"
    yield "play", run, "--video", tmp_path / "a.mp4"
    yield "report", run
    yield "report", run, "--out", tmp_path / "a.html"
    yield "export", run, tmp_path / "a.safetensors"
    yield "hash", run


@pytest.mark.parametrize("case", CASES)
def test_refused_by_every_command(run, tmp_path, case):
    name, kind = case.split()
    outside = tmp_path / "outside"
    if kind == "link":
        (run / name).rename(outside)
        (run / name).symlink_to(outside)
    else:
        (run / name).unlink()
        os.mkfifo(run / name)
    before = {path: path.stat().st_mtime_ns for path in (outside, *outside.rglob("*")) if path.exists()}
    for command in commands(run, tmp_path):
        refused(65, *command, timeout=20, words=[str(run / name), "a symbolic link" if kind == "link" else "a pipe"])
    outcome = samara("fsck", run)
    assert outcome.code == 65 and f"problem: {run / name}: a " in outcome.out, outcome
    assert before == {path: path.stat().st_mtime_ns for path in (outside, *outside.rglob("*")) if path.exists()}


def test_the_folder_itself_may_be_named_by_a_link(run, tmp_path):
    (tmp_path / "latest").symlink_to(run)
    outcome = samara("train", "--resume", tmp_path / "latest", "ga.generations=2", "--quiet")
    assert outcome.code == 0, outcome
    assert samara("fsck", tmp_path / "latest").code == 0


def test_a_run_that_others_may_change_is_named(run):
    assert "warning" not in samara("train", "--resume", run, "--quiet").err
    run.chmod(0o777)
    assert samara("train", "--resume", run, "--quiet").code == 77
    outcome = samara("train", "--resume", run, "--quiet", "--trust")
    assert outcome.code == 0 and outcome.err.count(f"warning: {run}: other users may write to it (mode 0777)") == 1, outcome
