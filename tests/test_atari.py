"""The Atari adapter: contract, history independence, save and restore, every ROM."""

import hashlib

import numpy as np
import pytest
from ale_py import ALEInterface
from atari_presets import make, observation, presets, random_actions

from samara import atari, environment
from samara.palette import palettes

DEFAULT = ["tetris", "pong", "breakout", "frostbite"]
# reset_game() alone keeps traces of the last episode in these, among others
WITH_HISTORY = ["frostbite", "freeway", "assault", "beam_rider", "demon_attack", "time_pilot"]


def play(env, actions, seed=1, noops=5, frames_max=0, reset=True):
    """Everything that an episode shows, step by step; stops at its end."""
    out = observation(env)
    trace = []
    if reset:
        env.reset(seed, noops, frames_max, out)
        trace.append(hashlib.sha256(out.tobytes() + env.ale.getRAM().tobytes()).hexdigest())
    for action in actions:
        step = env.step(action, out)
        trace.append((*step, hashlib.sha256(out.tobytes() + env.ale.getRAM().tobytes()).hexdigest()))
        if step.terminated or step.truncated:
            break
    return trace


def test_palette_is_what_the_emulator_draws():
    for game in ["pong", "frostbite", "carnival", "air_raid", "pacman"]:  # the last two are PAL
        ale = make(game, "ale-v5").ale
        rgb, gray = palettes(ale.getScreenDims()[0])
        for _ in range(60):
            ale.act(1)
            screen = ale.getScreen()
            np.testing.assert_array_equal(rgb[screen], ale.getScreenRGB())
            np.testing.assert_array_equal(gray[screen], ale.getScreenGrayscale())


@pytest.mark.parametrize("name", presets())
def test_same_episode_same_bits_whatever_came_before(name):
    env = make("frostbite", name)
    actions = random_actions(env, 60)
    first = play(env, actions)
    play(env, random_actions(env, 90, seed=9), seed=7, noops=11)
    env.game_goes_on = False  # the one preset whose reset may continue a game
    assert play(env, actions) == first
    assert play(make("frostbite", name), actions) == first


@pytest.mark.parametrize("game", [*WITH_HISTORY, "tetris", "qbert"])
def test_history_leaves_no_trace(game):
    """After an earlier episode the same actions give the bits of a fresh load."""
    env = make(game, "deepga-gpu")
    play(env, random_actions(env, 150, seed=3), seed=3, noops=30)
    again = make(game, "deepga-gpu")
    actions = random_actions(env, 150, seed=4)
    assert play(env, actions) == play(again, actions)


@pytest.mark.parametrize("name", presets())
def test_every_frame_repeat_advances(name):
    """Frames count up by the repeat and the picture moves."""
    env = make("breakout", name)
    out = observation(env)
    for repeat in (1, 2, 3, 4):
        env.repeat = repeat
        env.reset(1, 0, 0, out)
        seen = set()
        for i in range(30):
            assert env.step(i % 4, out).frames == repeat
            seen.add(out.tobytes())
        assert len(seen) > 15


def test_rewards_sum_to_the_emulators_score():
    """No action is dropped and no reward invented: an emulator of our own plays the same frames."""
    for game, name in [("pong", "ale-vector"), ("frostbite", "deepga-gpu"), ("breakout", "envpool")]:
        env = make(game, name, sticky=0.0)
        out = observation(env)
        actions = random_actions(env, 300)
        for _ in range(2):  # the second episode follows the first without a fake transition
            env.reset(1, 3, 0, out)
            total = taken = frames = 0
            ended = False
            for action in actions:
                step = env.step(action, out)
                total, taken, frames = total + step.reward, taken + 1, frames + step.frames
                assert not (step.terminated and step.truncated)
                if step.terminated or step.truncated:
                    ended = True
                    break
        ale = ALEInterface()
        ale.setFloat("repeat_action_probability", 0.0)
        ale.loadROM(atari.rom_path(game))
        ale.reset_game()
        fire = env.fires
        if fire and name == "ale-vector":
            ale.act(1)
        for _ in range(3):
            ale.act(0)
        if fire and name == "envpool":
            ale.act(1)
        if fire and name == "deepga-gpu":
            for code in (1, 2):
                for _ in range(4):
                    ale.act(ale.getMinimalActionSet()[code])
        score = counted = 0
        for action in actions[:taken]:
            for _ in range(4):
                score += ale.act(ale.getMinimalActionSet()[action])
                counted += 1
                if ale.game_over():
                    break
        assert (total, frames, ended) == (score, counted, ale.game_over())


