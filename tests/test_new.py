"""`samara new`: what it writes works as it is. An algorithm is built in test_outside.py."""

import subprocess
import sys

import pytest
from samara_cli import ROOT, ok, samara

FAST = ["ga.population=40", "ga.generations=6", "run.random_episodes=20", "run.final_test_episodes=20"]


def test_an_environment_is_checked_trained_and_filmed(tmp_path):
    made = samara("new", "environment", "cart_pushing", cwd=tmp_path)
    assert made.code == 0 and (tmp_path / "cart_pushing.py").exists()
    commands = [line.split()[1:] for line in made.out.splitlines() if line.startswith("samara ")]
    assert commands[0] == ["check", "cart_pushing:CartPushing"]
    assert commands[1] == ["train", "classic/cartpole-ga", "env.id=cart_pushing:CartPushing"]
    checked = ok(*commands[0], "--seconds", "0.1", "--json", cwd=tmp_path).json
    assert checked["ok"] and checked["observation"] == "float32 [2]" and checked["action"] == "3 choices"
    trained = ok(*commands[1], *FAST, "run.video=true", "env.kwargs.force=0.2", "--out", "run", "--json", cwd=tmp_path).json
    assert trained["elite_mean"] > trained["random_mean"] / 2 > -100, "better than half the random distance"
    assert (tmp_path / "run/videos/elite.mp4").stat().st_size > 1000


def test_the_environment_is_one_that_gymnasium_approves(tmp_path):
    ok("new", "environment", "task", cwd=tmp_path)
    program = "from gymnasium.utils.env_checker import check_env; import task; check_env(task.Task(), skip_render_check=True)"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)


def test_a_preset_trains(tmp_path):
    assert "samara train cart-pole-2.toml" in ok("new", "preset", "cart-pole-2", cwd=tmp_path).out
    trained = ok("train", "cart-pole-2.toml", "run.video=false", "--quiet", "--json", cwd=tmp_path).json
    assert trained["run"] == "runs/cart-pole-2-01" and trained["elite_mean"] > 400


@pytest.mark.parametrize(("words", "code"), [
    (["environment"], 64), (["network", "x"], 64), (["environment", "My-Task"], 64), (["environment", "a-b"], 64),
    (["preset", "../x"], 64), (["preset", ""], 64), (["preset", "there"], 73),
])  # fmt: skip
def test_what_is_refused_and_nothing_is_overwritten(words, code, tmp_path):
    (tmp_path / "there.toml").write_text("mine")
    outcome = samara("new", *words, "--json", cwd=tmp_path)
    assert outcome.code == code and [f.name for f in tmp_path.iterdir()] == ["there.toml"]
    assert (tmp_path / "there.toml").read_text() == "mine"


@pytest.mark.parametrize("name", ["json", "random", "math", "sys", "gymnasium"])
def test_an_environment_hides_behind_no_module_of_python(name, tmp_path):
    outcome = samara("new", "environment", name, cwd=tmp_path)
    assert outcome.code == 73 and f"{name}: Python has a module of this name" in outcome.err
    assert not list(tmp_path.iterdir()) and samara("new", "preset", name, cwd=tmp_path).code == 0


def test_an_environments_class_is_no_word_of_python(tmp_path):
    for name in ("true", "none"):
        refused = samara("new", "environment", name, cwd=tmp_path)
        assert refused.code == 73 and "a word of Python's" in refused.err
    assert not list(tmp_path.iterdir())


def test_json_names_the_files(tmp_path):
    made = ok("new", "algorithm", "climber", "--json", cwd=tmp_path).json["files"]
    assert made == ["climber/CMakeLists.txt", "climber/main.cc", "climber/my.toml"]
    text = "".join((tmp_path / name).read_text() for name in made)
    assert "hill" not in text and '"climber"' in text and "project(climber CXX)" in text
    example = ROOT / "examples/outside/evolution"
    assert (tmp_path / "climber/main.cc").read_text().count("\n") == (example / "main.cc").read_text().count("\n")
