"""The EnvPool adapter against EnvPool itself, step by step. Without the wheel (`make envpool`) only its refusals are tested."""

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from samara_cli import CARTPOLE, ROOT, ok, train

from samara import wire
from samara.environment import CONFIG, NO_INPUT, SetupError, Step, make, make_batch
from samara.remote import FAILURES_MAX, Ended, Slots

INSTALLED = importlib.util.find_spec("envpool") is not None
needs_envpool = pytest.mark.skipif(not INSTALLED, reason="EnvPool is not installed: `make envpool` (0.9 GB)")
if INSTALLED:
    from samara import envpool as adapter  # before EnvPool itself, for OpenGL

    import envpool
# a task of each family, its observation and actions as the adapter announces them
FAMILIES = {
    "CartPole-v1": ("float32", (4,), True, 2),
    "Pendulum-v1": ("float32", (3,), False, 1),
    "HalfCheetah-v5": ("float32", (17,), False, 6),
    "CheetahRun-v1": ("float32", (17,), False, 6),  # dm_control: a Dict of position and velocity
    "LunarLander-v3": ("float32", (8,), True, 4),
    "CarRacing-v3": ("uint8", (96, 96, 3), False, 3),
    "FrozenLake-v1": ("float32", (16,), True, 4),
    "MiniGrid-DoorKey-5x5-v0": ("float32", (247,), True, 7),  # 4 directions, 7 x 7 x 3, 96 letters
    "CoinrunEasy-v0": ("uint8", (64, 64, 3), True, 15),
    "Pong-v5": ("uint8", (84, 84, 4), True, 6),
    "Basic-v1": ("uint8", (84, 84, 12), True, 6),  # ViZDoom
    "gfootball/academy_empty_goal_close-v1": ("uint8", (72, 96, 4), True, 19),
}

# plays one task in a process of its own: some of the simulators behind EnvPool were seen to hang
SCRIPT = """
import json, sys, warnings
import numpy as np
warnings.simplefilter("ignore")
import envpool
from samara.environment import make
task, keys, steps = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
environment = make({"kind": "envpool", "id": task})
spec = environment.spec
out = np.zeros(spec.observation_shape, spec.observation_dtype)
kept = "kept" in spec.version
options = {"use_combined_action": True} if task == "Basic-v1" else {}
bare, ends = None, []

def expected(value, path=()):
    # Gymnasium's order of a flattened Dict: by key; Discrete becomes one-hot
    if isinstance(value, dict):
        return np.concatenate([expected(value[k], (*path, k)) for k in sorted(value)])
    value = np.asarray(value)[0]
    if path == ("direction",) or (not path and task == "FrozenLake-v1"):
        return np.eye(16 if task == "FrozenLake-v1" else 4)[int(value)]
    if value.ndim == 3 and not path:
        return value.transpose(1, 2, 0) if value.shape[0] < 16 else value
    return value.ravel()

def same(observation):
    np.testing.assert_array_equal(out, np.asarray(expected(observation), out.dtype).reshape(out.shape))

for key in keys:
    if bare is None or not kept:
        bare = envpool.make_gymnasium(task, num_envs=1, num_threads=1, seed=key % 2**31, **options)
    first, _ = bare.reset()
    environment.reset(key, 0, 0, out)
    same(first)
    rng = np.random.default_rng(key % 1000)
    for step in range(steps):
        if spec.action_discrete:
            action = int(rng.integers(spec.action_n))
            given = np.array([action])
        else:
            action = rng.uniform(-1, 1, spec.action_n).astype(np.float32)
            low, high = np.array(spec.action_low), np.array(spec.action_high)
            given = np.clip((low + high) / 2 + (high - low) / 2 * action, low, high)[np.newaxis]
        observation, reward, terminated, truncated, _ = bare.step(given)
        answer = environment.step(action, out)
        same(observation)
        assert answer == (reward[0], terminated[0], truncated[0], False, spec.frames_per_step), (answer, step)
        if terminated[0] or truncated[0]:
            break
    ends.append([step + 1, bool(terminated[0]), bool(truncated[0])])
environment.close()
print(json.dumps({"spec": vars(spec), "ends": ends}))
"""