def test_fire_begins_each_life_under_envpool_lives():
    """Breakout without an action: five balls are served and lost; under envpool the second one waits for FIRE. The frame of FIRE
    is not counted, and the game is one episode."""
    for name, lost, over in (("envpool", 1, False), ("envpool-lives", 4, True)):
        env = make("breakout", name)
        out = observation(env)
        env.reset(1, 3, 0, out)
        steps = []
        while len(steps) < 300 and not (steps and steps[-1].terminated):
            steps.append(env.step(0, out))
        assert sum(step.life_lost for step in steps) == lost
        assert steps[-1].terminated == over
        assert {step.frames for step in steps[:-1]} == {4} and env.frames == sum(step.frames for step in steps)


def test_frames_max_truncates_within_a_step_and_leaves_out_the_reset():
    env = make("pong", "deepga-gpu")
    out = observation(env)
    env.reset(1, 30, 22, out)
    steps = [env.step(0, out) for _ in range(6)]
    assert [s.frames for s in steps] == [4, 4, 4, 4, 4, 2]
    assert [s.truncated for s in steps] == [False] * 5 + [True]
    env = make("pong", "ale-v5", frames_max=24)  # its limit counts no-ops
    env.reset(1, 20, 0, out := observation(env))
    assert env.step(0, out).truncated
    env = make("pong", "seed", frames_max=24)  # and this one calls it an end
    env.reset(1, 20, 0, out := observation(env))
    step = env.step(0, out)
    assert step.terminated and not step.truncated


def test_life_loss_is_a_flag_and_ends_only_where_the_preset_says_so():
    env = make("breakout", "envpool")
    out = observation(env)
    env.reset(1, 3, 0, out)
    flags = [env.step(0 if i % 5 else 1, out) for i in range(300)]
    assert any(s.life_lost and not s.terminated for s in flags)
    env = make("breakout", "dqn-noframeskip-v4")
    env.reset(1, 3, 0, out := observation(env))
    lives = [env.lives]
    for _ in range(3):
        while not (step := env.step(0, out)).terminated:
            if env.steps > 400:
                break
            env.step(1, out)
        if env.game_goes_on:
            env.reset(1, 3, 0, out)
            lives.append(env.lives)
    assert lives[:3] == [5, 4, 3]


def test_pictures_are_all_emulated_frames():
    env = make("pong", "deepga-gpu", render=True)
    plain = make("pong", "deepga-gpu")
    out = observation(env)
    pictures = np.zeros((env.spec.render_frames, env.spec.render_height, env.spec.render_width, 3), np.uint8)
    env.reset(1, 4, 0, out)
    plain.reset(1, 4, 0, out)
    assert env.pictures(pictures) == 1
    np.testing.assert_array_equal(pictures[0], plain.ale.getScreenRGB())
    env.step(2, out)
    assert env.pictures(pictures) == 4
    for frame in pictures:
        plain.ale.act(plain.action_of[plain.codes[2]])
        np.testing.assert_array_equal(frame, plain.ale.getScreenRGB())


def restored_like_the_original(game, name, steps, before=50):
    env, other = make(game, name), make(game, name)
    play(other, random_actions(other, 30, seed=8), seed=8)  # whatever the other played before
    play(env, random_actions(env, before), seed=5, noops=9)
    state = env.save()
    actions = random_actions(env, steps, seed=6)
    other.restore(state)
    return play(env, actions, reset=False) == play(other, actions, reset=False)


