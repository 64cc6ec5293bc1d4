"""Gymnasium environments that samara has no native copy of train unchanged, through Python actors."""

import json
import shlex
import shutil
import subprocess
import threading

import gymnasium
import pytest
from remote_util import socket_folder
from samara_cli import BINARY, CARTPOLE, TESTS, Running, environment, ok, resume, samara, train

SHORT = [*CARTPOLE, "env.frames_max=60", "env.test_frames_max=60", "fleet.actors=2", "ga.population=8", "ga.generations=2"]


@pytest.mark.parametrize(
    "name",
    [
        "MountainCarContinuous-v0",  # Box actions
        "Taxi-v4",  # Discrete observations, flattened
        "Blackjack-v1",  # a Tuple of three
        "CliffWalking-v1",
        "FrozenLake-v1",
        "gymnasium.envs.classic_control:Acrobot-v1",  # module:Name imports the module first
    ],
)
def test_a_gymnasium_environment_trains_unchanged(name, tmp_path):
    run = tmp_path / "run"
    result = train(run, *SHORT, f"env.id={name}")
    assert result["generation"] == 2 and result["frames"] > 0
    identity = json.loads((run / "run.json").read_text())
    assert gymnasium.__version__ in json.dumps(identity)
    evaluated = ok("eval", run, "--episodes", 3, "--json").json
    assert evaluated["episodes"] == 3 and all(1 <= frames <= 60 for frames in evaluated["frames"])
    ok("fsck", run)


def test_a_faster_native_environment_is_named_once(tmp_path):
    words = ["train", *SHORT, "env.id=gymnasium:CartPole-v1"]
    line = "env.id=gymnasium:CartPole-v1 is stepped by Gymnasium; env.id=CartPole-v1, in C++, is some 100 times as fast"
    assert ok(*words, "--out", tmp_path / "run").err.count(line) == 1
    assert (tmp_path / "run" / "log.txt").read_text().count(line) == 1
    more = ok("train", "--resume", tmp_path / "run", "ga.generations=3")
    assert "generation 3" in more.err and line not in more.err
    assert "in C++" not in ok("train", *SHORT, "--out", tmp_path / "native").err


def test_actors_give_one_hash_however_many(tmp_path):
    hashes = {
        train(tmp_path / str(n), *SHORT, "env.id=Taxi-v4", f"fleet.actors={n}", f"fleet.slots={2 * n}")["population_hash"]
        for n in (1, 3)
    }
    assert len(hashes) == 1


def test_a_module_of_ones_own(tmp_path):
    options = ["env.id=faulty:Fine-v0"]
    run = tmp_path / "run"
    path = {"PYTHONPATH": str(TESTS / "envs")}
    result = train(run, *SHORT, *options, **path)
    # Fine ends after ten steps and pays the action: the best policy gets ten
    assert result["frames"] % 10 == 0 and 0 <= result["elite_mean"] <= 10
    assert resume(run, "ga.generations=3", **path)["generation"] == 3


def test_frames_cap_episodes(tmp_path):
    run = tmp_path / "run"
    train(run, *SHORT, "env.id=MountainCarContinuous-v0")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if "fitness_mean" in line][-1]
    # nobody reaches the flag in 60 steps: every episode is cut, 8 + 2 * 2 of them a generation
    assert last["frames"] == 2 * (8 + 2 * 2) * 60 and last["episodes"] == 24


def test_every_part_of_an_action_is_evolved(tmp_path):
    run = tmp_path / "run"
    result = train(run, *CARTPOLE, "env.id=parts:Parts-v0", "network.name=linear", "ga.population=100", "ga.parents=10",
                   "ga.mutation_power=0.5", "ga.generations=12", "fleet.actors=2", PYTHONPATH=str(TESTS / "envs"))
    # by chance 10 * (1/3 + 1/2 + 1/4) = 10.8 of 30
    assert result["elite_mean"] > 20 > 14 > result["random_mean"], result


@pytest.mark.slow
def test_every_part_of_an_action_is_learned(tmp_path):
    words = ["classic/catch-vtrace", "env.id=parts:Parts-v0", "learn.frames=150000", "learn.test_episodes=20",
             "run.random_episodes=20"]
    result = train(tmp_path / "run", *words, PYTHONPATH=str(TESTS / "envs"))
    assert result["test_mean"] > 27 > 14 > result["random_mean"], result
    # the last action as an input, and the same bits twice
    words += ["learn.frames=3000", "learn.mode=deterministic", "network.lstm=16", "network.action_input=true"]
    hashes = {train(tmp_path / f"{i}", *words, PYTHONPATH=str(TESTS / "envs"))["parameter_hash"] for i in range(2)}
    assert len(hashes) == 1


# ---- a task of one's own, with arguments and a wrapper

