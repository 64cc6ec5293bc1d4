"""Agents that learn from images by a replay: they learn, their bits, their files and their errors."""

import json
import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from samara_cli import TESTS, ok, resume, samara, train
from test_launch import until
from test_ppo import hash_of
from test_sac import expect_the_same_bits_after_interruptions, expect_the_same_bits_of_any_workers
from test_train_ranks import ranks_of, start

import samara as package

CATCH = ["classic/catch-dqn-pixels", "run.random_episodes=0", "run.video=false"]
# Two shards of a stack of four frames that are normalized and moved at random, continuous actions and a torso whose targets are copies.
PENDULUM = [
    "classic/pendulum-d4pg-pixels", "env.id=Pendulum-v1?pixels=16", "network.layers=normalize, conv 8 4x4/2 relu, dense 16 relu",
    "learn.frames=1200", "learn.environments=2", "learn.batch=2", "learn.shards=2", "learn.unroll=20", "replay.start=200",
    "replay.capacity=600", "replay.batch=16", "replay.ratio=8", "replay.random_shift=2", "learn.test_episodes=2",
    "run.random_episodes=0", "run.video=false",
]


@pytest.fixture(scope="module")
def catcher(tmp_path_factory):
    run = tmp_path_factory.mktemp("catch") / "run"
    return run, train(run, *CATCH, "learn.test_episodes=100")


@pytest.mark.default_tier
def test_catch_is_learned_in_seconds(catcher):
    assert catcher[1]["test_mean"] >= 0.9  # of 1; at random -0.6


@pytest.mark.parametrize("normalized", [False, True])
def test_an_exported_agent_is_the_same_network_in_torch(normalized, catcher, tmp_path):
    run, file = catcher[0], tmp_path / "agent.safetensors"
    if normalized:
        run = tmp_path / "run"
        train(run, *CATCH, "network.layers=normalize, conv 8 4x4/2 relu, dense 64 relu", "learn.frames=4000", "learn.test_episodes=0")
    ok("export", run, file)
    weights = load_file(file)
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 4, 2), torch.nn.ReLU(), torch.nn.Flatten(),
                                  torch.nn.Linear(8 * 7 * 7, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3))
    names = {"0": "conv1", "3": "fc1", "5": "value"}
    network.load_state_dict({key: weights[f"{names[key[0]]}{key[1:]}"] for key in network.state_dict()})
    images = np.random.default_rng(1).integers(0, 256, (200, 16, 16), dtype=np.uint8)
    inputs = torch.from_numpy(images)[:, None].float() / 255
    if normalized:
        mean, deviation = (weights[f"normalize.{name}"].reshape(16, 16) for name in ("mean", "std"))
        assert 0 <= mean.min() < mean.max() <= 1 and deviation.max() <= 0.5
        inputs = ((inputs - mean) / deviation.clamp(min=0.1)).clamp(-5, 5)
    with torch.no_grad():
        values = network(inputs)
    best = values.topk(2).values
    clear = (best[:, 0] - best[:, 1] > 1e-4).numpy()
    policy = package.load(run).policy()
    chosen = np.array([policy.predict(image)[0] for image in images])
    assert clear.sum() > 150 and (chosen[clear] == values.argmax(1).numpy()[clear]).all()


def test_actors_threads_and_ranks_leave_no_trace(tmp_path):
    expect_the_same_bits_of_any_workers(tmp_path, *PENDULUM, other=["replay.compress=lz4"])


def test_a_run_may_begin_to_compress_and_stop_to(tmp_path):
    whole = train(tmp_path / "whole", *PENDULUM)
    run = tmp_path / "run"
    train(run, *PENDULUM, "learn.frames=600")
    resume(run, "learn.frames=900", "replay.compress=lz4")
    assert hash_of(resume(run, "learn.frames=1200", "replay.compress=none")) == hash_of(whole)
    ok("fsck", run)


# Ten thousand steps of 65,536 bytes for each gigabyte that the machine has: most of twice as much.
def test_a_compressed_replay_stops_the_run_as_soon_as_it_is_seen_not_to_fit(tmp_path):
    run, gigabytes = tmp_path / "run", int(re.search(r"MemTotal: +(\d+)", Path("/proc/meminfo").read_text())[1]) // 10**6 + 1
    words = [*CATCH, "network.layers=conv 1 8x8/8 relu, dense 8 relu", "learn.frames=40000", "learn.test_episodes=0",
             f"replay.capacity={30_000 * gigabytes}", "replay.start=30000", "replay.compress=lz4"]
    stopped = samara("train", *words, "env.id=colours:Snow-v0", "--trust", "--out", run, **ENVS)
    assert stopped.code == 71 and "; the run stops if its observations do not compress enough" in stopped.err
    assert re.search(r"needs \S+ of memory besides what its first 0\.\d+ % take, .*; lower replay.capacity", stopped.err), stopped.err
    # the same size of images that compress
    ok("train", *words, "env.id=Catch-v0?pixels=256", "learn.frames=2000", "--out", tmp_path / "fits")
    # without compression
    refused = samara("train", *words, "env.id=Catch-v0?pixels=256", "replay.compress=none", "--out", tmp_path / "no")
    assert refused.code == 71 and "lower replay.capacity" in refused.err and not (tmp_path / "no").exists()


