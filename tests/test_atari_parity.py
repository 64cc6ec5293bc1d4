"""Atari presets against the implementations whose behaviour they are, bit for bit.

Each rival plays its first episode after a load, without sticky actions (every implementation
draws them from a generator of its own) and with raw rewards. Compared are the reset observation, every
later one including the last, rewards, ends and lives; where the rival stacks frames, the whole stack.
"""

from collections import deque

import gymnasium as gym
import numpy as np
import pytest
from ale_py import AtariVectorEnv
from atari_presets import make, observation, random_actions
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

gym.register_envs(__import__("ale_py"))
STEPS = 450  # Breakout and Frostbite end within
GAMES = {"tetris": "Tetris", "pong": "Pong", "breakout": "Breakout", "frostbite": "Frostbite"}


class Stacked:
    """Our environment with its preset's stack, as the engine builds it (src/nn/frame_stack.h)."""

    def __init__(self, game, name, **rows):
        self.env = make(game, name, sticky=0.0, **rows)
        self.rows = self.env.rows
        self.out = observation(self.env)
        self.planes = deque(maxlen=self.rows["stack_depth"])

    def reset(self, noops):
        self.env.reset(1, noops, 0, self.out)
        frame = self.out.copy()
        first = frame if self.rows["stack_reset"] == "repeat" else np.zeros_like(frame)
        self.planes.extend([first] * (self.rows["stack_depth"] - 1) + [frame])
        return np.stack(self.planes)

    def step(self, action):
        step = self.env.step(action, self.out)
        self.planes.append(self.out.copy())
        return np.stack(self.planes), step


def compare(ours, rival_reset, rival_step, noops, actions):
    """True when the whole first episode agrees; raises at the first difference after the reset."""
    stack = ours.reset(noops)
    if not np.array_equal(stack, rival_reset):
        return False
    for i, action in enumerate(actions):
        stack, step = ours.step(action)
        rival, reward, terminated, truncated, lives = rival_step(action)
        where = f"step {i}, {step}"
        assert (reward, terminated, truncated) == (step.reward, step.terminated, step.truncated), where
        assert lives == ours.env.lives, where
        np.testing.assert_array_equal(stack, rival, err_msg=where)
        if terminated or truncated:
            return True
    return True


@pytest.mark.parametrize("game", GAMES)
def test_ale_v5_is_gymnasium(game):
    rival = gym.make(f"ALE/{GAMES[game]}-v5", frameskip=1, repeat_action_probability=0.0)
    rival = FrameStackObservation(AtariPreprocessing(rival, noop_max=30), 4)
    stack, info = rival.reset(seed=11)

    def step(action):
        stack, reward, terminated, truncated, info = rival.step(action)
        return stack, reward, terminated, truncated, info["lives"]

    ours = Stacked(game, "ale-v5")
    assert compare(ours, stack, step, info["episode_frame_number"], random_actions(ours.env, STEPS))


def test_ale_v5_is_gymnasium_when_the_episode_ends_at_each_frame_of_a_step():
    """The stale buffers of an end inside the repeat, for all four places of it."""
    for limit in (40, 41, 42, 43):
        rival = gym.make(
            "ALE/Frostbite-v5", frameskip=1, repeat_action_probability=0.0, max_num_frames_per_episode=limit
        )
        rival = AtariPreprocessing(rival, noop_max=8)
        frame, info = rival.reset(seed=1)
        noops = info["episode_frame_number"]
        env = make("frostbite", "ale-v5", sticky=0.0, frames_max=limit)
        out = observation(env)
        env.reset(1, noops, 0, out)
        np.testing.assert_array_equal(out, frame)
        for action in random_actions(env, 20):
            frame, _, terminated, truncated, _ = rival.step(action)
            step = env.step(action, out)
            np.testing.assert_array_equal(out, frame, err_msg=f"limit {limit}, {step}")
            assert (terminated, truncated) == (step.terminated, step.truncated)
            if truncated:
                break
        assert truncated


def test_ale_v5_raw_is_gymnasium_without_wrappers():
    rival = gym.make("ALE/Breakout-v5", repeat_action_probability=0.0)
    frame, _ = rival.reset(seed=1)
    env = make("breakout", "ale-v5-raw", sticky=0.0)
    out = observation(env)
    env.reset(1, 0, 0, out)
    np.testing.assert_array_equal(out, frame)
    for action in random_actions(env, STEPS):
        frame, reward, terminated, truncated, _ = rival.step(action)
        step = env.step(action, out)
        np.testing.assert_array_equal(out, frame)
        assert (reward, terminated, truncated) == (step.reward, step.terminated, step.truncated)
        if terminated:
            break


@pytest.mark.parametrize("game", GAMES)
def test_ale_vector_is_ale_py(game):
    rival = AtariVectorEnv(game, 1, repeat_action_probability=0.0, reward_clipping=False)
    stack, info = rival.reset(seed=5)

    def step(action):
        stack, reward, terminated, truncated, info = rival.step(np.array([action]))
        return stack[0], reward[0], terminated[0], truncated[0], info["lives"][0]

    ours = Stacked(game, "ale-vector")
    noops = int(info["episode_frame_number"][0]) - int(ours.env.fires)
    assert compare(ours, stack[0], step, noops, random_actions(ours.env, STEPS))


@pytest.mark.slow
@pytest.mark.parametrize("game", GAMES)
def test_envpool_is_envpool(game):
    envpool = pytest.importorskip("envpool", reason="EnvPool is not installed: pip install envpool==1.2.5 (0.9 GB)")
    rival = envpool.make_gymnasium(f"{GAMES[game]}-v5", num_envs=1, seed=7)
    stack, _ = rival.reset()

    def step(action):
        stack, reward, terminated, truncated, info = rival.step(np.array([action]))
        return stack[0], reward[0], terminated[0], truncated[0], info["lives"][0]

    ours = Stacked(game, "envpool")
    actions = random_actions(ours.env, STEPS)
    played = []
    for action in actions:
        played.append(step(action))
        if played[-1][2] or played[-1][3]:
            break

    def agrees(noops):
        """It does not tell its number of no-ops, and a still start does not show them: the episode does."""
        recorded = iter(played)
        try:
            return compare(ours, stack[0], lambda _: next(recorded), noops, actions[: len(played)])
        except AssertionError:
            return False

    assert any(agrees(noops) for noops in range(31))
