"""The example programs: N replicas with B/N samples each are one process with B, whatever starts them; short; and their
errors one line. The loaders are in test_datasets.py."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
import sys

import pytest
from replica_util import command, result, run
from samara_cli import ROOT, environment

EXAMPLES = ROOT / "build" / "examples"
SOURCES = sorted((ROOT / "examples").glob("*.cc"))
# options of a run of a few seconds
PROGRAMS = {
    "classifier": ["--steps", 6, "--batch", 32],
    "resnet": ["--steps", 3, "--batch", 16, "--side", 16],
    "gan": ["--steps", 2, "--batch", 16, "--channels", 4],
}
CLASSIFIER_FIRST = ["classifier", *(pytest.param(name, marks=pytest.mark.slow) for name in ("resnet", "gan"))]
TOLERANCE = 3e-6  # relative, of losses that differ by rounding only; measured: 2e-7
pytestmark = pytest.mark.skipif(not (EXAMPLES / "mlp_exact").exists(), reason="built without torch")


def example(name, launcher="threads", ranks=1, *more, **variables):
    options = PROGRAMS[name]
    done = run(launcher, ranks, *options, "--json", *more, program=EXAMPLES / name, **variables)
    assert done.returncode != 0 or len(done.stdout.splitlines()) == 1, done.stdout
    return result(done)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def alone():
    """What one process without any launcher or threads gives, computed once a program."""
    results = {}

    def get(name):
        if name not in results:
            command = [str(EXAMPLES / name), *map(str, PROGRAMS[name]), "--json"]
            results[name] = result(subprocess.run(command, capture_output=True, text=True, timeout=300,
                                                  env=environment()))
        return results[name]
    return get


def test_examples_are_short():
    assert len(SOURCES) >= 4
    assert {path.name: n for path in SOURCES if (n := len(path.read_text().splitlines())) >= 150} == {}


def test_every_example_is_tested():
    assert {path.stem for path in SOURCES} == set(PROGRAMS) | {"mlp_exact"}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("launcher,ranks", [("threads", 2), pytest.param("threads", 4, marks=pytest.mark.slow), ("samara", 2)])
def test_exact_mode_has_the_same_bits(alone, name, launcher, ranks):
    assert example(name, launcher, ranks) == {**alone(name), "world_size": ranks}


@pytest.mark.parametrize("name", PROGRAMS)
def test_replicas_with_shares_are_one_with_the_whole_batch(alone, name):
    """Within the tolerance of rounding; and another batch is well outside of it."""
    whole = example(name, SAMARA_REPLICAS="1")
    assert whole["parameter_hash"] != alone(name)["parameter_hash"]
    other = example(name, "threads", 1, "--batch", 24)
    for key in {"loss", "generator_loss"} & set(whole):
        assert alone(name)[key] == pytest.approx(whole[key], rel=TOLERANCE), key
        assert other[key] != pytest.approx(whole[key], rel=10 * TOLERANCE), key


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("launcher,ranks", [pytest.param("threads", 2, marks=pytest.mark.slow), ("samara", 2)])
def test_fast_mode_comes_close(alone, name, launcher, ranks):
    got = example(name, launcher, ranks, "--mode", "fast")
    assert got["world_size"] == ranks
    for key in {"loss", "generator_loss"} & set(got):
        assert got[key] == pytest.approx(alone(name)[key], rel=TOLERANCE), key


def test_stopped_and_continued_at_another_size(alone, tmp_path):
    """The classifier; the others' learning rates depend on --steps, so that an earlier end is another run."""
    example("classifier", "threads", 2, "--steps", 3, "--out", tmp_path)
    assert example("classifier", "threads", 4, "--out", tmp_path) == {**alone("classifier"), "world_size": 4}


@pytest.mark.parametrize("name", CLASSIFIER_FIRST)
def test_a_finished_run_continued_does_nothing(alone, name, tmp_path):
    for ranks in (2, 1):
        assert example(name, "threads", ranks, "--out", tmp_path) == {**alone(name), "world_size": ranks}


