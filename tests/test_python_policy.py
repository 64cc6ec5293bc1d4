"""samara.Policy: a run's policy, asked for one action at a time, plays what `samara eval` plays."""

import gymnasium
import numpy as np
import pytest
import samara
import torch
from safetensors.numpy import load_file
from samara_cli import ATARI, CARTPOLE, ok, train

LEARNING = ["learn.test_episodes=1", "run.random_episodes=0", "learn.test_greedy=true"]


def play(policy, env, episodes, rewards=False):
    """Returns of so many episodes of one environment, one after the other."""
    returns, state = [], None
    observation, _ = env.reset(seed=0)
    total, reward = 0.0, 0.0
    while len(returns) < episodes:
        action, state = policy.predict(observation[0], state, reward=reward if rewards else 0.0)
        observation, step, terminated, truncated, _ = env.step(np.asarray(action)[None])
        reward = step[0]
        total += reward
        if terminated[0] or truncated[0]:
            returns.append(total)
            observation, *_ = env.step(np.asarray(action)[None])  # begins the next episode
            state, total, reward = None, 0.0, 0.0
    env.close()
    return returns


@pytest.mark.parametrize(("words", "env", "episodes", "keys"), [
    (CARTPOLE, "CartPole-v1", 12, {}),
    ([*CARTPOLE, "network.layers=gru 12, lstm 8"], "CartPole-v1", 12, {}),
    ([*CARTPOLE, "env.id=Pendulum-v1"], "Pendulum-v1", 2, {}),
    pytest.param(ATARI, "atari:frostbite", 1, {"stack": 0, "preset": "deepga-gpu", "frames_max": 200},
                 marks=pytest.mark.slow),
    (["classic/cartpole-vtrace", "learn.frames=20000", *LEARNING], "CartPole-v1", 10, {}),
    pytest.param(["classic/cartpole-ppo", "learn.frames=20000", "network.lstm=8", "ppo.units=sequences", "network.value=shared", *LEARNING], "CartPole-v1", 10, {},
                 marks=pytest.mark.slow),
    pytest.param(["classic/pendulum-sac", "learn.frames=2000", *LEARNING], "Pendulum-v1", 2, {}, marks=pytest.mark.slow),
    pytest.param(["classic/catch-vtrace", "learn.frames=5000", "network.lstm=8", "network.reward_input=true", *LEARNING],
                 "Catch-v0", 10, {}, marks=pytest.mark.slow),
    pytest.param(["memory/recall-r2d2", "learn.frames=3000", *LEARNING], "Recall-v0", 10, {}, marks=pytest.mark.slow),
    pytest.param(["memory/recall-r2d2", "learn.frames=3000", "network.lstm=0", "network.gru=16", *LEARNING], "Recall-v0", 10, {},
                 marks=pytest.mark.slow),
])  # fmt: skip
def test_a_policy_plays_the_episodes_of_eval(words, env, episodes, keys, tmp_path):
    run = tmp_path / "run"
    train(run, *words)
    expected = ok("eval", run, "--episodes", episodes, "--json").json["returns"]
    with samara.load(run).policy() as policy:
        assert play(policy, samara.make_vec(env, 1, **keys), episodes, rewards=True) == pytest.approx(expected, abs=1e-3)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "ga"
    train(folder, *CARTPOLE)
    return samara.load(folder)


def test_actions_are_those_of_the_exported_weights(run, tmp_path):
    """The network in NumPy, and Gymnasium's own CartPole."""
    ok("export", run.path, tmp_path / "elite.safetensors")
    weights, env, policy = load_file(tmp_path / "elite.safetensors"), gymnasium.make("CartPole-v1"), run.policy()
    assert policy.action_space == env.action_space and policy.observation_space.shape == (4,)
    observation, _ = env.reset(seed=3)
    for _ in range(100):
        x = observation
        for name in ("fc1", "fc2"):
            x = np.maximum(weights[f"{name}.weight"] @ x + weights[f"{name}.bias"], 0)
        outputs = weights["out.weight"] @ x + weights["out.bias"]
        action = policy(observation)
        assert abs(outputs[0] - outputs[1]) < 1e-4 or action == int(outputs.argmax())
        observation, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            observation, _ = env.reset()
            policy.reset()
    # the file itself plays the same
    with samara.Policy(tmp_path / "elite.safetensors") as again:
        draws = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
        assert (again.predict(draws)[0] == policy.predict(draws)[0]).all()


