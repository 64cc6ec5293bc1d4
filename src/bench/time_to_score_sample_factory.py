"""Sample Factory's PPO until it plays: a rival of `samara bench time-to-score` (until_score.py).

The settings are those of its examples for MuJoCo and Atari (sf_examples/*/*_params.py), which its authors publish results of; its eight
workers and their learner are processes. MuJoCo's tasks are v4 there. Frames of Atari are emulated ones. Training goes on while the
latest checkpoint, written for it, is evaluated.
"""

import multiprocessing
import sys
import time
from importlib.metadata import version
from pathlib import Path

from until_score import Task, UntilScore, missing

ENVIRONMENTS = {"hopper": "mujoco_hopper", "halfcheetah": "mujoco_halfcheetah", "pong": "atari_pong", "breakout": "atari_breakout"}
CHECKPOINT_SECONDS = 10  # at most, until one that was asked for is there
OWN = ".venv-rivals-2023"
if Path(sys.prefix).name == OWN:  # in the processes that it starts too, which import this file
    try:
        from ale_py.registration import register_v0_v4_envs

        register_v0_v4_envs()
    except ImportError:
        pass  # gymnasium.make says so


class Player:
    """Plays fresh episodes, in this process."""

    def __init__(self, cfg, seed):
        import torch
        from sample_factory.algo.utils.make_env import make_env_func_batched
        from sample_factory.model.actor_critic import create_actor_critic
        from sample_factory.utils.attr_dict import AttrDict

        torch.set_num_threads(1)  # the workers have the other cores
        self._cfg = cfg
        self._environment = make_env_func_batched(cfg, env_config=AttrDict(worker_index=0, vector_index=0, env_id=0))
        self._environment.reset(seed=seed)
        self._model = create_actor_critic(cfg, self._environment.observation_space, self._environment.action_space)
        self._model.eval()

    def load(self, checkpoint):
        import torch

        self._model.load_state_dict(torch.load(checkpoint, map_location="cpu", weights_only=False)["model"])

    def play(self):
        """The return of an episode: of Atari that of all lives, with rewards that are not clipped."""
        import torch
        from sample_factory.algo.sampling.batched_sampling import preprocess_actions
        from sample_factory.algo.utils.action_distributions import argmax_actions
        from sample_factory.algo.utils.env_info import extract_env_info
        from sample_factory.algo.utils.rl_utils import prepare_and_normalize_obs
        from sample_factory.model.model_utils import get_rnn_size

        facts = extract_env_info(self._environment, self._cfg)
        state = torch.zeros([1, get_rnn_size(self._cfg)])
        observation, _ = self._environment.reset()
        total = 0.0
        with torch.no_grad():
            while True:
                self._model(prepare_and_normalize_obs(self._model, observation), state)
                actions = argmax_actions(self._model.action_distribution())
                actions = preprocess_actions(facts, actions.reshape(1, -1))
                observation, reward, terminated, truncated, infos = self._environment.step(actions)
                total += float(reward[0])
                if "episode" in infos[0]:
                    return float(infos[0]["episode"]["r"])
                if not self._cfg.use_record_episode_statistics and bool(terminated[0] | truncated[0]):
                    return total


def main():
    task = Task(OWN)
    try:
        import gymnasium
        from sample_factory.algo.utils.misc import EPISODIC, ExperimentStatus
        from sample_factory.train import make_runner
        from sample_factory.utils.dicts import iterate_recursively
        from sf_examples.atari.train_atari import parse_atari_args, register_atari_components
        from sf_examples.mujoco.train_mujoco import parse_mujoco_cfg, register_mujoco_components

        name = ENVIRONMENTS[task.name]
        words = [f"--env={name}", f"--seed={task.seed}", "--device=cpu", f"--train_dir={Path.cwd()}", "--experiment=run"]
        if name.startswith("atari"):
            register_atari_components()
            cfg = parse_atari_args(words)
        else:
            register_mujoco_components()
            cfg = parse_mujoco_cfg(words)
        gymnasium.make({"hopper": "Hopper-v4", "halfcheetah": "HalfCheetah-v4"}.get(task.name, f"{task.name.title()}NoFrameskip-v4")).close()
    except Exception as error:  # gymnasium reports a missing simulator by errors of its own
        missing(error)
        return
    cfg.train_for_seconds = min(task.seconds, cfg.train_for_seconds)
    cfg, runner = make_runner(cfg)
    runner.init()
    player = Player(cfg, task.seed + 1_000_000)
    folder = Path(cfg.train_dir) / cfg.experiment / "checkpoint_p0"

    def latest():
        return max(folder.glob("checkpoint_0*.pth"), default=None)

    def play(episodes):
        before, started = latest(), time.perf_counter()
        runner.save_periodic.emit()
        while latest() == before and time.perf_counter() - started < CHECKPOINT_SECONDS:
            time.sleep(0.01)
        player.load(latest())
        return sum(player.play() for _ in range(episodes)) / episodes

    until = UntilScore(task, play)
    key = "RecordEpisodeStatistics_reward" if cfg.use_record_episode_statistics else "reward"

    def count(runner, message, policy):
        returns = [float(value) for _, name, value in iterate_recursively(message[EPISODIC]) if name == key]
        if until.over(runner.env_steps.get(policy, 0), returns):
            runner.cfg.train_for_env_steps = 0  # the end, after this iteration

    runner.register_episodic_stats_handler(count)
    if runner.run() != ExperimentStatus.SUCCESS:
        for process in multiprocessing.active_children():
            process.kill()
        sys.exit("Sample Factory failed, see above")
    until.say(f"Sample Factory {version('sample-factory')} PPO, its examples' settings")


if __name__ == "__main__":
    main()
