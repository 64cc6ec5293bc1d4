"""What `cmake --install` and `pip install .` leave is enough for somebody else's project, in an empty folder."""

import os
import shutil
import subprocess
import sys

import pytest
from samara_cli import ROOT

pytestmark = pytest.mark.default_tier
BUILD = ROOT / "build"

PROJECT = """
cmake_minimum_required(VERSION 3.20)
project(app CXX)
find_package(samara 0.1 REQUIRED)
add_executable(app train_replicated.cc)
target_link_libraries(app samara::replica)
"""


def run(*command, cwd, **variables):
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SAMARA_") and key != "PYTHONPATH"}
    done = subprocess.run([str(part) for part in command], cwd=cwd, env={**clean, **variables}, capture_output=True,
                          text=True, timeout=3600)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


@pytest.mark.slow  # find_package without torch: test_outside.py
@pytest.mark.skipif(not (BUILD / "src/replica/torch/libsamara_replica_torch.a").exists(), reason="built without torch")
def test_another_project_finds_the_package(tmp_path):
    prefix, project = tmp_path / "prefix", tmp_path / "project"
    run("cmake", "--install", BUILD, "--prefix", prefix, cwd=tmp_path)
    # the public headers, and one folder with those of src/ that they include
    assert {path.name for path in (prefix / "include/samara").iterdir()} == \
        {path.name for path in (ROOT / "include/samara").iterdir()} | {"internal"}
    # nothing of what is installed leads back to this tree
    for file in prefix.rglob("samara*.cmake"):
        assert str(ROOT / "src") not in file.read_text() and str(ROOT / "include") not in file.read_text()
    project.mkdir()
    (project / "CMakeLists.txt").write_text(PROJECT)
    shutil.copy(ROOT / "tests/replica/train_replicated.cc", project)
    run("cmake", "-S", ".", "-B", "build", "-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_PREFIX_PATH={prefix}", cwd=project)
    run("cmake", "--build", "build", cwd=project)
    [alone] = run(project / "build/app", cwd=project).splitlines()
    assert run(project / "build/app", cwd=project, SAMARA_THREADS="2").splitlines() == [alone] * 2


def test_pip_installs_the_package(tmp_path):
    pytest.importorskip("scikit_build_core")
    site = tmp_path / "site"
    # under the compiler's name in build/, so that ccache has what was compiled there
    names = dict(line.split("=", 1) for line in (BUILD / "CMakeCache.txt").read_text().splitlines() if "_COMPILER:" in line)
    compilers = {"CC": names["CMAKE_C_COMPILER:FILEPATH"], "CXX": names["CMAKE_CXX_COMPILER:FILEPATH"]}
    run(sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index", "--target", site, ROOT,
        cwd=tmp_path, **compilers)
    shutil.copy(ROOT / "tests/replica/train_replicated.py", tmp_path)
    where = run(sys.executable, "-c", "import samara._native, samara._engine, samara.replica, samara._replica as r; "
                "print(samara._native.__file__, samara._engine.__file__, r.__file__)", cwd=tmp_path, PYTHONPATH=str(site))
    assert all(path.startswith(str(site)) for path in where.split())
    assert (site / "samara/py.typed").exists()
    code = """import samara
envs = samara.make_vec("gymnasium:CartPole-v1", 2)
print(envs.reset(seed=0)[0].shape)
envs.close()
print(samara.train("classic/cartpole-ga", {"ga.generations": 1}).result["generation"])"""
    played = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(site), PATH=f"{BUILD}:{os.environ['PATH']}")
    assert played.split() == ["(2,", "4)", "1"]
    [alone] = run(sys.executable, "train_replicated.py", cwd=tmp_path, PYTHONPATH=str(site)).splitlines()
    threads = run(sys.executable, "train_replicated.py", cwd=tmp_path, PYTHONPATH=str(site), SAMARA_THREADS="2")
    assert threads.splitlines() == [alone] * 2
