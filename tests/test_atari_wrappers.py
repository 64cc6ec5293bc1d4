"""Presets whose originals do not install next to us, against their wrappers written down once more.

Each reference below is its original's few lines in NumPy, OpenCV and Pillow on the emulator's RGB or gray
screens; it knows nothing of palettes, kernels or our buffers. The episode is cut at each of the four
frames of a step in turn, so that the rules for an end inside the repeat are seen.
"""

from collections import deque

import cv2
import numpy as np
import pytest
from ale_py import ALEInterface
from atari_presets import make, observation, random_actions
from test_atari_pixels import resize_aligned, resize_pil

from samara import atari

NOOPS = 7


class Game:
    """The emulator with a limit in frames, counted from the first step."""

    def __init__(self, game):
        self.ale = ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.loadROM(atari.rom_path(game))
        self.ale.reset_game()
        self.left = 10**9
        self.before = self.ale.getScreen()

    def act(self, code):
        self.before = self.ale.getScreen()
        self.ale.act(code)
        self.left -= 1
        return self.ale.game_over() or self.left == 0

    def rgb(self):
        return self.ale.getScreenRGB()

    def gray(self):
        return self.ale.getScreenGrayscale()


def fire(game, step):
    """FIRE, then the second action, when the minimal set has FIRE: through the repeat."""
    codes = game.ale.getMinimalActionSet()
    result = None
    if codes[1].value == 1:
        for code in codes[1:3]:
            result = step(code)[0]
    return result


def deepga(game):
    frames = deque(maxlen=2)

    def warp():
        rgb = np.max(np.stack(frames), axis=0).astype(np.float32)
        weights = np.array([0.299, 0.587, 0.114], np.float32)
        return resize_pil((rgb[..., 0] * weights[0] + rgb[..., 1] * weights[1]) + rgb[..., 2] * weights[2])

    def step(code):
        for _ in range(4):
            over = game.act(code)
            frames.append(game.rgb())
            if over:
                break
        return warp(), over

    for _ in range(NOOPS):
        game.act(0)
    frames.append(game.rgb())
    fired = fire(game, step)
    return (warp() if fired is None else fired), step


def deepga_gpu(game):
    rgb_of = {}

    def learn():
        for index, colour in zip(game.ale.getScreen().ravel(), game.rgb().reshape(-1, 3), strict=True):
            rgb_of.setdefault(int(index), colour)

    def unit(screen):
        colours = np.array([rgb_of.get(i, (0, 0, 0)) for i in range(256)], np.uint8)
        colours = colours.astype(np.float32) * np.float32(1 / 255)
        weights = np.array([0.299, 0.587, 0.114], np.float32)
        return ((colours[:, 0] * weights[0] + colours[:, 1] * weights[1]) + colours[:, 2] * weights[2])[screen]

    def look():
        learn()
        return resize_aligned(np.maximum(unit(game.before), unit(game.ale.getScreen())))

    def step(code):
        for _ in range(4):
            over = game.act(code)
            learn()
            if over:
                break
        return look(), over

    learn()
    for _ in range(NOOPS):
        game.act(0)
        learn()
    fire(game, step)
    return look(), step


def baselines(game):
    slots = np.zeros((2, *game.rgb().shape), np.uint8)

    def warp(rgb):
        gray = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
        return cv2.resize(gray, (84, 84), interpolation=cv2.INTER_AREA)

    def step(code):
        for i in range(4):
            over = game.act(code)
            if i >= 2:
                slots[i - 2] = game.rgb()
            if over:
                break
        return warp(slots.max(axis=0)), over

    for _ in range(NOOPS):
        game.act(0)
    first = warp(game.rgb())
    fired = fire(game, step)
    return (first if fired is None else fired), step


def dqn_zoo(game):
    def process(frames):
        rgb = np.max(frames[-2:], axis=0)
        gray = np.tensordot(rgb, [0.299, 0.587, 1 - (0.299 + 0.587)], (-1, 0)).astype(np.uint8)
        return resize_pil(gray)

    def step(code):
        frames = []
        for _ in range(4):
            over = game.act(code)
            frames.append(game.rgb())
            if over:
                break
        return process(frames + [np.zeros_like(frames[0])] * (4 - len(frames))), over

    for _ in range(NOOPS):
        game.act(0)
    return process([np.zeros_like(game.rgb()), game.rgb()]), step


def dopamine_like(noops, interpolation):
    def reference(game):
        for _ in range(noops):
            game.act(0)
        slots = np.zeros((2, *game.gray().shape), np.uint8)
        slots[0] = game.gray()

        def pool():
            np.maximum(slots[0], slots[1], out=slots[0])
            return cv2.resize(slots[0], (84, 84), interpolation=interpolation)

        def step(code):
            for i in range(4):
                over = game.act(code)
                if over:
                    break
                if i >= 2:
                    slots[i - 2] = game.gray()
            return pool(), over

        return pool(), step

    return reference


REFERENCES = {
    "deepga": deepga,
    "deepga-gpu": deepga_gpu,
    "dqn-noframeskip-v4": baselines,
    "dqn-zoo": dqn_zoo,
    "dopamine": dopamine_like(0, cv2.INTER_AREA),
    "seed": dopamine_like(NOOPS, cv2.INTER_LINEAR),
}


@pytest.mark.parametrize("game", ["breakout", "frostbite", pytest.param("freeway", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", REFERENCES)
def test_preset_is_its_wrapper(name, game):
    env = make(game, name, sticky=0.0, life_loss="ignored")
    out = observation(env)
    actions = random_actions(env, 60)
    for limit in (1, 2, 3, 41, 42, 43, 44):
        rival = Game(game)
        first, step = REFERENCES[name](rival)
        rival.left = limit
        env.reset(1, 0 if name == "dopamine" else NOOPS, limit, out)
        np.testing.assert_array_equal(out, first)
        for action in actions:
            expected, over = step(env.codes[action])
            ended = env.step(action, out)
            np.testing.assert_array_equal(out, expected, err_msg=f"{name} {game} limit {limit} {ended}")
            assert over == (ended.terminated or ended.truncated)
            if over:
                break
        assert over