def test_exact_mode_goes_on_as_it_began(tmp_path):
    first = example("classifier", "threads", 2, "--out", tmp_path)
    program = {"program": EXAMPLES / "classifier"}
    for args, variables, words in (
            (["--batch", 16], {}, "saved with batch 32, and this run has 16"),
            (["--batch", 32], {"SAMARA_REPLICAS": "4"}, "saved with replicas 8, and this run has 4")):
        done = run("threads", 2, "--steps", 8, *args, "--out", tmp_path, **program, **variables)
        assert done.returncode == 78 and words in done.stderr, done.stderr
    changed = run("threads", 2, "--steps", 8, "--batch", 16, "--mode", "fast", "--out", tmp_path, "--json", **program)
    assert result(changed)["steps"] == 8
    done = run("threads", 2, "--steps", 8, "--batch", 16, "--out", tmp_path, **program)
    assert done.returncode == 78 and "saved with mode fast, and this run has exact" in done.stderr
    assert first["loss"] is not None


@pytest.mark.parametrize("name, number", [
    *((name, signal.SIGTERM) for name in PROGRAMS),
    *(pytest.param(name, signal.SIGINT, marks=pytest.mark.slow) for name in PROGRAMS)])
def test_asked_to_stop_it_saves_and_goes_on(alone, name, number, tmp_path):
    """One rank of two is asked; the parameters are those of a run that nobody stopped."""
    options = [*map(str, PROGRAMS[name]), "--json", "--out", str(tmp_path)]
    ranks = [subprocess.Popen([str(EXAMPLES / name), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=environment(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2",
                                              MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)))
             for port in [free_port()] for rank in range(2)]
    told = ranks[0].stderr.readline()  # all have come; the handler is there from the start
    assert "rank 0 of 2" in told
    ranks[1].send_signal(number)
    said = [rank.communicate(timeout=120) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [75, 75], said
    got = json.loads(said[0][0])
    assert got["exit"] == 75 and "asked to stop after step" in got["error"] and said[1][0] == ""
    assert "flight" not in said[0][1] + said[1][1]
    assert example(name, "threads", 1, "--out", tmp_path) == alone(name)


@pytest.mark.parametrize("launcher", ["threads", "samara"])
@pytest.mark.parametrize("args, code, words", [
    (["--idx", "/nowhere"], 66, "/nowhere/train-images-idx3-ubyte"),
    (["--batch", "9999"], 78, "a batch of 9999"),
    (["--batch", "none"], 78, "--batch none: expected a number"),
    (["--bogus", "1"], 64, "--bogus: no such option")])
def test_json_tells_failures_too(launcher, args, code, words):
    done = run(launcher, 2, "--json", *args, program=EXAMPLES / "classifier")
    assert done.returncode == code, done.stderr
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(objects) == 1 and objects[0]["exit"] == code and words in objects[0]["error"], done.stdout


def test_batches_smaller_than_the_replicas(tmp_path):
    for name in ("classifier", "gan"):
        small = ["--batch", "4", "--steps", "2", "--json", *(["--channels", "4"] if name == "gan" else [])]
        got = [result(run("threads", ranks, *small, program=EXAMPLES / name)) for ranks in (1, 2)]
        assert got[0]["loss"] is not None and got[1] == {**got[0], "world_size": 2}


def test_fast_mode_over_gloo_leaves_large_sums_to_it():
    options = ["--steps", 3, "--batch", 16, "--side", 16, "--mode", "fast", "--json"]
    runs = {transport: run("samara", 2, *options, program=EXAMPLES / "resnet", SAMARA_TRANSPORT=transport)
            for transport in ("shared", "gloo")}
    assert "gradients are summed by gloo" in runs["gloo"].stderr and "summed by" not in runs["shared"].stderr
    shared, gloo = (result(runs[transport]) for transport in ("shared", "gloo"))
    assert gloo["loss"] == pytest.approx(shared["loss"], rel=1e-4) and gloo["steps"] == shared["steps"]


@pytest.mark.slow
def test_resnet_50_has_the_same_bits():
    options = ["--model", "resnet50", "--side", 16, "--batch", 64, "--steps", 1, "--json"]
    got = [result(run("threads", ranks, *options, program=EXAMPLES / "resnet", SAMARA_REPLICAS="2")) for ranks in (1, 2)]
    assert got[1] == {**got[0], "world_size": 2}


def test_the_classifier_learns():
    got = result(run("threads", 1, "--json", "--steps", 150, program=EXAMPLES / "classifier"))
    assert got["accuracy"] > 0.8 and got["loss"] < 1


def test_progress_is_for_people():
    done = run("threads", 2, *PROGRAMS["classifier"], program=EXAMPLES / "classifier")
    *lines, last = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["step 1 of 6", "step 6 of 6"]
    assert float(lines[1].split()[-1]) == pytest.approx(json.loads(last)["loss"], abs=1e-4)


def idx_folder(folder):
    for name, n in (("train", 40), ("t10k", 10)):
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, n, 8, 8) + bytes(range(64)) * n)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, n) + bytes(i % 3 for i in range(n)))


