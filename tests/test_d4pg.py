"""D4PG end to end; what it shares with SAC and TD3 is tested there (test_sac.py, test_td3.py)."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from samara_cli import ok, samara, train
from test_sac import INTERRUPTIONS, expect_the_same_bits_after_interruptions, expect_the_same_bits_of_any_workers

import samara as package

PENDULUM = ["classic/pendulum-d4pg", "run.random_episodes=0", "learn.test_episodes=4"]
# Two shards with a replay and priorities each; targets are copied often.
SHARDS = [*PENDULUM, "learn.frames=1600", "learn.environments=2", "learn.batch=2", "learn.shards=2", "learn.unroll=10",
          "replay.capacity=1000", "replay.start=500", "d4pg.target_every=7"]


def test_pendulum_is_learned_in_seconds(tmp_path):
    outcome = train(tmp_path / "run", *PENDULUM, "learn.frames=8000", "learn.test_episodes=20")
    assert outcome["test_mean"] > -200


def test_an_exported_agent_is_the_same_network_in_torch(tmp_path):
    run, file = tmp_path / "run", tmp_path / "agent.safetensors"
    train(run, *SHARDS, "network.layers=dense 24 tanh, dense 16 relu")
    ok("export", run, file)
    network = torch.nn.Sequential(torch.nn.Linear(3, 24), torch.nn.Tanh(), torch.nn.Linear(24, 16), torch.nn.ReLU(),
                                  torch.nn.Linear(16, 1), torch.nn.Tanh())
    weights, names = load_file(file), {"0": "fc1", "2": "fc2", "4": "policy"}
    network.load_state_dict({key: weights[f"{names[key[0]]}{key[1:]}"] for key in network.state_dict()})
    observations = np.random.default_rng(1).normal(size=(100, 3)).astype(np.float32)
    with torch.no_grad():
        expected = 2 * network(torch.from_numpy(observations)).numpy()  # torques of at most 2
    policies = [package.Policy(target) for target in (run, file)]
    for policy in policies:
        played = np.array([policy.predict(x)[0] for x in observations])
        np.testing.assert_allclose(played.reshape(-1, 1), expected, rtol=1e-4, atol=1e-5)
    assert expected.std() > 0.01  # not the same action everywhere
    assert weights["critic1_value.weight"].shape == (51, 16)  # logits of the atoms


@pytest.mark.slow
def test_actors_threads_and_ranks_leave_no_trace(tmp_path):
    expect_the_same_bits_of_any_workers(tmp_path, *SHARDS)


@pytest.mark.slow
@pytest.mark.parametrize("how", INTERRUPTIONS)
def test_a_run_that_is_interrupted_goes_on_with_its_replay(tmp_path, how):
    expect_the_same_bits_after_interruptions(tmp_path, how, *SHARDS, "learn.frames=12000")


@pytest.mark.parametrize("words, says", [
    (["env.id=CartPole-v1"], "run.algorithm=d4pg: the environment's actions are discrete"),
    (["d4pg.value_min=5"], "expected it below d4pg.value_max"),
    (["network.layers=dense 8 vbn relu"], "expected dense layers alone"),
])
def test_what_cannot_work_is_refused(tmp_path, words, says):
    refused = samara("train", *PENDULUM, *words, "--out", tmp_path / "run")
    assert refused.code == 78 and says in refused.err and len(refused.err.splitlines()) == 1
