"""Central inference with V-trace, end to end: the contract for scripts, determinism, resume, refusals."""

import hashlib
import importlib.util
import json
import math
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from samara_cli import BINARY, ROOT, TESTS, environment, ok, resume, samara, train

CARTPOLE = ["classic/cartpole-vtrace", "learn.frames=40000", "run.random_episodes=4", "learn.test_episodes=4"]
DETERMINISTIC = [*CARTPOLE, "learn.mode=deterministic"]


def lines_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_train_prints_the_contract(tmp_path):
    run = tmp_path / "run"
    result = train(run, *CARTPOLE)
    assert {"run", "frames", "updates", "parameter_hash", "return_mean", "return_last100", "frames_per_second",
            "seconds", "drops"} <= set(result)
    assert result["frames"] >= 40000 and len(result["parameter_hash"]) == 64
    assert " for environments, 1 for inference, 1 for learning (learn.shards=1), at once\n" in (run / "log.txt").read_text()
    # every update learns 16 unrolls of 20 steps, a frame each
    assert result["updates"] == -(-40000 // 320) and result["frames"] == result["updates"] * 320
    assert set(map(type, result["drops"].values())) == {int}
    assert len(result["test_returns"]) == 4
    last = [line for line in lines_of(run) if "update" in line and "event" not in line][-1]
    assert last["update"] == result["updates"] and last["frames"] == result["frames"]
    assert sum(last["lag_histogram"]) > 0 and last["lag_min"] <= last["lag_mean"] <= last["lag_max"]
    for name in ("loss", "entropy", "explained_variance", "queue_unrolls", "seconds_inference"):
        assert isinstance(last[name], (int, float)), name
    # a finished run says its result again, and starts nothing
    again = ok("train", "--resume", run, "--json", "--quiet").json
    assert again["parameter_hash"] == result["parameter_hash"]


def test_cores_are_those_that_the_affinity_leaves(tmp_path):
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        result = train(tmp_path / "run", *CARTPOLE, "learn.frames=640", "learn.shards=2")
    finally:
        os.sched_setaffinity(0, allowed)
    assert result["cores"] == 1
    cores = f"1 of {os.cpu_count()} cores" if os.cpu_count() > 1 else "1 core"
    text = f" info {cores}: 1 for environments, 1 for inference, 1 for learning (its cores for 2 shards)"
    assert text in (tmp_path / "run/log.txt").read_text()


def test_a_run_that_is_extended_goes_on_learning(tmp_path):
    """The schedule of the learning rate ends at the first budget: a larger one says so, and the schedule may grow too."""
    run = tmp_path / "run"
    words = [*CARTPOLE, "learn.frames=6400", "optimizer.schedule_frames=6400", "learn.test_episodes=0"]

    def rates(first):
        return [line["learning_rate"] for line in lines_of(run) if line.get("update", 0) > first and "event" not in line]

    assert "goes beyond" not in ok("train", *words, "--out", run, "--quiet").err
    silent = ok("train", "--resume", run, "learn.frames=9600", "--quiet")
    assert "learn.frames=9600 goes beyond optimizer.schedule_frames=6400: the learning rate is 0" in silent.err
    assert "update 21: the learning rate is 0 from here on" in silent.err
    assert set(rates(20)) == {0}
    grown = ok("train", "--resume", run, "learn.frames=12800", "optimizer.schedule_frames=25600", "--quiet")
    assert "learning rate" not in grown.err and 0 < max(rates(30)) < 0.003
    shrunk = samara("train", "--resume", run, "optimizer.schedule_frames=20000")
    assert shrunk.code == 78 and "can only grow" in shrunk.err


def test_the_largest_batch_of_inference_is_measured_unless_it_is_given(tmp_path):
    def batch(name, *words):
        run = tmp_path / name
        result = train(run, *CARTPOLE, "learn.frames=3000", "learn.environments=24", *words)
        recorded = json.loads((run / "run.json").read_text())["inference_batch"]
        assert recorded["rows"] == result["inference_batch"]
        said = "inference: batches of at most" in (run / "log.txt").read_text()
        assert said == bool(recorded["curve"])
        return recorded

    measured = batch("measured")
    sizes = [point["rows"] for point in measured["curve"]]
    assert sizes == [1, 2, 4, 8, 16, 24]
    cost = {p["rows"]: p["milliseconds"] / 400 - math.log(p["rows"] / p["milliseconds"]) for p in measured["curve"]}
    assert measured["rows"] == min(sizes, key=cost.get)
    assert batch("given", "inference.batch=5") == {"rows": 5, "curve": []}
    fixed = batch("fixed", "learn.mode=deterministic", "learn.batch=8", "learn.shards=1")
    assert fixed == {"rows": 24, "curve": []}


@pytest.mark.slow
def test_deterministic_at_any_number_of_threads(tmp_path):
    hashes = {train(tmp_path / str(n), *DETERMINISTIC, f"fleet.threads={n}")["parameter_hash"] for n in (1, 2, 5)}
    assert len(hashes) == 1
    other = train(tmp_path / "seed", *DETERMINISTIC, "run.seed=2")
    assert other["parameter_hash"] not in hashes


@pytest.mark.parametrize("how", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_kill_and_resume_give_the_same_bits(tmp_path, how):
    args = [*DETERMINISTIC, "learn.frames=400000", "run.checkpoint_seconds=1"]
    whole = train(tmp_path / "whole", *args)
    run = tmp_path / "cut"
    starts = 0
    while not (run / "result.json").exists():
        starts += 1
        assert starts < 30
        command = [BINARY, "train", *(["--resume", run] if run.exists() else [*args, "--out", run]), "--quiet"]
        process = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE)
        deadline = time.monotonic() + 1.3 + 0.2 * starts
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if process.poll() is None:
            process.send_signal(how)
        process.communicate(timeout=30)
        assert process.returncode in (0, 75, -how), process.returncode
    result = ok("train", "--resume", run, "--json", "--quiet").json
    assert starts > 1
    assert result["parameter_hash"] == whole["parameter_hash"]
    assert result["frames"] == whole["frames"] and result["episodes"] == whole["episodes"]
    assert result["return_last100"] == whole["return_last100"]


@pytest.mark.parametrize("words, says", [
    (["learn.environments=30", "learn.mode=deterministic"], "no multiple of learn.batch"),
    (["network.name=nature"], "needs images"),
    (["network.name=resnet"], "resnet"),
    (["network.action_input=true", "env.id=Pendulum-v1"], "continuous"),
    (["learn.entropy_target=high"], "a number -10000 to 10000, or none"),
    (["learn.entropy_target=nan"], "a number -10000 to 10000, or none"),
    (["network.lstm=65536"], "no memory"),
    (["network.lstm=8", "network.gru=4"], "network.lstm=8 with network.gru=4: a network has one recurrent core"),
    (["learn.shards=3"], "divisor"),
    (["vtrace.c_clip=2"], "rho_clip"),
    (["learn.frames=0"], "budget"),
    (["env.stack=2"], "env.stack=2: the environment's observations are vectors"),
    (["env.stack=65"], "0 to 64"),
    (["env.id=", "env.preset=deepga-gpu", "env.stack=3"], "env.preset=deepga-gpu stacks 4"),
])
def test_what_cannot_work_is_refused_before_anything_is_made(tmp_path, words, says):
    refused = samara("train", *CARTPOLE, *words, "--out", tmp_path / "run", "--json")
    assert refused.code == (71 if says == "no memory" else 78) and says in refused.err, refused
    assert len(refused.err.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_bfloat16_where_the_processor_has_it(tmp_path):
    bf16 = "network.precision=bfloat16"
    refused = samara("train", *CARTPOLE, bf16, "--out", tmp_path / "run", SAMARA_ISA="avx2")
    assert refused.code == 78 and "AVX512_BF16" in refused.err and not (tmp_path / "run").exists()
    # fastest is float32 there
    short = "learn.frames=20000"
    there = {train(tmp_path / f"{p}-there", *DETERMINISTIC, short, f"network.precision={p}", SAMARA_ISA="avx2")["parameter_hash"]
             for p in ("fastest", "float32")}
    assert len(there) == 1
    if "avx512_bf16" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("SKIPPED LOUDLY: this processor has no AVX512_BF16")
    train(tmp_path / "kept", *DETERMINISTIC, short, bf16)
    # what was learnt so is played anywhere, and a finished run tells its result anywhere
    for words in (("eval", tmp_path / "kept", "--episodes", 2), ("train", "--resume", tmp_path / "kept", "--quiet")):
        ok(*words, "--json", SAMARA_ISA="avx2")
    plain = train(tmp_path / "plain", *DETERMINISTIC, short)["parameter_hash"]
    hashes = {train(tmp_path / name, *DETERMINISTIC, short, f"network.precision={name}")["parameter_hash"]
              for name in ("bfloat16", "fastest")}
    assert len(hashes) == 1 and plain not in hashes
    assert "computed on CPU in bfloat16\n" in (tmp_path / "fastest/log.txt").read_text()
    grown = ok("train", "--resume", tmp_path / "fastest", "learn.frames=21000", "--quiet", SAMARA_ISA="avx2")
    assert "the run began on CPU in bfloat16 and goes on on CPU in float32, which has other last bits" in grown.err


def test_shards_and_threads_leave_no_trace(tmp_path):
    """Any number of threads gives the bits of one; parts of a batch average to the whole but for rounding."""
    one = train(tmp_path / "one", *DETERMINISTIC, "learn.shards=4", "learn.threads=1")
    four = train(tmp_path / "four", *DETERMINISTIC, "learn.shards=4", "learn.threads=4")
    assert one["parameter_hash"] == four["parameter_hash"]


def test_eval_play_and_export_take_an_agent(tmp_path):
    run, file = tmp_path / "run", tmp_path / "agent.safetensors"
    train(run, *DETERMINISTIC, "learn.frames=200000")
    first = ok("eval", run, "--episodes", 20, "--json").json
    assert first["episodes"] == 20 and len(first["returns"]) == 20
    assert ok("export", run, file, "--json").json["parameters"] == 4 * 64 + 64 + 64 * 64 + 64 + 3 * 64 + 3
    again = ok("eval", file, "--episodes", 20, "--json", "fleet.threads=1").json
    assert again["returns"] == first["returns"], "the file plays what the run plays, at any number of threads"
    drawn = ok("eval", file, "--episodes", 20, "learn.test_greedy=false", "--json").json
    chance = ok("eval", file, "--episodes", 20, "--random", "--json").json
    assert first["mean"] > chance["mean"] and drawn["returns"] != first["returns"]
    watched = ok("play", file, "--video", tmp_path / "watched.mp4", "--json").json
    assert watched["frames"] == watched["steps"] > 0 and (tmp_path / "watched.mp4").stat().st_size > 1000


def test_a_damaged_agent_is_refused(tmp_path):
    run, file = tmp_path / "run", tmp_path / "agent.safetensors"
    train(run, *CARTPOLE, "learn.frames=2000")
    ok("export", run, file)
    whole = file.read_bytes()
    for damaged in (whole[:-4], whole[: len(whole) // 2], whole.replace(b"samara-agent-2", b"samara-agent-9"), b""):
        file.write_bytes(damaged)
        refused = samara("eval", file, "--episodes", 2)
        assert refused.code == 65 and len(refused.err.strip().splitlines()) == 1, refused
    assert samara("eval", file.with_name("absent"), "--episodes", 2).code == 66
    weights = next(run.glob("checkpoints/ckpt-*/weights.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    assert samara("eval", run, "--episodes", 2).code in (65, 66)


def listening(run, socket, *args):
    command = [BINARY, "train", *args, "--listen", f"unix:{socket}", "--out", run, "--quiet", "--json"]
    return subprocess.Popen(list(map(str, command)), env=environment(), stdout=subprocess.PIPE, text=True)


def actor(socket, slots):
    command = [BINARY, "actor", "--connect", f"unix:{socket}", "--env", "CartPole-v1", "--slots", str(slots)]
    return subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)


def test_remote_actors_learn_the_same_bits_while_they_are_killed(tmp_path):
    """Deterministic: 32 environments here, or at remote actors of which some die, or half and half."""
    args = [*DETERMINISTIC, "run.random_episodes=0", "learn.test_episodes=0"]
    here = train(tmp_path / "here", *args)
    for name, split in (("there", []), ("half", ["fleet.remote_slots=16"])):
        socket = tmp_path / name / "socket"
        engine = listening(tmp_path / f"run-{name}", socket, *args, *split)
        killed, actors = 0, [actor(socket, 20)]
        while engine.poll() is None:
            time.sleep(0.3)
            if engine.poll() is None and killed < 5:
                actors[-1].kill()
                killed += 1
            actors.append(actor(socket, 20))
            assert len(actors) < 200
        result = json.loads(engine.communicate()[0].splitlines()[-1])
        for process in actors:
            process.kill()
            process.wait()
        print(f"{name}: {killed} actors killed, {result['drops']['lost_episodes']} episodes lost")
        assert result["parameter_hash"] == here["parameter_hash"], name
        assert result["frames"] == here["frames"] and killed > 0


def test_actors_are_told_when_training_ends_and_survive_an_engine_that_is_killed(tmp_path):
    socket, run = tmp_path / "s" / "socket", tmp_path / "run"
    args = [*CARTPOLE, "run.random_episodes=0", "learn.test_episodes=0", "run.checkpoint_seconds=1", "learn.frames=300000"]
    engine = listening(run, socket, *args)
    worker = actor(socket, 32)
    while not list(run.glob("checkpoints/ckpt-*/manifest.json")):
        assert engine.poll() is None
        time.sleep(0.05)
    engine.kill()
    engine.communicate()
    assert worker.poll() is None
    resumed = ok("train", "--resume", run, "--listen", f"unix:{socket}", "--quiet", "--json", timeout=120).json
    assert resumed["frames"] >= 300000
    start = time.monotonic()
    assert worker.wait(timeout=20) == 0, "told that training has finished"
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("words, code, says", [
    (["--listen", "0.0.0.0:0"], 77, "--certificate"),
    (["--token-file", "x"], 64, "--listen"),
    (["--listen", "unix:/tmp", "ga.population=4"], 78,
     "ga.population belongs to run.algorithm=deep-ga or random-search or ga-ns or map-elites or ssga; this run is vtrace"),
    (["--listen", "127.0.0.1:0", "fleet.remote_slots=33"], 78, "learn.environments"),
])
def test_unsafe_or_senseless_listening_is_refused(tmp_path, words, code, says):
    refused = samara("train", *CARTPOLE, *words, "--out", tmp_path / "run", "--json")
    assert refused.code == code and says in refused.err, refused
    assert not (tmp_path / "run").exists()


def test_evolution_has_no_stack_of_its_own(tmp_path):
    refused = samara("train", "classic/cartpole-ga", "env.stack=2", "--out", tmp_path / "run")
    assert refused.code == 78 and "env.stack belongs to run.algorithm=vtrace" in refused.err and not (tmp_path / "run").exists()


COLOURS = ["classic/catch-vtrace", "env.id=colours:Colours-v0", "network.name=mlp-32-relu", "run.random_episodes=0",
           "learn.test_episodes=20", "learn.entropy_cost=0.001", "optimizer.learning_rate=0.01", "learn.frames=40000"]
ENVS = {"PYTHONPATH": str(TESTS / "envs")}


@pytest.mark.slow
def test_colour_images_are_stacked(tmp_path):
    """Each action pays by the image before the last one: 10 for who sees two, 1/3 of 9 and the first for who sees one."""
    two, one = (train(tmp_path / name, *COLOURS, *words, **ENVS) for name, words in (("two", ["env.stack=2"]), ("one", [])))
    assert min(two["test_returns"]) >= 9, two
    assert one["return_last100"] < 6, one
    # by hand: an input of 2 x 2 pixels with three channels an image; policy and value
    assert [json.loads((tmp_path / name / "run.json").read_text())["network"]["parameters"] for name in ("two", "one")] == [
        (2 * 2 * 6 + 1) * 32 + 33 * 4, (2 * 2 * 3 + 1) * 32 + 33 * 4]
    ok("export", tmp_path / "two", tmp_path / "agent.safetensors")
    for policy in (tmp_path / "two", tmp_path / "agent.safetensors"):
        assert ok("eval", policy, "--trust", "--episodes", 10, "--json", **ENVS).json["mean"] >= 9


@pytest.mark.slow
def test_a_stopped_run_goes_on_with_its_stacks(tmp_path):
    words = [*COLOURS, "env.stack=3", "learn.mode=deterministic", "learn.frames=120000", "learn.test_episodes=0",
             "run.checkpoint_seconds=1"]
    whole = train(tmp_path / "whole", *words, **ENVS)
    run = tmp_path / "cut"
    process = subprocess.Popen([BINARY, "train", *words, "--out", run, "--quiet"], env=environment(**ENVS),
                               stderr=subprocess.DEVNULL)
    while not list(run.glob("checkpoints/ckpt-*/manifest.json")) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 75
    changed = samara("train", "--resume", run, "env.stack=2", **ENVS)
    assert changed.code == 78 and "a resumed run cannot change" in changed.err
    assert resume(run, **ENVS)["parameter_hash"] == whole["parameter_hash"]


def test_a_run_from_before_there_was_the_key_is_resumed_and_played(tmp_path):
    run = tmp_path / "run"
    train(run, *COLOURS, "env.id=colours:Gray-v0", "learn.frames=3200", **ENVS)
    head, _, config = (run / "config.toml").read_text().partition("\n")
    assert config.count("stack = 0\n") == 1
    config = config.replace("stack = 0\n", "")
    digest = hashlib.sha256(config.encode()).hexdigest()
    (run / "config.toml").write_text(f"{head.rpartition(' ')[0]} {digest}\n{config}")
    assert resume(run, "learn.frames=6400", **ENVS)["frames"] == 6400
    assert ok("eval", run, "--episodes", 2, "--json", **ENVS).json["episodes"] == 2
    # by hand: four gray images of 2 x 2
    assert json.loads((run / "run.json").read_text())["network"]["parameters"] == (2 * 2 * 4 + 1) * 32 + 33 * 4


def presets_with(table):
    """Names of the presets that have a table, but V-trace's, which have a test of their own."""
    files = [p for p in (ROOT / "presets").rglob("*.toml") if f"[{table}]\n" in p.read_text() and "vtrace" not in p.name]
    return sorted(p.relative_to(ROOT / "presets").with_suffix("").as_posix() for p in files)


@pytest.mark.parametrize("preset", [pytest.param(p, marks=pytest.mark.slow) if p.startswith("atari/") else p
                                    for p in presets_with("learn")])
def test_every_other_preset_learns_a_little(tmp_path, preset):
    """No recipe dies at its start: three updates, of a small replay where it has one, and of Atari few environments."""
    words = ["learn.updates=3", "run.random_episodes=0", "learn.test_episodes=0", "run.video=false"]
    if preset.startswith("atari/"):
        words += ["learn.environments=4", "learn.batch=2"]
    if preset in presets_with("replay"):
        words += ["replay.start=1", "replay.capacity=20000", *(["replay.ratio=16"] if preset.startswith("atari/") else [])]
    result = train(tmp_path / "run", preset, *words)
    assert result["updates"] == 3 and result["drops"]["skipped_updates"] == 0
    losses = [line["loss"] for line in lines_of(tmp_path / "run") if "loss" in line]
    assert losses and all(map(math.isfinite, losses))


PRESETS = sorted(p.relative_to(ROOT / "presets").with_suffix("").as_posix() for p in (ROOT / "presets").rglob("*vtrace*.toml"))


@pytest.mark.parametrize("preset", [pytest.param(p, marks=pytest.mark.slow) if p.endswith("-desktop") else p for p in PRESETS])
def test_every_preset_makes_updates(tmp_path, preset):
    """No recipe dies at its start."""
    if preset.startswith("football/") and importlib.util.find_spec("envpool") is None:
        pytest.skip("SKIPPED LOUDLY: no EnvPool in .venv; `make envpool` installs it")
    small = ["learn.environments=4", "learn.batch=2", "learn.unroll=13", "learn.updates=4", "run.random_episodes=0",
             "learn.test_episodes=0", "run.video=false"]
    result = train(tmp_path / "run", preset, *small)
    assert result["updates"] == 4 and result["drops"]["skipped_updates"] == 0
    assert result["frames"] >= 4 * 2 * 13
    if preset.startswith("football/"):
        # by hand: sixteen planes of 72 x 96 through four residual stacks of 16, 32, 32, 32 to 5 x 6, 19 actions
        def stack(before, out):
            return (9 * before + 1) * out + 4 * (9 * out + 1) * out

        convolutions = stack(16, 16) + stack(16, 32) + stack(32, 32) + stack(32, 32)
        parameters = json.loads((tmp_path / "run" / "run.json").read_text())["network"]["parameters"]
        assert parameters == convolutions + (5 * 6 * 32 + 1) * 256 + 257 * 20 == 396868
