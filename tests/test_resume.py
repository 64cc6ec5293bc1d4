"""A run that is killed, stopped, moved or damaged ends where an undisturbed one ends."""

import hashlib
import json
import random
import re
import shutil
import signal
import struct
import time
from pathlib import Path

import pytest
from samara_cli import ATARI, CARTPOLE, Running, ok, reported, resume, samara, train

LONG = [*CARTPOLE, "ga.population=320", "ga.generations=40", "run.checkpoint_seconds=1", "fleet.threads=1"]
# some seconds, so that a kill may fall anywhere
KILLED = [*LONG, "ga.population=48", "ga.generations=400"]
GRACE = 25  # s, from SIGTERM to the end


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The undisturbed run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    result = train(folder, *LONG)
    return folder, result


@pytest.fixture
def copy(whole, tmp_path):
    return Path(shutil.copytree(whole[0], tmp_path / "copy"))


def same(result, want):
    for name in ("generation", "frames", "population_hash", "elite_returns", "random_returns"):
        assert result[name] == want[name], name


def killed_series(tmp_path, run, command, instants):
    """Kills the run so many seconds after each of its starts. Returns how many kills found it running."""
    kept = landed = 0
    for trial, instant in enumerate(instants):
        running = Running(tmp_path / f"log{trial}", *command)
        try:
            time.sleep(instant)
        finally:
            if running.process.poll() is None:
                running.kill()
                landed += 1
        shown = reported(running.text())
        if shown:
            kept = shown
        if run.exists():
            found = samara("hash", run, "--json")
            # what was printed is durable (I1): the journal has that generation or a later one
            assert found.code == (0 if kept else found.code), found
            if kept:
                assert found.json["generation"] >= kept
            ok("fsck", run)
    return landed


def kill_and_resume(tmp_path, settings, want, seed, kills, span):
    """Kills the run at random instants until it has been killed often enough or ends by itself. `span`: s, at
    most so long after a start. Starts again with half of it where most of the kills came too late: the unkilled run
    may have been slowed by other work that is gone. Returns how often it was killed."""
    rng = random.Random(seed)
    span = min(span, 1.5 * want["seconds"] / kills)
    run = tmp_path / "run"
    command = ["train", *settings, "--out", run, "--resume", "auto", "--quiet"]
    for series in range(4):
        if series > 0:
            shutil.rmtree(run)
            span /= 2
        landed = killed_series(tmp_path, run, command, [rng.uniform(0, span) for _ in range(kills)])
        if landed >= kills // 2:
            break
    assert landed >= kills // 2, "the run was over too soon to be killed"
    same(ok(*command, "--json").json, want)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    generations = [line["generation"] for line in lines if "fitness_mean" in line]
    assert generations == list(range(1, want["generation"] + 1)), "each generation once in metrics.jsonl"
    ok("fsck", run)
    return landed


