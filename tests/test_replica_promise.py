"""The promise of the replicator: three lines of a loop for one device change, and the file that results runs unchanged
as one process, as threads and under torchrun, with equal bits."""

import difflib
import os
import subprocess
import sys

import pytest
from samara_cli import ROOT

FOLDER, BUILT = ROOT / "tests/replica", ROOT / "build/tests"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "--redirects", "1"]
pytestmark = pytest.mark.skipif(not (BUILT / "train_replicated").exists(), reason="built without torch")


def printed(command, **variables):
    """What the ranks have printed; two that print at once may put both texts before both line ends."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SAMARA_")}
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300, cwd=ROOT,
                          env={**clean, "PYTHONPATH": str(ROOT / "build/python"), "OMP_NUM_THREADS": "1", **variables})
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.replace("\n", "")


@pytest.mark.parametrize("suffix", [".py", ".cc"])
def test_at_most_three_lines_change(suffix):
    alone, replicated = ((FOLDER / f"train_{kind}{suffix}").read_text().splitlines() for kind in
                         ("alone", "replicated"))
    changed = 0
    for tag, i, j, k, m in difflib.SequenceMatcher(None, alone, replicated, autojunk=False).get_opcodes():
        changed += 0 if tag == "equal" else max(j - i, m - k)
    assert 0 < changed <= 3
    assert not any("samara" in line for line in alone)


@pytest.mark.parametrize("alone, replicated, threads", [
    pytest.param([sys.executable, FOLDER / "train_alone.py"], [sys.executable, FOLDER / "train_replicated.py"], ["2"], id="python",
                 marks=pytest.mark.slow),
    pytest.param([sys.executable, FOLDER / "train_alone.py"], [sys.executable, FOLDER / "train_replicated.py"], ["2", "4"],
                 id="python-4", marks=pytest.mark.slow),
    pytest.param([BUILT / "train_alone"], [BUILT / "train_replicated"], ["2", "4"], id="cpp")])
def test_the_same_file_gives_the_same_bits(alone, replicated, threads, tmp_path):
    script = replicated[0] == sys.executable
    expected = printed(replicated)
    assert expected
    for ranks in threads:
        assert printed(replicated, SAMARA_THREADS=ranks) == expected * int(ranks)
    # a file for each rank: lines longer than a pipe's atomic write would mix
    printed(TORCHRUN + ["--log-dir", tmp_path] + (replicated[1:] if script else ["--no-python", *replicated]))
    assert [log.read_text().replace("\n", "") for log in tmp_path.rglob("stdout.log")] == [expected] * 2
    # and it is training: like the loop for one device, but for the dropout's other random numbers
    one = printed(alone)
    assert one != expected
    if script:
        assert float(one.split()[2]) == pytest.approx(float(expected.split()[2]), abs=0.03)
    else:
        assert int(one.split()[1]) == pytest.approx(int(expected.split()[1]), abs=15)
        assert float.fromhex(expected.split()[0]) < 0.5
