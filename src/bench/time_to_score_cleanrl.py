"""CleanRL's single files until they play: a rival of `samara bench time-to-score` (until_score.py).

The files of the package cleanrl run as they are, with their own settings and the gym, Gymnasium and Stable-Baselines3 of their time;
only the writer of their logs is another one, which sees the returns of training episodes and ends the run. Environments that those
versions cannot make any more (MuJoCo's in gym, Atari's ROMs) are Gymnasium's and ALE's of today behind gym's interface of then.
Frames of Atari are emulated ones, four a step.
"""

import copy
import runpy
import sys
import types
from importlib.metadata import version

from until_score import Task, UntilScore, missing

# the file, and what is not its default
FILES = {
    "cartpole": ("ppo", ["--env-id", "CartPole-v1"]),
    "acrobot": ("ppo", ["--env-id", "Acrobot-v1"]),
    "pendulum": ("sac_continuous_action", ["--env-id", "Pendulum-v1"]),
    "hopper": ("ppo_continuous_action", ["--env-id", "Hopper-v4"]),
    "halfcheetah": ("ppo_continuous_action", ["--env-id", "HalfCheetah-v4"]),
    "halfcheetah-sac": ("sac_continuous_action", ["--env-id", "HalfCheetah-v4"]),
    "pong": ("ppo_atari", ["--env-id", "PongNoFrameskip-v4"]),
    "breakout": ("ppo_atari", ["--env-id", "BreakoutNoFrameskip-v4"]),
}


class Over(Exception):
    """Ends the file that runs."""


def register_for_gym(name):
    """Makes an environment of Gymnasium known to gym by the same name."""
    import gym
    import gymnasium

    class Environment(gym.Env):
        def __init__(self):
            self._inner = gymnasium.make(name).unwrapped
            inner = self._inner
            spaces = {"Box": lambda s: gym.spaces.Box(s.low, s.high, s.shape, s.dtype), "Discrete": lambda s: gym.spaces.Discrete(int(s.n))}
            self.observation_space, self.action_space = (spaces[type(s).__name__](s) for s in (inner.observation_space, inner.action_space))
            self._seed = None
            if hasattr(inner, "ale"):
                self.ale, self.get_action_meanings = inner.ale, inner.get_action_meanings

        def seed(self, seed=None):
            self._seed = seed

        def reset(self, **_):
            seed, self._seed = self._seed, None
            return self._inner.reset(seed=seed)[0]

        def step(self, action):
            observation, reward, terminated, truncated, info = self._inner.step(action)
            return observation, reward, terminated or truncated, info

    spec = gymnasium.spec(name)
    gym.register(id=name, entry_point=lambda **_: Environment(), max_episode_steps=spec.max_episode_steps)


def freeze_statistics(environment, of):
    """Lets `environment` normalize observations by the statistics that `of` has, and add nothing to them."""
    while environment is not environment.unwrapped:
        if "obs_rms" in vars(environment):
            environment.obs_rms = copy.deepcopy(of.obs_rms)  # wrappers pass the name on
            environment.obs_rms.update = lambda _: None
        environment = environment.env


def most_probable(file, names):
    """observation -> action, of the agent among the names that the file has defined."""
    import numpy
    import torch

    agent = names.get("agent", names.get("actor"))
    functions = {
        "ppo": lambda x: agent.actor(x).argmax(1),
        "ppo_atari": lambda x: agent.actor(agent.network(x / 255.0)).argmax(1),
        "ppo_continuous_action": lambda x: agent.actor_mean(x),
        "sac_continuous_action": lambda x: agent.get_action(x)[2],
    }

    def act(observation):
        with torch.no_grad():
            return functions[file](torch.Tensor(numpy.asarray(observation))[None])[0].numpy()

    return act


def play_episode(environment, act):
    """Plays until an episode is over, lives and all. Either interface: reset and step of gym return an item less than Gymnasium's."""

    def reset():
        observation = environment.reset()
        return observation[0] if isinstance(observation, tuple) else observation

    observation = reset()
    while True:
        observation, _, *done, info = environment.step(act(observation))
        if "episode" in info:
            return float(info["episode"]["r"])
        if any(done):
            observation = reset()


def main():
    task = Task(".venv-rivals-2023")
    file, arguments = FILES[task.name]
    atari = file == "ppo_atari"
    try:
        import cleanrl  # noqa: F401
        import gymnasium
        import torch

        if atari:
            import ale_py.registration

            ale_py.registration.register_v0_v4_envs()
        if atari or task.name == "halfcheetah-sac":
            register_for_gym(arguments[1])
        gymnasium.make(arguments[1]).close()
    except Exception as error:  # gymnasium reports a missing simulator by errors of its own
        missing(error)
        return
    torch.set_num_threads(task.cores)
    fresh, repeat = [], 4 if atari else 1
    names = {}  # of the file that runs

    def play(episodes):
        if not fresh:
            seeded = (task.seed + 1_000_000, 0, False, "")
            others = (0, False, "", names["args"].gamma) if file == "ppo_continuous_action" else seeded
            fresh.append(names["make_env"](arguments[1], *others)())
        freeze_statistics(fresh[0], names["envs"].envs[0])
        act = most_probable(file, names)
        return sum(play_episode(fresh[0], act) for _ in range(episodes)) / episodes

    class Writer:  # in the place of torch.utils.tensorboard.SummaryWriter
        def __init__(self, _):
            nonlocal names
            names = sys._getframe(1).f_globals

        def add_text(self, *_):
            pass

        def add_scalar(self, name, value, steps):
            if until.over(steps * repeat, [float(value)] if name == "charts/episodic_return" else []):
                raise Over

        def close(self):
            pass

    sys.modules["torch.utils.tensorboard"] = types.SimpleNamespace(SummaryWriter=Writer)
    sys.argv = [file, *arguments, "--seed", str(task.seed), "--cuda", "false"]
    until = UntilScore(task, play)
    try:
        runpy.run_module(f"cleanrl.{file}", run_name="__main__")
    except Over:
        pass
    until.say(f"CleanRL {version('cleanrl')} {file}.py, its settings")


if __name__ == "__main__":
    main()