def test_the_classifier_reads_idx_files(tmp_path):
    idx_folder(tmp_path)
    got = [result(run("threads", ranks, "--steps", 2, "--batch", 16, "--idx", tmp_path, program=EXAMPLES / "classifier"))
           for ranks in (1, 2)]
    assert got[1] == {**got[0], "world_size": 2}
    # one image with three classes: nothing to learn
    assert 0 <= got[0]["accuracy"] <= 0.5


@pytest.mark.parametrize("name,args,code,words", [
    ("classifier", ["--batch", "0"], 78, "--batch 0: expected a number of at least 1"),
    ("classifier", ["--batch", "9999"], 78, "a batch of 9999 from a data set of 8192 samples"),
    ("classifier", ["--cifar", "x"], 64, "--cifar: no such option"),
    ("classifier", ["--idx", "/nowhere"], 66, "/nowhere/train-images-idx3-ubyte"),
    ("classifier", ["--idx", ""], 78, "--idx : expected a FOLDER"),
    ("resnet", ["--model", "resnet18"], 78, "--model resnet18: expected resnet20 or resnet50"),
    ("resnet", ["--cifar", "/nowhere"], 66, "/nowhere/data_batch_1.bin"),
    ("resnet", ["--images", "/nowhere"], 66, "/nowhere/train"),
    ("resnet", ["--side", "4"], 78, "expected 1 to 16 channels, a side from 12 to 4096"),
    ("gan", ["--channels", "many"], 78, "--channels many: expected a number of at least 1"),
    ("gan", ["--mode", "quick"], 78, "--mode quick: expected exact or fast"),
    ("gan", ["--steps"], 64, "--steps: expected a value"),
])
def test_bad_input_gets_one_line(name, args, code, words):
    done = subprocess.run([str(EXAMPLES / name), *args], capture_output=True, text=True, timeout=60, env=environment())
    lines = [line for line in done.stderr.splitlines() if "INFO" not in line and " replicas, seed " not in line]
    assert done.returncode == code and len(lines) == 1 and words in lines[0], done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_names_every_option(name):
    done = subprocess.run([str(EXAMPLES / name), "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    for option in ("--steps", "--batch", "--mode exact|fast", "--threads-as-ranks", "--out", "--json"):
        assert option in done.stdout


def last_line_of_spirals(python, *options):
    done = subprocess.run([*python, ROOT / "examples/spirals.py", *map(str, options)], capture_output=True, text=True,
                          timeout=300, env=environment(PYTHONPATH=str(ROOT / "build/python"), OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


def test_the_python_program_learns():
    last = last_line_of_spirals([sys.executable], "--steps", 120)
    assert float(last.split()[1].rstrip(",")) > 0.6


@pytest.mark.slow
def test_the_python_program_goes_on_with_other_ranks(tmp_path):
    want = last_line_of_spirals([sys.executable], "--steps", 120)
    last_line_of_spirals(command("samara", 2, sys.executable), "--steps", 60, "--out", tmp_path / "run")
    assert last_line_of_spirals([sys.executable], "--steps", 120, "--out", tmp_path / "run") == want
