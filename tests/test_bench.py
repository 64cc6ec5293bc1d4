"""samara bench: the signature is the same everywhere, the workloads print what scripts read."""

import json
import os
import re
import subprocess
import sys
import types
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from samara_cli import ROOT, environment as samara_environment, ok, samara

# A change of this value changes results: say so in the commit and in CHANGELOG.md.
SIGNATURE = "1547ee3aa0ec0ebcc8d44a899d0dd8fb21f0f47612d0700ad192c21b901fb170"


@pytest.mark.parametrize("isa", ["", "portable"])
def test_the_signature_is_that_of_every_machine(isa):
    assert ok("bench", "--signature", "--json", SAMARA_ISA=isa).json["signature"] == SIGNATURE


def test_workloads_are_listed():
    text = ok("bench").out
    names = ("population", "atari-ga", "vtrace", "env", "vector", "inference", "schedule", "rollout", "noise", "decode", "es-update", "safe-mutation")
    for name in names:
        assert f"  {name} " in text
    listed = ok("bench", "--json").json["workloads"]
    assert {w["name"] for w in listed} >= set(names)
    assert all(f"{w['name']} " in text and w["about"] in text for w in listed)


def test_an_unknown_workload_names_the_nearest():
    failed = samara("bench", "popluation")
    assert failed.code == 64
    assert "did you mean population?" in failed.err


def test_help_of_a_workload_has_its_own_options():
    for what, own, others in (("replicate", ("--ranks", "--mode", "--no-rivals", "strong_scaling"), ("--game", "--seconds")),
                              ("collectives", ("--ranks", "--seconds", "gloo_fast"), ("--mode", "--no-rivals")),
                              ("noise", ("--seconds", "normal numbers"), ("--ranks", "--game", "--signature"))):
        text = ok("bench", what, "--help").out
        assert f"samara bench {what} [OPTIONS]" in text and "--json" in text
        assert all(word in text for word in own) and not any(word in text for word in others), text
    general = ok("bench", "--help").out
    assert all(word in general for word in ("--ranks", "--game", "--signature", "--transport"))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_a_replicated_step(mode):
    pytest.importorskip("torch")
    result = ok("bench", "replicate", "--mode", mode, "--no-rivals", "--json").json
    assert result["ranks"] == 2 and result["mode"] == mode and result["threads_per_rank"] >= 1
    assert all(result[key] > 0 for key in ("step_ms", "compute_ms", "strong_scaling", "weak_scaling"))
    assert ("exact_step_ms" in result) == (mode == "fast")


@pytest.mark.slow
def test_a_replicated_step_of_one_rank_next_to_its_rival():
    pytest.importorskip("torch")
    result = ok("bench", "replicate", "--device", "cpu", "--ranks", "1", "--pairs", "1", "--json").json
    assert result["ranks"] == 1 and result["device"] == "cpu" and "strong_scaling" not in result
    assert result["ratio"] == pytest.approx(result["ddp_step_ms"] / result["step_ms"])


def test_bad_options_are_refused_before_anything_is_measured(tmp_path):
    cases = [
        (64, ["noise", "--seconds", "nan"], {}, "--seconds nan"),
        (64, ["inference", "--transport", "pigeon"], {}, "--transport pigeon"),
        (64, ["inference", "--transport", "shared", "--rows-per-message", "2"], {}, "--rows-per-message"),
        (64, ["replicate", "--device", "gpu"], {}, "expected cpu, cuda or cuda:N"),
        (64, ["replicate", "--device", "cuda:"], {}, "expected cpu, cuda or cuda:N"),
        (64, ["collectives", "--ranks", "1"], {}, "--ranks 1"),
        (73, ["schedule", "--out", tmp_path / "none" / "a.svg"], {}, "make it first"),
        (73, ["population"], {"TMPDIR": str(tmp_path / "none")}, "TMPDIR"),
    ]
    for code, words, variables, said in cases:
        failed = samara("bench", *words, **variables)
        assert failed.code == code, failed.err
        assert said in failed.err


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_options_that_a_workload_does_not_read_are_refused(step):
    """The slow test tries every option with every workload, the other each fourth pair, in which all of both occur."""
    workloads = [w["name"] for w in ok("bench", "--json").json["workloads"]]
    values = {"--game": ["pong"], "--seconds": ["1"], "--precision": ["float32"], "--transport": ["unix"], "--payload": ["64"],
              "--streams": ["1"], "--rows-per-message": ["1"], "--model": ["null"], "--ranks": ["2"], "--mode": ["fast"], "--device": ["cpu"],
              "--pairs": ["1"], "--out": ["x.svg"], "--no-rivals": [], "--task": ["cartpole"], "--rival": ["cleanrl"],
              "--seeds": ["1"], "--runs": ["x"], "--patience": ["2"]}
    options = set(re.findall(r"^ +(?:-\w,)?(--[\w-]+)", ok("bench", "--help").out, re.M))
    assert options - {"--help", "--signature", "--json"} == values.keys()
    for i, what in enumerate(workloads):
        read = ok("bench", what, "--help").out
        for j, (option, value) in enumerate(values.items()):
            if option not in read and (i + j) % step == 0:
                failed = samara("bench", what, option, *value)
                assert failed.code == 64 and f"{option} has no effect here" in failed.err, failed.err
    for words in (["--game", "pong"], ["--signature", "--seconds", "1"], ["noise", "--signature"],
                  ["inference", "--rows-per-message", "8"]):  # rows of shared memory travel alone
        failed = samara("bench", *words)
        assert failed.code == 64 and not failed.out, failed.err


