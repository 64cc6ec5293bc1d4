"""SAC end to end: it learns, its bits are those of any number of actors, threads and ranks and of a resumed run."""

import contextlib
import os
import re
import shutil
import signal
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from samara_cli import Running, ok, resume, samara, train
from test_launch import until
from test_ppo import hash_of
from test_train_ranks import finish, ranks_of, result, start

import samara as package

PENDULUM = ["classic/pendulum-sac", "run.random_episodes=0", "learn.test_episodes=4"]
SHORT = [*PENDULUM, "learn.frames=3000"]
# Two shards with a replay each, which is full after a third of the run.
SHARDS = [*SHORT, "learn.environments=2", "learn.batch=2", "learn.shards=2", "replay.capacity=1000"]


@pytest.mark.default_tier
def test_pendulum_is_learned_in_seconds(tmp_path):
    outcome = train(tmp_path / "run", *PENDULUM, "learn.frames=12000", "learn.test_episodes=20")
    assert outcome["test_mean"] > -200 and outcome["frames"] == 12000


def expect_the_same_bits_of_any_workers(tmp_path, *words, other=()):
    """Of any number of actors, threads and ranks; `other`: words that must leave no trace either. The hash."""
    first = hash_of(train(tmp_path / "a", *words, "fleet.threads=1"))
    assert hash_of(train(tmp_path / "b", *words, "fleet.threads=3", "learn.threads=1", *other)) == first
    assert hash_of(result("samara", 2, *words, "--out", tmp_path / "both")) == first
    return first


def test_actors_threads_and_ranks_leave_no_trace(tmp_path):
    expect_the_same_bits_of_any_workers(tmp_path, *SHARDS)


def test_products_of_bfloat16(tmp_path):
    """They learn, with bits that are those of any number of workers, too; elsewhere such a run is refused."""
    short = [*PENDULUM, "network.precision=bfloat16"]
    refused = samara("train", *short, "--out", tmp_path / "run", SAMARA_ISA="avx2")
    assert refused.code == 78 and "AVX512_BF16" in refused.err and not (tmp_path / "run").exists()
    if "avx512_bf16" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("SKIPPED LOUDLY: this processor has no AVX512_BF16")
    bits = expect_the_same_bits_of_any_workers(tmp_path, *SHARDS, "network.precision=bfloat16")
    assert hash_of(train(tmp_path / "plain", *SHARDS)) != bits
    assert train(tmp_path / "long", *short, "learn.frames=12000", "learn.test_episodes=20")["test_mean"] > -200
    # what was learned so plays anywhere
    ok("eval", tmp_path / "long", "--episodes", 2, "--json", SAMARA_ISA="avx2")


def expect_the_same_bits_after_interruptions(tmp_path, how, *words):
    """Interrupts a run five times, each time after one more checkpoint with its replay."""
    words = [*words, "run.checkpoint_seconds=1"]
    whole = train(tmp_path / "whole", *words)
    folder, times = tmp_path / "cut", 5
    for i in range(times):
        begin = ["train", *words, "--out", folder] if i == 0 else ["train", "--resume", folder]
        before = set(folder.glob("checkpoints/ckpt-*/replay.bin"))
        run = Running(tmp_path / f"log{i}", *begin)
        until(lambda: set(folder.glob("checkpoints/ckpt-*/replay.bin")) - before)  # noqa: B023
        run.send(how)
        assert run.wait() in (75, -how)
    assert hash_of(resume(folder)) == hash_of(whole)


INTERRUPTIONS = [signal.SIGTERM, signal.SIGKILL]


@pytest.mark.slow
@pytest.mark.parametrize("how", INTERRUPTIONS)
@pytest.mark.parametrize("layers", ["dense 64 relu, dense 64 relu", "normalize, dense 64 relu, dense 64 relu"])
def test_a_run_that_is_interrupted_goes_on_with_its_replay(tmp_path, how, layers):
    expect_the_same_bits_after_interruptions(tmp_path, how, *SHARDS, "learn.frames=12000", f"network.layers={layers}")


# Statistics of observations, which every update merges over shards and ranks.
NORMALIZED = [*SHARDS, "learn.frames=2000", "network.layers=normalize, dense 32 relu", "run.checkpoint_seconds=1"]


def test_actors_threads_and_ranks_leave_no_trace_in_statistics(tmp_path):
    expect_the_same_bits_of_any_workers(tmp_path, *NORMALIZED)


