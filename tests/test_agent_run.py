"""What a learning run leaves to be looked at: hash, fsck, doctor, damage."""

import hashlib
import json
import shutil
import struct
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from samara_cli import BINARY, ok, samara, train
from test_report import Terminal, line

CARTPOLE = ["classic/cartpole-vtrace", "learn.frames=20000", "run.random_episodes=4", "learn.test_episodes=4"]

pytestmark = pytest.mark.skipif(
    not BINARY.with_name("samara-torch").exists(), reason="NOT TESTED: built without torch"
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = tmp_path_factory.mktemp("vtrace") / "run"
    return run, train(run, *CARTPOLE)


@pytest.fixture
def run(finished, tmp_path):
    """A copy of a good run, to be damaged."""
    return Path(shutil.copytree(finished[0], tmp_path / "copy"))


def latest(run):
    return max((run / "checkpoints").glob("ckpt-*"))


def test_hash_is_that_of_the_parameters(finished):
    run, result = finished
    last = ok("hash", run, "--json").json
    assert last == {"update": result["updates"], "parameter_hash": result["parameter_hash"]}
    assert ok("hash", run).out.split() == ["update", str(result["updates"]), result["parameter_hash"]]
    # the same from the file that plays: names in order, each followed by its numbers
    data = (latest(run) / "weights.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {name: at for name, at in json.loads(data[8 : 8 + size]).items() if name != "__metadata__"}
    want = hashlib.sha256()
    for name in sorted(tensors):
        begin, end = tensors[name]["data_offsets"]
        want.update(name.encode() + data[8 + size + begin : 8 + size + end])
    assert want.hexdigest() == result["parameter_hash"]
    refused = samara("hash", run, "--generation", 1)
    assert refused.code == 64 and "updates" in refused.err and len(refused.err.splitlines()) == 1


def test_fsck_holds_and_finds_damage(run, finished):
    sound = ok("fsck", run, "--json").json
    assert sound["sound"] is True and sound["set_aside"] == [] and sound["notes"] == []
    for name in ("weights.safetensors", "optimizer.safetensors", "state.bin", "manifest.json"):
        file = latest(run) / name
        good = file.read_bytes()
        middle = len(good) // 2
        for bad in (good[:middle], good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :]):
            file.write_bytes(bad)
            for command in ("fsck", "hash"):
                outcome = samara(command, run, "--json")
                assert outcome.code == 65 and name in outcome.err, outcome
                assert len(outcome.err.splitlines()) == 1, outcome
        if name == "weights.safetensors":
            # the only checkpoint there is: nothing is left to play
            outcome = samara("eval", run, "--episodes", 1, "--json")
            last = outcome.err.splitlines()[-1]
            assert outcome.code == 65 and "every checkpoint is damaged" in last, outcome
        file.write_bytes(good)
    shutil.rmtree(latest(run))
    assert samara("fsck", run).code == 65
    none = samara("hash", run)
    assert none.code == 66 and "no checkpoint yet" in none.err


def test_another_test_is_played_on_a_resume(run, finished):
    """And nothing else: the agent stays."""
    more = ok("train", "--resume", run, "learn.test_episodes=7", "learn.test_greedy=true", "--quiet", "--json").json
    assert len(more["test_returns"]) == 7 and more["test_greedy"] is True
    assert [more[key] for key in ("parameter_hash", "frames")] == [finished[1][key] for key in ("parameter_hash", "frames")]
    assert "nothing is left to do" in ok("train", "--resume", run).err


def test_another_task_is_no_damage(run, finished):
    outcome = samara("eval", run, "env.id=Acrobot-v1", "--episodes", 1)
    assert outcome.code == 78 and "leave network.* and env.* as the policy has them" in outcome.err


def test_another_test_is_played_of_a_run_that_ended_at_its_score(tmp_path):
    run = tmp_path / "run"
    stop = ["learn.evaluate_every=5000", "learn.evaluate_episodes=20", "run.stop_at=20", "learn.frames=200000"]
    first = train(run, *CARTPOLE, *stop)
    assert first["evaluation_mean"] >= 20 and first["frames"] < 200000
    more = ok("train", "--resume", run, "learn.test_episodes=9", "--quiet", "--json").json
    assert len(more["test_returns"]) == 9
    same = ("frames", "evaluation_mean", "parameter_hash")
    assert [more[key] for key in same] == [first[key] for key in same]


def test_the_report_stands_alone(finished, tmp_path):
    run, result = finished
    page = tmp_path / "page.html"
    ok("report", run, "--out", page)
    text = page.read_text()
    for words in ("CartPole", "Policy lag", "Bottleneck", "updates", "random policy", result["parameter_hash"]):
        assert words in text, words
    outside = text.replace("http://www.w3.org/2000/svg", "")
    assert not [words for words in ("http:", "https:", "<script", "<link", "url(") if words in outside]
    curve = ElementTree.parse(result["learning_curve"]).getroot()
    assert "last 100 episodes, mean" in "".join(curve.itertext())
    shutil.copytree(run, tmp_path / "again")
    ok("report", run, tmp_path / "again", "--out", page)
    assert "Comparison" in page.read_text() and "interquartile mean" in page.read_text()


def test_the_live_view(tmp_path):
    command = line(BINARY, "train", *CARTPOLE, "learn.frames=1e12", "--out", tmp_path / "run")
    terminal = Terminal(command + "; echo ended with $?; sleep 60", width=80)
    try:
        screen = terminal.wait_for("update", "frames/s", "bottleneck", "return", "explained variance", "rows a batch")
        for words in ("CartPole-v1", "entropy", "lag", "queue", "utilization: environment", "inference", "learner"):
            assert words in screen, screen
        terminal.keys("C-c")
        terminal.wait_for("ended with 75")
    finally:
        terminal.close()
    ok("fsck", tmp_path / "run")


def test_doctor_names_what_is_missing_to_machines_too():
    broken = samara("doctor", "--json", SAMARA_VENV="/nonexistent")
    assert broken.code == broken.json["exit"] == 66 and broken.json["good"] is False and broken.json["error"]
    assert [f for f in broken.json["findings"] if not f["good"] and f["remedy"]]


def test_doctor_says_where_agents_are(finished):
    findings = {f["what"]: f for f in ok("doctor", "--json").json["findings"]}
    assert findings["learning agents"]["good"] and "samara-torch" in findings["learning agents"]["found"]
