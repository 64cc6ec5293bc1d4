"""samara.make_vec: Gymnasium's vector environment over the fleet, compared with Gymnasium's own SyncVectorEnv."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import samara
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from samara_cli import ROOT

ENVS = 5


def sync(mode):
    return SyncVectorEnv([lambda: gymnasium.make("CartPole-v1") for _ in range(ENVS)], autoreset_mode=mode)


def place(reference, which, observations):
    """Gymnasium's CartPoles in the states that these observations show."""
    for i in np.flatnonzero(which):
        reference.envs[i].unwrapped.state = observations[i].astype(np.float64)


def close(mine, theirs):
    """One formula in float64, from starts that differ by a rounding to float32; see test_native_envs.py for the bits."""
    return np.allclose(mine, theirs, rtol=0, atol=1e-3)


@pytest.mark.parametrize("env", ["CartPole-v1", "gymnasium:CartPole-v1"])
def test_steps_are_those_of_gymnasium(env):
    mine, theirs = samara.make_vec(env, ENVS, workers=2), sync(AutoresetMode.NEXT_STEP)
    assert mine.single_action_space == theirs.single_action_space and mine.action_space == theirs.action_space
    assert mine.observation_space.shape == theirs.observation_space.shape == (ENVS, 4)
    observation, info = mine.reset(seed=3)
    assert observation.dtype == np.float32 and np.abs(observation).max() <= 0.05 and len(np.unique(observation)) == 20
    theirs.reset(seed=3)
    place(theirs, np.ones(ENVS, bool), observation)
    ends, begins = 0, np.zeros(ENVS, bool)
    for actions in np.random.default_rng(0).integers(2, size=(200, ENVS)):
        observation, *result, _ = mine.step(actions)
        expected, *same, _ = theirs.step(actions)
        for a, b in zip(result, same):
            assert a.dtype == b.dtype and (a == b).all()
        assert close(observation[~begins], expected[~begins])
        place(theirs, begins, observation)
        begins = result[1] | result[2]
        ends += begins.sum()
    assert ends > 20
    mine.close()


def test_the_same_step_resets_where_that_is_asked_for():
    mine, theirs = samara.make_vec("CartPole-v1", ENVS, autoreset_mode="same-step"), sync(AutoresetMode.SAME_STEP)
    assert mine.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    theirs.reset()
    place(theirs, np.ones(ENVS, bool), mine.reset(seed=3)[0])
    ends = 0
    for actions in np.random.default_rng(1).integers(2, size=(100, ENVS)):
        observation, *result, info = mine.step(actions)
        expected, *same, known = theirs.step(actions)
        assert all((a == b).all() for a, b in zip(result, same))
        over = result[1] | result[2]
        assert ("final_obs" in info) == ("final_obs" in known) == over.any()
        if over.any():
            assert (info["_final_obs"] == known["_final_obs"]).all()
            for a, b in zip(info["final_obs"], known["final_obs"]):
                assert (a is None) == (b is None) and (a is None or close(a, b))
            assert np.abs(observation[over]).max() <= 0.05  # the first of the next episode
        assert close(observation[~over], expected[~over])
        place(theirs, over, observation)
        ends += over.sum()
    assert ends > 10


def test_the_caller_resets_where_that_is_asked_for():
    env = samara.make_vec("CartPole-v1", 3, autoreset_mode=AutoresetMode.DISABLED)
    observation, _ = env.reset(seed=0)
    over = np.zeros(3, bool)
    while not over.any():
        observation, _, terminated, truncated, _ = env.step(np.ones(3, int))
        over = terminated | truncated
    with pytest.raises(samara.Error, match="its episode has ended; expected reset"):
        env.step(np.ones(3, int))
    again, _ = env.reset(options={"reset_mask": over})
    assert np.abs(again[over]).max() <= 0.05 and (again[~over] == observation[~over]).all()
    env.step(np.ones(3, int))


def play(env, steps=60, seed=4):
    """Everything that comes back, with actions that depend on the environment and its step alone."""
    observation, _ = env.reset(seed=seed)
    draws = np.random.default_rng(0).integers(2**31, size=(steps, env.num_envs))
    seen = [observation]
    for row in draws:
        n = env.single_action_space.n
        observation, reward, terminated, truncated, _ = env.step(row % n)
        seen.append(np.concatenate([observation.reshape(env.num_envs, -1),
                                    np.stack([reward, terminated, truncated], 1)], 1))
    env.close()
    return seen