def side_by_side(folder, task, keys=(5, 2**63 + 9, 5), steps=60):
    """Adapter and EnvPool with the same seeds and actions, compared at each step by the script."""
    # ViZDoom writes its settings to where it stands
    arguments = [sys.executable, "-c", SCRIPT, task, json.dumps(keys), str(steps)]
    path = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "build" / "python"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False, cwd=folder, env=path)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@needs_envpool
@pytest.mark.parametrize("task", FAMILIES)
def test_each_family_plays_like_envpool(task, tmp_path):
    played = side_by_side(tmp_path, task)
    spec = played["spec"]
    dtype, shape, discrete, n = FAMILIES[task]
    assert (spec["observation_dtype"], tuple(spec["observation_shape"])) == (dtype, shape)
    assert (spec["action_discrete"], spec["action_n"]) == (discrete, n)
    assert spec["id"] == f"envpool/{task}" and spec["version"].startswith("envpool 1.2.5")
    assert spec["frames_per_step"] == (4 if task in ("Pong-v5", "Basic-v1") else 1)


@needs_envpool
def test_episodes_end_once_and_with_their_last_observation(tmp_path):
    # CartPole falls: terminated; MountainCar's 200 steps: truncated, as Gymnasium says
    for length, terminated, truncated in side_by_side(tmp_path, "CartPole-v1", steps=500)["ends"]:
        assert terminated and not truncated and length < 200
    ends = side_by_side(tmp_path, "MountainCar-v0", steps=300)["ends"]
    assert ends == [[200, False, True]] * 3


class Recorder:
    """A pool that writes down what it is asked."""

    def __init__(self, pool):
        self.pool, self.asked = pool, []
        self.observation_space, self.action_space, self.config = pool.observation_space, pool.action_space, pool.config

    def reset(self):
        self.asked.append("reset")
        return self.pool.reset()

    def step(self, action):
        self.asked.append("step")
        return self.pool.step(action)

    def close(self):
        self.pool.close()


@needs_envpool
@pytest.mark.parametrize("fresh", [True, False])
def test_no_step_is_sent_to_a_finished_episode(fresh):
    environment = make({"kind": "envpool", "id": "CartPole-v1", "fresh": fresh})
    out = np.zeros(4, np.float32)
    pools = []
    build = environment.make_pool
    environment.make_pool = lambda seed: pools.append(Recorder(build(seed))) or pools[-1]
    lengths = []
    for key in (1, 2, 3):
        environment.reset(key, 0, 0, out)
        assert np.abs(out).max() <= 0.05  # an initial state
        lengths.append(1)
        while not environment.step(1, out)[1]:
            lengths[-1] += 1
        assert abs(out[2]) > 12 * np.pi / 180 or abs(out[0]) > 2.4  # the fallen pole, not the next start
    asked = [word for pool in pools for word in pool.asked]
    assert asked == [word for n in lengths for word in ["reset", *["step"] * n]]
    assert len(pools) == (3 if fresh else 1)


@needs_envpool
def test_an_episode_depends_on_its_key_alone():
    environment = make({"kind": "envpool", "id": "CartPole-v1"})

    def episode(key):
        out = np.zeros(4, np.float32)
        environment.reset(key, 0, 0, out)
        seen = [out.copy()]
        for _ in range(5):
            environment.step(0, out)
            seen.append(out.copy())
        return np.array(seen)

    first, other = episode(7), episode(8)
    np.testing.assert_array_equal(episode(7), first)
    assert (first != other).any()


