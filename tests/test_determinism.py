"""One seed, one population hash: whatever plays the episodes, and whatever happens to the actors."""

import random
import signal
import time
from pathlib import Path

import pytest
from samara_cli import ATARI, CARTPOLE, Running, ok, train

GAME = [*ATARI, "ga.population=16", "env.frames_max=400", "fleet.step_timeout=1"]


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    return train(tmp_path_factory.mktemp("cartpole") / "run", *CARTPOLE, "fleet.threads=1")["population_hash"]


@pytest.fixture(scope="module")
def atari(tmp_path_factory):
    return train(tmp_path_factory.mktemp("atari") / "run", *GAME)["population_hash"]


@pytest.mark.parametrize(
    "how",
    [
        ["fleet.threads=2"],
        ["fleet.threads=5"],
        ["fleet.threads=1", "fleet.native=slots", "fleet.slots=1"],
        ["fleet.threads=2", "fleet.native=slots", "fleet.slots=7"],
        ["ga.cache_megabytes=1", "ga.validation_candidates=2"],
    ],
)
def test_native_environments_on_threads_or_through_slots(how, cartpole, tmp_path):
    assert train(tmp_path / "run", *CARTPOLE, *how)["population_hash"] == cartpole


@pytest.mark.parametrize("isa", ["portable", "avx2", "avx512"])
def test_every_instruction_set(isa, cartpole, tmp_path):
    if isa != "portable" and isa not in Path("/proc/cpuinfo").read_text().replace("avx512f", "avx512 "):
        pytest.skip(f"NOT TESTED: this CPU has no {isa}")
    assert train(tmp_path / "run", *CARTPOLE, SAMARA_ISA=isa)["population_hash"] == cartpole


def test_every_instruction_set_on_atari(tmp_path):
    short = [*ATARI, "ga.population=4", "ga.generations=2", "env.frames_max=100"]
    hashes = {train(tmp_path / f"run-{isa}", *short, SAMARA_ISA=isa)["population_hash"] for isa in ("", "portable")}
    assert len(hashes) == 1


@pytest.mark.parametrize("storage", [pytest.param("bf16", marks=pytest.mark.slow), "int8"])
def test_short_weights_everywhere(storage, tmp_path):
    short = [*ATARI, "ga.population=4", "ga.generations=2", "env.frames_max=100", f"network.storage={storage}"]
    ways = [["", "fleet.inference=actor"], ["portable", "fleet.inference=actor"], ["", "fleet.inference=engine"]]
    hashes = {
        train(tmp_path / f"run-{i}", *short, how, SAMARA_ISA=isa)["population_hash"] for i, (isa, how) in enumerate(ways)
    }
    assert len(hashes) == 1


@pytest.mark.parametrize("noise", ["normal", "quantile8"])
@pytest.mark.parametrize("loop", ["uber_gpu", "uber_dist"])
def test_every_loop_and_noise(noise, loop, tmp_path):
    options = [f"ga.noise={noise}", f"ga.loop={loop}"]
    a = train(tmp_path / "a", *CARTPOLE, *options, "fleet.threads=1", SAMARA_ISA="portable")
    b = train(tmp_path / "b", *CARTPOLE, *options, "fleet.threads=3", "fleet.native=slots")
    assert a["population_hash"] == b["population_hash"]
    assert a["elite_returns"] == b["elite_returns"]


def test_another_seed_gives_another_population(cartpole, tmp_path):
    assert train(tmp_path / "run", *CARTPOLE, "run.seed=4")["population_hash"] != cartpole


@pytest.mark.parametrize(
    "how",
    [
        ["fleet.actors=3", "fleet.slots=5"],
        ["fleet.inference=engine", "fleet.actors=1", "fleet.slots=1", "fleet.threads=1"],
        ["fleet.inference=engine", "fleet.actors=3", "fleet.slots=5", "fleet.threads=2"],
    ],
)
def test_every_fleet_and_place_of_inference(how, atari, tmp_path):
    assert train(tmp_path / "run", *GAME, *how)["population_hash"] == atari


def disturbed(tmp_path, inference, want, disturb, moments):
    """A run whose actors are disturbed at random moments; its hash and log."""
    run, rng = tmp_path / "run", random.Random(7)
    how = [*GAME, "fleet.actors=2", "fleet.slots=4", f"fleet.inference={inference}"]
    running = Running(tmp_path / "log", "train", *how, "--out", run, "--quiet")
    try:
        running.wait_for("deep-ga on atari")
        done = 0
        while done < moments and running.process.poll() is None:
            time.sleep(rng.uniform(0.2, 0.8))
            actors = running.children()
            if actors:
                disturb(rng.choice(actors))
                done += 1
        assert running.wait(180) == 0, running.text()
    finally:
        if running.process.poll() is None:
            running.kill()
    assert ok("hash", run, "--json").json["population_hash"] == want
    assert done == moments, "the run was over too soon to be disturbed"
    assert running.text().count("is started again") >= 1, running.text()


def send(number):
    def to(pid):
        try:
            import os

            os.kill(pid, number)
        except ProcessLookupError:
            pass

    return to


@pytest.mark.parametrize("inference", ["actor", pytest.param("engine", marks=pytest.mark.slow)])
def test_killed_actors_change_nothing(inference, atari, tmp_path):
    disturbed(tmp_path, inference, atari, send(signal.SIGKILL), moments=3)


@pytest.mark.parametrize("inference", [pytest.param("actor", marks=pytest.mark.slow), "engine"])
def test_stopped_actors_change_nothing(inference, atari, tmp_path):
    disturbed(tmp_path, inference, atari, send(signal.SIGSTOP), moments=1)
