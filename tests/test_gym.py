"""The Gymnasium adapter against Gymnasium itself, step by step, through the extension's slots."""

import re
import shlex
import sys
import traceback

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from samara_cli import TESTS

from samara import gym
from samara.environment import CONFIG, NO_INPUT, SetupError, make
from samara.spaces import Actions


def empty(spec):
    return np.zeros(spec.observation_shape, spec.observation_dtype)


def play(name, steps=60, half=1.0):
    """Adapter and bare environment side by side over three episodes; `half` scales box actions."""
    environment = make({"kind": "gym", "id": name})
    bare = gymnasium.make(name)
    rng = np.random.default_rng(3)
    spec, out = environment.spec, empty(environment.spec)
    for key in (5, 2**63 + 9, 5):
        environment.reset(key, 0, 0, out)
        expected, _ = bare.reset(seed=key % 2**31)
        for _ in range(steps):
            np.testing.assert_array_equal(out, np.asarray(expected, out.dtype))
            if spec.action_discrete:
                action = int(rng.integers(spec.action_n))
                given = action
            else:
                action = rng.uniform(-1, 1, spec.action_n).astype(np.float32)
                given = np.float32(half) * action
            reward, terminated, truncated, life_lost, frames = environment.step(action, out)
            expected, e_reward, e_terminated, e_truncated, _ = bare.step(given)
            assert reward == e_reward
            assert (terminated, truncated, life_lost, frames) == (e_terminated, e_truncated, False, 1)
            if terminated or truncated:
                np.testing.assert_array_equal(out, np.asarray(expected, out.dtype))
                break
    return environment


def test_cartpole_is_gymnasiums_own(monkeypatch):
    for engine in ("ale_py", "mujoco", "Box2D"):  # an actor loads one kind only, this process many
        monkeypatch.delitem(sys.modules, engine, raising=False)
    spec = play("CartPole-v1").spec
    assert (spec.id, spec.action_n, spec.observation_shape) == ("gym/CartPole-v1", 2, (4,))
    assert (spec.observation_dtype, spec.steps_max, spec.frames_per_step) == ("float32", 500, 1)
    assert spec.version == f"gymnasium {gymnasium.__version__}"


def test_box_actions_are_rescaled_to_the_bounds():
    environment = play("Pendulum-v1", half=2.0)
    assert environment.spec.action_low == (-2.0,) and environment.spec.action_high == (2.0,)
    given = []
    environment.env.step = lambda action: given.append(action) or (np.zeros(3), 0.0, False, False, {})
    for a in (-1, 0, 0.5, 1):
        environment.step(np.array([a], np.float32), empty(environment.spec))
    np.testing.assert_array_equal(np.concatenate(given), np.float32([-2, 0, 1, 2]))
    assert given[0].dtype == np.float32


class Probe(gymnasium.Env):
    """Spaces on demand; remembers the actions it was given."""

    def __init__(self, observation=None, action=None):
        self.observation_space = observation or spaces.Box(-1, 1, (2,), np.float64)
        self.action_space = action or spaces.Discrete(3, start=-1)
        self.given = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.last = self.observation_space.sample()
        return self.last, {}

    def step(self, action):
        self.given.append(action)
        self.last = self.observation_space.sample()
        return self.last, np.float32(1.5), np.bool_(False), False, {}


gymnasium.register("Probe-v0", Probe)


def test_discrete_actions_begin_at_their_start():
    environment = make({"kind": "gym", "id": "Probe-v0"})
    environment.reset(1, 0, 0, empty(environment.spec))
    for action in range(3):
        environment.step(action, empty(environment.spec))
    assert environment.env.unwrapped.given == [-1, 0, 1]