@pytest.mark.parametrize("env", ["CartPole-v1", "Catch-v0"])
def test_results_do_not_depend_on_who_steps(env):
    runs = [play(samara.make_vec(env, 4, workers=workers)) for workers in (0, 1, 3)]
    assert all((a == b).all() for run in runs[1:] for a, b in zip(runs[0], run))
    other = play(samara.make_vec(env, 4, workers=0), seed=5)
    assert not all((a == b).all() for a, b in zip(runs[0], other))


def test_an_environment_does_not_depend_on_the_others():
    alone = samara.make_vec("CartPole-v1", 1)
    together = samara.make_vec("CartPole-v1", 4)
    first, _ = together.reset(seed=[7, 8, 9, 10])
    assert (alone.reset(seed=9)[0][0] == first[2]).all()
    # without a seed the next episodes begin, of the same seeds
    again, _ = together.reset()
    assert (again != first).any(1).all() and (alone.reset()[0][0] == again[2]).all()


def test_batches_give_every_environment_what_it_gets_in_step():
    steps, n = 80, 6
    actions = np.random.default_rng(2).integers(2, size=(steps, n)).astype(np.int32)
    env = samara.make_vec("CartPole-v1", n)
    env.reset(seed=1)
    expected = [env.step(row) for row in actions]
    env = samara.make_vec("CartPole-v1", n, batch_size=2, workers=2, seed=1)
    env.async_reset()
    done = np.full(n, -1)
    while (done < steps - 1).all():
        observation, reward, terminated, _, info = env.recv()
        ids = info["env_id"]
        assert len(set(ids)) == 2 == len(reward)
        for row, i in enumerate(ids):
            if done[i] >= 0:
                assert (observation[row] == expected[done[i]][0][i]).all() and reward[row] == expected[done[i]][1][i]
                assert terminated[row] == expected[done[i]][2][i]
        done[ids] += 1
        env.send(actions[done[ids], ids], ids)
    env.close()


def test_continuous_actions_have_the_environments_bounds():
    """Pendulum: the torque is the action itself, and the first step's reward says how large it was."""
    env = samara.make_vec("Pendulum-v1", 3)
    assert env.single_action_space == gymnasium.make("Pendulum-v1").action_space
    observation, _ = env.reset(seed=0)
    torque = np.array([[-2.0], [0.5], [1.5]], np.float32)
    _, reward, _, _, _ = env.step(torque)
    angle, spin = np.arctan2(observation[:, 1], observation[:, 0]), observation[:, 2]
    assert np.allclose(reward, -(angle**2 + 0.1 * spin**2 + 0.001 * torque[:, 0] ** 2), atol=1e-5)
    for wrong in (np.nan, np.inf):
        with pytest.raises(samara.Error, match="actions: not all are finite numbers"):
            env.step([[0.0], [wrong], [0.0]])


def test_atari_has_the_presets_pictures():
    seen = []
    for workers in (1, 2):
        env = samara.make_vec("atari:pong", 3, workers=workers, preset="ale-vector")
        assert env.single_observation_space == gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
        assert env.single_action_space.n == 6
        seen.append(play(env, steps=40))
    assert all((a == b).all() for a, b in zip(*seen))
    pictures = [rows[:, : 4 * 84 * 84].reshape(3, 4, 84, 84) for rows in [seen[0][0].reshape(3, -1), *seen[0][1:]]]
    assert all((after[:, :3] == before[:, 1:]).all() for before, after in zip(pictures, pictures[1:]))
    assert (pictures[0][:, :3] == 0).all() and pictures[0][:, 3].any()  # this preset begins with zeros


def test_an_environment_that_cannot_be_made_says_why():
    for name, words, code in [
        ("NoSuchTask-v3", "NoSuchTask", 78),
        ("no_such_module:Task-v0", "no_such_module", 66),
        ("atari:no_such_game", "no_such_game", 78),
    ]:
        with pytest.raises(samara.Error, match=words) as caught:
            samara.make_vec(name, 2)
        assert caught.value.exit_code == code


def children():
    """Processes that threads of this one have started."""
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}


