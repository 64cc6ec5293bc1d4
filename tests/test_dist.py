"""The archive of `make dist`, unpacked elsewhere: it trains, evaluates and reports without the tree and its .venv."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from samara_cli import ATARI, CARTPOLE, ROOT

pytestmark = [
    pytest.mark.default_tier,
    pytest.mark.skipif(not shutil.which("dpkg-query"), reason="needs Debian's package tools, for the licences"),
]
VENV = (ROOT / ".venv").resolve()
# of the target system: glibc and libstdc++
SYSTEM = re.compile(r"ld-linux.*|linux-vdso.*|lib(c|m|mvec|pthread|dl|rt|resolv|util|anl|stdc\+\+|gcc_s)\.so\.\d+")
# a user namespace in which the tree and its packages, where these lie elsewhere, are empty folders
HIDE = 'for folder in "$1" "$2"; do [ ! -d "$folder" ] || mount -t tmpfs none "$folder"; done; shift 2; cd "$1"; shift; exec "$@"'
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", HIDE, "sh"]
CAN_HIDE = bool(shutil.which("unshare")) and subprocess.run([*NAMESPACE, "/mnt", "/mnt", "/", "true"], capture_output=True).returncode == 0


def packed(folder, *options):
    """The archive, unpacked in `folder` below another name."""
    done = subprocess.run([ROOT / "scripts/dist", *options], capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    archive = ROOT / re.search(r"build/\S+\.tar\.gz", done.stdout)[0]
    subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True)
    [unpacked] = folder.iterdir()
    return unpacked.rename(folder / "some where else"), archive


def alone(place, *words, **variables):
    """A command there with no variables but these, and where the system allows it without the tree."""
    hidden = [*NAMESPACE, ROOT, VENV, place] if CAN_HIDE else []
    return subprocess.run([*map(str, hidden), *map(str, words)], cwd=place, env={"PATH": "/usr/bin:/bin", **variables},
                          capture_output=True, text=True, timeout=300)  # fmt: skip


def samara(place, *words, **variables):
    done = alone(place, "bin/samara", *words, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def libraries(file):
    """name -> path, as the loader finds them without any variable."""
    lines = subprocess.run(["ldd", file], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True).stdout
    return dict(re.findall(r"^\t(\S+) => (.*?)(?: \(0x\w+\))?$", lines, re.M))


def trains_evaluates_and_reports(place, *words):
    result = json.loads(samara(place, "train", *words, "--out", "run", "--quiet", "--json").splitlines()[-1])
    assert json.loads(samara(place, "eval", "run", "--episodes", "3", "--json").splitlines()[-1])["episodes"] == 3
    samara(place, "report", "run", "--out", "page.html")
    assert "<svg" in (place / "page.html").read_text() and json.loads(samara(place, "fsck", "run", "--json").splitlines()[-1])["sound"]
    return result


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return packed(tmp_path_factory.mktemp("dist"))[0]


@pytest.fixture(scope="module")
def place_with_torch(tmp_path_factory):
    if not (ROOT / "build/samara-torch").exists():
        pytest.skip("built without torch")
    return packed(tmp_path_factory.mktemp("dist"), "--with-torch")[0]


def check_libraries(place):
    """Every library but the system's is packed, needed, and found next to the program."""
    files = [*(file for file in (place / "libexec").rglob("*") if file.is_file() and file.read_bytes()[:4] == b"\x7fELF"),
             *(place / "lib").iterdir()]  # fmt: skip
    needed = set()
    for file in files:
        if file.parent.name == "lib":
            continue  # found through the program that needs it
        for name, path in libraries(file).items():
            if not SYSTEM.fullmatch(name):
                assert Path(path).parent.resolve() == place / "lib", f"{file}: {name} => {path}"
                needed.add(name)
    assert needed == {file.name for file in (place / "lib").iterdir()} and len(needed) > 10
    assert not [file for file in files if str(ROOT).encode() in subprocess.run(["readelf", "-d", file], capture_output=True).stdout]


