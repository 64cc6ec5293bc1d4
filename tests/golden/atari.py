"""Golden hashes of the Atari presets: 3,000 emulated frames each of Tetris, Pong and Breakout.

They detect change, not error: an observation, reward or end that differs by one bit from what a preset
gave when it was compared with its origin (tests/test_atari_parity.py, tests/test_atari_pixels.py). A
commit that changes one says why and raises the preset's version. They hold for one version of ale-py.

    PYTHONPATH=build/python:tests .venv/bin/python tests/golden/atari.py    # writes atari.json
"""

import hashlib
import json
from pathlib import Path

import ale_py
from atari_presets import make, observation, presets, random_actions

GAMES = ["tetris", "pong", "breakout"]
FRAMES = 3000
FILE = Path(__file__).with_suffix(".json")


def golden(game: str, name: str) -> str:
    """SHA-256 over observations, rewards and flags; episodes begin anew until the frames are used up."""
    env = make(game, name)
    out = observation(env)
    digest = hashlib.sha256()
    frames = episode = 0
    actions = iter(random_actions(env, FRAMES, seed=FRAMES))
    while frames < FRAMES:
        env.reset(1000 + episode, 1 + episode % 30, 0, out)
        digest.update(out.tobytes())
        episode += 1
        while frames < FRAMES:
            step = env.step(next(actions), out)
            frames += step.frames
            digest.update(out.tobytes() + repr(tuple(step)).encode())
            if step.terminated or step.truncated:
                break
    return digest.hexdigest()


if __name__ == "__main__":
    hashes = {name: {game: golden(game, name) for game in GAMES} for name in presets()}
    FILE.write_text(json.dumps({"ale-py": ale_py.__version__, "hashes": hashes}, indent=1) + "\n")
