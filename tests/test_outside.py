"""Programs outside the tree, on an installed samara: an evolution algorithm and an environment of their own get the fleet, the run
folder, resume, report and command line, and touch no file here."""

import json
import os
import shutil
import signal
import subprocess
import time

import pytest
from samara_cli import ROOT

EXAMPLES = ROOT / "examples/outside"


def run(*command, cwd, code=0):
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SAMARA_") and key != "PYTHONPATH"}
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=clean, capture_output=True, text=True, timeout=600)
    assert done.returncode == code, (done.stdout + done.stderr)[-4000:]
    return done


def result(*command, cwd):
    return json.loads(run(*command, "--json", cwd=cwd).stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    where = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", ROOT / "build", "--prefix", where, cwd=where)
    for file in where.rglob("samara*.cmake"):  # nothing of what is installed leads back to this tree
        assert str(ROOT / "src") not in file.read_text() and str(ROOT / "include") not in file.read_text()
    return where


@pytest.fixture(scope="module")
def build(prefix, tmp_path_factory):
    def built(name):
        project = tmp_path_factory.mktemp(name) / name
        if (EXAMPLES / name).exists():
            shutil.copytree(EXAMPLES / name, project)
        else:
            run(ROOT / "build/samara", "new", "algorithm", name, cwd=project.parent)
        run("cmake", "-S", ".", "-B", "build", "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={prefix}", cwd=project)
        run("cmake", "--build", "build", cwd=project)
        return project
    return built


def test_an_environment_of_ones_own(build):
    project = build("environment")
    program = project / "build/my-corridor"
    assert "env.id=Corridor-v0" in run(program, "list", "envs", cwd=project).stdout
    words = ["classic/cartpole-ga", "env.id=Corridor-v0", "ga.population=40", "ga.generations=6"]
    one = result(program, "train", *words, "fleet.threads=1", "--out", "one", cwd=project)
    two = result(program, "train", *words, "fleet.native=slots", "--out", "two", cwd=project)
    assert one["population_hash"] == two["population_hash"]
    assert one["elite_mean"] == 7.0 > one["random_mean"]  # three steps to the exit, whichever it is
    played = result(program, "eval", "one", "--episodes", "5", cwd=project)
    assert played["mean"] == 7.0
    assert (project / "one/report.html").exists()


def test_an_evolution_algorithm_of_ones_own(build):
    """examples/outside/evolution under another name, as `samara new algorithm` makes it."""
    project = build("hill-top")
    program = project / "build/hill-top"
    assert "hill-top" in run(program, "list", "algorithms", cwd=project).stdout
    whole = result(program, "train", "my.toml", "--out", "whole", cwd=project)
    assert whole["generation"] == 60 and whole["elite_mean"] > 2 * whole["random_mean"]
    # killed and resumed, it ends with the same bits
    words = [str(program), "train", "my.toml", "--out", "cut", "--quiet"]
    process = subprocess.Popen(words, cwd=project, stderr=subprocess.DEVNULL)
    metrics = project / "cut/metrics.jsonl"
    while process.poll() is None and (not metrics.exists() or metrics.read_text().count('"generation"') < 3):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert result(program, "train", "--resume", "cut", cwd=project)["population_hash"] == whole["population_hash"]
    run(program, "report", "cut", cwd=project)
    # a key of another algorithm is refused by naming those that have it
    refused = run(program, "train", "my.toml", "ga.population=3", "--out", "other", cwd=project, code=78)
    assert "this run is hill-top" in refused.stderr


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / "build/samara-torch").exists(), reason="NOT TESTED: built without torch")
def test_a_loss_and_a_network_of_ones_own(build):
    project = build("learning")
    program = project / "build/my-policy-gradient"
    assert "my-layers" in run(program, "list", "networks", cwd=project).stdout
    whole = result(program, "train", "my.toml", "--out", "whole", cwd=project)
    assert whole["test_mean"] > 200 > whole["random_mean"]
    assert result(program, "eval", "whole", "--episodes", "3", cwd=project)["episodes"] == 3
    stopped = subprocess.Popen([program, "train", "my.toml", "--out", "cut", "--quiet"], cwd=project)
    metrics = project / "cut/metrics.jsonl"
    while not (metrics.exists() and '"update"' in metrics.read_text()):
        assert stopped.poll() is None
        time.sleep(0.01)
    stopped.terminate()
    assert stopped.wait(60) == 75
    assert result(program, "train", "--resume", "cut", cwd=project)["parameter_hash"] == whole["parameter_hash"]


@pytest.mark.skipif(not (ROOT / "build/samara-torch").exists(), reason="NOT TESTED: built without torch")
@pytest.mark.parametrize("first, second", [("samara", "Torch"), pytest.param("Torch", "samara", marks=pytest.mark.slow)])
def test_a_project_that_asks_for_torch_itself(first, second, prefix, tmp_path):
    """The package's own targets and ours have names of their own, in either order."""
    torch = next((ROOT / ".venv/lib").glob("python3*/site-packages/torch"), None)
    if torch is None or ((torch / "lib/libtorch_cuda.so").exists() and not shutil.which("nvcc")):
        pytest.skip("NOT TESTED: no torch in .venv, or one with CUDA, whose own CMake files want nvcc")
    (tmp_path / "main.cc").write_text('#include <c10/core/Device.h>\nint main() { return !c10::Device("cpu").is_cpu(); }\n')
    (tmp_path / "CMakeLists.txt").write_text(f"""cmake_minimum_required(VERSION 3.20)
project(both CXX)
find_package({first} REQUIRED)
find_package({second} REQUIRED)
add_executable(both main.cc)
target_link_libraries(both PRIVATE samara::learning torch)
""")
    run("cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={prefix};{torch}/share/cmake", cwd=tmp_path)
    run("cmake", "--build", "build", cwd=tmp_path)
    run(tmp_path / "build/both", cwd=tmp_path)