def test_a_killed_process_truncates_its_episodes_and_is_replaced():
    before = children()
    env = samara.make_vec("gymnasium:MountainCar-v0", 3, workers=2)
    env.reset(seed=0)
    env.step([1, 1, 1])
    actors = children() - before
    assert len(actors) == 2
    os.kill(min(actors), signal.SIGKILL)
    lost = np.zeros(3, bool)
    for _ in range(150):
        observation, reward, terminated, truncated, _ = env.step([1, 1, 1])
        assert not terminated.any() and (reward[truncated] == 0).all() and np.isfinite(observation).all()
        lost |= truncated
        if truncated.any():
            begins = truncated
            break
    observation, reward, _, truncated, _ = env.step([1, 1, 1])
    assert lost.sum() in (1, 2) and not truncated.any()
    assert (reward[begins] == 0).all() and (reward[~begins] == -1).all()
    assert (observation[begins, 1] == 0).all()  # the car stands still at the beginning
    assert len(children() - before) == 2
    env.close()
    assert children() <= before


def test_an_exception_of_an_environment_is_raised(tmp_path, monkeypatch):
    (tmp_path / "stumbling.py").write_text("""
import gymnasium, numpy as np


class Task(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32), gymnasium.spaces.Discrete(2)

    def __init__(self, good=3): self.good = good

    def reset(self, **_):
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps > self.good:
            raise ValueError("boom in my step")
        return np.zeros(1, np.float32), 1, False, False, {}
""")
    monkeypatch.chdir(tmp_path)
    for good in (0, 3):
        env = samara.make_vec("stumbling:Task", 2, kwargs={"good": good})
        env.reset(seed=0)
        for _ in range(good):
            assert not env.step([0, 0])[3].any()
        with pytest.raises(samara.Error, match=r"boom in my step \(stumbling.py:17; gym/stumbling:Task, slot") as caught:
            env.step([0, 0])
        assert caught.value.exit_code == 69


@pytest.mark.parametrize(("call", "words"), [
    (lambda env: env.step([0, 2]), "action 2: expected 0 to 1"),
    (lambda env: env.step([0]), "expected one action for each environment"),
    (lambda env: env.send([0, 0], [1, 1]), "two actions at a time"),
    (lambda env: env.send([0], [5]), "environment 5: expected 0 to 1"),
    (lambda env: env.recv(), "nothing was sent"),
    (lambda env: env.reset(seed=[1]), "expected one for each of 2"),
    (lambda env: env.step([0.7, 0.2]), "expected integers"),
    (lambda env: env.step(np.array([2**32 + 1, 0])), "out of range"),
    (lambda env: env.reset(seed=-1), "seed=-1: expected integers from 0"),
    (lambda env: env.reset(seed=1.5), "seed=1.5: expected integers from 0"),
    (lambda env: env.reset(seed="a"), "seed='a': expected integers from 0"),
    (lambda env: env.reset(options={"reset_mask": [True]}), r"reset_mask of shape \(1,\), expected \(2,\)"),
])  # fmt: skip
def test_misuse_is_refused(call, words):
    env = samara.make_vec("CartPole-v1", 2)
    with pytest.raises(samara.Error, match="expected reset before its first step"):
        env.step([0, 0])
    env.reset(seed=0)
    with pytest.raises(samara.Error, match=words):
        call(env)
    env.step([0, 1])  # as if nothing had happened
    env.close()
    with pytest.raises(samara.Error, match="the environments are closed"):
        env.step([0, 1])


def test_each_environment_has_a_seed_of_its_own_however_it_is_begun():
    plain = samara.make_vec("CartPole-v1", 3, seed=7)
    expected, _ = plain.reset()
    masked = samara.make_vec("CartPole-v1", 3, seed=7)
    masked.reset(options={"reset_mask": np.array([False, True, False])})
    assert (masked.reset(options={"reset_mask": np.array([True, False, True])})[0] == expected).all()
    some = samara.make_vec("CartPole-v1", 3, seed=7)
    observation, _ = some.reset(seed=[5, None, None])
    assert (observation[1:] == expected[1:]).all() and (observation[0] != expected[0]).any()


