"""Ranks of two hosts: one here, one in a network namespace with a host name of its own, over a link that can be cut."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from remote_link import Link
from replica_util import MLP, result, run
from samara_cli import BINARY, CARTPOLE, environment, train
from test_launch import until
from test_replica import free_port

EXAMPLES = MLP.parent
STEPS = ["--steps", "60"]


@pytest.fixture
def link():
    with Link.made_or_skipped() as made:
        yield made


def start(link: Link, program: Path, *args: object, **variables: str) -> list[subprocess.Popen]:
    """Rank 0 here and rank 1 there, told what torchrun tells."""
    port = str(free_port())
    ranks = []
    for rank, (address, prefix) in enumerate(((link.address, ()), (link.far, link.prefix))):
        other = ["unshare", "--uts", "sh", "-c", 'hostname far; exec "$0" "$@"'] if rank else []
        env = environment(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", MASTER_ADDR=link.address,
                          MASTER_PORT=port, SAMARA_ADDRESS=address, **variables)
        ranks.append(subprocess.Popen([*prefix, *other, str(program), *map(str, args)], env=env, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    return ranks


def finish(ranks: list[subprocess.Popen], timeout: float = 120) -> list[tuple[int, str, str]]:
    ended = []
    for process in ranks:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        ended.append((process.returncode, out, err))
    return ended


def test_the_same_bits_on_two_hosts(link):
    (code, out, err), (far_code, far_out, far_err) = finish(start(link, MLP, *STEPS))
    assert code == far_code == 0, err + far_err
    assert "gloo" in err and far_out == ""
    alone = result(run("threads", 1, *STEPS))
    assert json.loads(out.splitlines()[-1]) == {**alone, "world_size": 2}


@pytest.mark.slow
def test_large_sums_of_fast_mode_are_gloos_own(link):
    options = ["--steps", 3, "--batch", 16, "--side", 16, "--mode", "fast", "--json"]
    (code, out, err), (far_code, _, far_err) = finish(start(link, EXAMPLES / "resnet", *options))
    assert code == far_code == 0, err + far_err
    assert "gradients are summed by gloo" in err
    here = result(run("samara", 2, *options, program=EXAMPLES / "resnet"))
    assert json.loads(out.splitlines()[-1])["loss"] == pytest.approx(here["loss"], rel=1e-4)


def test_evolution_on_two_hosts(link, tmp_path):
    (code, out, err), (far_code, _, far_err) = finish(
        start(link, BINARY, "train", *CARTPOLE, "--quiet", "--json", "--out", tmp_path / "run"))
    assert code == far_code == 0, err + far_err
    shared = json.loads(out.splitlines()[-1])
    assert shared["ranks"] == 2
    assert shared["population_hash"] == train(tmp_path / "alone", *CARTPOLE)["population_hash"]


@pytest.mark.parametrize("way", ["down", "swallow"])
@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_a_cut_link_ends_both(link, tmp_path, way, mode):
    out = tmp_path / "run"
    ranks = start(link, MLP, "--steps", "1000000", "--mode", mode, "--out", out)
    until(lambda: (out / "checkpoint.safetensors").exists(), 60)
    getattr(link, way)()
    cut = time.monotonic()
    for rank, (code, _, err) in enumerate(finish(ranks, 60)):
        assert code == 69 and f"rank {1 - rank}" in err, err
    assert time.monotonic() - cut < 15