def test_a_run_with_statistics_that_is_killed_on_two_ranks_goes_on_on_one(tmp_path):
    words, folder = [*NORMALIZED, "learn.frames=6000"], tmp_path / "cut"
    first = hash_of(train(tmp_path / "whole", *words))
    ranks = start("samara", 2, *words, "--out", folder)
    until(lambda: list(folder.glob("checkpoints/ckpt-*/statistics.bin")))
    os.kill(ranks_of(ranks)[0], signal.SIGKILL)
    ranks.communicate(timeout=60)
    assert not (folder / "result.json").exists()
    assert hash_of(resume(folder)) == first


def test_an_exported_agent_normalizes_as_torch_does(tmp_path):
    """The formula of doc/policy_file_format.md, with the statistics of the file, which are Pendulum's."""
    run, file = tmp_path / "run", tmp_path / "agent.safetensors"
    train(run, *NORMALIZED)
    ok("export", run, file)
    w = load_file(file)
    assert w["normalize.mean"].shape == w["normalize.std"].shape == (3,) and 1 < w["normalize.std"][2] < 8
    # far from what was played, so that numbers are clipped too
    x = (np.random.default_rng(1).normal(size=(100, 3)) * [2, 2, 12]).astype(np.float32)
    z = ((torch.from_numpy(x) - w["normalize.mean"]) / w["normalize.std"].clamp_min(0.1)).clamp(-5, 5)
    assert (z.abs() == 5).any()
    outputs = (z @ w["fc1.weight"].T + w["fc1.bias"]).relu() @ w["policy.weight"].T + w["policy.bias"]
    actions = [2 * outputs[:, 0].tanh().numpy()]  # torques of at most 2
    for target in (run, file):
        policy = package.Policy(target)
        actions.append(np.array([policy.predict(row)[0] for row in x]).squeeze())
    np.testing.assert_allclose(actions[1], actions[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(actions[1], actions[2])
    scores = [ok("eval", target, "--episodes", "3", "--json").json["returns"] for target in (run, file)]
    assert scores[0] == scores[1]
    plain = samara("eval", file, "network.layers=dense 32 relu")
    assert plain.code == 78 and "normalize" in plain.err
    # a tensor that is missing is damage, whatever else the command sets
    with safe_open(file, "pt") as opened:
        save_file({name: value for name, value in w.items() if name != "normalize.std"}, tmp_path / "less.safetensors", opened.metadata())
    assert samara("eval", tmp_path / "less.safetensors", "fleet.threads=1").code == 65


# Two shards, each with a replay of three parts, which is full after a third of the run; little is learned.
PARTS = [*SHARDS, "learn.frames=200000", "replay.capacity=60000", "replay.ratio=1", "run.checkpoint_seconds=1", "run.video=false"]


def save_until_parts_are_shared(folder, pid):
    """Asks a run for checkpoints until two of them have a file of each shard in common."""
    def shards_that_share():
        files = []
        for file in folder.glob("checkpoints/ckpt-*/replay-*.bin"):
            with contextlib.suppress(FileNotFoundError):  # pruned meanwhile
                files.append((file.name.split("-")[1], file.stat().st_ino))
        return {file[0] for file, names in Counter(files).items() if names > 1}

    before = set(folder.glob("checkpoints/ckpt-*"))
    until(lambda: set(folder.glob("checkpoints/ckpt-*")) - before, 60)  # it listens to signals by now
    end = time.monotonic() + 60
    while shards_that_share() != {"0", "1"}:
        assert time.monotonic() < end
        os.kill(pid, signal.SIGUSR1)
        time.sleep(0.2)


def expect_parts_to_be_written_once(tmp_path, *words):
    """Kills a run on two ranks and then on one, each time when checkpoints share parts of both shards, and leaves the last
    checkpoint alone: the bits of an undisturbed run."""
    whole, folder = train(tmp_path / "whole", *words), tmp_path / "cut"
    ranks = start("samara", 2, *words, "--out", folder)
    until(lambda: len(ranks_of(ranks)) == 2)
    save_until_parts_are_shared(folder, ranks_of(ranks)[0])
    os.kill(ranks_of(ranks)[0], signal.SIGKILL)
    ranks.communicate(timeout=60)
    for path in sorted(folder.glob("checkpoints/ckpt-*"))[:-1]:
        shutil.rmtree(path)
    run = Running(tmp_path / "log", "train", "--resume", folder)
    save_until_parts_are_shared(folder, run.process.pid)
    run.kill()
    ok("fsck", folder)
    assert hash_of(resume(folder)) == hash_of(whole)
    ok("fsck", folder)


@pytest.mark.slow  # UnrollReplayPartsTest counts what is written, too
def test_parts_of_a_replay_are_written_once(tmp_path):
    expect_parts_to_be_written_once(tmp_path, *PARTS)


def test_free_mode_learns_and_resumes(tmp_path):
    words = [*SHORT, "learn.mode=free"]
    train(tmp_path / "run", *words)
    ok("train", "--resume", tmp_path / "run", "learn.frames=4000", "--json")


@pytest.mark.slow
def test_discrete_actions_are_learned_in_seconds(tmp_path):
    assert train(tmp_path / "run", "classic/cartpole-sac", "run.random_episodes=0")["test_mean"] >= 475


def test_an_exported_agent_plays_as_its_run(tmp_path):
    run, policy = tmp_path / "run", tmp_path / "agent.safetensors"
    train(run, *SHORT)
    ok("export", run, policy)
    scores = [ok("eval", target, "--episodes", "3", "--json").json["returns"] for target in (run, policy)]
    assert scores[0] == scores[1]


@pytest.mark.parametrize("words, says", [
    (["env.id=CartPole-v1"], "learn.entropy_target=-1: for continuous actions, and this environment's are discrete; "
     "expected none, or nats from 0 to below 0.693147"),
    (["env.id=CartPole-v1", "learn.entropy_target=0.7"], "learn.entropy_target=0.7: more than 2 actions can have; expected none, or nats"),
    (["network.lstm=8"], "network.lstm: sac learns with perceptrons; expected 0"),
    (["network.gru=8"], "network.gru: sac learns with perceptrons; expected 0"),
    (["network.layers=normalize, dense 8 vbn relu"], "expected dense layers alone"),
    (["env.id=Pendulum-v1?pixels=16", "env.stack=3", "network.layers=normalize, dense 8 relu"],
     "network normalize, dense 8 relu: network dense 8 relu: sac learns from images with convolutions"),
    (["replay.start=1e6"], "replay.start=1000000: expected at most replay.capacity=20000"),
    (["replay.capacity=4"], "replay.capacity=4: expected at least the 8 steps of an update"),
    (["replay.ratio=-1"], "replay.ratio"),
    (["replay.capacity=1e9", "learn.environments=32", "env.id=Humanoid-v5"], "lower replay.capacity"),
    (["optimizer.epsilon=0"], "optimizer.epsilon=0: expected it above 0"),
    (["env.stack=4"], "not stacked"),
    (["ppo.clip=0.1"], "ppo.clip belongs to run.algorithm=ppo; this run is sac"),
])
def test_what_cannot_work_is_refused(tmp_path, words, says):
    refused = samara("train", *PENDULUM, *words, "--out", tmp_path / "run")
    assert refused.code in (78, 71) and says in refused.err and len(refused.err.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_budget_that_ends_before_learning_starts_is_said():
    dry = ok("train", *PENDULUM, "replay.start=5000", "learn.frames=5000", "--dry-run")
    assert "replay.start=5000: the budget ends before so many steps are played" in dry.err
    assert "the budget ends" not in ok("train", *PENDULUM, "replay.start=5000", "learn.frames=5001", "--dry-run").err


def test_ranks_of_a_host_share_its_memory(tmp_path):
    """A replay of which each of two ranks could hold its half, but not both of them, is refused."""
    humanoid = [*PENDULUM, "learn.environments=32", "learn.batch=2", "learn.shards=2", "env.id=Humanoid-v5"]
    refused = samara("train", *humanoid, "replay.capacity=1e9", "--out", tmp_path / "run")
    units = {"GB": 1, "TB": 1000}
    needs, there = (float(size) * units[unit] for size, unit in re.findall(r"([\d.]+)(.B) (?:of memory|are available)", refused.err))
    both = int(1e9 * 1.4 * there / needs)
    train(tmp_path / "half", *humanoid, f"replay.capacity={both // 2}", "learn.frames=64", "learn.test_episodes=0")
    code, _, err = finish(start("samara", 2, *humanoid, f"replay.capacity={both}", "--out", tmp_path / "run"))
    assert code == 71 and "the replay of 2 ranks needs" in err