@needs_envpool
def test_kept_pools_say_so_and_frames_cap_episodes():
    kept = make({"kind": "gym", "id": "envpool:CartPole-v1?fresh=false"})
    assert kept.spec.version.endswith("kept") and not make({"kind": "envpool", "id": "CartPole-v1"}).spec.version.endswith("kept")
    out = np.zeros((84, 84), np.uint8)
    pong = make({"kind": "gym", "id": "envpool:Pong-v5?stack_num=1&noop_max=1"})
    assert pong.spec.observation_shape == (84, 84) and "noop_max=1" in pong.spec.version
    pong.reset(1, 0, 10, out)
    assert [pong.step(0, out)[1:3] for _ in range(3)] == [(False, False), (False, False), (False, True)]


@needs_envpool
@pytest.mark.parametrize("task, skip, per_step", [("CartpoleSwingup-v1", 8, 8), ("HalfCheetah-v5", 10, 2)])  # of 1 and 5 steps
def test_dm_control_and_mujoco_show_their_pixels(task, skip, per_step):
    options = {"from_pixels": True, "render_width": 40, "render_height": 32, "frame_skip": skip, "max_episode_steps": 5}
    environment = make({"kind": "envpool", "id": task, "kwargs": options})
    spec = environment.spec
    assert (spec.observation_shape, spec.observation_dtype) == ((32, 40, 3), "uint8")
    assert (spec.frames_per_step, spec.steps_max) == (per_step, 5)
    out = np.zeros(spec.observation_shape, np.uint8)
    for key in (3, 4, 3):
        bare = envpool.make_gymnasium(task, num_envs=1, num_threads=1, seed=key, **options)
        environment.reset(key, 0, 0, out)
        first = out.copy()
        np.testing.assert_array_equal(out, bare.reset()[0][0].transpose(1, 2, 0))
        for step in range(5):
            answer = environment.step(np.full(spec.action_n, 0.5, np.float32), out)
            seen, reward, *_ = bare.step(np.full((1, spec.action_n), 0.5) * np.array(spec.action_high))
            np.testing.assert_array_equal(out, seen[0].transpose(1, 2, 0))
            assert answer == (reward[0], False, step == 4, False, per_step)
        assert (out != first).any()


@needs_envpool
def test_without_opengl_pixels_are_refused(monkeypatch):
    monkeypatch.setattr(adapter, "NO_OPENGL", "libGL.so.1: cannot open shared object file: run `make envpool`")
    make({"kind": "gym", "id": "envpool:CartpoleSwingup-v1"})
    with pytest.raises(SetupError, match="OpenGL: libGL.*`make envpool`") as refusal:
        make({"kind": "gym", "id": "envpool:CartpoleSwingup-v1?from_pixels=true"})
    assert refusal.value.code == NO_INPUT


@needs_envpool
def test_pictures_have_the_size_that_was_announced():
    environment = make({"kind": "envpool", "id": "Pong-v5"}, render=True)
    spec = environment.spec
    environment.reset(1, 0, 0, np.zeros(spec.observation_shape, np.uint8))
    out = np.zeros((1, spec.render_height, spec.render_width, 3), np.uint8)
    assert environment.pictures(out) == 1 and out.std() > 0


@needs_envpool
@pytest.mark.parametrize(
    "config, words",
    [
        ({"id": "CartPol-v1"}, "'CartPole-v"),
        ({"id": 3}, "id"),
        ({"id": "CartPole-v1", "idd": 1}, "'idd'"),
        ({"id": "CartPole-v1", "kwargs": {"num_envs": 3}}, "'num_envs'"),
        ({"id": "CartPole-v1", "kwargs": {"gravitas": 3}}, "gravitas"),
        ({"id": "Pong-v5", "kwargs": {"frame_skip": "x"}}, "frame_skip"),
        ({"id": "CartPole-v1", "fresh": 1}, "fresh"),
        ({"id": "Chess-v1"}, "2 players"),
        ({"id": "RubiksCube-v0"}, "action space"),  # integers
        ({"kind": "gym", "id": "envpool:CartPole-v1?fresh"}, "key=value"),
    ],
)
def test_refusals_say_what_was_given(config, words):
    with pytest.raises(SetupError) as refusal:
        make({"kind": "envpool", **config})
    assert refusal.value.code == CONFIG
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_without_the_wheel_the_command_is_named(tmp_path):
    # a package of this name that cannot be imported stands in front of the real one
    (tmp_path / "envpool.py").write_text("raise ModuleNotFoundError(\"No module named 'envpool'\", name='envpool')\n")
    script = (
        "from samara.environment import SetupError, make\n"
        "try: make({'kind': 'gym', 'id': 'envpool:CartPole-v1'})\n"
        "except SetupError as error: print(error.code, error)\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, cwd=ROOT
    )
    assert done.stdout.startswith(f"{NO_INPUT} ") and "`make envpool`" in done.stdout, done
    assert done.stdout.count("\n") == 1


