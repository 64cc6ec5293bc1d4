"""Training runs under faults, for seconds each (tests/long/train_faults.py: for minutes). Counts are printed (pytest -s)."""

import json
import signal
import time

import pytest
import train_faults as faults
from remote_link import Link
from remote_util import folder, needs_grpc  # noqa: F401: a fixture
from samara_cli import BINARY, ok, samara
from train_faults import CARTPOLE, DETERMINISTIC, FOREVER, SIMULATORS, Training

pytestmark = [
    pytest.mark.skipif(not BINARY.with_name("samara-torch").exists(), reason="NOT TESTED: built without torch"),
    needs_grpc,
]


def shown(counts):
    print(json.dumps(counts))
    return counts


@pytest.mark.slow  # of remote actors: test_remote_faults.py
def test_actors_killed_every_100_ms(folder):
    shown(faults.local_actors_killed(folder, 6))


@pytest.mark.slow
def test_killed_actors_change_no_bits(folder):
    shown(faults.local_actors_killed_bits(folder, *CARTPOLE, SIMULATORS, "learn.frames=150000", period=0.4))


@pytest.mark.slow
def test_killed_actors_of_an_atari_run_change_no_bits(folder):
    shown(faults.local_actors_killed_bits(folder, *faults.PONG, "learn.updates=10", period=3))


def test_killed_remote_actors_change_no_bits(folder):
    shown(faults.remote_actors_killed_bits(folder, 20_000))


@pytest.mark.slow
def test_frozen_actors_change_no_bits(folder):
    shown(faults.local_actors_frozen(folder, *CARTPOLE, SIMULATORS, "learn.frames=300000"))


@pytest.mark.slow
def test_frozen_remote_actors_lose_their_lease_and_come_back(folder):
    shown(faults.remote_actors_frozen(folder, 5))


@pytest.mark.slow
def test_actors_outlive_an_engine_that_is_killed(folder):
    shown(faults.engine_killed(folder, 60_000, DETERMINISTIC, longest=2))


@pytest.mark.slow
@pytest.mark.parametrize("deterministic", [False, True], ids=["free", "deterministic"])
def test_links_that_are_cut_and_heal(folder, deterministic):
    with Link.made_or_skipped() as link:
        shown(faults.links_cut(folder, link, 5, deterministic))


@pytest.mark.parametrize("deterministic", [False, True], ids=["free", "deterministic"])
def test_wrong_messages_reach_no_update(folder, deterministic):
    counts = shown(faults.attacked(folder, 190, deterministic))
    assert counts["kinds"] == 19


@pytest.mark.parametrize("link", ["unix", "tcp"])
def test_the_second_run_on_an_address_ends_with_73(folder, link):
    first = Training(folder / "first", *CARTPOLE, FOREVER,
                     listen=f"unix:{folder}/s/socket" if link == "unix" else "127.0.0.1:0")
    try:
        while "listens at" not in first.text():
            assert first.running(), first.text()
            time.sleep(0.05)
        address = first.text().split("listens at ")[1].split(": samara actor")[0]
        second = samara("train", *CARTPOLE, FOREVER, "--listen", address, "--out", folder / "second")
        assert second.code == 73 and address in second.err and not (folder / "second").exists(), second
        assert first.running()
        actor = faults.Actor(folder, address, 32)
        first.wait_for_updates(2)
        actor.kill()
    finally:
        first.kill()


def test_health_and_secrets_of_a_running_engine(folder):
    grpc = pytest.importorskip("grpc", reason="SKIPPED LOUDLY: no grpcio in .venv (make setup)")
    ok("token", folder / "token")
    address = f"unix:{folder}/s/socket"
    training = Training(folder / "run", *CARTPOLE, FOREVER, listen=address, terms=("--token-file", folder / "token"))
    try:
        while "listens at" not in training.text():
            assert training.running(), training.text()
            time.sleep(0.05)
        actor = faults.Actor(folder, address, 32, "--token-file", folder / "token")
        with grpc.insecure_channel(address) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            training.wait_for_updates(2)
            assert check(b"", timeout=10) == b"\x08\x01"
        # SIGHUP reads the token again, and stops nothing
        training.signal(signal.SIGHUP)
        training.wait_for_updates(2)
        assert "were reloaded" in training.text() and actor.running()
        training.stop()
        actor.kill()
    finally:
        training.kill()


@pytest.mark.slow
def test_a_thousand_streams(folder):
    shown(faults.many_streams(folder, 1000, 5))
