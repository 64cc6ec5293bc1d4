"""Stable-Baselines3's PPO on an Atari game: the rival of `samara bench vtrace`.

    python vtrace_rivals.py GAME CORES SECONDS

The Nature network, frame skip 4, 84 x 84 grey, a stack of 4, eight environments in a process each, one epoch over every
sample (its default of four would do four times the learning). Prints {"rival", "frames_per_second"}, game frames counted
as samara counts them, or {"reason"} where it is not installed. `make rivals` installs it into .venv-rivals, whose
Python this script hands over to.
"""

import json
import os
import sys
import time
from pathlib import Path

SKIP = 4


def main():
    game, cores, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    python = Path(sys.prefix).parent / ".venv-rivals" / "bin" / "python"
    if python.exists() and Path(sys.prefix).name != ".venv-rivals":
        os.execv(python, [str(python), *sys.argv])
    try:
        import torch
        from stable_baselines3 import PPO
        from stable_baselines3.common.callbacks import BaseCallback
        from stable_baselines3.common.env_util import make_atari_env
        from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack
    except ImportError as error:
        print(json.dumps({"reason": f"{error.name} is not installed: `make rivals` installs it"}))
        return
    torch.set_num_threads(cores)

    class Clock(BaseCallback):
        """Counts steps after the first update, until the time is up."""

        begun = None

        def _on_step(self):
            now = time.perf_counter()
            if self.begun is None and self.num_timesteps > 8 * 128:
                self.begun, self.first = now, self.num_timesteps
            return self.begun is None or now - self.begun < seconds

        def _on_training_end(self):
            self.rate = SKIP * (self.num_timesteps - self.first) / (time.perf_counter() - self.begun)

    name = "".join(word.capitalize() for word in game.split("_")) + "NoFrameskip-v4"
    environments = VecFrameStack(make_atari_env(name, n_envs=8, seed=1, vec_env_cls=SubprocVecEnv,
                                                vec_env_kwargs={"start_method": "fork"}), n_stack=4)
    clock = Clock()
    agent = PPO("CnnPolicy", environments, n_steps=128, batch_size=256, n_epochs=1, learning_rate=2.5e-4,
                clip_range=0.1, ent_coef=0.01, device="cpu")
    agent.learn(10**9, callback=clock)
    environments.close()
    print(json.dumps({"rival": "Stable-Baselines3 2.9.0 PPO, one epoch", "frames_per_second": clock.rate}))


if __name__ == "__main__":
    try:
        import ale_py
        import gymnasium

        gymnasium.register_envs(ale_py)
    except ImportError:
        pass
    main()