def test_a_full_standard_output_is_an_error():
    command = [ROOT / "build" / "samara", "list", "presets"]
    with open("/dev/full", "w") as full:
        failed = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert failed.returncode == 74
    assert "standard output" in failed.stderr


@pytest.mark.parametrize("what", [pytest.param("rollout", marks=pytest.mark.slow), "noise", "decode", "es-update"])
def test_short_workloads(what):
    result = ok("bench", what, "--seconds", "0.05", "--json").json
    assert result["machine"]["read_gb_per_second"] > 0 and result["machine"]["cpu"]
    assert 0 <= result["others_share"] <= 1
    rates = {
        "rollout": "steps_per_second_per_core",
        "noise": "values_per_second_per_core",
        "decode": "children_per_second",
        "es-update": "values_per_second",
    }
    if what == "rollout":  # the last row is a network without an environment: 11-16-16-2
        alone = result["all"].pop()
        assert (alone["environment"], alone["parameters"]) == (None, 498)
        assert alone["evaluations_per_second_per_core"] > 0 and "maze" in alone["label"]
    assert all(row[rates[what]] > 0 for row in result["all"])
    if what != "rollout":
        assert sorted({row["noise"] for row in result["all"]}) == ["normal", "quantile8"]


INFERENCE_ROW = {"transport", "payload_bytes", "streams", "rows_per_message", "rows_per_second", "bare_rows_per_second",
                 "ratio", "p50_us", "p99_us", "cpu_us_per_row"}  # fmt: skip


def test_inference_alone_on_a_device():
    result = ok("bench", "inference", "--device", "cpu", "--model", "nature", "--seconds", "0.1", "--json").json
    assert result["device"] == "CPU"
    assert [row["batch"] for row in result["rows"] if row["precision"] == "float32"] == [64, 1000]
    for row in result["rows"]:
        assert row["network"] == "nature" and row["device"] == "cpu"
        assert 0 < row["p50_us"] <= row["p99_us"]
        # the calls that the rate counts took about their median each
        assert row["rows_per_second"] == pytest.approx(1e6 * row["batch"] / row["p50_us"], rel=0.9)
    refused = samara("bench", "inference", "--device", "gpu")
    assert refused.code in (64, 78) and "cuda:N" in refused.err


def test_inference_over_shared_memory():
    words = ["--transport", "shared", "--payload", "64", "--payload", "7056", "--streams", "3", "--streams", "100"]
    result = ok("bench", "inference", *words, "--seconds", "0.3", "--json").json
    rows = result["rows"]
    assert [(row["payload_bytes"], row["streams"]) for row in rows] == [(64, 3), (64, 100), (7056, 3), (7056, 100)]
    for row in rows:
        assert row.keys() == INFERENCE_ROW and (row["transport"], row["rows_per_message"]) == ("shared", 1)
        assert row["ratio"] > 0  # the median of the rounds' ratios, not the ratio of two medians
        # nobody answers before it was asked, and each of the streams has a row in flight
        assert 0 < row["p50_us"] <= row["p99_us"]
        assert row["rows_per_second"] > 1000 and row["cpu_us_per_row"] > 0.05


