"""samara bench: the signature is the same everywhere, the workloads print what scripts read."""

import json
import subprocess
import sys

import pytest
from samara_cli import ROOT, ok, samara

# A change of this value changes results: say so in the commit and in CHANGELOG.md.
SIGNATURE = "e276788f9368afa869007a6464e5d920ed86e152e53811af7e6a0e8350ae0e6a"


@pytest.mark.parametrize("isa", ["", "portable"])
def test_the_signature_is_that_of_every_machine(isa):
    assert ok("bench", "--signature", "--json", SAMARA_ISA=isa).json["signature"] == SIGNATURE


def test_workloads_are_listed():
    text = ok("bench").out
    names = ("population", "atari-ga", "env", "rollout", "noise", "materialise")
    for name in names:
        assert f"  {name} " in text
    listed = ok("bench", "--json").json["workloads"]
    assert {w["name"] for w in listed} >= set(names)
    assert all(f"{w['name']} " in text and w["about"] in text for w in listed)


def test_an_unknown_workload_names_the_nearest():
    failed = samara("bench", "popluation")
    assert failed.code == 64
    assert "did you mean population?" in failed.err


@pytest.mark.parametrize("what", ["rollout", "noise", "materialise"])
def test_short_workloads(what):
    result = ok("bench", what, "--seconds", "0.05", "--json").json
    assert result["machine"]["read_gb_per_second"] > 0 and result["machine"]["cpu"]
    rates = {
        "rollout": "steps_per_second_per_core",
        "noise": "values_per_second_per_core",
        "materialise": "children_per_second",
    }
    if what == "rollout":  # the last row is a network without an environment: 11-16-16-2
        alone = result["all"].pop()
        assert (alone["environment"], alone["parameters"]) == (None, 498)
        assert alone["evaluations_per_second_per_core"] > 0 and "maze" in alone["label"]
    assert all(row[rates[what]] > 0 for row in result["all"])
    if what != "rollout":
        assert sorted(row["noise"] for row in result["all"]) == ["normal", "quantile8"]


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
    assert 0.3 < result["packing"] < 1.2


ENV_ROW = {"who", "game", "envs", "processes", "frames_per_second"}
ENV_HEADLINE = {f"{who}_frames_per_second" for who in ("samara", "gymnasium", "ale_vector", "envpool")} | {"game", "ratio"}


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
def test_env_and_its_rivals():
    result = ok("bench", "env", "--seconds", "0.3", "--json", timeout=900).json
    for row in result["all"]:
        assert ENV_ROW <= row.keys()
        assert row["frames_per_second"] is None and row["reason"] or row["frames_per_second"] > 500
    assert {row["who"] for row in result["all"]} == {"samara", "gymnasium", "ale_vector", "envpool"}
    rivals = [result[f"{who}_frames_per_second"] or 0 for who in ("gymnasium", "ale_vector", "envpool")]
    assert rivals[0] > 0 and rivals[1] > 0
    assert result["ratio"] == pytest.approx(result["samara_frames_per_second"] / max(rivals))
