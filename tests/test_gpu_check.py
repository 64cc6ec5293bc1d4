"""scripts/gpu-check: the commands of a GPU machine against stand-ins for its programs, and all parts on the CPU."""

import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import time

import pytest
from samara_cli import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import gpu_check_parts as parts  # noqa: E402

# What the programs of a build, and nvidia-smi, write as far as the script reads it; every call is noted.
STAND_IN = """#!/usr/bin/env python3
import json, pathlib, sys, time
name, words = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
folder = pathlib.Path(sys.argv[0]).parent
with open(folder / "calls", "a") as file:
    print(name, *words, file=file)
if name == "nvidia-smi":
    if words == ["-L"]:
        print("GPU 0: a GPU")
    else:
        while True:
            print("50, 1000", flush=True)
            (folder / "sampled").touch()
            time.sleep(0.1)
elif name == "bench_device_population":
    print(json.dumps({"storage": "bf16", "rate": 4.0}), json.dumps({"storage": "int8", "rate": 8.0}), sep="\\n")
elif name.endswith("_test"):
    print("[  PASSED  ] 3 tests.\\n[  SKIPPED ] 1 test, listed below:")
elif words[0] == "doctor":
    print(json.dumps({"good": False, "findings": [{"what": "CPU", "found": "one", "good": True}]}))
    print(json.dumps({"error": "something is missing", "exit": 66}))
    sys.exit(66)
elif words[0] == "bench":
    print("progress")
    if words[1] == "inference":
        print("x.cc:1: error: first", *range(50), "no such device", sep="\\n", file=sys.stderr)
        sys.exit(69)
    (folder / "sampled").unlink(missing_ok=True)  # of an earlier step
    for _ in range(300):
        if words[1] == "replicate" or (folder / "sampled").exists():
            break
        time.sleep(0.1)
    print(json.dumps({"rate": 2.5, "rows": [{"k": 1}]}))
elif words[0] == "train":
    run = pathlib.Path(words[words.index("--out") + 1])
    run.mkdir()
    other = (folder / "differs").exists() and ("run.device=cpu" in words or "again" in run.name)
    bits = 64 * ("b" if other else "a")
    (run / "result.json").write_text(json.dumps({"result": {"parameter_hash": bits, "updates": 40}}))
    with open(run / "metrics.jsonl", "w") as file:
        for i in range(1, 5):
            # every interval of 2 s: 4 thread-s of stepping; inference and learner each half of their time
            line = {"seconds": 2.0 * i, "frames": 1000 * i, "seconds_environment": 4.0, "rows_per_batch": 8,
                    "seconds_inference": 0.75, "seconds_server": 0.25, "seconds_server_wait": 1.0,
                    "seconds_learner_batch": 0.25, "seconds_learner_forward": 0.25, "seconds_learner_backward": 0.25,
                    "seconds_learner_step": 0.25, "seconds_learner_wait": 1.0}
            if "deep-ga" in words[1]:
                line |= {"generation": i, "frames_per_second": 500.0, "seconds_population": 1.5, "seconds_validation": 0.25,
                         "seconds_between": 0.25, "population_hash": bits}
            else:
                line["update"] = 10 * i
            print(json.dumps(line), file=file)
        print(json.dumps({"event": "finished", "update": 40}), file=file)
"""


@pytest.fixture
def machine(tmp_path):
    """A folder of stand-ins, in place of a build."""
    (tmp_path / "build").mkdir()
    program = tmp_path / "build" / "samara"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    for name in ("nvidia-smi", *(set(parts.TARGETS) - {"samara", "_native"})):
        (tmp_path / "build" / name).symlink_to(program)
    return tmp_path


def run(folder, *words):
    return subprocess.run([sys.executable, ROOT / "scripts/gpu-check", "--out", folder / "out", *words], capture_output=True,
                          text=True, env=os.environ | {"PATH": f"{folder / 'build'}:{os.environ['PATH']}"})


def check(folder, build, *words):
    done = run(folder, "--prebuilt", build, *words)
    return done, json.loads((folder / "out/gpu-report.json").read_text())


def outcomes(report):
    return {step["step"]: step["outcome"] for steps in report["parts"].values() for step in steps}