def test_actions_stay_within_their_bounds():
    """Those with an infinite bound are passed through, or moved behind the other one."""
    low, high = np.float32([-np.inf, 0, -3, 0, -np.inf]), np.float32([np.inf, 10, np.inf, np.inf, -7])
    environment = make({"kind": "gym", "id": "Probe-v0", "kwargs": {"action": spaces.Box(low, high)}})
    environment.reset(1, 0, 0, empty(environment.spec))
    numbers = np.float32([[0.5, 0.5, -0.25, 0.5, 0.75], [-1] * 5, [1] * 5])
    expected = np.float32([[0.5, 7.5, -0.25, 1.5, -7.25], [-1, 0, -1, 0, -9], [1, 10, 1, 2, -7]])
    for row in numbers:
        environment.step(row, empty(environment.spec))
    np.testing.assert_array_equal(environment.env.unwrapped.given, expected)
    # the Python package's conversion, to samara's form and back
    fields = {"discrete": False, "sizes": (), "actions": 5, "raw": False}
    bounds = {key: [float(bound) if np.isfinite(bound) else None for bound in of] for key, of in (("low", low), ("high", high))}
    actions = Actions(fields | bounds)
    np.testing.assert_allclose([actions.from_engine(0, row) for row in numbers], expected)
    np.testing.assert_allclose(actions.to_values(expected), numbers.reshape(-1))


def test_images_stay_bytes_and_frames_limit_an_episode():
    image = spaces.Box(0, 255, (8, 6, 3), np.uint8)
    environment = make({"kind": "gym", "id": "Probe-v0", "kwargs": {"observation": image}})
    assert environment.spec.observation_dtype == "uint8"
    out = empty(environment.spec)
    environment.reset(1, 0, 3, out)
    ends = [environment.step(0, out)[1:3] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]
    np.testing.assert_array_equal(out, environment.env.unwrapped.last)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(5),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(4),
        spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (2, 2)))),
        spaces.Dict({"b": spaces.Box(0, 9, (3,)), "a": spaces.Discrete(2)}),
    ],
)
def test_structured_observations_are_flattened(space):
    environment = make({"kind": "gym", "id": "Probe-v0", "kwargs": {"observation": space}})
    out = empty(environment.spec)
    assert out.shape == (spaces.flatdim(space),) and out.dtype == np.float32
    environment.reset(1, 0, 0, out)
    np.testing.assert_array_equal(out, spaces.flatten(space, environment.env.unwrapped.last).astype(np.float32))


@pytest.mark.parametrize(
    "config, code, words",
    [
        ({"id": "CartPol-v1"}, CONFIG, "gym 'CartPol-v1': no environment has this name, the nearest is CartPole-v1; expected"),
        ({"id": "nope"}, CONFIG, "gym 'nope': no environment has this name; expected one that `samara list envs` shows, an id"
                                 " that Gymnasium knows, or MODULE:NAME"),
        ({"id": "CartPole-v99"}, CONFIG, "v99"),
        ({"id": "nowhere:CartPole-v1"}, NO_INPUT, "nowhere"),
        ({"id": "CartPole-v1", "kwargs": {"gravitas": 1}}, CONFIG, "gravitas"),
        ({"id": "CartPole-v1", "idd": 1}, CONFIG, "idd"),
        ({"id": 3}, CONFIG, "id"),
        ({"id": "Probe-v0", "kwargs": {"action": spaces.Tuple([spaces.Discrete(2)])}}, CONFIG,
         "action space Tuple(Discrete(2)) is not supported: expected Discrete, MultiDiscrete, MultiBinary or a Box of floats"),
        ({"id": "Probe-v0", "kwargs": {"observation": spaces.Text(3)}}, CONFIG,
         "is not supported: expected a Box, Discrete, MultiDiscrete or MultiBinary, or a Dict or Tuple of these"),
        ({"id": "Probe-v0", "kwargs": {"observation": spaces.Sequence(spaces.Discrete(2))}}, CONFIG, "Sequence"),
    ],
)
def test_refusals_say_what_was_given(config, code, words):
    with pytest.raises(SetupError) as refusal:
        make({"kind": "gym", **config})
    assert refusal.value.code == code
    assert words in str(refusal.value)


def test_pictures_have_the_size_that_was_announced():
    environment = make({"kind": "gym", "id": "Probe-v0"})
    assert environment.spec.render_frames == 0
    probe = Probe()
    probe.render = lambda: np.full((4, 5, 3), 7, np.uint8)
    environment = gym.GymEnvironment("Probe-v0", probe, True)
    assert (environment.spec.render_height, environment.spec.render_width) == (4, 5)
    out = np.zeros((1, 4, 5, 3), np.uint8)
    assert environment.pictures(out) == 1 and (out == 7).all()


