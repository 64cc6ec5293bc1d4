"""Stable-Baselines3's PPO or SAC until it plays: a rival of `samara bench time-to-score` (until_score.py).

The settings are those that the RL Baselines3 Zoo publishes for the task (hyperparams/ppo.yml and sac.yml at 00128b5); its MuJoCo tasks
are v3 there and v5 here. Frames of Atari are emulated ones, four a step. Environments run in this process, the zoo's default.
"""

from until_score import Task, UntilScore, missing


def linear(value):
    return lambda left: left * value


def settings(task, relu):
    """The environment, the number of copies, whether observations and rewards are normalized, frames, the algorithm's arguments."""
    mujoco = {"n_steps": 512,
              "policy_kwargs": {"log_std_init": -2, "ortho_init": False, "activation_fn": relu,
                                "net_arch": {"pi": [256, 256], "vf": [256, 256]}}}
    atari = {"n_steps": 128, "n_epochs": 4, "batch_size": 256, "vf_coef": 0.5, "ent_coef": 0.01,
             "learning_rate": linear(2.5e-4), "clip_range": linear(0.1)}
    return {
        "cartpole": ("CartPole-v1", 8, False, 100_000, {
            "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20, "ent_coef": 0.0,
            "learning_rate": linear(0.001), "clip_range": linear(0.2)}),
        "acrobot": ("Acrobot-v1", 16, True, 1_000_000, {
            "n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0}),
        "pendulum": ("Pendulum-v1", 1, False, 100_000, {"learning_rate": 1e-3}),
        "halfcheetah-sac": ("HalfCheetah-v5", 1, False, 1_000_000, {"learning_starts": 10000}),
        "pong": ("PongNoFrameskip-v4", 8, False, 40_000_000, atari),
        "breakout": ("BreakoutNoFrameskip-v4", 8, False, 40_000_000, atari),
        "halfcheetah": ("HalfCheetah-v5", 1, True, 1_000_000, mujoco | {
            "batch_size": 64, "gamma": 0.98, "learning_rate": 2.0633e-05, "ent_coef": 0.000401762, "clip_range": 0.1,
            "n_epochs": 20, "gae_lambda": 0.92, "max_grad_norm": 0.8, "vf_coef": 0.58096}),
        "hopper": ("Hopper-v5", 1, True, 1_000_000, mujoco | {
            "batch_size": 32, "gamma": 0.999, "learning_rate": 9.80828e-05, "ent_coef": 0.00229519, "clip_range": 0.2,
            "n_epochs": 5, "gae_lambda": 0.99, "max_grad_norm": 0.7, "vf_coef": 0.835671}),
    }[task]


def main():
    task = Task(".venv-rivals")
    try:
        import gymnasium
        import stable_baselines3
        import torch
        from stable_baselines3 import PPO, SAC
        from stable_baselines3.common.callbacks import BaseCallback
        from stable_baselines3.common.env_util import make_atari_env, make_vec_env
        from stable_baselines3.common.evaluation import evaluate_policy
        from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize, sync_envs_normalization

        name, copies, normalize, frames, arguments = settings(task.name, torch.nn.ReLU)
        atari = name.endswith("NoFrameskip-v4")
        if atari:
            import ale_py

            gymnasium.register_envs(ale_py)
        gymnasium.make(name).close()
    except Exception as error:  # gymnasium reports a missing simulator by errors of its own
        missing(error)
        return
    torch.set_num_threads(task.cores)

    def environments(count, training):
        fresh_seed = task.seed + (0 if training else 1_000_000)
        if atari:
            return VecFrameStack(make_atari_env(name, n_envs=count, seed=fresh_seed), 4)
        made = make_vec_env(name, n_envs=count, seed=fresh_seed)
        if not normalize:
            return made
        return VecNormalize(made, gamma=arguments["gamma"], training=training, norm_reward=training)

    training, fresh = environments(copies, True), environments(1, False)
    algorithm = SAC if task.name in ("pendulum", "halfcheetah-sac") else PPO
    model = algorithm("CnnPolicy" if atari else "MlpPolicy", training, seed=task.seed, device="cpu", **arguments)

    def play(episodes):
        if normalize:
            sync_envs_normalization(training, fresh)
        return evaluate_policy(model, fresh, n_eval_episodes=episodes)[0]

    repeat = 4 if atari else 1
    until = UntilScore(task, play)

    class Stop(BaseCallback):
        def _on_step(self):
            returns = [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
            return not until.over(self.num_timesteps * repeat, returns)

    model.learn(frames // repeat, callback=Stop())
    until.say(f"Stable-Baselines3 {stable_baselines3.__version__} {algorithm.__name__}, RL Zoo's settings")


if __name__ == "__main__":
    main()
