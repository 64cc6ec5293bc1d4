"""What goes wrong between ranks is named by every one of them, or does no harm, over shared memory and over Gloo."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import pytest
from replica_util import result, run
from samara_cli import BINARY, ROOT, environment

pytest.importorskip("torch")
pytest.importorskip("samara.replica", reason="built without torch")
PROGRAM = ROOT / "tests/replica/pitfalls.py"
RANKS = 3
CALLS = "ranks call different collectives, nothing was mixed: "


@pytest.fixture(params=["shared", pytest.param("gloo", marks=pytest.mark.slow)])
def transport(request):
    return request.param


def launch(pitfall: str, transport: str, **variables: str) -> tuple[int, dict[int, str], float]:
    """Exit code, what each rank said, and how long it took."""
    start = time.monotonic()
    done = subprocess.run([str(BINARY), "launch", "-n", str(RANKS), "--grace", "1", sys.executable, str(PROGRAM), pitfall],
                          capture_output=True, text=True, timeout=120,
                          env=environment(SAMARA_TRANSPORT=transport, SAMARA_REPLICAS=str(RANKS), SAMARA_TRACE="",
                                          PYTHONPATH=str(ROOT / "build/python"), **variables))
    lines = re.findall(r"^\[rank (\d)\] (.*)$", done.stderr, re.M)
    said = {rank: "\n".join(text for number, text in lines if int(number) == rank) for rank in range(RANKS)}
    assert f"), {transport}: " in said[0], done.stderr
    return done.returncode, said, time.monotonic() - start


@pytest.mark.parametrize("pitfall, words", [
    ("swapped_order", [r"ranks 0, 2: all_reduce sum of float32\[4\] at pitfalls.py:20 ",
                       r"rank 1: all_reduce sum of float32\[4\] at pitfalls.py:19 "]),
    pytest.param("other_type", [r"ranks 0, 2: all_reduce sum of float32\[4\] at ", r"rank 1: all_reduce sum of int32\[4\] at "],
                 marks=pytest.mark.slow),
    pytest.param("other_count", [r"ranks 0, 2: all_reduce sum of float32\[4\] at ", r"rank 1: all_reduce sum of float32\[5\] at "],
                 marks=pytest.mark.slow),
    pytest.param("other_operation", [r"ranks 0, 2: all_reduce sum of ", r"rank 1: broadcast "], marks=pytest.mark.slow),
])
def test_different_calls_are_named_on_every_rank(pitfall, words, transport):
    code, said, _ = launch(pitfall, transport)
    assert code == 70
    for rank in range(RANKS):
        assert CALLS in said[rank] and all(re.search(word, said[rank]) for word in words), said[rank]


def test_a_rank_that_does_not_come_is_named(transport):
    code, said, seconds = launch("missing", transport, SAMARA_DEADLINE_SECONDS="2")
    # Gloo does not know who is missing, the monitor knows what everybody does
    words = r"rank 1 did not come to all_reduce sum" if transport == "shared" else \
        r"did not come to all_reduce sum .* before its deadline; .*rank 1 after collective \d+"
    assert code == 69 and seconds < 30, said
    for rank in (0, 2):
        assert re.search(words, said[rank]), said[rank]


def test_a_frozen_rank_is_named(transport):
    code, said, seconds = launch("frozen", transport)
    assert code == 69 and seconds < 30, said
    for rank in (0, 2):
        assert "rank 1 has been silent for 1.5 s" in said[rank], said[rank]


def test_parameters_that_differ_are_named(transport):
    code, said, _ = launch("parameters_that_differ", transport)
    assert code == 70
    for rank in range(RANKS):
        assert "hash of the parameters after update 2 is not the same on all ranks: rank 1 differs from the other 2" in said[rank], \
            said[rank]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_parameters_without_gradients_do_not_wait(mode, transport):
    code, said, _ = launch("uneven_gradients", transport, SAMARA_MODE=mode)
    assert code == 0, said


def test_threads_of_the_environment_change_no_bit():
    runs = [result(run("samara", 2, "--steps", 20, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads))
            for threads in ("1", "3")]
    assert runs[0] == runs[1]