@pytest.mark.parametrize("declared, rate", [({"render_fps": 5}, 5), ({"render_fps": np.int64(50)}, 50), ({}, 30), (None, 30),
                                            ({"render_fps": None}, 30), ({"render_fps": 0}, 30), ({"render_fps": 1e6}, 30)])
def test_pictures_come_at_the_rate_that_was_declared(declared, rate):
    probe = Probe()
    probe.metadata = declared
    assert gym.picture_rate(probe) == rate


@pytest.mark.parametrize("name", ["Parts", "Switches"])
def test_actions_of_several_parts_are_told_by_one_index(name, monkeypatch):
    monkeypatch.syspath_prepend(str(TESTS / "envs"))
    environment = make({"kind": "gym", "id": f"parts:{name}-v0"})
    spec, bare = environment.spec, gymnasium.make(f"{name}-v0").unwrapped
    assert spec.action_discrete and spec.action_sizes == bare.sizes and spec.action_n == np.prod(bare.sizes)
    out, seen = empty(spec), set()
    environment.reset(1, 0, 0, out)
    unwrapped = environment.env.unwrapped
    for _ in range(200):
        wanted = tuple(unwrapped.wanted)
        seen.add(wanted)
        step = environment.step(int(np.ravel_multi_index(wanted, bare.sizes)), out)
        assert step.reward == len(bare.sizes)  # every part did what was wanted
        if step.terminated:
            environment.reset(len(seen), 0, 0, out)
    assert len(seen) > 10


def test_too_many_actions_are_refused():
    with pytest.raises(SetupError, match="fewer than 2"):
        gym.parts("Huge-v0", spaces.MultiDiscrete([2**16, 2**16]))


# ---- arguments, wrappers and classes of one's own

TASK = """
import gymnasium, numpy as np
from gymnasium import spaces


class Corridor(gymnasium.Env):
    action_space = spaces.Discrete(2)

    def __init__(self, length=5, start={"at": 0}, shape=(1,)):
        self.length, self.first, self.shape, self.at = length, start["at"], shape, start["at"]
        self.observation_space = spaces.Box(0, 1, (1,), np.float32)

    def observe(self):
        return np.full(self.shape, self.at / self.length, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.first
        return self.observe(), {}

    def step(self, action):
        self.at += 1 if action else -1
        return self.observe(), float(self.at), self.at == self.length, False, {}


class Scaled(gymnasium.RewardWrapper):
    def __init__(self, env, by=10.0):
        super().__init__(env)
        self.by = by

    def reward(self, reward):
        return self.by * reward
"""