@pytest.mark.parametrize("transport", [pytest.param("unix", marks=pytest.mark.slow), pytest.param("tcp", marks=pytest.mark.slow), "tls"])
def test_inference_over_grpc(transport):
    words = ["--transport", transport, "--payload", "7056", "--streams", "3", "--rows-per-message", "5"]
    (row,) = ok("bench", "inference", *words, "--seconds", "0.3", "--json", timeout=120).json["rows"]
    assert row.keys() == INFERENCE_ROW and row["transport"] == transport
    assert (row["payload_bytes"], row["streams"], row["rows_per_message"]) == (7056, 3, 5)
    assert row["ratio"] > 0 and row["bare_rows_per_second"] > 100
    assert 0 < row["p50_us"] <= row["p99_us"] and row["rows_per_second"] > 100


@pytest.mark.skipif(not (ROOT / "build/samara-torch").exists(), reason="SKIPPED LOUDLY: no build with torch")
@pytest.mark.slow
def test_inference_with_a_network():
    words = ["--model", "nature", "--transport", "shared", "--streams", "16", "--seconds", "0.5", "--json"]
    result = ok("bench", "inference", *words, timeout=120).json
    assert samara("bench", "inference", "--model", "nature", "--payload", "64").code == 64
    (row,) = result["rows"]
    assert result["model"] == "nature" and row["payload_bytes"] == 7056 and row["rows_per_second"] > 10
    curve = result["batch_curve"]
    assert [point["rows"] for point in curve] == [1, 2, 4, 8, 16, 32, 64]
    for point in curve:
        assert point["cost"] == pytest.approx(point["milliseconds"] / 400 - np.log(point["rows"] / point["milliseconds"]))
    assert [p for p in curve if p["chosen"]] == [min(curve, key=lambda p: p["cost"])]


@pytest.mark.slow
def test_population_and_its_rivals():
    result = ok("bench", "population", "--seconds", "0.2", "--json", timeout=900).json
    assert {"network", "storage", "cpu", "threads", "population", "evaluations_per_second", "torch_per_individual",
            "torch_grouped", "torch_vmap", "ratio", "all"} <= result.keys()  # fmt: skip
    assert (result["network"], result["population"]) == ("LargeModel", 64)
    assert result["ratio"] > 1


@pytest.mark.slow
def test_atari_ga():
    result = ok("bench", "atari-ga", "--seconds", "1", "--json", timeout=900).json
    assert {"game", "emulation_frames_per_second", "inference_evaluations_per_second", "end_to_end_frames_per_second",
            "packing"} <= result.keys()  # fmt: skip
    stages = 1 / result["emulation_frames_per_second"] + 1 / (4 * result["inference_evaluations_per_second"])
    assert result["packing"] == pytest.approx(result["end_to_end_frames_per_second"] * stages)  # near 1 on a quiet machine


ENV_ROW = {"who", "game", "envs", "processes", "frames_per_second"}
ENV_HEADLINE = {f"{who}_frames_per_second" for who in ("samara", "gymnasium", "ale_vector", "envpool")} | {"game", "ratio"}


@pytest.mark.slow
def test_env_alone():
    result = ok("bench", "env", "--seconds", "0.2", "--game", "pong", "--no-rivals", "--json").json
    assert ENV_HEADLINE | {"all", "machine"} <= result.keys()
    assert (result["game"], result["ratio"], result["envpool_frames_per_second"]) == ("pong", None, None)
    whole, driven = result["all"]  # both placements, and only samara
    for row in (whole, driven):
        assert ENV_ROW <= row.keys() and row["who"] == "samara" and row["frames_per_second"] > 0
    # the frame stack that random actors do without is charged
    assert whole["frames_per_second"] < whole["frames_per_second_without_stack"]
    assert result["samara_frames_per_second"] == max(whole["frames_per_second"], driven["frames_per_second"])


