"""Stable-Baselines3's PPO or SAC until it plays: the rival of `samara bench time-to-score`.

    python time_to_score_rivals.py TASK SCORE SEED FRAMES CORES SECONDS

The settings are those that the RL Baselines3 Zoo publishes for the task (hyperparams/ppo.yml and sac.yml at 00128b5); its MuJoCo tasks are
v3 there and v5 here. Frames of Atari are emulated ones, four a step. Where 5 training episodes more are over and their mean return reaches SCORE, 20 fresh episodes are
played, as samara does, here with the most probable action; their mean decides. Environments run in this process, the zoo's default.
Prints {"rival", "seconds", "frames", "mean", "curve"}, or {"reason"} where it is not installed. seconds, frames and mean are null
where FRAMES or SECONDS (inf: any) were not enough. curve: some 200 points [seconds, frames, mean of the last 5 training episodes]. `make rivals` installs it into .venv-rivals, whose Python this script hands over to.
"""

import json
import os
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

EPISODES, TRAINING_EPISODES = 20, 5


def linear(value):
    return lambda left: left * value


def settings(task, relu):
    """The environment, the number of copies, whether observations and rewards are normalized, the algorithm's arguments."""
    mujoco = {"n_steps": 512,
              "policy_kwargs": {"log_std_init": -2, "ortho_init": False, "activation_fn": relu,
                                "net_arch": {"pi": [256, 256], "vf": [256, 256]}}}
    atari = {"n_steps": 128, "n_epochs": 4, "batch_size": 256, "vf_coef": 0.5, "ent_coef": 0.01,
             "learning_rate": linear(2.5e-4), "clip_range": linear(0.1)}
    return {
        "cartpole": ("CartPole-v1", 8, False, {
            "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20, "ent_coef": 0.0,
            "learning_rate": linear(0.001), "clip_range": linear(0.2)}),
        "acrobot": ("Acrobot-v1", 16, True, {
            "n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0}),
        "pendulum": ("Pendulum-v1", 1, False, {"learning_rate": 1e-3}),
        "halfcheetah-sac": ("HalfCheetah-v5", 1, False, {"learning_starts": 10000}),
        "pong": ("PongNoFrameskip-v4", 8, False, atari),
        "breakout": ("BreakoutNoFrameskip-v4", 8, False, atari),
        "halfcheetah": ("HalfCheetah-v5", 1, True, mujoco | {
            "batch_size": 64, "gamma": 0.98, "learning_rate": 2.0633e-05, "ent_coef": 0.000401762, "clip_range": 0.1,
            "n_epochs": 20, "gae_lambda": 0.92, "max_grad_norm": 0.8, "vf_coef": 0.58096}),
        "hopper": ("Hopper-v5", 1, True, mujoco | {
            "batch_size": 32, "gamma": 0.999, "learning_rate": 9.80828e-05, "ent_coef": 0.00229519, "clip_range": 0.2,
            "n_epochs": 5, "gae_lambda": 0.99, "max_grad_norm": 0.7, "vf_coef": 0.835671}),
    }[task]


def main():
    task, score, seed, frames, cores = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(float(sys.argv[4])), int(sys.argv[5])
    patience = float(sys.argv[6])
    python = Path(sys.prefix).parent / ".venv-rivals" / "bin" / "python"
    if python.exists() and Path(sys.prefix).name != ".venv-rivals":
        os.execv(python, [str(python), *sys.argv])
    folder = tempfile.TemporaryDirectory()  # MuJoCo writes a log where it is
    os.chdir(folder.name)
    try:
        import gymnasium
        import stable_baselines3
        import torch
        from stable_baselines3 import PPO, SAC
        from stable_baselines3.common.callbacks import BaseCallback
        from stable_baselines3.common.env_util import make_atari_env, make_vec_env
        from stable_baselines3.common.evaluation import evaluate_policy
        from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize, sync_envs_normalization

        name, copies, normalize, arguments = settings(task, torch.nn.ReLU)
        atari = name.endswith("NoFrameskip-v4")
        if atari:
            import ale_py

            gymnasium.register_envs(ale_py)
        gymnasium.make(name).close()
    except Exception as error:  # gymnasium reports a missing simulator by errors of its own
        print(json.dumps({"reason": f"{error}: `make rivals` installs what is missing"}))
        return
    torch.set_num_threads(cores)

    def environments(count, training):
        fresh_seed = seed + (0 if training else 1_000_000)
        if atari:
            return VecFrameStack(make_atari_env(name, n_envs=count, seed=fresh_seed), 4)
        made = make_vec_env(name, n_envs=count, seed=fresh_seed)
        if not normalize:
            return made
        return VecNormalize(made, gamma=arguments["gamma"], training=training, norm_reward=training)

    training, fresh = environments(copies, True), environments(1, False)

    class UntilScore(BaseCallback):
        returns, episodes, reached = deque(maxlen=TRAINING_EPISODES), 0, None
        curve = []

        def _on_step(self):
            before = self.episodes
            for info in self.locals["infos"]:
                if "episode" in info:
                    self.returns.append(info["episode"]["r"])
                    self.episodes += 1
            seconds = time.perf_counter() - started
            if self.episodes // TRAINING_EPISODES == before // TRAINING_EPISODES:
                return seconds < patience
            mean = sum(self.returns) / len(self.returns)
            self.curve.append([round(seconds, 2), self.num_timesteps * repeat, float(mean)])
            if mean < score:
                return seconds < patience
            if normalize:
                sync_envs_normalization(training, fresh)
            mean, _ = evaluate_policy(self.model, fresh, n_eval_episodes=EPISODES)
            if mean >= score:
                self.reached = (time.perf_counter() - started, self.num_timesteps, mean)
            return self.reached is None

    algorithm = SAC if task in ("pendulum", "halfcheetah-sac") else PPO
    model = algorithm("CnnPolicy" if atari else "MlpPolicy", training, seed=seed, device="cpu", **arguments)
    until = UntilScore()
    started = time.perf_counter()
    repeat = 4 if atari else 1
    model.learn(frames // repeat, callback=until)
    seconds, steps, mean = until.reached or (None, None, None)
    curve = until.curve[-1:0:-(len(until.curve) // 200 + 1)][::-1]  # always with the last
    print(json.dumps({"rival": f"Stable-Baselines3 {stable_baselines3.__version__} {algorithm.__name__}, RL Zoo's settings", "seconds": seconds,
                      "frames": None if steps is None else steps * repeat, "mean": None if mean is None else float(mean),
                      "curve": curve}))


if __name__ == "__main__":
    main()