@needs_envpool
def test_a_task_trains_in_actors_with_one_hash_however_many(tmp_path):
    short = [*CARTPOLE, "env.frames_max=40", "env.test_frames_max=40", "ga.population=6", "ga.generations=2"]
    hashes = set()
    for actors in (1, 2):
        run = tmp_path / str(actors)
        result = train(run, *short, "env.id=envpool:FrozenLake-v1?max_episode_steps=30", f"fleet.actors={actors}")
        hashes.add(result["population_hash"])
        ok("fsck", run)
    assert len(hashes) == 1 and result["frames"] > 0


def commands_of(spec, kinds, keys, actions):
    rows = np.zeros(len(kinds), wire.command_type(0 if spec.action_discrete else spec.action_n))
    rows["slot"], rows["kind"], rows["seed"] = range(len(kinds)), kinds, keys
    rows["argument" if spec.action_discrete else "values"] = actions
    return rows


@needs_envpool
@pytest.mark.parametrize("task, steps", [("CartPole-v1", 200), ("Pendulum-v1", 450), ("CheetahRun-v1", 30)])
def test_a_batch_plays_like_one_pool_of_envpool(task, steps):
    """Several episodes of three slots against EnvPool in its synchronous mode."""
    batch = make_batch({"kind": "envpool", "id": task, "fresh": False}, 3, 2)
    bare = envpool.make_gymnasium(task, num_envs=3, num_threads=1, seed=7)
    alone, spec = make({"kind": "envpool", "id": task}), batch.spec
    assert spec.version.endswith("kept") and spec.action_n == alone.spec.action_n
    rng = np.random.default_rng(0)
    out, want, ends = np.zeros(spec.observation_shape, np.float32), np.zeros(spec.observation_shape, np.float32), 0
    ended = np.ones(3, bool)  # EnvPool answers the step after the last one with the next beginning
    for step in range(steps):
        actions = rng.integers(2, size=3) if spec.action_discrete else rng.uniform(-1, 1, (3, spec.action_n)).astype(np.float32)
        batch.start(commands_of(spec, np.where(ended, wire.RESET, wire.ACT), [7, 8, 9], actions))
        results = bare.step(alone.given(actions)) if step else (bare.reset()[0], *np.zeros((3, 3)), {})
        found = set()
        for _ in range(3):
            slot, answer = batch.finish(out)
            found.add(slot)
            alone.observe({k: v[slot : slot + 1] for k, v in results[0].items()} if isinstance(results[0], dict)
                          else results[0][slot : slot + 1], want)
            np.testing.assert_array_equal(out, want)
            _, reward, terminated, truncated, _ = results
            assert answer == (reward[slot], terminated[slot], truncated[slot], False, 0 if ended[slot] else 1), (slot, step)
        assert found == {0, 1, 2}
        ended = np.array(results[2], bool) | np.array(results[3], bool)
        ends += ended.sum()
    assert ends >= (0 if task == "CheetahRun-v1" else 6)