@pytest.mark.parametrize("env", ["CartPole-v1", "gymnasium:CartPole-v1"])
def test_a_forked_child_leaves_the_environments_alone(env):
    envs = samara.make_vec(env, 2, workers=2)
    envs.reset(seed=0)
    if (child := os.fork()) == 0:
        try:
            envs.step([0, 0])
        except samara.Error as error:
            os._exit(0 if "forked from" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    _, reward, _, truncated, _ = envs.step([0, 0])
    assert (reward == 1).all() and not truncated.any()
    envs.close()


def test_gymnasiums_wrappers_take_it():
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(samara.make_vec("CartPole-v1", 2))
    env.reset(seed=0)
    lengths = []
    while len(lengths) < 4:
        *_, info = env.step(np.ones(2, int))
        if "episode" in info:
            lengths += list(info["episode"]["l"][info["_episode"]])
    assert all(8 <= length <= 12 for length in lengths)  # a cart that is pushed one way
    env.close()


def test_a_loop_in_torch_trains_on_it():
    """PPO as CleanRL writes it, on one thread: 25,000 steps of CartPole."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(1), torch.set_num_threads(1)
    envs, steps = samara.make_vec("CartPole-v1", 16, autoreset_mode="same-step"), 64
    body = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 3))
    optimizer = torch.optim.Adam(body.parameters(), 5e-3)
    observation, returns, running = torch.from_numpy(envs.reset(seed=1)[0]), [], np.zeros(16)
    for _ in range(25):
        kept = []
        for _ in range(steps):
            with torch.no_grad():
                out = body(observation)
                choice = torch.distributions.Categorical(logits=out[:, :2])
                action = choice.sample()
            following, reward, terminated, truncated, _ = envs.step(action.numpy())
            over, running = terminated | truncated, running + reward
            returns, running = returns + list(running[over]), np.where(over, 0, running)
            kept.append((observation, action, choice.log_prob(action), out[:, 2], torch.from_numpy(reward).float(),
                         torch.from_numpy(~over).float()))
            observation = torch.from_numpy(following)
        with torch.no_grad():
            value, advantage = body(observation)[:, 2], torch.zeros(16)
        advantages = []
        for _, _, _, old, reward, goes_on in reversed(kept):
            advantage = reward + 0.99 * value * goes_on - old + 0.99 * 0.95 * goes_on * advantage
            value = old
            advantages.insert(0, advantage)
        x, actions, log_probs, values, _, _ = (torch.stack(part).flatten(0, 1) for part in zip(*kept))
        advantages = torch.stack(advantages).flatten()
        for part in torch.randperm(len(x)).repeat(4).split(256):
            out, gain = body(x[part]), advantages[part]
            ratio = (torch.distributions.Categorical(logits=out[:, :2]).log_prob(actions[part]) - log_probs[part]).exp()
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            loss = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
            loss += 0.005 * (out[:, 2] - values[part] - advantages[part]).square().mean()
            optimizer.zero_grad(), loss.backward(), optimizer.step()
    assert np.mean(returns[:20]) < 40 < 120 < np.mean(returns[-20:])


SB3 = """
import gymnasium, numpy as np, samara, stable_baselines3 as sb3, torch
torch.set_num_threads(1)
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor
from samara.vector import sb3 as adapted

mine = adapted(samara.make_vec("gymnasium:CartPole-v1", 3, autoreset_mode="same-step"))
theirs = DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 3)
theirs.reset()
starts = []
for seed in (7, 7, None):
    if seed is not None:
        mine.seed(seed)
    starts.append(mine.reset())
assert np.array_equal(starts[0], starts[1]) and not np.array_equal(starts[1], starts[2])
for env, state in zip(theirs.envs, starts[2].astype(float)):
    env.unwrapped.state = state
for step in range(40):
    (o, r, done, info), (o2, r2, done2, info2) = (env.step(np.ones(3, int)) for env in (mine, theirs))
    assert np.array_equal(r, r2) and np.array_equal(done, done2) and r.dtype == np.float32
    for i in range(3):
        mine_last, their_last = (d.get("terminal_observation", o_[i]) for d, o_ in ((info[i], o), (info2[i], o2)))
        assert np.allclose(mine_last, their_last, rtol=0, atol=1e-3), (step, i)
        assert info[i].get("TimeLimit.truncated", False) is info2[i]["TimeLimit.truncated"] is False
    if done.any():
        break
assert done.any(), "a cart that is pushed one way falls"
mine.close()
envs = VecMonitor(adapted(samara.make_vec("CartPole-v1", 8, autoreset_mode="same-step")))
model = sb3.PPO("MlpPolicy", envs, n_steps=64, seed=0)
means = []  # returns of the last hundred episodes
for steps in (2048, 20480):
    model.learn(steps, reset_num_timesteps=False)
    means.append(np.mean([episode["r"] for episode in model.ep_info_buffer]))