# Coloured images of a Python environment, of which a stack of two says what pays: ten steps of at most 1 each.
COLOURS = ["env.stack=2", "network.layers=conv 8 1x1 relu, dense 32 relu", "learn.unroll=10", "learn.frames=4000",
           "learn.environments=4", "learn.batch=4", "replay.capacity=4000", "replay.start=400", "replay.batch=32",
           "replay.ratio=16", "learn.test_episodes=20", "run.random_episodes=0", "run.video=false"]
ENVS = {"PYTHONPATH": str(TESTS / "envs")}


@pytest.mark.parametrize("preset, task, words", [
    ("catch-dqn-pixels", "Colours", []),
    ("pendulum-d4pg-pixels", "Named", ["d4pg.value_min=-20", "d4pg.value_max=20", "d4pg.steps=3"]),
])
def test_coloured_images_of_a_python_environment_are_learned(tmp_path, preset, task, words):
    run, file = tmp_path / "run", tmp_path / "agent.safetensors"
    result = train(run, f"classic/{preset}", *COLOURS, f"env.id=colours:{task}-v0", *words, **ENVS)
    assert result["test_mean"] >= 9, result["test_mean"]
    ok("export", run, file)
    played = [ok("eval", target, "--trust", "--episodes", 5, "--json", **ENVS).json["returns"] for target in (run, file)]
    assert played[0] == played[1]


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_with_its_frames(tmp_path):
    expect_the_same_bits_after_interruptions(tmp_path, signal.SIGKILL, *PENDULUM, "learn.frames=12000")


@pytest.mark.parametrize("words, says", [
    (["env.id=Catch-v0?pixels=4"], "Catch-v0?pixels=4: expected pixels=8 to 256, such as Catch-v0?pixels=42"),
    (["env.id=Catc-v0?pixels=16"], "native environment 'Catc-v0' is unknown, the nearest is 'Catch-v0'"),
    (["env.id=Recall-v0?pixels=16"], "Recall-v0?pixels=16: its picture shows what has to be remembered"),
    (["env.id=TMaze-v0?pixels=16"], "expected the id without ?pixels="),
    (["network.layers=dense 64 relu"], "dqn learns from images with convolutions and dense layers; expected a line such as"),
    (["network.layers=conv 8 4x4/2 relu, conv 8 20x20 relu, dense 8 relu"], "conv2"),
    (["env.stack=64", "env.id=Catch-v0"], "the environment's observations are vectors, which are not stacked"),
    (["her.fraction=0.5"], "her.fraction"),
    (["env.id=Catch-v0", "env.stack=0", "network.layers=dense 8 relu", "replay.compress=lz4"], "compresses images, the environment's observations are vectors"),
    (["env.id=Catch-v0", "env.stack=0", "network.layers=dense 8 relu", "replay.random_shift=2"], "moves images, the environment's observations are vectors"),
])
def test_what_cannot_be_learned_from_is_one_line(tmp_path, words, says):
    refused = samara("train", *CATCH, *words, "--out", tmp_path / "run")
    assert refused.code in (66, 78) and says in refused.err and refused.err.count("\n") <= 2, refused.err
    assert not (tmp_path / "run").exists()


# Two shards with 70 MB of frames each, of which little is learned.
LARGE = [*CATCH, "env.id=Catch-v0?pixels=84", "network.layers=conv 4 8x8/8 relu, dense 16 relu", "learn.frames=60000", "learn.shards=2",
         "replay.capacity=20000", "replay.ratio=0.1", "learn.test_episodes=1", "run.checkpoint_seconds=1000"]


@pytest.mark.slow
@pytest.mark.parametrize("then", ["goes on", "is stopped"])
def test_a_large_replay_is_written_ahead_of_its_checkpoint_in_turns(tmp_path, then):
    whole, folder = train(tmp_path / "whole", *LARGE), tmp_path / "run"
    ranks = start("samara", 2, *LARGE, "--out", folder)
    metrics = folder / "metrics.jsonl"
    until(lambda: metrics.exists() and metrics.read_text().count("\n") > 1, 60)
    time.sleep(2)  # the replay fills
    main = ranks_of(ranks)[0]
    os.kill(main, signal.SIGUSR1)
    seen = set()  # how many parts were there at a time
    while not list(folder.glob("checkpoints/ckpt-*")):
        seen.add(len(list(folder.glob("checkpoints/.ahead*/replay-*.bin"))))
        if then == "is stopped" and max(seen) > 0:
            os.kill(main, signal.SIGTERM)
            break
        time.sleep(0.01)
    assert max(seen) > 0 and (then == "is stopped" or len(seen) > 2)
    out, _ = ranks.communicate(timeout=60)
    assert (ranks.returncode, then) in ((75, "is stopped"), (0, "goes on"))
    ok("fsck", folder)
    assert not list(folder.glob("checkpoints/.*"))
    end = json.loads(out.splitlines()[-1]) if then == "goes on" else resume(folder)
    assert hash_of(end) == hash_of(whole)