@needs_envpool
def test_a_batch_that_breaks_costs_the_episodes_in_it():
    slots = Slots({"kind": "envpool", "id": "CartPole-v1", "fresh": False}, 3, 1)

    def served(*kinds):
        """Flags of each slot's answer."""
        rows = commands_of(slots.spec, kinds, [1, 2, 3], [1, 1, 1])
        assert len(list(slots.serve(rows))) == len(rows) == slots.waiting
        slots.waiting = 0
        return slots.rows["flags"][np.argsort(slots.rows["slot"])].tolist()

    assert served(wire.RESET, wire.RESET, wire.RESET) == [0, 0, 0] and served(wire.ACT, wire.ACT, wire.ACT) == [0, 0, 0]
    working, answers = slots.batch.task.pool.recv, iter(range(2))
    slots.batch.task.pool.recv = lambda: working() if next(answers, None) is not None else 1 / 0  # the last of three fails
    assert sorted(served(wire.ACT, wire.ACT, wire.ACT)) == [0, 0, wire.LOST] and slots.steps == 5
    # no episode of the broken pool goes on in the new one
    assert served(wire.ACT, wire.RESET, wire.ACT) == [wire.LOST, 0, wire.LOST]
    assert served(wire.RESET, wire.ACT, wire.RESET) == [0, 0, 0] and slots.steps == 6


@needs_envpool
def test_a_batch_that_breaks_again_and_again_ends_the_actor():
    slots = Slots({"kind": "envpool", "id": "CartPole-v1", "fresh": False}, 1, 1)
    with pytest.raises(Ended, match="in a row") as end:
        for failures in range(2 * FAILURES_MAX):
            list(slots.serve(commands_of(slots.spec, [wire.RESET], [1], [0])))
            slots.waiting = 0
            slots.batch.task.pool.recv = lambda: 1 / 0
            list(slots.serve(commands_of(slots.spec, [wire.ACT], [1], [0])))
            slots.waiting = 0
    assert failures == FAILURES_MAX - 1 and end.value.code == 69


@needs_envpool
def test_what_no_engine_sends_is_refused():
    slots = Slots({"kind": "envpool", "id": "CartPole-v1", "fresh": False}, 3, 1)
    begin = commands_of(slots.spec, [wire.RESET] * 3, [1, 2, 3], [0, 0, 0])
    with pytest.raises(wire.Malformed, match="two commands"):
        list(slots.serve(begin[[0, 0]]))
    assert list(slots.serve(begin[:0])) == [] and slots.waiting == 0


@needs_envpool
def test_one_simulator_has_one_count_of_failures():
    """Whichever slot's answer is missing; an episode that ends anywhere sets it back."""
    slots = Slots({"kind": "envpool", "id": "CartPole-v1", "fresh": False}, 3, 1)
    with pytest.raises(Ended, match="in a row"):
        for failures in range(2 * FAILURES_MAX):
            list(slots.serve(commands_of(slots.spec, [wire.RESET] * 3, [1, 2, 3], [0, 0, 0])))
            slots.waiting = 0
            working, answers = slots.batch.task.pool.recv, iter(range(failures % 3))
            slots.batch.task.pool.recv = lambda: working() if next(answers, None) is not None else 1 / 0  # noqa: B023
            list(slots.serve(commands_of(slots.spec, [wire.ACT] * 3, [0, 0, 0], [1, 1, 1])))
            slots.waiting = 0
    assert failures == FAILURES_MAX - 1
    slots.add(commands_of(slots.spec, [wire.ACT] * 3, [0, 0, 0], [1, 1, 1])[2], Step(1.0, True, False, False, 1))
    assert slots.failures[0] == 0


@needs_envpool
def test_a_task_with_a_pool_per_episode_makes_none_for_the_batch(monkeypatch):
    made = []
    build = envpool.make_gymnasium
    monkeypatch.setattr(envpool, "make_gymnasium", lambda *a, **k: made.append(1) or build(*a, **k))
    assert make_batch({"kind": "envpool", "id": "CartPole-v1"}, 2, 1) is None and not made
    assert make_batch({"kind": "envpool", "id": "CartPole-v1", "fresh": False, "trace": {}}, 2, 1) is None and not made