@pytest.mark.parametrize(
    ("game", "name"),
    [*((game, "deepga-gpu") for game in DEFAULT), ("pong", "ale-sticky"), ("breakout", "ale-sticky")],
)
def test_restored_state_continues_with_the_same_bits(game, name):
    """Frames, RAM and rewards, with sticky actions too."""
    assert restored_like_the_original(game, name, 1000)


def test_sticky_rollouts_continue_alike_many_times():
    """With ALE's own generator 13 of 60 restored rollouts of Pong diverged."""
    env = make("pong", "ale-sticky")
    out = observation(env)
    env.reset(2, 0, 0, out)
    for episode in range(10):
        for action in random_actions(env, 7, seed=episode):
            env.step(action, out)
        state = env.save()
        actions = random_actions(env, 30, seed=100 + episode)
        first = play(env, actions, reset=False)
        env.restore(state)
        assert play(env, actions, reset=False) == first


def test_sticky_actions_come_per_frame_with_the_right_frequency():
    env = make("pong", "ale-sticky")
    out = observation(env)
    env.reset(3, 0, 0, out)
    env.emulator.reload, env.played = True, []  # records what was executed
    kept = []  # did the first frame of a step repeat the last executed action instead of the new one?
    for i in range(700):
        at = len(env.played)
        if env.step(2 if i % 2 else 5, out).terminated:
            break
        if i > 0 and env.played[at - 1] == (5 if i % 2 else 2):
            kept.append(env.played[at] == env.played[at - 1])
    assert abs(np.mean(kept) - 0.25) < 4 * np.sqrt(0.25 * 0.75 / len(kept))


def test_state_of_another_game_or_preset_is_refused():
    state = make("pong", "ale-v5")
    state.reset(1, 1, 0, observation(state))
    with pytest.raises(ValueError, match="another game or preset"):
        make("breakout", "ale-v5").restore(state.save())


def test_games_that_cannot_be_played_are_refused_by_name():
    for game in atari.NOT_PLAYABLE:
        with pytest.raises(environment.SetupError, match="single-player") as error:
            make(game, "ale-v5")
        assert error.value.code == environment.CONFIG
    with pytest.raises(environment.SetupError, match="nearest is frostbite"):
        make("Frostbyte", "ale-v5")
    assert len(atari.games()) + len(atari.NOT_PLAYABLE) == 108


@pytest.mark.slow
@pytest.mark.parametrize("game", atari.games())
def test_every_rom_loads_and_restores(game):
    """Every game of the wheel plays, draws from the palette, forgets history and restores."""
    env = make(game, "deepga-gpu")
    rgb, _ = palettes(env.emulator.shape[0])
    actions = random_actions(env, 150, seed=1)
    first = play(env, actions)
    np.testing.assert_array_equal(rgb[env.ale.getScreen()], env.ale.getScreenRGB())
    play(env, random_actions(env, 150, seed=2), seed=2, noops=30)
    assert play(env, actions) == first
    assert restored_like_the_original(game, "deepga-gpu", 1000)


@pytest.mark.slow
@pytest.mark.parametrize("game", atari.games())
def test_every_game_plays_under_every_preset(game):
    """20 steps of an episode of each: observations are filled completely, frames are counted, the key decides the bits."""
    assert len(presets()) == 15
    for name, preset in presets().items():
        env = make(game, name)
        actions, repeat = random_actions(env, 20, seed=3), preset["rows"]["repeat"]
        filled = []
        for before in (0, 1):
            out = np.full_like(observation(env), before)
            env.reset(1, 7, 0, out)
            filled.append(out)
            env.game_goes_on = False  # the one preset whose reset may continue a game
        assert np.array_equal(*filled), name
        first = play(env, actions, noops=7)
        frames = [step[4] for step in first[1:]]
        assert frames[:-1] == [repeat] * (len(frames) - 1) and 1 <= frames[-1] <= repeat, name
        env.game_goes_on = False
        assert play(env, actions, noops=7) == first, name
