"""What `cmake --install` and `pip install .` leave is enough for somebody else's project, in an empty folder."""

import email
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from samara_cli import CARTPOLE, ROOT

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


def compilers():
    """Under the compiler's name in build/, so that ccache has what was compiled there."""
    lines = (BUILD / "CMakeCache.txt").read_text().splitlines()
    names = dict(line.split("=", 1) for line in lines if "_COMPILER:" in line)
    return {"CC": names["CMAKE_C_COMPILER:FILEPATH"], "CXX": names["CMAKE_CXX_COMPILER:FILEPATH"]}


def make_wheel(folder, *settings):
    pytest.importorskip("scikit_build_core")
    run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", *settings, "-w", folder, ROOT,
        cwd=folder, **compilers())  # fmt: skip
    [file] = folder.iterdir()
    return file


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Minutes of compiling: for the long tier."""
    return make_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.mark.slow
def test_the_wheel_fits_other_systems(wheel, tmp_path):
    """`make wheel` changes the tag alone."""
    pytest.importorskip("auditwheel", reason="`make wheel` installs it")
    left_out = [word for name in ("libtorch*.so", "libc10*.so") for word in ("--exclude", name)]
    run(sys.executable, "-m", "auditwheel", "repair", *left_out, "--wheel-dir", tmp_path, wheel, cwd=tmp_path,
        PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # fmt: skip
    [tagged] = tmp_path.iterdir()
    assert re.fullmatch(r"samara-0\.1\.0-cp3\d+-cp3\d+-manylinux_2_\d+_\w+\.whl", tagged.name)
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(tagged) as after:
        files = {name for name in before.namelist() if not name.startswith("samara-")}
        assert files == {name for name in after.namelist() if not name.startswith("samara-") and not name.endswith("/")}
        assert all(before.read(name) == after.read(name) for name in files)


def link(site, *packages):
    """Makes packages of this environment known in another one."""
    here = Path(pytest.__file__).parents[1]
    for package in packages:
        for path in [here / package, here / f"{package}.libs", here / f"{package}.py", *here.glob(f"{package}-*.dist-info")]:
            if path.exists() and not (site / path.name).exists():
                (site / path.name).symlink_to(path)


class Environment:
    """A Python environment with samara from the wheel, used in an empty folder without any variable of this one."""

    def __init__(self, wheel, folder):
        self.python, self.folder = folder / "environment/bin/python", folder / "empty"
        self.folder.mkdir()
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "environment"], check=True)
        run(sys.executable, "-m", "pip", "--python", self.python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
        [self.site] = self.python.parents[1].glob("lib/python*/site-packages")
        link(self.site, "numpy")

    def __call__(self, *command, code=0):
        words = [str(self.python.with_name(str(command[0]))), *map(str, command[1:])]
        done = subprocess.run(words, cwd=self.folder, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    def json(self, *command):
        return json.loads(self(*command, "--json").splitlines()[-1])


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    return Environment(wheel, tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """An environment with a wheel without the programs."""
    wheel = make_wheel(tmp_path_factory.mktemp("package"), "-C", "cmake.define.SAMARA_WHEEL_PROGRAMS=OFF")
    return Environment(wheel, tmp_path_factory.mktemp("installed_package"))


def of_the_build(folder, *words):
    words = [BUILD / "samara", "train", *words, "--out", folder / "run", "--quiet", "--json"]
    return json.loads(run(*words, cwd=folder).splitlines()[-1])


@pytest.mark.slow
def test_the_wheel_says_what_it_is(wheel):
    assert re.fullmatch(r"samara-0\.1\.0-cp3\d+-cp3\d+-linux_\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        metadata = email.message_from_bytes(file.read("samara-0.1.0.dist-info/METADATA"))
    assert {"samara/bin/samara", "samara/py.typed"} <= names and not [name for name in names if name.startswith("src/")]
    assert {f"samara-0.1.0.dist-info/licenses/{name}" for name in ("LICENSE", "LICENSE-MIT")} <= names
    assert metadata["License-Expression"] == "Apache-2.0 AND (Apache-2.0 OR MIT)"
    assert metadata["Description-Content-Type"] == "text/markdown" and metadata.get_payload().startswith("# samara")
    pinned = set((ROOT / "requirements.txt").read_text().split("\n"))
    extras = [re.fullmatch(r"(\S+); extra == .(\w+).", line).groups() for line in metadata.get_all("Requires-Dist") if ";" in line]
    assert {extra for _, extra in extras} == {"atari", "gymnasium", "mujoco", "remote", "replica", "torch"}
    setup = re.findall(r"torch==[\d.]+", (ROOT / "scripts/setup").read_text())
    assert {requirement for requirement, _ in extras} <= pinned.union(setup)


@pytest.mark.slow
def test_what_the_wheel_links_is_of_the_system_or_of_torch(environment):
    """Nothing of this tree, and no library that another machine may lack."""
    system = re.compile(r"ld-linux.*|lib(c|m|mvec|pthread|dl|rt|stdc\+\+|gcc_s)\.so\.\d+")
    files = [*environment.site.glob("samara/*.so"), *environment.site.glob("samara/bin/*")]
    assert {"samara"} <= {file.name for file in files}
    for file in files:
        dynamic = subprocess.run(["readelf", "-d", file], check=True, capture_output=True, text=True).stdout
        needed = re.findall(r"\(NEEDED\)\s.*\[(.*)\]", dynamic)
        others = {name for name in needed if not system.fullmatch(name) and not (environment.site / "samara/lib" / name).exists()}
        assert others <= {"libtorch.so", "libtorch_cpu.so", "libtorch_python.so", "libc10.so", "libtorch_cuda.so", "libc10_cuda.so"}, file
        assert not others or file.name.startswith(("samara-torch", "_replica")), file
        paths = re.findall(r"\((?:RPATH|RUNPATH)\)\s.*\[(.*)\]", dynamic)
        assert all(path.startswith("$ORIGIN") for path in paths), file


@pytest.mark.slow
def test_the_command_of_the_wheel_evolves(environment, tmp_path):
    """With NumPy alone: no Gymnasium, no torch, no source tree."""
    assert environment("samara", "--version") == environment("python", "-m", "samara", "--version")
    assert environment("samara", "--version").startswith("samara 0.1.0 (")
    assert "classic/cartpole-ga" in environment("samara", "list", "presets")
    doctor = environment.json("samara", "doctor")
    found = {finding["what"]: finding["found"] for finding in doctor["findings"]}
    assert doctor["good"] and found["Python environment"] == str(environment.python.parents[1])
    assert "-C cmake.define.SAMARA_GRPC=ON" in found["remote actors"]
    assert "pip install torch==" in found["learning agents"] and "pip install gymnasium" in found["gymnasium (Gymnasium environments)"]
    result = environment.json("samara", "train", *CARTPOLE, "--out", "ga", "--quiet")
    assert result["population_hash"] == of_the_build(tmp_path, *CARTPOLE)["population_hash"]
    assert environment.json("samara", "eval", "ga", "--episodes", "3")["episodes"] == 3 and (environment.folder / "ga/report.html").exists()
    code = f"import samara; print(samara.train('classic/cartpole-ga', {dict(word.split('=') for word in CARTPOLE[1:])}).result['population_hash'])"
    assert environment("python", "-c", code).split() == [result["population_hash"]]


@pytest.mark.slow
def test_what_the_environment_lacks_is_one_line(environment):
    [line] = environment("samara", "train", "classic/cartpole-ppo", "--out", "ppo", code=78).splitlines()
    assert re.search(r"need torch \S+, which is not in \S+/site-packages: pip install torch==\d\.\d+", line)
    [line] = environment("samara", "train", "classic/cartpole-ga", "env.id=gymnasium:CartPole-v1", "--out", "gym", code=66).splitlines()[-1:]
    assert "gymnasium" in line and "install it with pip" in line


@pytest.mark.slow
@pytest.mark.skipif(not (BUILD / "samara-torch").exists(), reason="built without torch")
def test_the_command_of_the_wheel_learns_and_starts_actors(environment, tmp_path):
    words = ["classic/cartpole-ppo", "learn.frames=5000", "run.video=false", "run.random_episodes=2", "learn.test_episodes=2"]
    link(environment.site, "torch", "gymnasium", "farama_notifications", "cloudpickle", "typing_extensions")
    result = environment.json("samara", "train", *words, "--out", "ppo", "--quiet")
    assert result["parameter_hash"] == of_the_build(tmp_path, *words)["parameter_hash"]
    words = [*CARTPOLE, "ga.generations=1", "env.id=gymnasium:CartPole-v1", "fleet.actors=1", "env.test_frames_max=20"]
    (tmp_path / "gym").mkdir()
    assert environment.json("samara", "train", *words, "--out", "gym", "--quiet")["population_hash"] == \
        of_the_build(tmp_path / "gym", *words)["population_hash"]


def test_the_package_of_the_wheel_serves_torch_users(package, tmp_path):
    """Under the interpreter of this environment, which has what it imports."""
    site = package.site
    shutil.copy(ROOT / "tests/replica/train_replicated.py", tmp_path)
    where = run(sys.executable, "-c", "import samara._native, samara._engine, samara.replica, samara._replica as r; "
                "print(samara._native.__file__, samara._engine.__file__, r.__file__)", cwd=tmp_path, PYTHONPATH=str(site))
    assert all(path.startswith(str(site)) for path in where.split())
    code = """import samara
envs = samara.make_vec("gymnasium:CartPole-v1", 2)
print(envs.reset(seed=0)[0].shape)
envs.close()
print(samara.train("classic/cartpole-ga", {"ga.generations": 1}).result["generation"])"""
    played = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(site), SAMARA_PROGRAM=str(BUILD / "samara"))
    assert played.split() == ["(2,", "4)", "1"]
    [alone] = run(sys.executable, "train_replicated.py", cwd=tmp_path, PYTHONPATH=str(site)).splitlines()
    threads = run(sys.executable, "train_replicated.py", cwd=tmp_path, PYTHONPATH=str(site), SAMARA_THREADS="2")
    assert threads.splitlines() == [alone] * 2