@pytest.fixture(scope="module")
def unkilled(tmp_path_factory):
    return train(tmp_path_factory.mktemp("unkilled") / "run", *KILLED)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_killed_at_random_instants(seed, unkilled, tmp_path):
    kill_and_resume(tmp_path, KILLED, unkilled, seed, kills=6, span=0.8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_killed_at_random_instants_two_hundred_times(seed, unkilled, tmp_path):
    kill_and_resume(tmp_path, KILLED, unkilled, seed, kills=10, span=0.5)


@pytest.mark.slow
def test_atari_killed_at_random_instants(tmp_path):
    settings = [*ATARI, "ga.generations=8"]
    want = train(tmp_path / "whole", *settings)
    kill_and_resume(tmp_path, settings, want, seed=1, kills=4, span=3.0)


def test_every_reported_generation_survives_a_kill_right_after(whole, tmp_path):
    run = tmp_path / "run"
    command = ["train", *LONG, "--out", run, "--resume", "auto", "--quiet"]
    for trial in range(5):
        running = Running(tmp_path / f"log{trial}", *command)
        running.wait_for(": frames ")
        running.kill()
        shown = reported(running.text())
        assert ok("hash", run, "--json").json["generation"] >= shown > 0
        want = ok("hash", whole[0], "--generation", shown, "--json").json
        assert ok("hash", run, "--generation", shown, "--json").json == want
    same(ok(*command, "--json").json, whole[1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_run_with_a_saved_state(number, whole, tmp_path):
    run = tmp_path / "run"
    running = Running(tmp_path / "log", "train", *LONG, "--out", run, "--quiet")
    running.wait_for("generation 3: frames")
    start = time.monotonic()
    running.send(number)
    assert running.wait(GRACE) == 75
    assert time.monotonic() - start < GRACE
    last = running.text().splitlines()[-1]
    assert str(run) in last and "--resume" in last
    ok("fsck", run)
    shown = reported(running.text())
    assert ok("hash", run, "--json").json["generation"] == shown
    # the checkpoint of the last generation alone carries the run
    assert list((run / "checkpoints").glob(f"ckpt-{shown:08d}-*"))
    (run / "checkpoints" / "journal.bin").unlink()
    same(resume(run), whole[1])


def test_speed_after_a_resume_is_without_the_frames_of_reused_episodes(tmp_path):
    run = tmp_path / "run"
    settings = [*CARTPOLE, "ga.population=10000", "ga.episodes=80", "ga.generations=1", "run.checkpoint_seconds=1", "fleet.threads=1"]
    running = Running(tmp_path / "log", "train", *settings, "--out", run, "--quiet")
    end = time.monotonic() + 60
    while not list(run.glob("checkpoints/journal*")) or next(run.glob("checkpoints/journal*")).stat().st_size < 10_000:
        assert time.monotonic() < end and running.process.poll() is None
        time.sleep(0.001)
    running.send(signal.SIGTERM)
    assert running.wait(GRACE) == 75
    resume(run)
    episodes = re.findall(r"(\d+) finished episodes of generation 1 are reused", (run / "log.txt").read_text())
    reused = sum(map(int, episodes))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    (line,) = (line for line in lines if "fitness_mean" in line)
    played = line["frames_per_second"] * (line["seconds_population"] + line["seconds_validation"])
    assert reused > 100
    assert 0 < played <= line["frames"] - 8 * reused  # no pole falls sooner


def test_a_signal_ends_an_atari_run_within_the_grace_time(tmp_path):
    run = tmp_path / "run"
    settings = [*ATARI, "env.frames_max=20000", "ga.population=100"]
    running = Running(tmp_path / "log", "train", *settings, "--out", run, "--quiet")
    running.wait_for("deep-ga on atari")
    end = time.monotonic() + 60
    while not (actors := running.children()):
        assert time.monotonic() < end
        time.sleep(0.05)
    time.sleep(3)  # until they play
    start = time.monotonic()
    running.send(signal.SIGTERM)
    assert running.wait(GRACE) == 75
    assert time.monotonic() - start < GRACE
    assert not any(Path(f"/proc/{pid}").exists() for pid in actors), "actors outlive the engine"


def test_a_kill_leaves_no_actor(tmp_path):
    running = Running(tmp_path / "log", "train", *ATARI, "--out", tmp_path / "run", "--quiet")
    running.wait_for("deep-ga on atari")
    actors = running.children()
    assert actors
    running.kill()
    end = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in actors):
        assert time.monotonic() < end, "actors outlive the engine"
        time.sleep(0.05)


def test_a_request_saves_a_checkpoint_at_once(tmp_path):
    run = tmp_path / "run"
    settings = [*LONG, "run.checkpoint_seconds=1000", "ga.generations=100000"]
    running = Running(tmp_path / "log", "train", *settings, "--out", run, "--quiet")
    try:
        running.wait_for("generation 2: frames")
        assert list((run / "checkpoints").glob("ckpt-*")) == []
        running.send(signal.SIGUSR1)
        end = time.monotonic() + 30
        while not list((run / "checkpoints").glob("ckpt-*/manifest.json")):
            assert time.monotonic() < end
            time.sleep(0.02)
        assert running.process.poll() is None
    finally:
        running.kill()


def test_a_finished_run_prints_its_result_without_playing(copy, whole):
    metrics = (copy / "metrics.jsonl").read_text()
    for command in (["train", "--resume", copy], ["train", *LONG, "--out", copy, "--resume", "auto"]):
        outcome = ok(*command, "--json")
        same(outcome.json, whole[1])
        assert outcome.json["seconds"] == whole[1]["seconds"]
        assert outcome.json["run"] == str(copy), "the folder was moved"
        assert "generation 1:" not in outcome.err
    played = (copy / "metrics.jsonl").read_text().removeprefix(metrics)
    assert "fitness_mean" not in played


def test_another_number_of_final_test_episodes_is_played(copy, whole):
    longer = resume(copy, "run.final_test_episodes=7")
    assert len(longer["elite_returns"]) == 7 and longer["elite_returns"][:4] == whole[1]["elite_returns"]
    same(longer | {"elite_returns": whole[1]["elite_returns"]}, whole[1])
    assert json.loads((copy / "result.json").read_text())["result"]["elite_returns"] == longer["elite_returns"]
    ok("fsck", copy)
    # the number is part of the run now: the result stands
    again = ok("train", "--resume", copy, "--json")
    same(again.json, longer)
    assert "resumed" not in again.err
    same(resume(copy, "run.final_test_episodes=4"), whole[1])


def test_a_finished_atari_run_starts_no_actor(tmp_path):
    run = tmp_path / "run"
    want = train(run, *ATARI, "ga.generations=1")
    same(resume(run, SAMARA_VENV="/nowhere"), want)


def test_a_moved_run_goes_on(whole, tmp_path):
    run, moved = tmp_path / "run", tmp_path / "elsewhere" / "moved"
    running = Running(tmp_path / "log", "train", *LONG, "--out", run, "--quiet")
    running.wait_for("generation 4: frames")
    running.kill()
    moved.parent.mkdir()
    run.rename(moved)
    result = resume(moved)
    same(result, whole[1])
    assert result["run"] == str(moved)
    assert not run.exists()


def test_a_larger_budget_goes_on(whole, tmp_path):
    run = tmp_path / "run"
    short = train(run, *LONG, "ga.generations=10")
    assert short["generation"] == 10
    # not raised: the result stands
    assert resume(run)["generation"] == 10
    result = resume(run, "ga.generations=40")
    same(result, whole[1])
    # the raised budget is part of the run now
    same(resume(run), whole[1])


def test_a_smaller_budget_is_reached(copy, whole):
    same(resume(copy), whole[1])
    outcome = samara("train", "--resume", copy, "ga.generations=5", "--json")
    assert outcome.code == 78 and "ga.generations=5" in outcome.err, outcome


def test_the_fleet_may_change_on_resume(tmp_path, whole):
    run = tmp_path / "run"
    train(run, *LONG, "ga.generations=37")
    changes = ["fleet.threads=3", "fleet.native=slots", "fleet.slots=5", "ga.cache_megabytes=1"]
    same(resume(run, "ga.generations=40", *changes), whole[1])


@pytest.mark.parametrize(
    "change",
    [
        "run.seed=4",
        "env.id=Acrobot-v1",
        "network.name=mlp-8-relu",
        "ga.population=161",
        "ga.noise=quantile8",
        "ga.mutation_power=0.2",
        "ga.parents=9",
        "run.algorithm=random-search",
    ],
)
def test_what_decides_the_numbers_may_not_change_on_resume(change, copy):
    before = (copy / "config.toml").read_bytes()
    outcome = samara("train", "--resume", copy, change, "--json")
    key, value = change.split("=")
    assert f"{key}=" in outcome.err and value in outcome.err
    assert outcome.code == 78 and len(outcome.err.splitlines()) == 1, outcome
    outcome = samara("train", "--resume", copy, "ga.generations=41", change, "--json")
    assert outcome.code == 78, outcome
    assert (copy / "config.toml").read_bytes() == before


def test_the_same_value_is_no_change(copy, whole):
    same(resume(copy, "run.seed=3", "ga.population=320"), whole[1])


def test_auto_refuses_another_configuration(copy):
    before = (copy / "config.toml").read_bytes()
    for other in (["run.seed=4"], ["ga.population=50"], ["ga.generations=41", "run.seed=4"]):
        outcome = samara("train", *LONG, *other, "--out", copy, "--resume", "auto", "--json")
        assert outcome.code == 78 and str(copy) in outcome.err, outcome
    outcome = samara("train", *ATARI, "--out", copy, "--resume", "auto", "--json")
    assert outcome.code == 78 and str(copy) in outcome.err, outcome
    assert (copy / "config.toml").read_bytes() == before, "a refused resume changes nothing"


def test_auto_starts_a_run_that_does_not_exist(tmp_path, whole):
    (tmp_path / "empty").mkdir()
    for place in ("run", "empty"):
        command = ["train", *CARTPOLE, "--out", tmp_path / place, "--resume", "auto", "--json", "--quiet"]
        first = ok(*command).json
        same(ok(*command).json, first)


# -- damage -----------------------------------------------------------------------------------------------


@pytest.fixture
def stopped(tmp_path):
    """A run stopped in the middle, with a checkpoint of its last generation and older ones."""
    run = tmp_path / "run"
    for after in (3, 6, 9):
        running = Running(tmp_path / "log", "train", *LONG, "--out", run, "--resume", "auto", "--quiet")
        while reported(running.text()) < after:  # a busy machine may have stopped the one before later
            assert running.process.poll() is None, running.text()
            time.sleep(0.005)
        running.send(signal.SIGTERM)
        assert running.wait(GRACE) == 75
    return run


def checkpoints(run):
    return sorted((run / "checkpoints").glob("ckpt-*[0-9]"))


def flip(file, at):
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def goes_on_after_damage(run, want, *words):
    broken = samara("fsck", run, "--json")
    assert broken.code == 65 and broken.json["exit"] == 65, broken
    assert broken.json["sound"] is False and broken.json["problems"] and broken.json["error"], broken
    outcome = ok("train", "--resume", run, "--quiet", "--json")
    for word in words:
        assert word in outcome.err, outcome
    same(outcome.json, want)
    assert list((run / "checkpoints").glob("*.corrupt*")), "what was damaged is kept"
    ok("fsck", run)


def test_a_damaged_checkpoint_is_quarantined(stopped, whole):
    newest = checkpoints(stopped)[-1]
    flip(newest / "state.bin", 50)
    for command in (["inspect", stopped], ["eval", stopped, "--episodes", 1]):
        assert ok(*command).err.count("trying the checkpoint before it") == 1
    goes_on_after_damage(stopped, whole[1], newest.name, "damaged")


def test_a_damaged_manifest_is_quarantined(stopped, whole):
    newest = checkpoints(stopped)[-1]
    flip(newest / "manifest.json", 30)
    goes_on_after_damage(stopped, whole[1], newest.name)


def test_a_damaged_journal_is_quarantined(stopped, whole):
    journal = stopped / "checkpoints" / "journal.bin"
    flip(journal, journal.stat().st_size // 2)
    for command in (["hash", stopped], ["eval", stopped]):
        refused = samara(*command, "--json")
        assert refused.code == 65 and "journal.bin" in refused.err, refused
    goes_on_after_damage(stopped, whole[1], "journal")


def test_journal_and_newest_checkpoint_damaged_takes_the_one_before(stopped, whole):
    newest, journal = checkpoints(stopped)[-1], stopped / "checkpoints" / "journal.bin"
    assert len(checkpoints(stopped)) >= 2
    flip(newest / "state.bin", 50)
    flip(journal, 100)
    goes_on_after_damage(stopped, whole[1], newest.name, "journal")


def test_everything_damaged_starts_again_and_says_so(stopped, whole):
    for checkpoint in checkpoints(stopped):
        flip(checkpoint / "state.bin", 50)
    flip(stopped / "checkpoints" / "journal.bin", 100)
    goes_on_after_damage(stopped, whole[1], "journal", "no valid generation is left, the run begins again")


@pytest.mark.parametrize("left", ["torn", "missing"])
def test_readers_say_that_everything_is_damaged(left, copy, whole):
    for checkpoint in checkpoints(copy):
        flip(checkpoint / "state.bin", 50)
    journal = copy / "checkpoints" / "journal.bin"
    journal.write_bytes(journal.read_bytes()[:60]) if left == "torn" else journal.unlink()
    for command in (["eval", copy], ["inspect", copy], ["inspect", copy, "--lineage"], ["hash", copy]):
        refused = samara(*command, "--json")
        assert refused.code == 65 and "state.bin: damaged" in refused.json["error"], refused
        assert f"samara fsck {copy}" in refused.json["error"] and "--resume" in refused.json["error"]
    # the result tells that there were generations
    for checkpoint in checkpoints(copy):
        shutil.rmtree(checkpoint)
    refused = samara("hash", copy, "--json")
    assert refused.code == 65 and "journal.bin: no generation, yet there is a result" in refused.json["error"]
    same(resume(copy), whole[1])


def test_a_torn_journal_is_no_damage(stopped, whole):
    journal = stopped / "checkpoints" / "journal.bin"
    for checkpoint in checkpoints(stopped):
        shutil.rmtree(checkpoint)
    journal.write_bytes(journal.read_bytes()[:-40])
    ok("fsck", stopped)
    same(resume(stopped), whole[1])


def record_ends(journal):
    """Where each record of a journal ends, by doc/run_folder_format.md; the header first."""
    data, ends = journal.read_bytes(), [32]
    while ends[-1] < len(data):
        ends.append(ends[-1] + 12 + int.from_bytes(data[ends[-1] : ends[-1] + 4], "little") + 32)
    return ends


# a stopped run's last record holds the episodes of the generation it was stopped in
@pytest.mark.parametrize("end, left", [("finished", 0), ("finished", -2), ("stopped", -3), ("stopped", "missing")])
def test_a_journal_that_lost_its_end(end, left, copy, whole, request):
    """Readers refuse rather than name an older generation; a resume goes on from the checkpoint, and is readable."""
    run = copy if end == "finished" else request.getfixturevalue("stopped")
    journal = run / "checkpoints" / "journal.bin"
    last = ok("hash", run, "--json").json
    if left == "missing":
        journal.unlink()
    else:
        journal.write_bytes(journal.read_bytes()[: record_ends(journal)[left]])
    for command in (["hash", run], ["eval", run, "--episodes", 1], ["export", run, run / "x.safetensors"]):
        refused = samara(*command, "--json")
        assert refused.code == 65 and "journal.bin" in refused.err and "--resume" in refused.err, refused
    assert samara("fsck", run).code == 65
    outcome = ok("train", "--resume", run, "--quiet", "--json")
    assert "journal.bin" in outcome.err and f"resumed after generation {last['generation']}," in outcome.err
    same(outcome.json, whole[1])
    assert ok("hash", run, "--generation", last["generation"], "--json").json == last
    assert ok("hash", run, "--json").json["population_hash"] == whole[1]["population_hash"]
    ok("fsck", run)
    assert "resumed" not in ok("train", "--resume", run).err, "the result stands"


def test_a_killed_run_whose_journal_was_replaced_is_sound(stopped, whole, tmp_path):
    (stopped / "checkpoints" / "journal.bin").unlink()
    running = Running(tmp_path / "log2", "train", "--resume", stopped, "run.checkpoint_seconds=1000", "--quiet")
    running.wait_for(": frames ")
    running.kill()
    ok("fsck", stopped)
    same(resume(stopped), whole[1])


def test_no_checkpoint_is_needed_beside_the_journal(stopped, whole):
    for checkpoint in checkpoints(stopped):
        shutil.rmtree(checkpoint)
    ok("fsck", stopped)
    same(resume(stopped), whole[1])


def test_a_run_that_lost_everything_says_so_and_starts_again(copy, whole):
    shutil.rmtree(copy / "checkpoints")
    for command in (["fsck", copy], ["hash", copy], ["train", "--resume", copy]):
        refused = samara(*command, "--json")
        assert refused.code == 65 and "checkpoints: missing" in refused.err, refused
    (copy / "checkpoints").mkdir()
    assert samara("fsck", copy).code == 65
    outcome = ok("train", "--resume", copy, "--quiet", "--json")
    assert "the last saved one is 0; later ones are computed again" in outcome.err
    same(outcome.json, whole[1])
    ok("fsck", copy)


def test_a_damaged_result_is_found_out_again(copy, whole):
    flip(copy / "result.json", 100)
    assert samara("fsck", copy).code == 65
    outcome = ok("train", "--resume", copy, "--quiet", "--json")
    assert "result.json" in outcome.err
    same(outcome.json, whole[1])
    assert (copy / "result.json.corrupt").exists()
    ok("fsck", copy)


def test_a_result_is_recalled_with_all_its_files(copy, whole):
    assert set(resume(copy)) == set(whole[1])


@pytest.mark.parametrize("how", ["missing", "empty", "first line", "middle", "cut", "garbage"])
def test_metrics_are_mended_from_the_journal(how, stopped, whole):
    file = stopped / "metrics.jsonl"
    good = file.read_bytes()
    lines = good.splitlines(keepends=True)
    assert json.loads(lines[0])["event"] == "random_policy"
    half = len(lines) // 2
    damaged = {
        "empty": b"",
        "first line": lines[0].replace(b'"returns":[', b'"returns":[,') + b"".join(lines[1:]),
        "middle": b"".join(lines[:half]) + b"\xff" + b"".join(lines[half:]),
        "cut": good[: len(good) // 2],
        "garbage": good + bytes(range(256)) + b"\n",
    }
    file.unlink() if how == "missing" else file.write_bytes(damaged[how])
    outcome = ok("train", "--resume", stopped, "--quiet", "--json")
    same(outcome.json, whole[1])  # the random policy's returns among it
    assert "report" in outcome.json and "learning_curve" in outcome.json, "the page needs every line"
    found = [json.loads(line) for line in file.read_text().splitlines()]
    generations = [line["generation"] for line in found if "fitness_mean" in line]
    assert generations == list(range(1, whole[1]["generation"] + 1))
    kept = stopped / "metrics.jsonl.corrupt"
    assert kept.exists() == (how in ("first line", "middle", "garbage"))
    if kept.exists():
        assert kept.read_bytes() == damaged[how]


def test_the_random_policy_is_played_once(stopped, whole):
    """What is in metrics.jsonl counts, unless another number of episodes is asked for."""
    file = stopped / "metrics.jsonl"
    text = file.read_text()
    returns = json.loads(text.splitlines()[0])["returns"]
    assert returns == whole[1]["random_returns"]
    told = [value + 0.5 for value in returns]  # CartPole gives whole points: this was not played
    file.write_text(text.replace(json.dumps(returns, separators=(",", ":")), json.dumps(told), 1))
    assert resume(stopped)["random_returns"] == told
    more = resume(stopped, "run.random_episodes=6", "ga.generations=41")["random_returns"]
    assert len(more) == 6 and more[:4] == returns


# -- formats ----------------------------------------------------------------------------------------------


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def rewrite_generations(run, change):
    """Changes the payload of every generation in the journal, by doc/run_folder_format.md; no checkpoint stays."""
    journal = run / "checkpoints" / "journal.bin"
    old, new = journal.read_bytes(), b""
    header, at = old[:32], 32
    digest = hashlib.sha256(header).digest()
    while at < len(old):
        length, kind = struct.unpack_from("<II", old, at)
        payload = old[at + 12 : at + 12 + length]
        at += 12 + length + 32
        if kind == 1:
            payload = change(payload)
        head = struct.pack("<II", len(payload), kind)
        record = head + struct.pack("<I", crc32c(head)) + payload
        digest = hashlib.sha256(digest + record).digest()
        new += record + digest
    journal.write_bytes(header + new)
    for checkpoint in (run / "checkpoints").glob("ckpt-*"):
        shutil.rmtree(checkpoint)


def parts(payload):
    """Version, name of the algorithm and the rest of a record since version 2."""
    version, size = struct.unpack_from("<IQ", payload)
    return version, payload[12 : 12 + size], payload[12 + size :]


def test_a_journal_of_the_first_version_goes_on(copy, whole, tmp_path):
    """Records without the name of the algorithm, as builds before it wrote them."""

    def first(payload):
        version, name, rest = parts(payload)
        assert version == 3 and name == b"deep-ga"
        end = 8  # the running time; then state and line of metrics, and the fitness of each member
        for _ in range(2):
            end += 8 + struct.unpack_from("<Q", rest, end)[0]
        end += 8 + 8 * struct.unpack_from("<Q", rest, end)[0]
        return struct.pack("<I", 1) + rest[:end]

    rewrite_generations(copy, first)
    ok("fsck", copy)
    assert ok("hash", copy, "--json").json["population_hash"] == whole[1]["population_hash"]
    same(resume(copy, "ga.generations=42"), train(tmp_path / "run", *LONG, "ga.generations=42"))


def test_a_generation_of_an_algorithm_that_is_not_there_is_refused(copy):
    rewrite_generations(copy, lambda payload: payload.replace(b"deep-ga", b"deep-xx", 1))
    for command in (["hash", copy], ["eval", copy], ["train", "--resume", copy, "ga.generations=42", "--quiet"]):
        refused = samara(*command, "--json")
        assert refused.code == 65 and "run.algorithm=deep-xx" in refused.err, refused
        assert len([line for line in refused.err.splitlines() if "deep-xx" in line]) == 1
