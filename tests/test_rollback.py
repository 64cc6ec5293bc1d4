"""Losses that are not finite: skipped and counted; after five in a row the last good checkpoint is taken, on every rank,
but in deterministic runs, which go on with what they have."""

import json
import math
import struct
from pathlib import Path

import pytest
from samara_cli import TESTS, ok, samara
from test_train_ranks import finish, start

BURSTS = ["classic/cartpole-vtrace", "env.id=faulty:Bursts-v0", "learn.rewards=raw",
          "learn.environments=8", "learn.batch=4", "learn.unroll=5", "learn.shards=2", "learn.updates=200",
          "run.random_episodes=2", "learn.test_episodes=2", "fleet.actors=2"]


def train(out: Path, ranks: int, burst: str, *keys: str) -> tuple[int, str, str]:
    return finish(start("samara", ranks, *BURSTS, *keys, "--out", out, PYTHONPATH=str(TESTS / "envs"), FAULTY_BURST=burst))


def weights(run: Path) -> list[float]:
    data = (max((run / "checkpoints").glob("ckpt-*")) / "weights.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    return [x for (x,) in struct.iter_unpack("<f", data[8 + size:])]


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_short_burst_is_survived(ranks, tmp_path):
    # one environment a rank, in whose unrolls a burst is without gaps; two at paces of their own would mix good ones in
    each = [f"learn.{key}={ranks}" for key in ("environments", "batch", "shards")]
    code, out, err = train(tmp_path / "run", ranks, "100,40", "learn.mode=free", *each)
    assert code == 0, err
    result = json.loads(out.splitlines()[-1])
    assert result["updates"] == 200 and result["drops"]["skipped_updates"] >= 5 and result["rollbacks"] >= 1
    assert "5 updates in a row were not finite: parameters of update " in err
    assert all(map(math.isfinite, weights(tmp_path / "run")))
    ok("fsck", tmp_path / "run")


def test_deterministic_runs_keep_their_bits(tmp_path):
    hashes = set()
    for ranks in (1, 2):
        code, out, err = train(tmp_path / str(ranks), ranks, "100,20", "learn.mode=deterministic")
        assert code == 0, err
        result = json.loads(out.splitlines()[-1])
        assert result["drops"]["skipped_updates"] >= 5 and result["rollbacks"] == 0
        hashes.add(result["parameter_hash"])
    assert len(hashes) == 1


def test_what_is_no_single_precision_number_is_skipped_too(tmp_path):
    outcome = samara("train", "classic/cartpole-ppo", "env.id=faulty:Bursts-v0", "learn.rewards=raw", "run.random_episodes=0",
                     "--out", tmp_path / "run", PYTHONPATH=str(TESTS / "envs"), FAULTY_BURST="100,1000000")
    assert outcome.code == 70 and "the loss stays not finite after" in outcome.err, outcome.err


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", ["free", "deterministic"])
def test_a_burst_without_end_ends_the_run(ranks, mode, tmp_path):
    code, out, err = train(tmp_path / "run", ranks, "100,1000000", f"learn.mode={mode}")
    assert code == 70 and "the loss stays not finite after" in err and "lower optimizer.learning_rate" in err, err
