"""Goals in hindsight end to end (src/rl/replay/hindsight_test.cc has the definition): what is learned with them and not without,
bits of any threads, ranks and interruptions, and goal environments of Gymnasium."""

import signal

import gymnasium
import numpy as np
import pytest
from samara_cli import TESTS, samara, train
from test_ppo import hash_of
from test_sac import expect_the_same_bits_after_interruptions, expect_the_same_bits_of_any_workers

from samara import goal
from samara.environment import make

BITS = ["goal/bitflip-dqn", "run.random_episodes=0"]
REACH = ["goal/reach-sac", "run.random_episodes=0"]
SHARDS = [*BITS, "learn.frames=4000", "learn.test_episodes=5", "learn.shards=2", "dqn.steps=3", "replay.capacity=2000"]
LINE = [*REACH, "learn.environments=2", "learn.batch=2", "learn.test_episodes=10", "fleet.actors=2"]


def test_bits_are_flipped_with_hindsight_and_not_without(tmp_path):
    """At the target after 6.5 steps before it at best; 15 where the target is never reached."""
    words = [*BITS, "learn.frames=25000"]
    assert train(tmp_path / "with", *words)["test_mean"] > -8
    assert train(tmp_path / "without", *words, "her.fraction=0")["test_mean"] < -14


@pytest.mark.slow
def test_a_goal_is_reached_with_hindsight_and_seldom_without(tmp_path):
    reached = train(tmp_path / "with", *REACH)["test_mean"]
    assert reached > -20 and train(tmp_path / "without", *REACH, "her.fraction=0")["test_mean"] < reached - 10


@pytest.mark.slow
def test_actors_threads_and_ranks_leave_no_trace(tmp_path):
    first = expect_the_same_bits_of_any_workers(tmp_path, *SHARDS)
    assert hash_of(train(tmp_path / "c", *SHARDS, "her.fraction=0.5")) != first


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_interrupted_goes_on_with_its_goals(tmp_path, how):
    expect_the_same_bits_after_interruptions(tmp_path, how, *SHARDS, "learn.frames=40000")


@pytest.mark.parametrize("words, says", [
    (["classic/pendulum-sac", "her.fraction=0.8"], "her.fraction=0.8: native/Pendulum-v1 has no goals"),
    ([*BITS, "her.fraction=1.1"], "her.fraction"),
    (["memory/recall-r2d2", "her.fraction=0.8"], "her.fraction belongs to run.algorithm=sac or dqn or td3 or d4pg; this run is r2d2"),
])
def test_what_cannot_work_is_refused(tmp_path, words, says):
    refused = samara("train", *words, "--out", tmp_path / "run")
    assert refused.code == 78 and says in refused.err and len(refused.err.splitlines()) == 1


# ---- Gymnasium


PATH = {"PYTHONPATH": str(TESTS / "envs")}


@pytest.fixture
def goals(monkeypatch):
    monkeypatch.syspath_prepend(str(TESTS / "envs"))


def declared(name):
    spec = make({"kind": "gym", "id": f"goals:{name}-v0"}).spec
    return spec.goal_size, spec.goal_threshold, spec.goal_reached, spec.goal_missed, spec.goal_terminates


def test_a_rule_is_found_by_asking_for_rewards(goals):
    assert declared("Line") == (1, 0.1, 0, -1, False)
    assert declared("Ending") == (1, 0.1, 1, 0, True)
    assert declared("Dense")[0] == 0
    assert make({"kind": "gym", "id": "CartPole-v1"}).spec.goal_size == 0


@pytest.mark.parametrize("rule, expected", [
    (lambda d: -float(np.linalg.norm(d) > 0.05), {"goal_threshold": 0.05, "goal_reached": 0, "goal_missed": -1}),
    (lambda d: float(np.linalg.norm(d) <= 12.5), {"goal_threshold": 12.5, "goal_reached": 1, "goal_missed": 0}),
    (lambda d: -float((d != 0).any()), {"goal_threshold": 0, "goal_reached": 0, "goal_missed": -1}),
    (lambda d: -float(np.linalg.norm(d)), None),  # dense
    (lambda d: -float(np.abs(d).max() > 0.05), None),  # of another distance
    (lambda d: -float(np.linalg.norm(d[:1]) > 0.05), None),  # of a part of the goal
    (lambda d: -1.0 * (np.linalg.norm(d) > 0.05) - (np.linalg.norm(d) > 0.1), None),  # three rewards
    (lambda d: -1.0, None),
])
def test_rules_of_a_distance_alone_are_known(rule, expected):
    assert goal.find_rule(lambda achieved, desired: rule(achieved - desired), np.array([0.3, 0.1])) == expected


def test_observations_are_observation_achieved_and_desired(goals):
    environment = make({"kind": "gym", "id": "goals:Line-v0"})
    bare = gymnasium.make("goals:Line-v0")
    out = np.zeros(environment.spec.observation_shape, np.float32)
    environment.reset(4, 0, 0, out)
    expected, _ = bare.reset(seed=4)
    for action in (0.5, -1.0, 1.0):
        parts = [expected[key] for key in ("observation", "achieved_goal", "desired_goal")]
        np.testing.assert_array_equal(out, np.concatenate(parts).astype(np.float32))
        given = np.array([action], np.float32)
        expected, reward, *_ = bare.step(given)
        assert environment.step(given, out).reward == reward


def test_a_goal_environment_of_gymnasium_is_learned(tmp_path):
    """At most ten steps to the goal, five on average; an episode that never gets there has -20."""
    outcome = train(tmp_path / "run", *LINE, "env.id=goals:Line-v0", "learn.frames=4000", **PATH)
    assert outcome["test_mean"] > -8


def test_a_dense_reward_is_refused(tmp_path):
    refused = samara("train", *LINE, "env.id=goals:Dense-v0", "--out", tmp_path / "run", **PATH)
    assert refused.code == 78 and len(refused.err.splitlines()) == 1
    assert "her.fraction=0.8: gym/goals:Dense-v0 has no goals whose reward is known to depend on a distance" in refused.err