def test_parts_on_a_gpu_run_what_they_name_and_keep_their_figures(machine):
    done, report = check(machine, machine / "build", "--parts", "tests,population,learning,evolution", "--jobs", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    calls = (machine / "build/calls").read_text()
    assert "bench population --json --device cuda" in calls and "run.device=cuda" in calls and "run.device=cpu" in calls
    kernels, population = report["parts"]["population"]
    assert [row["rate"] for row in kernels["figures"]["all"]] == [4, 8]
    assert population["figures"]["rate"] == 2.5
    assert population["figures"]["gpu_utilization_mean"] == 0.5 and population["figures"]["gpu_memory_mib"] == 1000
    learning = report["parts"]["learning"][0]["figures"]
    # lines 3 and 4 after line 2: 1,000 frames in each 2 s; two workers were busy all the time
    assert learning["frames_per_second"] == 500 and learning["environment_busy"] == 1
    assert learning["inference_thread_busy"] == 0.5 and learning["learner_thread_busy"] == 0.5
    on_gpu, on_cpu = report["parts"]["evolution"]
    assert on_gpu["figures"]["packing"] == 1 and on_gpu["figures"]["hours_per_billion_frames"] == pytest.approx(1e9 / 500 / 3600)
    assert "gpu_utilization_mean" not in on_cpu["figures"]
    table = (machine / "out/gpu-report.md").read_text()
    assert "| population | population --device cuda" in table and "rate 2.5" in table
    assert "| | | | storage int8, rate 8 |" in table


def test_results_that_should_have_the_same_bits_are_compared(machine):
    both = ("--parts", "evolution,determinism", "--jobs", "2")
    done, report = check(machine, machine / "build", *both)
    assert done.returncode == 0, done.stdout + done.stderr
    on_gpu, on_cpu = report["parts"]["evolution"]
    assert on_gpu["figures"]["population_hashes"] == on_cpu["figures"]["population_hashes"] == 4 * [16 * "a"]
    assert [step["figures"]["parameter_hash"] for step in report["parts"]["determinism"]] == 2 * [64 * "a"]
    (machine / "build/differs").touch()
    done, report = check(machine, machine / "build", *both)
    assert done.returncode == 1
    assert outcomes(report)["atari/deep-ga on cpu"].startswith("failed: ValueError: populations differ")
    assert outcomes(report)["deterministic again"] == f"failed: ValueError: another hash than before: {64 * 'b'}"


def test_a_part_that_fails_is_reported_and_the_others_go_on(machine):
    done, report = check(machine, machine / "build", "--parts", "doctor,replicator,inference")
    assert done.returncode == 1
    kept = {step["step"].split()[0]: step for steps in report["parts"].values() for step in steps}
    assert kept["vtrace"]["outcome"] == "passed"
    assert kept["inference"]["outcome"] == "failed: exit status 69" and "no such device" in kept["inference"]["tail"]
    assert kept["inference"]["tail"][0] == "x.cc:1: error: first" and len(kept["inference"]["tail"]) == 16
    assert "no such device" in done.stdout
    assert kept["replicate"]["outcome"] == "passed"
    assert report["parts"]["doctor"][-1]["figures"] == {"CPU": "one"}  # though something is missing
    # another call keeps what was measured before
    _, report = check(machine, machine / "build", "--parts", "population")
    assert list(report["parts"]) == ["doctor", "inference", "replicator", "population"]
    # also where it has no time for what it names
    done, later = check(machine, machine / "build", "--parts", "population,tests", "--seconds", "0")
    assert done.returncode == 1 and later["parts"]["population"] == report["parts"]["population"]
    assert {step["outcome"] for step in later["parts"]["tests"]} == {"not run: no time left"}


def test_another_gpu_is_the_first_that_every_program_sees(machine):
    done, report = check(machine, machine / "build", "--parts", "population", "--device", "cuda:1")
    assert done.returncode == 0 and report["parts"]["population"][-1]["figures"]["gpu_utilization_mean"] == 0.5
    calls = (machine / "build/calls").read_text()
    assert "nvidia-smi -i 1 " in calls and "--device cuda " in calls
    for words, says in ((["--device", "gpu"], "expected cuda, cuda:N or cpu"), (["--parts", "teste"], "expected some of build,")):
        wrong = run(machine, *words)
        assert wrong.returncode == 2 and says in wrong.stderr


def test_a_build_that_cannot_begin_is_reported(machine):
    (machine / "pack/usr").mkdir(parents=True)
    done = run(machine, "--pack", machine / "pack", "--build", machine / "new", "--python", "false", "--parts", "build,population")
    assert done.returncode == 1
    steps = json.loads((machine / "out/gpu-report.json").read_text())["parts"]["build"]
    assert [step["step"] for step in steps] == ["environment", "preparation"]
    assert steps[1]["outcome"].startswith("failed: ") and "population: " in done.stdout
    done = run(machine, "--pack", machine / "none", "--parts", "build")
    assert done.returncode == 2 and "scripts/gpu-pack" in done.stderr


def test_a_step_that_takes_too_long_is_ended_with_its_children(tmp_path):
    loader = importlib.machinery.SourceFileLoader("gpu_check", str(ROOT / "scripts/gpu-check"))
    check_script = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
    loader.exec_module(check_script)
    # a child that lives on would write the file
    step = parts.Step("slow", ["sh", "-c", f"echo begun; (sleep 3; touch {tmp_path}/late) & sleep 60"], 60)
    with open(tmp_path / "log", "w") as log:
        kept = check_script.measure(step, 1, log)
    assert kept["outcome"] == "timed out after 1 s" and kept["tail"] == ["begun"] and kept["seconds"] < 30
    time.sleep(3)
    assert not (tmp_path / "late").exists()


def test_output_that_shows_no_result_fails_the_step():
    for text in ("", "[  PASSED  ] 0 tests.\n"):
        with pytest.raises(ValueError):
            parts.tests_run(text)
    with pytest.raises(ValueError):
        parts.last_json("1\n[]\n{broken\n")
    assert parts.last_json('{"a": 1}\n{"b": 2}\nlast words\n') == {"b": 2}


@pytest.mark.slow
def test_all_parts_on_the_cpu(tmp_path):
    (tmp_path / "build").mkdir()  # no stand-ins in it
    done, report = check(tmp_path, ROOT / "build", "--device", "cpu", "--seconds", "1200")
    assert done.returncode == 0 and set(outcomes(report).values()) == {"passed"}, done.stdout
    assert set(report["parts"]) == set(parts.PARTS) - {"build"}  # nothing is compiled