def test_the_archive_is_whole(place):
    check_libraries(place)
    sources = (place / "share/doc/third-party/sources").read_text()
    assert re.search(r"^grpc \d", sources, re.M) and (place / "share/doc/third-party/common-licenses/GPL-2").exists()
    assert {"LICENSE", "LICENSE-MIT", "README", "requirements.txt"} <= {path.name for path in place.iterdir()}
    preset = place / "share/samara/presets/classic/cartpole-ga.toml"
    assert preset.read_text() == (ROOT / "presets/classic/cartpole-ga.toml").read_text()


def test_evolution_runs_with_the_same_bits(place, tmp_path):
    result = trains_evaluates_and_reports(place, *CARTPOLE)
    here = subprocess.run([ROOT / "build/samara", "train", *CARTPOLE, "--out", tmp_path / "run", "--quiet", "--json"],
                          capture_output=True, text=True, check=True).stdout  # fmt: skip
    assert result["population_hash"] == json.loads(here.splitlines()[-1])["population_hash"]
    assert samara(place, "new", "preset", "mine") and (place / "mine.toml").exists(), "templates"


def test_what_is_not_packed_is_refused_in_one_line(place):
    game = alone(place, "bin/samara", "train", *ATARI, "--out", "atari")
    assert game.returncode == 66 and len(game.stderr.splitlines()) == 1 and "SAMARA_VENV" in game.stderr
    learner = alone(place, "bin/samara", "train", "classic/cartpole-ppo", "--out", "ppo")
    assert learner.returncode == 78 and len(learner.stderr.splitlines()) == 1 and "samara-torch" in learner.stderr


def test_actors_play_with_an_environment_that_is_named(place):
    """The packed package and extension, with the packages of an environment elsewhere."""
    words = ["bin/samara", "train", *ATARI, "--out", "game", "--quiet", "--json"]
    done = subprocess.run(words, cwd=place, env={"PATH": "/usr/bin:/bin", "SAMARA_VENV": str(VENV)}, capture_output=True, text=True)
    assert done.returncode == 0 and json.loads(done.stdout.splitlines()[-1])["generation"] == 2, done.stderr
    code = "import samara, samara._native, samara._engine as e; print(e.__file__, samara.train('classic/cartpole-ga', {'ga.generations': 1}).result['generation'])"
    done = subprocess.run([VENV / "bin/python", "-c", code], cwd=place, capture_output=True, text=True,
                          env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(place / "libexec/python")})  # fmt: skip
    assert done.returncode == 0 and done.stdout.startswith(str(place)) and done.stdout.endswith(" 1\n"), done.stderr


@pytest.mark.slow
def test_learners_run_where_torch_is_packed(place_with_torch):
    check_libraries(place_with_torch)
    words = ["learn.frames=4000", "learn.test_episodes=3", "run.random_episodes=3", "run.video=false"]
    assert trains_evaluates_and_reports(place_with_torch, "classic/cartpole-ppo", *words)["frames"] >= 4000


@pytest.mark.slow
def test_the_same_tree_gives_the_same_bytes(tmp_path):
    """Packed twice; the second replaces the first."""
    (tmp_path / "a").mkdir()
    first = packed(tmp_path / "a")[1].read_bytes()
    (tmp_path / "b").mkdir()
    assert packed(tmp_path / "b")[1].read_bytes() == first


@pytest.mark.parametrize(("ldd", "says"), [
    ("echo broken >&2; exit 1", "dist: ldd failed"), ("printf '\\tlibx.so.1 => not found\\n'", "dist: libx.so.1 not found"),
])  # fmt: skip
def test_nothing_is_packed_without_its_libraries(tmp_path, ldd, says):
    """A program that ldd cannot read, or that lacks a library, ends it: no archive that fails elsewhere."""
    (tmp_path / "ldd").write_text(f"#!/bin/sh\n{ldd}\n")
    (tmp_path / "ldd").chmod(0o755)
    done = subprocess.run([ROOT / "scripts/dist"], capture_output=True, text=True,
                          env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"})  # fmt: skip
    assert done.returncode == 1 and says in done.stderr and "dist: build/" not in done.stdout


def test_another_word_is_refused():
    done = subprocess.run([ROOT / "scripts/dist", "--torch"], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 64 and "expected nothing or --with-torch" in done.stderr
