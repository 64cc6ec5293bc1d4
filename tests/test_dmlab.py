"""The DeepMind Lab adapter against a stand-in of its package (envs/deepmind_lab.py); the real one has no wheel."""

import os
import subprocess
import sys

import numpy as np
import pytest
from samara_cli import CARTPOLE, TESTS, ok, train

from samara.environment import CONFIG, NO_INPUT, SetupError, make

LEVEL = "explore_goal_locations_small"


@pytest.fixture
def lab(monkeypatch):
    """The stand-in's class, in front of any real package, with the adapter freshly imported."""
    monkeypatch.syspath_prepend(str(TESTS / "envs"))
    for name in ("deepmind_lab", "samara.dmlab"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import deepmind_lab

    deepmind_lab.Lab.made.clear()
    yield deepmind_lab.Lab
    for name in ("deepmind_lab", "samara.dmlab"):
        sys.modules.pop(name, None)


def build(level=LEVEL, **options):
    return make({"kind": "dmlab", "id": level, "kwargs": options})


def test_an_episode_is_the_packages_own(lab):
    environment = build()
    spec = environment.spec
    assert (spec.id, spec.observation_dtype, spec.observation_shape) == (f"dmlab/{LEVEL}", "uint8", (72, 96, 3))
    assert (spec.action_n, spec.frames_per_step, len(spec.action_names)) == (9, 4, 9)
    bare = lab(f"contributed/dmlab30/{LEVEL}", ["RGB_INTERLEAVED"], {"width": "96", "height": "72"})
    # the published nine: forward, back, strafe left and right, look left and right, both with forward, fire
    nine = [(0, 0, 0, 1, 0), (0, 0, 0, -1, 0), (0, 0, -1, 0, 0), (0, 0, 1, 0, 0), (-20, 0, 0, 0, 0), (20, 0, 0, 0, 0),
            (-20, 0, 0, 1, 0), (20, 0, 0, 1, 0), (0, 0, 0, 0, 1)]
    areas = [np.zeros((72, 96, 3), np.uint8) for _ in range(2)]  # the engine alternates between two
    for key in (5, 2**63 + 9, 5):
        bare.reset(seed=key % (2**31 - 1))
        environment.reset(key, 0, 0, areas[0])
        for step in range(11):  # 42 frames, four a step
            before = bare.observations()["RGB_INTERLEAVED"].copy()
            np.testing.assert_array_equal(areas[step % 2], before)
            reward = bare.step(np.array([*nine[step % 9], 0, 0], np.intc), num_steps=4)
            answer = environment.step(step % 9, areas[(step + 1) % 2])
            assert answer == (reward, step == 10, False, False, 4)
        # nothing is shown after the end: the last observation stays
        np.testing.assert_array_equal(areas[11 % 2], before)
    assert lab.made[0].asked == lab.made[1].asked  # not a reset or a step more


def test_frames_cap_an_episode_which_is_then_truncated(lab):
    environment = build()
    out = np.zeros((72, 96, 3), np.uint8)
    environment.reset(1, 0, 12, out)
    assert [environment.step(0, out)[1:3] for _ in range(3)] == [(False, False), (False, False), (False, True)]
    environment.reset(1, 0, 42, out)  # reached in the step that ends the level: terminated only
    assert [environment.step(0, out)[1:3] for _ in range(11)][-1] == (True, False)


def test_settings_reach_the_package_as_texts(lab):
    build()
    build("rooms_collect_good_objects", test=True, width=64, height=48, dataset="/data", config={"botCount": 2})
    build("rooms_exploit_deferred_effects_train", runfiles="/run")
    build("lt_chasm", repeat=1, renderer="hardware")
    plain, tested, train_level, other = lab.made
    assert plain.config == {"width": "96", "height": "72", "logLevel": "WARN"}
    assert tested.level == "contributed/dmlab30/rooms_collect_good_objects_test"
    assert tested.config == {"width": "64", "height": "48", "logLevel": "WARN", "datasetPath": "/data", "botCount": "2",
                             "allowHoldOutLevels": "true", "mixerSeed": "1611489005"}
    assert train_level.level == "contributed/dmlab30/rooms_exploit_deferred_effects_train"
    assert sys.modules["deepmind_lab"].runfiles == "/run"
    assert other.level == "lt_chasm"
    assert build("rooms_collect_good_objects").lab.level.endswith("_train")


def test_thirty_levels(lab):
    build()
    levels = sys.modules["samara.dmlab"].DMLAB30
    assert len(levels) == len(set(levels)) == 30


def test_options_tell_versions_apart(lab):
    versions = {build(**options).spec.version for options in ({}, {"test": True}, {"repeat": 2}, {"config": {"a": "b"}})}
    assert len(versions) == 4
    assert build(cache="/tmp/nowhere").spec.version == build().spec.version


def test_the_cache_is_shared_whole_files(lab, tmp_path):
    cache = build(cache=str(tmp_path / "cache")).lab.cache
    compiled, fetched = tmp_path / "compiled.pk3", tmp_path / "fetched.pk3"
    compiled.write_bytes(b"a level" * 1000)
    assert not cache.fetch("key", str(fetched))
    cache.write("key", str(compiled))
    # md5 of "key" is 3c6e0b8a9c15224a8228b9a98ca1531d
    assert [p.relative_to(tmp_path / "cache") for p in (tmp_path / "cache").rglob("*") if p.is_file()] == [
        type(tmp_path)("3c6/e0b8a9c15224a8228b9a98ca1531d")
    ]
    assert cache.fetch("key", str(fetched)) and fetched.read_bytes() == compiled.read_bytes()
    cache.write("key", str(tmp_path / "gone.pk3"))  # it is there already
    cache.write("other", str(tmp_path / "gone.pk3"))  # nothing to read: no trace
    assert not cache.fetch("other", str(fetched)) and len(list((tmp_path / "cache").rglob(".new-*"))) == 0


@pytest.mark.parametrize(
    "level, options, words",
    [
        ("nowhere", {}, "Failed to find level nowhere"),
        ("", {}, "expected a level"),
        (LEVEL, {"widht": 3}, "'widht'"),
        (LEVEL, {"width": "3"}, "expected int"),
        (LEVEL, {"test": 1}, "expected bool"),
        (LEVEL, {"repeat": 0}, "at least 1"),
        (LEVEL, {"renderer": "oil"}, "oil"),
    ],
)
def test_refusals_say_what_was_given(lab, level, options, words):
    with pytest.raises(SetupError) as refusal:
        build(level, **options)
    assert refusal.value.code == CONFIG
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_without_the_package_there_is_one_line(tmp_path):
    (tmp_path / "deepmind_lab.py").write_text("raise ImportError('no deepmind_lab here')\n")
    script = (
        "from samara.environment import SetupError, make\n"
        f"try: make({{'kind': 'gym', 'id': 'dmlab:{LEVEL}'}})\n"
        "except SetupError as error: print(error.code, error)\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})
    assert done.stdout.startswith(f"{NO_INPUT} ") and "github.com/google-deepmind/lab" in done.stdout, done
    assert done.stdout.count("\n") == 1


def test_a_level_trains_in_actors(tmp_path):
    short = [*CARTPOLE, "network.name=mlp-64-64-tanh", "ga.population=6", "ga.generations=2"]
    path = {"PYTHONPATH": str(TESTS / "envs")}
    run = tmp_path / "run"
    result = train(run, *short, f"env.id=dmlab:{LEVEL}?width=16&height=12", **path)
    # 11 steps of 4 frames an episode; the best policy walks forward: 42 frames
    assert result["frames"] % 44 == 0 and -42 <= result["elite_mean"] <= 42
    ok("fsck", run)