OWN = '''
import gymnasium, numpy as np
from gymnasium import spaces


class Guess(gymnasium.Env):
    """Eight steps, each of which pays `pay` for the action that the observation shows."""

    observation_space = spaces.Box(0, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, pay=1.0, steps=8):
        self.pay, self.steps = pay, steps

    def observe(self):
        self.wanted = int(self.np_random.integers(2))
        return np.eye(2, dtype=np.float32)[self.wanted]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = self.steps
        return self.observe(), {}

    def step(self, action):
        self.left -= 1
        reward = self.pay * float(action == self.wanted)
        return self.observe(), reward, self.left == 0, False, {}


class Less(gymnasium.RewardWrapper):
    def reward(self, reward):
        return reward - 1
'''
CHOSEN = ["env.id=own:Guess", "env.kwargs.pay=3", "env.kwargs.steps=5", "env.wrappers=own:Less"]
GUESS = [*CARTPOLE, "ga.generations=3", "run.video=false", *CHOSEN]


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


def test_arguments_and_wrappers_decide_the_task(own):
    one = train(own / "one", *GUESS, "fleet.actors=1", cwd=own)
    two = train(own / "two", *GUESS, "fleet.actors=2", cwd=own)
    assert one["population_hash"] == two["population_hash"]
    assert one["elite_mean"] == 10  # 5 steps of 3 - 1
    assert 0 < one["random_mean"] < 6
    assert ok("eval", own / "one", "--episodes", 5, "--json", cwd=own).json["mean"] == 10
    identity = json.loads((own / "one/run.json").read_text())
    assert '"pay": 3' in identity["environment"]["version"] and "own:Less" in identity["environment"]["version"]
    # a run is of one task
    assert samara("train", "--resume", own / "one", "env.kwargs.pay=4", cwd=own).code == 78
    assert resume(own / "one", "ga.generations=4", cwd=own)["generation"] == 4
    # as a preset the same
    words = "\n".join(f"[{t}]\n" + "\n".join(f"{k} = {v}" for k, v in rows.items()) for t, rows in {
        "env": {"id": '"own:Guess"', "wrappers": '["own:Less"]'}, "env.kwargs": {"steps": 5, "pay": 3},
        "network": {"name": '"mlp-16-16-relu"'}}.items())
    (own / "mine.toml").write_text(words)
    toml = ok("train", "mine.toml", "--dry-run", cwd=own).out
    assert 'kwargs = {"pay" = 3, "steps" = 5}' in toml and 'wrappers = ["own:Less"]' in toml
    assert toml.split("[env]")[1].split("[fleet]")[0] == (own / "one/config.toml").read_text().split("[env]")[1].split("[fleet]")[0]


def test_actors_elsewhere_make_the_same_task(own):
    """The command that the learner process prints for them, as a shell reads it."""
    folder = socket_folder(own)
    command = [BINARY, "train", "classic/cartpole-vtrace", *CHOSEN, "learn.frames=4000", "run.video=false", "--quiet",
               "--listen", f"unix:{folder}/s", "--out", own / "run"]
    learner = subprocess.Popen(command, cwd=own, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        said = next(line for line in learner.stderr if "listens at" in line)
        threading.Thread(target=learner.stderr.read, daemon=True).start()
        typed = said[said.index("samara actor") :].strip().replace("samara", shlex.quote(str(BINARY)), 1)
        assert "env.kwargs='{\"pay\" = 3, \"steps\" = 5}' env.wrappers='[\"own:Less\"]'" in typed
        wrong = typed.replace('"pay" = 3', '"pay" = 4')
        refused = subprocess.run(wrong, shell=True, cwd=own, env=environment(), capture_output=True, text=True, timeout=60)
        assert refused.returncode == 78 and '"pay": 4' in refused.stderr, refused
        assert subprocess.run(typed, shell=True, cwd=own, env=environment(), timeout=100).returncode == 0
        assert learner.wait(60) == 0
    finally:
        learner.kill()
        shutil.rmtree(folder, ignore_errors=True)


LASTS = '''
import gymnasium, numpy as np

class Lasts(gymnasium.Env):
    """Over with the first action 0: seldom later for a random policy, never for a learned one."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action):
        return np.ones(1, np.float32), 1.0, bool(action == 0), False, {}

gymnasium.register("Lasts-v0", Lasts)
'''


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["classic/cartpole-ga", "ga.population=20"],
        ["classic/cartpole-ppo", "learn.evaluate_every=2000", "learn.test_greedy=true"],
    ],
    ids=["population", "evaluation"],
)
def test_a_run_that_waits_for_an_episode_without_an_end_says_so(words, tmp_path):
    (tmp_path / "lasts.py").write_text(LASTS)
    expect_a_warning(tmp_path, "train", *words, "env.id=lasts:Lasts-v0", "run.video=false", "--out", "run")


@pytest.mark.slow
def test_so_does_an_evaluation(tmp_path):
    """Where the limit of the training episodes, which is that of the tests too, is taken away."""
    (tmp_path / "lasts.py").write_text(LASTS)
    limited = [word for word in SHORT if not word.startswith("env.test_frames_max")]
    train(tmp_path / "run", *limited, "env.id=lasts:Lasts-v0", cwd=tmp_path)
    expect_a_warning(tmp_path, "eval", "run", "env.frames_max=0")


def expect_a_warning(folder, *words):
    run = Running(folder / "log", *words, cwd=folder)
    try:
        run.wait_for("no episode has ended for 30 s", 120)
        warned = next(line for line in run.text().splitlines() if "no episode has ended for 30 s" in line)
        assert "lasts:Lasts-v0 names no limit of steps" in warned and "TimeLimit?max_episode_steps=1000" in warned
    finally:
        run.kill()