@pytest.fixture
def corridors(tmp_path, monkeypatch):
    (tmp_path / "corridors.py").write_text(TASK)
    monkeypatch.delitem(sys.modules, "corridors", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield {"kind": "gym", "id": "corridors:Corridor", "path": str(tmp_path)}


def test_a_class_needs_no_registration_and_takes_arguments_and_wrappers(corridors):
    plain = make(corridors)
    out = empty(plain.spec)
    plain.reset(1, 0, 0, out)
    assert plain.step(1, out) == (1.0, False, False, False, 1) and out == pytest.approx(0.2)
    chosen = make(corridors | {"kwargs": {"length": 3, "start": {"at": 2}}, "wrappers": [
        "corridors:Scaled", "corridors:Scaled?by=0.5", "gymnasium.wrappers:TimeLimit?max_episode_steps=7"]})
    chosen.reset(1, 0, 0, out)
    assert chosen.step(1, out) == (15.0, True, False, False, 1) and out == 1  # 3 * 10 * 0.5
    assert chosen.env._max_episode_steps == 7
    # arguments change the task: two that differ are two versions
    assert plain.spec.version != chosen.spec.version and '"length": 3' in chosen.spec.version


@pytest.mark.parametrize(("more", "code", "words"), [
    ({"kwargs": {"size": 4}}, CONFIG, "size"),
    ({"wrappers": ["corridors"]}, CONFIG, "expected module:Class"),
    ({"wrappers": ["corridors:Nothing"]}, CONFIG, "Nothing"),
    ({"wrappers": ["corridors:Scaled?to=2"]}, CONFIG, "to"),
    ({"wrappers": ["no_such_module:Scaled"]}, NO_INPUT, "then in the current folder"),
    ({"wrappers": "corridors:Scaled"}, CONFIG, "a list"),
    ({"id": "no_such_module:Corridor"}, NO_INPUT, "start samara in the module's folder, or name that in PYTHONPATH"),
    ({"id": "corridors:Nothing"}, CONFIG, r"corridors \(.*corridors.py\) has no class Nothing; it has Corridor, Scaled$"),
    ({"id": "./corridors:Corridor"}, CONFIG, "^gym './corridors:Corridor': ./corridors is a path, expected MODULE:NAME .*"
                                             ": corridors:Corridor, run in the folder of corridors.py$"),
    ({"id": "corridors.py:Corridor"}, CONFIG, "corridors.py is a file, .*: corridors:Corridor, run in the folder of corr"),
    ({"id": "corridors.py"}, CONFIG, "corridors.py is a file, .*: corridors:NAME, run in"),
    ({"id": "./corridors"}, CONFIG, "./corridors is a path, .*: corridors:NAME, run in"),
    ({"id": "/tasks/corridors.py:Corridor"}, CONFIG, "a path, .*: corridors:Corridor, run in the folder /tasks$"),
    ({"id": "tasks/corridors:Corridor"}, CONFIG, "a path, .*: corridors:Corridor, run in the folder tasks$"),
    ({"id": "corridors.Corridor"}, CONFIG, "no environment has this name, the nearest is corridors:Corridor; expected"),
    ({"id": "corridors:"}, CONFIG, "expected MODULE:NAME, such as corridors:NAME"),
    ({"id": ":Corridor"}, CONFIG, "expected MODULE:NAME, such as my_module:Corridor"),
    ({"wrappers": ["./corridors.py:Scaled?by=2"]}, CONFIG, "^wrapper .*: corridors:Scaled, run in the folder of corridors.py"),
    ({"id": "json:Corridor"}, CONFIG, r"json \(.*json/__init__.py\) has no class Corridor; it is Python's own"),
])  # fmt: skip
def test_what_an_environment_of_ones_own_is_refused_for(more, code, words, corridors):
    with pytest.raises(SetupError, match=words) as refused:
        make(corridors | more)
    assert refused.value.code == code


@pytest.mark.parametrize(("given", "game"), [
    ("ALE/Pong-v5", "pong"), ("ALE/MsPacman-v5", "ms_pacman"), ("atari/pong", "pong"), ("atari:pong", "pong"),
])  # fmt: skip
def test_other_names_of_atari_games_are_refused_with_samaras(given, game):
    with pytest.raises(SetupError) as refused:
        make({"kind": "gym", "id": given})
    assert refused.value.code == CONFIG and "not found" not in str(refused.value)
    for words in (f"env.game={game} with a preset of atari/", f"check and actor take atari/{game}", f"make_vec takes atari:{game}"):
        assert words in str(refused.value)


def test_a_package_that_is_missing_is_named_with_what_installs_it(monkeypatch):
    needed = 'Box2D is not installed, run `pip install "gymnasium[box2d]"`'

    def needs_box2d():
        raise gymnasium.error.DependencyNotInstalled(needed)

    monkeypatch.setitem(gymnasium.registry, "Needy-v0", EnvSpec("Needy-v0", entry_point=needs_box2d))
    with pytest.raises(SetupError) as refused:
        make({"kind": "gym", "id": "Needy-v0"})
    assert refused.value.code == NO_INPUT
    assert str(refused.value) == f"gym 'Needy-v0' needs a Python package: {needed}; samara's Python is {sys.executable} (-m pip)"


@pytest.mark.parametrize("shape", [(3,), (2, 2)])
def test_an_observation_of_another_shape_names_the_space(shape, corridors):
    environment = make(corridors | {"kwargs": {"shape": shape}})
    words = f"of shape {shape}, expected one of observation_space=Box(0.0, 1.0, (1,), float32)"
    with pytest.raises(ValueError, match=re.escape(words)):
        environment.reset(1, 0, 0, empty(environment.spec))
    with pytest.raises(ValueError, match=re.escape(words)):
        environment.step(1, empty(environment.spec))


# ---- what an author of an environment gets wrong

FAULTS = '''
import gymnasium, numpy as np
from gymnasium import spaces

class Sound(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"]}
    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)
    picture = np.zeros((4, 6, 3), np.uint8)
    def __init__(self, render_mode=None): self.render_mode = render_mode
    def reset(self, *, seed=None, options=None): return np.zeros(2, np.float32), {}
    def step(self, action): return np.zeros(2, np.float32), 0.0, False, False, {}
    def render(self): return self.picture

class OldStep(Sound):
    def step(self, action): return np.zeros(2, np.float32), 0.0, False, {}
class NoStep(Sound):
    def step(self, action): pass
class OldReset(Sound):
    def reset(self, *, seed=None, options=None): return np.zeros(2, np.float32)
class Limited(gymnasium.wrappers.TimeLimit):
    def __init__(self, render_mode=None): super().__init__(OldStep(), 5)
class OwnUnpacking(Sound):
    def step(self, action): a, b = 1, 2, 3
class Careless(Sound):
    def __init__(self, render_mode=None):
        self.level = len(None)
class NoRenderMode(Sound):
    def __init__(self): pass
class NoRender(Sound):
    render = gymnasium.Env.render
class Gray(Sound):
    picture = np.zeros((4, 6), np.uint8)
class Stumbles(Sound):
    def render(self): return 1 / 0
'''


@pytest.fixture
def faults(tmp_path, monkeypatch):
    (tmp_path / "faults.py").write_text(FAULTS)
    monkeypatch.delitem(sys.modules, "faults", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return lambda name, render=False: make({"kind": "gym", "id": f"faults:{name}", "path": str(tmp_path)}, render)


@pytest.mark.parametrize(("name", "words"), [
    ("OldStep", r"^step: .*expected 5, got 4.*\(observation, reward, terminated, truncated, info\)"),
    ("NoStep", "^step: cannot unpack .*NoneType"),
    ("Limited", "^step: .*expected 5, got 4"),  # Gymnasium's wrapper takes it apart
    ("OldReset", r"^reset: cannot unpack ndarray; expected \(observation, info\)"),
    ("OwnUnpacking", r"^too many values to unpack \(expected 2"),
])  # fmt: skip
def test_results_of_the_old_interface_are_named(name, words, faults):
    env = faults(name)
    out = empty(env.spec)
    with pytest.raises((TypeError, ValueError), match=words) as raised:
        env.reset(1, 0, 0, out)
        env.step(1, out)
    assert "\n" not in str(raised.value)


def test_a_constructor_that_fails_is_named_with_its_line(faults):
    line = 1 + FAULTS[: FAULTS.index("len(None)")].count("\n")
    with pytest.raises(SetupError) as raised:
        faults("Careless")
    assert f"TypeError: object of type 'NoneType' has no len() (faults.py:{line})" in str(raised.value)
    assert str(raised.value).endswith("; `samara check faults:Careless` shows the traceback")
    config = {"kind": "gym", "id": "faults:Careless", "kwargs": {"render_mode": "it's"}, "wrappers": ["a:B?c=1", "d:E"]}
    with pytest.raises(SetupError) as chosen:
        make(config)
    command = re.search(r"; `(.*)` shows the traceback$", str(chosen.value))[1]
    assert shlex.split(command) == ["samara", "check", "faults:Careless", 'env.kwargs.render_mode="it\'s"',
                                    'env.wrappers=["a:B?c=1", "d:E"]']  # fmt: skip
    frames = traceback.extract_tb(raised.value.__cause__.__traceback__)  # what an actor prints
    assert (frames[-1].name, frames[-1].lineno) == ("__init__", line)


@pytest.mark.parametrize(("name", "words"), [
    ("NoRenderMode", "it takes no render_mode; they need .*'rgb_array'"),
    ("NoRender", r"it has no render\(\); they need .*'rgb_array'"),
    ("Gray", r"returned an array of shape \(4, 6\); .*height, width, 3"),
    ("Stumbles", r"failed: ZeroDivisionError: division by zero \(faults.py:"),
])  # fmt: skip
def test_why_there_are_no_pictures_is_said(name, words, faults):
    assert faults("Sound", True).spec.render_width == 6
    with pytest.raises(SetupError, match=words) as raised:
        faults(name, True)
    assert f"gym faults:{name}" in str(raised.value)
    assert faults(name).spec.render_height == 0, "plays without pictures"