assert model.num_timesteps == 22528
assert means[0] < 50 < 100 < means[1], means
print(sb3.__version__, means)
"""


def test_stable_baselines3_trains_on_it():
    """In its own environment of packages, where `make rivals` has made that."""
    found = [p for p in (sys.executable, str(ROOT / ".venv-rivals/bin/python")) if has_sb3(p)]
    if not found:
        pytest.skip("stable_baselines3 is not installed; `make rivals` installs it")
    folder = Path(samara.__file__).parents[1]
    done = subprocess.run([found[0], "-c", SB3], capture_output=True, text=True, timeout=300,
                          env=os.environ | {"PYTHONPATH": str(folder)})
    assert done.returncode == 0, done.stderr


def has_sb3(python):
    same = f"import stable_baselines3, sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"  # as the extension
    return Path(python).exists() and subprocess.run([python, "-c", same], capture_output=True).returncode == 0


def test_stable_baselines3_needs_resets_in_the_same_step():
    for keys in ({}, {"autoreset_mode": "same-step", "batch_size": 1}):
        envs = samara.make_vec("CartPole-v1", 2, **keys)
        with pytest.raises(samara.Error, match='expected environments made with autoreset_mode="same-step"'):
            samara.vector.sb3(envs)
        envs.close()


def test_wrong_arguments_are_named():
    for arguments, keys, message in ((("CartPole-v1", "2"), {}, "num_envs: '2', expected an integer"),
                                     (("CartPole-v1", 2), {"batch_size": 1.5}, "batch_size: 1.5, expected an integer"),
                                     (("CartPole-v1", 2), {"workers": 0.5}, "workers: 0.5, expected an integer"),
                                     (("CartPole-v1",), {"foo": 1}, "foo: no key of samara.make_vec, expected one of workers, batch_size"),
                                     ((3,), {}, "env: 3, expected a text or a class")):  # fmt: skip
        with pytest.raises(TypeError) as raised:
            samara.make_vec(*arguments, **keys)
        assert str(raised.value).startswith(message) and "\n" not in str(raised.value)


def test_it_is_faster_than_gymnasiums_own():
    """Not a measurement: an order of magnitude stands between them."""
    actions = np.random.default_rng(0).integers(2, size=(100, 64))

    def seconds(env):
        env.reset(seed=0)
        start = time.perf_counter()
        for row in actions:
            env.step(row)
        return time.perf_counter() - start

    theirs = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1") for _ in range(64)])
    assert seconds(samara.make_vec("CartPole-v1", 64)) * 3 < seconds(theirs)


def test_a_package_without_the_extension_names_the_build(tmp_path):
    (tmp_path / "samara").mkdir()
    for file in Path(samara.__file__).parent.iterdir():
        if not file.name.startswith("_engine"):
            (tmp_path / "samara" / file.name).symlink_to(file)
    done = subprocess.run([sys.executable, "-c", "import samara; samara.make_vec('CartPole-v1')"], capture_output=True,
                          text=True, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    assert done.stderr.splitlines()[-1].startswith("ImportError: samara.make_vec needs the extension samara._engine: run `make build`")
    assert done.stderr.count("Traceback") == 1


def test_classes_and_numbers_of_numpy_make_environments(tmp_path, monkeypatch):
    from gymnasium.envs.classic_control import CartPoleEnv

    (tmp_path / "vector_wrappers.py").write_text(
        "import gymnasium\nclass Twice(gymnasium.RewardWrapper):\n    def reward(self, reward): return 2 * reward\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    from vector_wrappers import Twice

    for wrappers, reward in ((Twice, 2), ("vector_wrappers:Twice", 2), ([Twice, "vector_wrappers:Twice"], 4)):
        envs = samara.make_vec(CartPoleEnv, 2, kwargs={"sutton_barto_reward": np.bool_(False)}, wrappers=wrappers)
        envs.reset(seed=1)
        assert envs.step(np.array([0, 1]))[1].tolist() == [reward, reward]
        envs.close()
    with pytest.raises(TypeError, match="^kwargs.size: <object"):
        samara.make_vec("gymnasium:CartPole-v1", 1, kwargs={"size": object()})
    with pytest.raises(samara.Error, match="wrapper 'bad:W'"):
        samara.make_vec("gymnasium:CartPole-v1", 1, wrappers="bad:W")
