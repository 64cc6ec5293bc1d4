"""`samara check ENV`: what an environment is, how fast it is, or where it fails, before a run depends on it."""

import re
import shlex

import pytest
from samara_cli import ok, samara

MODULE = '''
import gymnasium, numpy as np
from gymnasium import spaces


class Task(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.MultiDiscrete([2, 3])

    def __init__(self, at=10**9):
        self.at = at
        self.limit = {"limit": 20}["limit" if at else "nothing"]
        if at < 0:
            self.limit = 0

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(3, np.float32), {}

    def stumble(self):
        raise ValueError("boom in my step")

    def step(self, action):
        self.t += 1
        if self.t == self.at:
            self.stumble()
        return np.zeros(3, np.float32), 1.0, self.t == self.limit, False, {}


gymnasium.register("Good-v0", Task)
gymnasium.register("Stumbles-v0", Task, kwargs={"at": 4})
gymnasium.register("Broken-v0", Task, kwargs={"at": 0})
gymnasium.register("Endless-v0", lambda: Task(at=-1))


class Drifts(Task):
    """Remembers what it did before."""

    seen = 0

    def step(self, action):
        self.seen += self.t == 3
        return np.full(3, self.seen / 1000, np.float32), *super().step(action)[1:]
'''


LEAVING = '''
import numpy as np
from gymnasium import spaces
from my_tasks import Task


class Leaves(Task):
    """Has one number that grows out of the space at step 2, and an action without an upper bound."""

    action_space = spaces.Box(np.float32([-1, -1]), np.float32([1, np.inf]))

    def step(self, action):
        _, *rest = super().step(action)
        return np.array([0, 0.6 * self.t, 0]), *rest


class Calm(Task):
    pass


class Loses(Task):
    """Has a part of an observation outside its own space at step 3."""

    observation_space = spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Discrete(3))

    def reset(self, **kwargs):
        super().reset()
        return {"a": np.float32([0, 0]), "b": 1}, {}

    def step(self, action):
        _, *rest = super().step(action)
        return {"a": np.float32([0, 1.5 if self.t == 3 else 0]), "b": 2}, *rest
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "my_tasks.py").write_text(MODULE)
    (tmp_path / "leaving.py").write_text(LEAVING)
    return tmp_path


@pytest.mark.parametrize(("env", "observation", "action"), [
    ("CartPole-v1", "float32 [4]", "2 choices"),
    ("Pendulum-v1", "float32 [3]", "box of 1, from [-2] to [2]"),
    ("atari:pong", "uint8 [84, 84]", "6 choices"),
    ("my_tasks:Good-v0", "float32 [3]", "6 choices: 2 x 3"),
])  # fmt: skip
def test_a_sound_environment(env, observation, action, folder):
    found = ok("check", env, "--seconds", 0.1, "--json", cwd=folder).json
    assert found["ok"] is True and found["error"] is None and found["traceback"] == []
    assert (found["observation"], found["action"]) == (observation, action)
    assert found["reproducible"] is True
    assert found["steps_per_second"] > 10 and found["episodes"] >= 1
    assert found["environment"] == env


def test_an_environment_whose_episodes_do_not_end_is_warned_of(folder):
    outcome = ok("check", "my_tasks:Endless-v0", "--seconds", 0.1, "--json", cwd=folder)
    assert outcome.json["ok"] is True and outcome.json["episodes"] == 0
    assert "no episode has ended" in outcome.err and "TimeLimit?max_episode_steps=1000" in outcome.err


def test_an_error_in_a_step_has_the_users_lines(folder):
    outcome = samara("check", "my_tasks:Stumbles-v0", "--json", cwd=folder)
    found = outcome.json
    assert outcome.code == 69 and found["ok"] is False and found["observation"] == "float32 [3]"
    assert "ValueError: boom in my step" in found["error"] and "step 4" in found["error"]
    frames = [line.split(", in ")[1] for line in found["traceback"] if line.startswith("  File")]
    assert frames == ["step", "stumble"] and "my_tasks.py" in found["traceback"][0]
    assert found["traceback"][1].strip() == "self.stumble()"
    for_people = samara("check", "my_tasks:Stumbles-v0", cwd=folder)
    assert for_people.code == 69 and "self.stumble()" in for_people.err and "is started again" not in for_people.err


@pytest.mark.parametrize(("env", "code", "words", "line"), [
    ("my_tasks:Broken-v0", 78, "KeyError", "self.limit = "),
    ("no_such_module:Task-v0", 66, "no_such_module", None),
    ("NoSuchTask-v0", 78, "NoSuchTask", None),
    ("atari/no_such_game", 78, "no_such_game", None),
])  # fmt: skip
def test_an_environment_that_cannot_be_made(env, code, words, line, folder):
    outcome = samara("check", env, "--json", cwd=folder)
    assert outcome.code == code and outcome.json["ok"] is False and words in outcome.json["error"]
    shown = "\n".join(outcome.json["traceback"])
    assert line in shown if line else not shown
    assert outcome.json["observation"] is None and "Traceback" not in outcome.err


def test_a_name_that_means_nothing_is_explained_in_the_only_line(folder):
    outcome = samara("check", "nope", cwd=folder)
    assert outcome.code == 78 and outcome.out == ""
    line = r"samara: gym 'nope': no environment has this name; expected one that `samara list envs` shows.*\n"
    assert re.fullmatch("(starting nope; .*\n)?" + line, outcome.err)  # on a busy machine it starts slowly


def test_a_game_and_a_module_say_what_was_meant(folder):
    assert samara("check", "Blackjack-v1", "--seconds", 0.1).code == 0  # Gymnasium's, not Atari's game
    for given in "pong", "Pong-v5", "atari/Pong":
        assert samara("check", given, cwd=folder).err.strip() == f"samara: {given}: an Atari game, expected atari/pong"
    (folder / "my_task.py").touch()
    assert "expected one of its classes: my_task:NAME" in samara("check", "my_task", cwd=folder).err


def test_the_example_of_the_help_runs_or_says_what_to_install():
    [example] = re.findall(r"samara (check [A-Z].*)", ok("check", "--help").out)
    outcome = samara(*example.split(), "--seconds", 0.1)
    if outcome.code == 66:
        assert re.search(r"samara: gym 'LunarLander-v3' needs a Python package: .*gymnasium\[box2d\].*; samara's Python is /", outcome.err)
    else:
        assert outcome.code == 0 and "4 choices" in outcome.out


def test_a_hint_at_this_command_repeats_the_options(folder):
    (folder / "calm.py").write_text("import gymnasium\n\nclass Calm(gymnasium.Wrapper): pass\n")
    options = ["env.kwargs.at=0", 'env.wrappers=["calm:Calm"]']
    trained = samara("train", "classic/cartpole-ga", "env.id=my_tasks:Task", *options, "--out", "run", cwd=folder)
    command = re.search(r"; `samara (.*)` shows the traceback", trained.err)[1]
    assert trained.code == 78 and shlex.split(command) == ["check", "my_tasks:Task", *options]
    outcome = samara(*shlex.split(command), cwd=folder)
    assert outcome.code == 78 and "self.limit = " in outcome.err and "shows the traceback" not in outcome.err


def test_options_are_checked():
    assert samara("check").code == 64
    assert samara("check", "CartPole-v1", "--seconds", "-1").code == 64
    assert samara("check", "atari/pong", "--preset", "ale-v6").code == 78


def test_arguments_and_wrappers_reach_the_environment(folder):
    (folder / "wraps.py").write_text("""
import gymnasium


class Loud(gymnasium.ActionWrapper):
    def action(self, action):
        raise ValueError(f"at {self.unwrapped.at}")
""")
    given = ["my_tasks:Task", "env.kwargs.at=12", "env.wrappers=wraps:Loud"]
    outcome = samara("check", *given, "--json", cwd=folder)
    assert outcome.code == 69 and "ValueError: at 12" in outcome.json["error"]
    assert ok("check", *given[:2], "env.kwargs={at = 1000}", "--seconds", 0.1, "--json", cwd=folder).json["ok"] is True


@pytest.mark.parametrize(("words", "message"), [
    (["CartPole-v1", "env.kwargs.size=4"], "CartPole-v1 is samara's own"),
    (["atari/pong", "env.wrappers=a:B"], "Atari games are samara's own"),
    (["my_tasks:Task", "env.kwargs.size=4"], "size"),
    (["my_tasks:Task", "env.game=pong"], "unknown key"),
    (["my_tasks:Nothing"], "has no class Nothing; it has Task, Drifts, Good-v0, Stumbles-v0, Broken-v0"),
    (["ALE/Pong-v5"], "env.game=pong with a preset of atari/"),
    (["my_tasks:Task", "env.kwargs=4"], "expected a table"),
])  # fmt: skip
def test_options_that_do_not_fit(words, message, folder):
    outcome = samara("check", *words, cwd=folder)
    assert outcome.code == 78 and message in outcome.err


def test_an_environment_that_cannot_be_repeated(folder):
    outcome = ok("check", "my_tasks:Drifts", "--seconds", 0.2, "--json", cwd=folder)
    assert outcome.json["ok"] is True and outcome.json["reproducible"] is False
    assert re.search("same seed and actions gave another episode from step 1 on: .*self.np_random only", outcome.err)


@pytest.mark.parametrize(("name", "warnings"), [
    ("Leaves", ["observation of step 2 has 1.2 at [1], outside [-1, 1]", "number 1 has no finite bounds"]),
    ("Loses", ["observation of step 3 has the value {'a': array([0. , 1.5]"]),
    ("Calm", []),
])  # fmt: skip
def test_numbers_outside_the_declared_spaces_are_told_once(name, warnings, folder):
    found = ok("check", f"leaving:{name}", "--seconds", 0.1, "--json", cwd=folder).json
    assert found["ok"] is True and len(found["warnings"]) == len(warnings), found["warnings"]
    assert all(part in line for part, line in zip(warnings, found["warnings"])), found["warnings"]
    shown = ok("check", f"leaving:{name}", "--seconds", 0.1, cwd=folder)
    assert all(part in shown.err for part in warnings)
