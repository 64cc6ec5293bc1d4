"""Native environments against Gymnasium's own implementations, step by step from the same state."""

import subprocess
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
TRACE = ROOT / "build" / "env_trace"
STEPS = 1000

# the largest magnitude of each state variable that play can reach, or beyond
REACH = {
    "CartPole-v1": [2.5, 4, 0.22, 4],
    "Acrobot-v1": [np.pi, np.pi, 4 * np.pi, 9 * np.pi],
    "MountainCar-v0": [1.2, 0.07],
    "Pendulum-v1": [80, 8],
}
CLASSIC = list(REACH)
MUJOCO = [
    "HalfCheetah-v5",
    "Hopper-v5",
    "Walker2d-v5",
    "Ant-v5",
    "Humanoid-v5",
    "HumanoidStandup-v5",
    "Swimmer-v5",
    "Reacher-v5",
    "Pusher-v5",
    "InvertedPendulum-v5",
    "InvertedDoublePendulum-v5",
]


@pytest.fixture(autouse=True)
def away_from_the_tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the simulator in Python writes MUJOCO_LOG.TXT where it stands


def state_of(env: gym.Env) -> np.ndarray:
    inner = env.unwrapped
    if hasattr(inner, "data"):
        return np.concatenate([inner.data.qpos, inner.data.qvel])
    return np.array(inner.state, dtype=np.float64)


def action_for(env: gym.Env, action: np.ndarray):
    """The action on Gymnasium's scale, in float64: in float32 NumPy computes costs in float32."""
    if isinstance(env.action_space, gym.spaces.Discrete):
        return int(action[0])
    if hasattr(env.unwrapped, "model"):
        low, high = env.unwrapped.model.actuator_ctrlrange.T
    else:
        low, high = env.action_space.low.astype(np.float64), env.action_space.high.astype(np.float64)
    return 0.5 * (low + high) + 0.5 * (high - low) * action


def random_action(env: gym.Env, rng: np.random.Generator) -> np.ndarray:
    if isinstance(env.action_space, gym.spaces.Discrete):
        return np.array([float(rng.integers(env.action_space.n))])
    # float32 values, as a network gives them
    return rng.uniform(-1, 1, env.action_space.shape).astype(np.float32).astype(np.float64)


def play_gymnasium(name: str, steps: int, scatter: bool) -> tuple[np.ndarray, dict]:
    """Random play with a reset at each end: the rows that env_trace replays, and what happened.

    With scatter (classic control) each step starts from a state drawn from all that can occur.
    """
    env = gym.make(name, disable_env_checker=True)
    rng = np.random.default_rng(1)
    rows, seen = [], {k: [] for k in ("reward", "terminated", "truncated", "state", "before", "after")}
    observation, _ = env.reset(seed=1)
    restart = True
    for _ in range(steps):
        action = random_action(env, rng)
        if scatter:
            restart = True
            env.unwrapped.state = rng.uniform(-1, 1, len(REACH[name])) * REACH[name]
            observation = np.full(env.observation_space.shape, np.nan)  # not asked for
        rows.append(np.concatenate([[float(restart)], state_of(env), action]))
        seen["before"].append(observation)
        observation, reward, terminated, truncated, _ = env.step(action_for(env, action))
        seen["after"].append(observation)
        seen["reward"].append(reward)
        seen["terminated"].append(terminated)
        seen["truncated"].append(truncated and not terminated)
        seen["state"].append(state_of(env))
        restart = terminated or truncated
        if restart:
            observation, _ = env.reset()
    env.close()
    return np.array(rows), {k: np.array(v) for k, v in seen.items()}


def play_native(name: str, rows: np.ndarray, state: int, tmp_path: Path) -> dict:
    file = tmp_path / "rows.f64"
    rows.astype(np.float64).tofile(file)
    run = subprocess.run([TRACE, name, file], capture_output=True, check=True)
    out = np.frombuffer(run.stdout, np.float64).reshape(len(rows), -1)
    observations = (out.shape[1] - 3 - 2 * state) // 2
    widths = {"reward": 1, "terminated": 1, "truncated": 1, "start": state, "state": state,
              "before": observations, "after": observations}
    parts = np.split(out, np.cumsum(list(widths.values()))[:-1], axis=1)
    return {name: part[:, 0] if name in ("reward", "terminated", "truncated") else part
            for name, part in zip(widths, parts)}


