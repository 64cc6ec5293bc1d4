"""Gymnasium's CartPole at a bounded speed: paced:CartPole-v0 sleeps a millisecond a step."""

import time

import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

STEP_SECONDS = 0.001


class Paced(CartPoleEnv):
    def step(self, action):
        time.sleep(STEP_SECONDS)
        return super().step(action)


gymnasium.register("PacedCartPole-v0", Paced, max_episode_steps=200)