def test_a_rival_that_lacks_the_game_says_so():
    script = [sys.executable, ROOT / "src/bench/env_rivals.py", "envpool", "no_such_game", "1", "0.1"]
    answer = json.loads(subprocess.run(script, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    assert answer["rows"] == [] and answer["reason"]


@pytest.mark.slow
def test_vector_environments_of_python():
    result = ok("bench", "vector", "--seconds", "0.2", "--game", "pong", "--json", timeout=300).json
    assert result["samara"] > 0 and result["ale_vector"] > 0
    assert result["ratio"] == result["samara"] / max(result["ale_vector"], result["envpool"] or 0)
    rows = {(row["who"], row["how"], row["envs"]): row for row in result["all"]}
    assert len([key for key in rows if key[0] == "samara"]) == 4 and all(ENV_ROW <= set(row) for row in result["all"])
    alone = ok("bench", "vector", "--seconds", "0.1", "--game", "pong", "--no-rivals", "--json", timeout=300).json
    assert alone["ale_vector"] is None is alone["ratio"] and alone["samara"] > 0



@pytest.mark.slow
def test_env_and_its_rivals():
    result = ok("bench", "env", "--seconds", "0.3", "--json", timeout=900).json
    for row in result["all"]:
        assert ENV_ROW <= row.keys()
        assert row["frames_per_second"] is None and row["reason"] or row["frames_per_second"] > 500
    assert {row["who"] for row in result["all"]} == {"samara", "gymnasium", "ale_vector", "envpool"}
    rivals = [result[f"{who}_frames_per_second"] or 0 for who in ("gymnasium", "ale_vector", "envpool")]
    assert rivals[0] > 0 and rivals[1] > 0
    assert result["ratio"] == pytest.approx(result["samara_frames_per_second"] / max(rivals))


SCHEDULES = ["one-at-a-time", "batched", "pipelined"]
SCHEDULE_ROW = {"schedule", "operations", "frames_per_second", "hours_per_billion_frames", "environment_share",
                "inference_share", "idle_share"}  # fmt: skip


def check_schedules(result, picture):
    for row in result["all"]:
        assert SCHEDULE_ROW <= row.keys()
        assert row["hours_per_billion_frames"] == pytest.approx(1e9 / row["frames_per_second"] / 3600)
        shares = [row[f"{what}_share"] for what in ("environment", "inference", "idle")]
        assert 0 <= row["others_share"] <= 1
        assert sum(shares) == pytest.approx(1) and shares[0] > 0 and shares[1] > 0 and shares[2] > -0.05
    headline = {key: result[key] for key in SCHEDULE_ROW}
    assert headline == {key: result["all"][-1][key] for key in SCHEDULE_ROW}
    assert (result["schedule"], result["operations"], result["picture"]) == ("pipelined", "samara", str(picture))
    texts = [element.text for element in ET.parse(picture).iter() if element.tag.endswith("text")]
    for row in result["all"]:
        assert f"{row['schedule']}, {row['operations']}" in texts


@pytest.mark.slow
def test_schedules_alone(tmp_path):
    picture = tmp_path / "out.svg"
    result = ok("bench", "schedule", "--seconds", "0.5", "--no-rivals", "--out", picture, "--json").json
    assert [(row["schedule"], row["operations"]) for row in result["all"]] == [(s, "samara") for s in SCHEDULES]
    check_schedules(result, picture)


@pytest.mark.slow
def test_schedules_and_their_rivals(tmp_path):
    result = ok("bench", "schedule", "--seconds", "0.5", "--json", timeout=900, cwd=tmp_path).json
    assert [(row["schedule"], row["operations"]) for row in result["all"]] == [
        (s, operations) for s in SCHEDULES for operations in ("torch", "samara")
    ]
    check_schedules(result | {"picture": str(tmp_path / result["picture"])}, tmp_path / "schedule.svg")
    assert result["ratio_to_torch_pipelined"] > 1


def conv(x, w, b, stride, pads):
    """Plain loops over the window: x is [row][column][in], w is [ky][kx][in][out]."""
    x = np.pad(x, (pads, pads, (0, 0)))
    kernel, size = w.shape[0], (x.shape[0] - w.shape[0]) // stride + 1
    y = np.tile(b, (size, size, 1)).astype(np.float64)
    for i in range(kernel):
        for j in range(kernel):
            y += x[i : i + size * stride : stride, j : j + size * stride : stride] @ w[i, j]
    return np.maximum(y, 0)


def test_torchs_schedules_play_the_individuals_that_samara_plays(tmp_path, monkeypatch):
    """The canonical parameters (nn/network.h) as the rivals' script takes them apart."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(sys, "argv", ["", "batched", "active", "1", "1", str(tmp_path), str(ROOT / "build/python"), "{}"])
    monkeypatch.syspath_prepend(str(ROOT / "src/bench"))
    import schedule_rivals as rivals

    rng, actions = np.random.default_rng(1), 5
    shapes = [(8, 8, 4, 32), (32,), (4, 4, 32, 64), (64,), (3, 3, 64, 64), (64,), (7744, 512), (512,), (512, 5), (5,)]
    nets = [[(rng.standard_normal(s) / np.sqrt(np.prod(s[:-1]) or 1)).astype(np.float32) for s in shapes] for _ in "ab"]
    np.concatenate([t.ravel() for net in nets for t in net]).tofile(tmp_path / "population.f32")
    image = rng.random((84, 84, 4))
    layers = rivals.parameters_of(actions)
    x = torch.from_numpy(image.transpose(2, 0, 1)[None].astype(np.float32))
    for i, (w1, b1, w2, b2, w3, b3, w4, b4, w5, b5) in enumerate(nets):
        y = conv(conv(conv(image, w1, b1, 4, (2, 2)), w2, b2, 2, (1, 2)), w3, b3, 1, (1, 1))
        expected = np.maximum(y.ravel() @ w4 + b4, 0) @ w5 + b5
        alone = rivals.forward([(w[i], b[i]) for w, b in layers], x)[0]
        together = rivals.grouped(layers, x.expand(2, -1, -1, -1).contiguous())[i]
        np.testing.assert_allclose(alone.numpy(), expected, atol=1e-4)
        np.testing.assert_allclose(together.numpy(), expected, atol=1e-4)


def test_a_traced_environment_records_when_it_worked(tmp_path):
    """In a process of its own: it is pinned to one core."""
    code = f"""
import os, numpy as np
from samara.environment import make
env = make({{"kind": "dummy", "actor": 1, "incarnation": 0, "trace": {{"folder": {str(tmp_path)!r}, "core": 0}}}})
out = np.zeros(env.spec.observation_shape, env.spec.observation_dtype)
env.reset(1, 0, 0, out)
while not (result := env.step(0, out))[1] and not result[2]:
    pass
env.close()
assert len(os.sched_getaffinity(0)) == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=samara_environment(PYTHONPATH=str(ROOT / "build/python")))
    (file,) = tmp_path.glob("*.spans")
    core, kind, begin, end, cpu_begin, cpu_end = np.fromfile(file, np.int64).reshape(-1, 6).T
    assert (core == 1).all() and kind[0] == 0 and kind[-1] == 2 and (kind[1:-1] == 1).all() and len(kind) > 3
    assert (end >= begin).all() and (begin[1:] >= end[:-1]).all() and (cpu_end >= cpu_begin).all()


@pytest.mark.slow
def test_vtrace_prints_the_contract():
    result = ok("bench", "vtrace", "--game", "pong", "--seconds", 1, "--no-rivals", "--json").json
    assert {"game", "network", "environment_frames_per_second", "inference_rows_per_second", "learner_frames_per_second",
            "end_to_end_frames_per_second", "packing", "rival", "rival_frames_per_second"} <= set(result)
    stages = (1 / result["environment_frames_per_second"] + 1 / (4 * result["inference_rows_per_second"])
              + 1 / result["learner_frames_per_second"])
    assert result["packing"] == pytest.approx(result["end_to_end_frames_per_second"] * stages)
    assert result["rival"] is None and result["packing"] > 0.1


@pytest.mark.skipif((ROOT / ".venv-rivals").exists(), reason="SKIPPED LOUDLY: `make rivals` was run here")
@pytest.mark.slow
def test_without_its_rival_vtrace_says_so_and_exits_with_69():
    outcome = samara("bench", "vtrace", "--game", "pong", "--seconds", 1, "--json")
    assert outcome.code == 69 and outcome.json["rival"] is None and "make rivals" in outcome.err


TO_SCORE = {"task", "score", "seconds", "frames", "rival", "rival_seconds", "rival_frames", "ratio"}


def test_time_to_score_prints_the_contract_and_goes_on(tmp_path):
    words = ["bench", "time-to-score", "--task", "cartpole", "--seeds", 1, "--no-rivals", "--runs", tmp_path / "runs", "--json"]
    result = ok(*words).json
    assert TO_SCORE <= set(result) and result["rival"] is None is result["ratio"]
    assert result["score"] == 475 and result["seconds"] > 0 and result["frames"] < 100_000
    assert [row["seed"] for row in result["all"]] == [1]
    again = ok(*words).json  # the run is there
    assert (again["seconds"], again["frames"]) == (result["seconds"], result["frames"])
    # another task's run is no answer
    (tmp_path / "runs/acrobot-1").symlink_to(tmp_path / "runs/cartpole-1")
    other = samara("bench", "time-to-score", "--task", "acrobot", *words[4:])
    assert other.code == 64 and "acrobot-1 is not a run of `samara train classic/acrobot-ppo run.seed=1" in other.err
    assert "--patience nan" in samara(*words[:-1], "--patience", "nan").err
    # nor is what a rival's file says of another score, of fewer seconds, or if it is no result: the rival is asked, which is not here
    said = {"rival": "CleanRL 9", "seconds": 5.0, "frames": 100, "curve": [[1, 2, 3]], "score": 475, "cores": os.cpu_count(),
            "given_up_after": None}
    given_up = {**said, "seconds": None, "frames": None}

    def ask(result):
        (tmp_path / "runs/cartpole-1-cleanrl.json").write_text(json.dumps(result))
        rival = [*words[:6], "--rival", "cleanrl", "--patience", 2, *words[7:]]
        return samara(*rival, SAMARA_VENV="/nonexistent", SAMARA_CORES="")

    assert ask(said).json["ratio"] == 5 / result["seconds"] and ask(given_up).json["ratio_above"] == 2
    for other in ({"reason": 7}, {**said, "seconds": -5}, {**said, "score": 400}, {**given_up, "given_up_after": 0.01}):
        assert ask(other).code == 66, other


@pytest.mark.slow
@pytest.mark.parametrize("task, rival, says", [("cartpole", "stable-baselines3", "Stable-Baselines3"), ("cartpole", "cleanrl", "CleanRL"),
                                               ("pendulum", "rltools", "RLtools")])
def test_time_to_score_and_its_rivals(task, rival, says, tmp_path):
    if not (ROOT / ".venv-rivals-2023").exists():
        pytest.skip("SKIPPED LOUDLY: no rivals (make rivals)")
    words = ["bench", "time-to-score", "--task", task, "--rival", rival, "--seeds", 1, "--runs", tmp_path / "runs", "--json"]
    result = ok(*words, timeout=600).json
    assert result["rival"].startswith(says) and result["ratio"] == result["rival_seconds"] / result["seconds"]
    assert [row["rival"] for row in result["rivals"]] == [result["rival"]]
    assert json.loads((tmp_path / f"runs/{task}-1-{rival}.json").read_text())["frames"] == result["rival_frames"]


@pytest.mark.slow
@pytest.mark.parametrize("task, rival, score, seconds", [("halfcheetah", "sample-factory", -1000, 200), ("pong", "sample-factory", 21, 15),
                                                         ("halfcheetah-sac", "cleanrl", 9000, 15), ("breakout", "cleanrl", 500, 15)])
def test_a_rival_reaches_a_score_or_is_given_up(task, rival, score, seconds):
    python = ROOT / ".venv-rivals-2023/bin/python"
    if not python.exists():
        pytest.skip("SKIPPED LOUDLY: no rivals (make rivals)")
    script = ROOT / f"src/bench/time_to_score_{rival.replace('-', '_')}.py"
    words = [str(word) for word in (task, score, 1, 2, seconds)]
    done = subprocess.run([python, script, *words], capture_output=True, text=True, timeout=400, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["rival"]
    if score > 0:
        assert result["seconds"] is None is result["frames"]
    else:
        assert result["mean"] >= score and result["frames"] > 0


def test_a_rival_is_evaluated_after_five_episodes_of_the_score(monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT / "src/bench")
    from until_score import UntilScore

    means, asked = [9.0, 10.5], []

    def play(episodes):
        asked.append(episodes)
        return means[len(asked) - 1]

    until = UntilScore(types.SimpleNamespace(score=10, seconds=60), play)
    assert not until.over(100, [10, 10, 10, 10])  # four episodes
    assert not until.over(200) and not asked
    assert not until.over(300, [10, 10]) and asked == [20]  # not as good as it seemed
    assert not until.over(400, [0, 0, 0]) and asked == [20]
    assert not until.over(500, [9, 10]) and asked == [20]  # eleven episodes
    assert until.over(600, [10, 10, 10, 10]) and asked == [20, 20]  # fifteen
    assert until.over(700, [10, 10, 10, 10, 10]) and asked == [20, 20]  # it is over
    until.say("somebody")
    result = json.loads(capsys.readouterr().out)
    assert (result["rival"], result["frames"], result["mean"]) == ("somebody", 600, 10.5) and result["seconds"] >= 0
    assert [point[1:] for point in result["curve"]] == [[300, 10], [500, 3.8], [600, 10]]


def test_time_to_score_names_a_tasks_rivals():
    outcome = samara("bench", "time-to-score", "--task", "cartpole", "--rival", "rltools")
    assert outcome.code == 64 and "--rival rltools: expected one of cartpole's: stable-baselines3, cleanrl" in outcome.err
    assert samara("bench", "time-to-score", "--task", "cartpole", "--rival", "cleanrl", "--no-rivals").code == 64