def compare(name: str, tmp_path: Path, tolerance: float, scatter: bool = False) -> dict:
    rows, expected = play_gymnasium(name, STEPS, scatter)
    found = play_native(name, rows, expected["state"].shape[1], tmp_path)
    np.testing.assert_array_equal(found["terminated"], expected["terminated"])
    if not scatter:
        np.testing.assert_array_equal(found["truncated"], expected["truncated"])
    for key in ("state", "reward"):
        np.testing.assert_allclose(found[key], expected[key], rtol=tolerance, atol=tolerance, err_msg=key)
    for key in ("after",) if scatter else ("before", "after"):
        np.testing.assert_allclose(found[key], expected[key].astype(np.float32), rtol=3e-7, atol=1e-7, err_msg=key)
    return expected


@pytest.mark.parametrize("name", CLASSIC)
def test_classic_control_steps_like_gymnasium_from_every_state(name, tmp_path):
    seen = compare(name, tmp_path, tolerance=1e-12, scatter=True)
    ends = seen["terminated"].sum()
    assert ends == 0 if name == "Pendulum-v1" else 10 < ends < STEPS - 10


# rounding differences of sine grow along a trajectory
@pytest.mark.parametrize("name,tolerance", [("CartPole-v1", 1e-12), ("Acrobot-v1", 1e-9),
                                            ("MountainCar-v0", 1e-12), ("Pendulum-v1", 1e-9)])
def test_classic_control_plays_whole_episodes_like_gymnasium(name, tolerance, tmp_path):
    seen = compare(name, tmp_path, tolerance)
    # episodes did end: by termination in CartPole, by truncation in the others
    assert (seen["terminated"] if name == "CartPole-v1" else seen["truncated"]).any()


@pytest.mark.parametrize("name", MUJOCO)
def test_mujoco_plays_like_gymnasium(name, tmp_path):
    """1,000 steps with resets, tolerance 1e-9 in float64 on state and reward."""
    seen = compare(name, tmp_path, tolerance=1e-9)
    assert seen["terminated"].any() or seen["truncated"].any()


class CatchRules:
    """What bsuite publishes about its `catch`, on a board of its default size."""

    def __init__(self):
        self.ball, self.row, self.paddle = 0, 0, 2

    def board(self):
        board = np.zeros((10, 5))
        board[self.row, self.ball] = board[9, self.paddle] = 1
        return board

    def step(self, action):
        self.paddle = min(4, max(0, self.paddle + (-1, 0, 1)[action]))
        self.row += 1
        if self.row < 9:
            return 0.0, False
        return (1.0 if self.paddle == self.ball else -1.0), True


def test_catch_plays_like_bsuites_rules(tmp_path):
    rng = np.random.default_rng(4)
    rows, expected = [], []
    for game in range(200):
        catch, ended = CatchRules(), False
        catch.ball = game % 5
        while not ended:
            action, before = rng.integers(3), catch.board()
            rows.append([float(not rows or expected[-1][1]), catch.ball, catch.row, catch.paddle, action])
            reward, ended = catch.step(action)
            expected.append((reward, ended, before, catch.board()))
    found = play_native("Catch-v0", np.array(rows), 3, tmp_path)
    reward, ended, before, after = (np.array(column) for column in zip(*expected))
    np.testing.assert_array_equal(found["reward"], reward)
    np.testing.assert_array_equal(found["terminated"], ended)
    assert not found["truncated"].any() and ended.sum() == 200 and set(reward) == {-1, 0, 1}
    np.testing.assert_array_equal(found["before"].reshape(-1, 10, 5), before)
    np.testing.assert_array_equal(found["after"].reshape(-1, 10, 5), after)


@pytest.mark.parametrize("name", CLASSIC + MUJOCO)
def test_initial_states_are_distributed_like_gymnasium(name, tmp_path):
    """Two-sample Kolmogorov-Smirnov per state variable, at a level of about 1e-4 each."""
    resets = 1000
    env = gym.make(name, disable_env_checker=True)
    expected = []
    for seed in range(resets):
        env.reset(seed=seed)
        expected.append(state_of(env))
    expected = np.array(expected)
    actions = 1 if isinstance(env.action_space, gym.spaces.Discrete) else env.action_space.shape[0]
    rows = np.zeros((resets, 1 + expected.shape[1] + actions))
    rows[:, 0] = np.arange(resets) + 2
    found = play_native(name, rows, expected.shape[1], tmp_path)["start"]
    for variable in range(expected.shape[1]):
        a, b = np.sort(expected[:, variable]), np.sort(found[:, variable])
        points = np.concatenate([a, b])
        distance = np.abs(np.searchsorted(a, points, "right") - np.searchsorted(b, points, "right")).max() / resets
        assert distance < 2.23 * np.sqrt(2 / resets), f"state variable {variable}"