def test_a_recurrent_policy_remembers_each_episode_apart(tmp_path):
    train(tmp_path / "run", *CARTPOLE, "network.layers=gru 12")
    draws = np.random.default_rng(1).normal(size=(30, 3, 4)).astype(np.float32)
    with samara.load(tmp_path / "run").policy() as policy:
        state, together = None, []
        for row in draws:
            actions, state = policy.predict(row, state)
            together.append(actions)
        for i in range(3):
            policy.reset()
            assert [policy(row[i]) for row in draws] == [row[i] for row in together]
        # from the middle on as if an episode began there
        _, state = policy.predict(draws[0])
        for row in draws[1:10]:
            _, state = policy.predict(row, state)
        again, state = policy.predict(draws[0], state, episode_start=np.array([True, True, True]))
        assert (again == together[0]).all()


@pytest.mark.parametrize("core", ["lstm", "gru"])
def test_a_learners_core_is_the_cell_of_pytorch(core, tmp_path):
    """The exported tensors, strictly loaded, choose the actions of the run through an episode of draws."""
    train(tmp_path / "run", "classic/cartpole-vtrace", "learn.frames=3000", f"network.{core}=8", *LEARNING)
    ok("export", tmp_path / "run", tmp_path / "agent.safetensors")
    tensors = {name: torch.from_numpy(x) for name, x in load_file(tmp_path / "agent.safetensors").items()}
    cell = {"lstm": torch.nn.LSTMCell, "gru": torch.nn.GRUCell}[core](64, 8)
    cell.load_state_dict({name[len(core) + 1:]: x for name, x in tensors.items() if name.startswith(core + ".")})
    state, actions = None, []
    with samara.load(tmp_path / "run").policy() as policy, torch.no_grad():
        for row in np.random.default_rng(2).normal(size=(100, 4)).astype(np.float32):
            x = torch.from_numpy(row)[None]
            for name in ("fc1", "fc2"):
                x = (x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]).tanh()
            state = cell(x, state)
            x = state[0] if core == "lstm" else state
            [outputs] = x @ tensors["policy.weight"].T + tensors["policy.bias"]
            actions.append(policy(row))
            assert abs(outputs[0] - outputs[1]) < 1e-4 or actions[-1] == int(outputs.argmax())
    assert set(actions) == {0, 1}


def test_a_network_that_fails_is_an_error_and_not_an_action(tmp_path):
    train(tmp_path / "run", "classic/pendulum-sac", "learn.frames=1000", *LEARNING)
    with samara.load(tmp_path / "run").policy() as policy:
        assert policy(np.zeros(3)).shape == (1,)
        with pytest.raises(samara.Error, match="finite") as caught:
            policy._ask(np.full((1, 3), np.nan, np.float32), None, None, None, 0.0)  # unchecked
        assert caught.value.exit_code == 69


def test_pictures_of_floats_are_refused(tmp_path):
    train(tmp_path / "run", *ATARI, "ga.generations=1", "env.preset=ale-v5")
    with samara.load(tmp_path / "run").policy() as policy:
        assert policy.observation_space.dtype == np.uint8
        policy(np.zeros(policy.observation_space.shape, int))
        with pytest.raises(samara.Error, match="expected uint8"):
            policy(np.zeros(policy.observation_space.shape))


def test_what_does_not_fit_is_refused(run, tmp_path):
    policy = run.policy()
    with pytest.raises(samara.Error, match=r"shape \(3,\), expected \(4,\)"):
        policy(np.zeros(3))
    other = run.policy()
    for state in (other.predict(np.zeros(4))[1], 3):
        with pytest.raises(samara.Error, match="expected 1 different states of this policy"):
            policy.predict(np.zeros(4), state)
    with pytest.raises(samara.Error, match="predict takes batches"):
        policy(np.zeros((2, 4)))
    assert policy(np.zeros(4)) in (0, 1)
    assert run.evaluate(1, individual=0)["policy"] == "0"
    states = [policy.predict(np.zeros(4))[1] for _ in range(policy.spec["memories"] - 1)]
    with pytest.raises(samara.Error, match="at most 256 episodes"):
        policy.predict(np.zeros(4))
    del states
    policy.predict(np.zeros(4))
    policy.close()
    with pytest.raises(samara.Error, match="the policy is closed"):
        policy(np.zeros(4))
    for path, code in ((tmp_path / "nothing", 66), (tmp_path, 66)):
        with pytest.raises(samara.Error) as caught:
            samara.Policy(path)
        assert caught.value.exit_code == code
    with pytest.raises(samara.Error, match="no_such"):
        run.policy("no_such")


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_observations_that_are_not_finite_are_refused(number, run):
    with run.policy() as policy:
        expected = policy(np.zeros(4, np.float32))
        with pytest.raises(ValueError, match=f"an observation with {number}, expected finite numbers"):
            policy([0, number, 0, 0])
        with pytest.raises(ValueError, match="finite"):
            policy.predict([[0, 0, 0, 0], [0, 0, 0, number]])
        assert policy(np.zeros(4, np.float32)) == expected, "the policy goes on"
