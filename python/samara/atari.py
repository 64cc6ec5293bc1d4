# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Atari 2600 games through ale-py, under the preset that the engine sends (doc/atari.md).

ALE is GPL-2.0-only: this module talks to it through the ale-py package, in the actor's process and
nowhere else. The emulator gives raw frames of palette indices; pixels are done by samara's own kernels
(src/nn/pixels.h), sticky actions and limits here, frame stacks at the engine.

Every episode starts from the state after loadROM and reset_game: a plain reset keeps traces of
the last episode in a quarter of the games.
"""

from __future__ import annotations

import difflib
import json
import struct
from pathlib import Path
from typing import Any

import ale_py
import numpy as np

from samara import _native
from samara.environment import CONFIG, NO_INPUT, SetupError, Spec, Step, how_to_install
from samara.palette import palettes

NOOP, FIRE = 0, 1  # the emulator's action codes
ACTIONS = 18  # heads of "full" presets have this many outputs in every game
# They have no single-player mode: loading one ends the process.
NOT_PLAYABLE = ("combat", "joust", "maze_craze", "warlords")
# Their saved start state does not play like a fresh load: load the ROM again, restore by replaying.
RELOAD = ("qbert", "tetris")
KEYS = {"kind", "game", "preset", "actor", "incarnation"}

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


def rom_folder() -> Path:
    """Returns the folder of ale-py's ROMs."""
    return Path(ale_py.__file__).parent / "roms"


def games() -> list[str]:
    """Every game that the wheel can load, in the spelling of its ROM: "ms_pacman"."""
    return sorted(p.stem for p in rom_folder().glob("*.bin") if p.stem not in NOT_PLAYABLE)


def rom_path(game: str) -> Path:
    """The ROM of `game`, or SetupError: a ROM that cannot load ends the process, so names come first."""
    if game in NOT_PLAYABLE:
        raise SetupError(CONFIG, f"env.game={game}: it has no single-player mode, no agent can play it alone")
    known = games()
    if not known:
        raise SetupError(NO_INPUT, f"no ROMs in {rom_folder()}: {how_to_install()}")
    if game not in known:
        near = difflib.get_close_matches(game.lower().replace("-", "_"), known, 1, 0)[0]
        raise SetupError(CONFIG, f"env.game={game}: no such game; nearest is {near}")
    path = rom_folder() / f"{game}.bin"
    if ale_py.ALEInterface.isSupportedROM(path) is None:
        raise SetupError(NO_INPUT, f"{path}: damaged ROM, its checksum is unknown; {how_to_install()}")
    return path


class Emulator:
    """One ALEInterface that starts every episode from the same bits."""

    def __init__(self, game: str) -> None:
        self.path = rom_path(game)
        self.reload = game in RELOAD
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)  # stickiness is ours
        self.ale.setInt("random_seed", 1)
        self._load()
        self.shape: tuple[int, int] = self.ale.getScreenDims()
        self.first_frame, self.first_rgb = self.ale.getScreen(), self.ale.getScreenRGB()
        self.first_state = self.ale.cloneState(include_rng=True)
        self.fresh = True

    def _load(self) -> None:
        self.ale.loadROM(self.path)
        self.ale.reset_game()

    def start(self, frame: np.ndarray) -> None:
        """The state after loadROM and reset_game; `frame` receives its screen."""
        if not self.fresh:
            if self.reload:
                self._load()
            else:
                self.ale.restoreState(self.first_state)
        self.fresh = False
        frame[:] = self.first_frame  # a restored emulator shows an old screen until its next frame


class Atari:
    """The Environment (samara/environment.py) of one game under one preset."""

    def __init__(self, game: str, preset: dict[str, Any], render: bool) -> None:
        self.preset, self.render = preset, render
        self.game = game
        rows = self.rows = preset["rows"]
        self.emulator = Emulator(game)
        self.ale = self.emulator.ale
        self._set_actions()
        self.repeat, self.sticky = int(rows["repeat"]), float(rows["sticky"])
        self.end, self.fire_rule = rows["end"], rows["fire"]
        self.fires = self.has_fire and self.fire_rule != "none"
        self._set_pixels()
        height, width = self.emulator.shape
        self.a, self.b = np.zeros((2, height, width), np.uint8)  # the two frames of the last result
        self.spare = np.zeros((2, height, width), np.uint8)  # frames that the running step captured
        self.shots = np.zeros((self.repeat, height, width), np.uint8)  # of the last step, when rendering
        self.shot_count = 0
        self.game_goes_on = False  # the last episode ended with a life, not with the game
        self.spec = self._spec()
        self._clear(seed=0, frames_max=0)

    def _set_actions(self) -> None:
        codes = [int(a.value) for a in self.ale.getMinimalActionSet()]
        if self.rows["actions"] == "full":
            legal = {int(a.value) for a in self.ale.getLegalActionSet()}
            codes = [code if code in legal else NOOP for code in range(ACTIONS)]
        self.codes = codes
        self.has_fire = len(codes) > 1 and codes[1] == FIRE
        names = {int(a.value): a.name for a in ale_py.Action.__members__.values()}
        self.names = tuple(names[code] for code in codes)
        self.action_of = [ale_py.Action(code) for code in range(ACTIONS)]

    def _set_pixels(self) -> None:
        rows, shape = self.rows, self.emulator.shape
        self.colours, self.grays = palettes(shape[0])
        if not np.array_equal(self.colours[self.emulator.first_frame], self.emulator.first_rgb):
            raise SetupError(CONFIG, f"env.game={self.game}: it draws with a palette that samara does not know")
        self.kernel = None
        if rows["resize"] == "none":
            self.shape = (*shape, 3)
            return
        self.shape = (int(rows["height"]), int(rows["width"]))
        try:
            self.kernel = _native.PixelKernel(
                rows["pooling"], rows["gray"], rows["resize"], *shape, *self.shape, self.colours, self.grays
            )
        except ValueError as error:
            raise SetupError(CONFIG, f"preset {self.preset['name']}: {error}") from error

    def _spec(self) -> Spec:
        height, width = self.emulator.shape
        return Spec(
            id=f"atari/{self.game}",
            version=f"ale-py {ale_py.__version__}, {self.preset['name']} {self.preset['hash']}",
            observation_dtype=self.rows["dtype"],
            observation_shape=self.shape,
            action_discrete=True,
            action_n=len(self.codes),
            action_names=self.names,
            frames_per_step=self.repeat,
            steps_max=-(-int(self.rows["frames_max"]) // self.repeat),
            memory=self.ale.getRAMSize(),
            render_height=height if self.render else 0,
            render_width=width if self.render else 0,
            render_frames=self.repeat if self.render else 0,
            render_rate=60.0,
        )

    def _clear(self, seed: int, frames_max: int) -> None:
        self.seed, self.rng = seed, _native.CounterRng(seed)
        self.cap = frames_max
        self.draws = 0  # emulated frames of the episode, no-ops included: index of its sticky draws
        self.frames = 0  # emulated frames of its steps
        self.steps = 0
        self.score = 0.0
        self.last_action = NOOP
        self.lives = 0
        self.played: list[int] = []  # every action code: how RELOAD games are restored
        self.begun: tuple[int, int] = (seed, 0)  # seed and no-ops

    # ---- episodes

    def reset(self, seed: int, noops: int, frames_max: int, observation: np.ndarray) -> None:
        goes_on, last_frame = self.game_goes_on, self.b.copy()
        self._clear(seed, frames_max)
        self.begun = (seed, noops)
        self.game_goes_on = False
        self.shot_count = 0
        previous, current = self.spare
        if goes_on:  # one step of no-op leaves the state of the lost life
            previous[:] = current[:] = last_frame
            self._repeat(NOOP, previous, current)
        else:
            self._start(previous, current)
            if self.fire_rule == "before-noops" and self.fires:
                self._shift(FIRE, previous, current)
            for _ in range(noops):
                self._shift(NOOP, previous, current)
                if self.ale.game_over():
                    self._start(previous, current)
            if self.fire_rule.startswith("after-noops") and self.fires:
                self._shift(FIRE, previous, current)
        pooled = bool(self.rows["pool_at_reset"])
        if self.fire_rule.startswith("then-up") and self.fires:
            for index in (1, 2):
                self._repeat(self.codes[index], previous, current)
                if self.ale.game_over():
                    self._start(previous, current)
            pooled = True
        self.lives = self.ale.lives()
        self.reset_frames = self.draws
        self.a[:], self.b[:] = (previous if pooled else current), current
        self._observe(observation)
        if self.end == "slots-stale":
            self.b[:] = 0  # its second slot starts black
        elif self.end == "pair-stale" and not (self.fire_rule.startswith("then-up") and self.fires):
            self.a[:] = self.b[:] = 0  # both of its slots do
        self._shoot(current)

    def _start(self, previous: np.ndarray, current: np.ndarray) -> None:
        self.emulator.start(current)
        previous[:] = current
        self.last_action = NOOP

    def _shift(self, code: int, previous: np.ndarray, current: np.ndarray) -> float:
        """One emulated frame; the two arrays keep the last two screens."""
        previous[:] = current
        reward = self._act(code)
        self.ale.getScreen(current)
        return reward

    def _repeat(self, code: int, previous: np.ndarray, current: np.ndarray) -> None:
        for _ in range(self.repeat):
            self._shift(code, previous, current)
            if self.ale.game_over():
                return

    def _act(self, code: int) -> float:
        """One emulated frame under the sticky rule, drawn per frame from the episode's own stream."""
        if self.sticky > 0.0 and self.rng.uniform(self.draws) < self.sticky:
            code = self.last_action
        self.draws += 1
        self.last_action = code
        if self.emulator.reload:
            self.played.append(code)
        return self.ale.act(self.action_of[code])

    # ---- steps

    def step(self, action: int, observation: np.ndarray) -> Step:
        code, lives = self.codes[action], self.lives
        reward, frames, over, truncated = 0.0, 0, False, False
        self.shot_count = 0
        capture = self._captures()
        for t in range(self.repeat):
            reward += self._act(code)
            frames += 1
            over = self.ale.game_over()
            self.frames += 1
            truncated = not over and self._at_limit()
            capture(t, over or truncated)
            if self.render:
                self._shoot(None)
            if over or truncated:
                break
        self.lives = self.ale.lives()
        self.steps += 1
        life_lost = 0 < self.lives < lives
        if life_lost and not over and not truncated:
            if self.rows["life_loss"] == "ends-episode":
                over, self.game_goes_on = True, True
            elif self.fire_rule == "after-noops-each-life" and self.fires:
                reward += self._shift(FIRE, self.a, self.b)
        self.score += reward
        if truncated and self.rows["limit_is_end"]:
            over, truncated = True, False
        self._observe(observation)
        return Step(reward, over, truncated, life_lost, frames)

    def _at_limit(self) -> bool:
        own = self.draws if self.rows["limit_counts_reset"] else self.frames
        return own >= self.rows["frames_max"] or (self.cap > 0 and self.frames >= self.cap)

    def _captures(self):
        """The function that decides, after frame t of a step, which two frames the observation pools."""
        return {
            "last-two": self._capture_last_two,
            "pooled-stale": self._capture_pooled_stale,
            "slots-stale": self._capture_slots_stale,
            "alone": self._capture_alone,
            "padded": self._capture_padded,
            "pair-stale": self._capture_pair_stale,
        }[self.end]

    def _single(self) -> None:
        """One frame per action is not pooled."""
        self.ale.getScreen(self.b)
        self.a[:] = self.b

    def _capture_last_two(self, t: int, over: bool) -> None:
        self.a, self.b = self.b, self.a
        self.ale.getScreen(self.b)
        if self.repeat == 1:
            self.a[:] = self.b

    def _capture_pooled_stale(self, t: int, over: bool) -> None:
        """Nothing is captured once the episode ended: the previous result, already pooled, stays; it mixes
        with the last frame but one when that was captured."""
        if over:
            if t == self.repeat - 1 and self.repeat > 1:
                brighter = self.grays[self.a] >= self.grays[self.b]
                np.copyto(self.a, self.b, where=~brighter)
                self.b[:] = self.spare[0]
        elif self.repeat == 1:
            self._single()
        elif t == self.repeat - 2:
            self.ale.getScreen(self.spare[0])
        elif t == self.repeat - 1:
            self.a[:] = self.spare[0]
            self.ale.getScreen(self.b)

    def _capture_slots_stale(self, t: int, over: bool) -> None:
        """Nothing is captured once the episode ended: the last frame but one, when captured, mixes with the
        last frame of the step before; otherwise the previous result stays."""
        if self.repeat == 1:
            if not over:
                self._single()
        elif t == self.repeat - 2 and not over:
            self.ale.getScreen(self.spare[0])
        elif t == self.repeat - 1:
            self.a[:] = self.spare[0]
            if not over:
                self.ale.getScreen(self.b)

    def _capture_alone(self, t: int, over: bool) -> None:
        """Captured, then stopped: the last frame but one stands alone; before it the previous result."""
        if self.repeat == 1:
            self._single()
        elif t == self.repeat - 2:
            self._single()
        elif t == self.repeat - 1:
            self.ale.getScreen(self.b)

    def _capture_padded(self, t: int, over: bool) -> None:
        """The last two of `repeat` slots that an ended episode leaves black."""
        if self.repeat == 1 or t == self.repeat - 2:
            self._single()
        elif t == self.repeat - 1:
            self.ale.getScreen(self.b)
        elif over:
            self.a[:] = self.b[:] = 0

    def _capture_pair_stale(self, t: int, over: bool) -> None:
        """Two slots, each overwritten only when its frame is reached."""
        if self.repeat == 1:
            self._single()
        elif t == self.repeat - 2:
            self.ale.getScreen(self.a)
        elif t == self.repeat - 1:
            self.ale.getScreen(self.b)

    # ---- pictures

    def _observe(self, observation: np.ndarray) -> None:
        if self.kernel is None:
            np.take(self.colours, self.b, axis=0, out=observation)
        else:
            self.kernel.run(self.a, self.b, observation)

    def _shoot(self, frame: np.ndarray | None) -> None:
        if not self.render:
            return
        shot = self.shots[self.shot_count]
        if frame is None:
            self.ale.getScreen(shot)
        else:
            shot[:] = frame
        self.shot_count += 1

    def pictures(self, out: np.ndarray) -> int:
        np.take(self.colours, self.shots[: self.shot_count], axis=0, out=out[: self.shot_count])
        return self.shot_count

    def memory(self, out: np.ndarray) -> None:
        self.ale.getRAM(out)

    # ---- save and restore

    def save(self) -> bytes:
        header = {
            "preset": self.preset["hash"],
            "game": self.game,
            "begun": self.begun,
            "cap": self.cap,
            "draws": self.draws,
            "frames": self.frames,
            "reset_frames": self.reset_frames,
            "steps": self.steps,
            "score": self.score,
            "last_action": self.last_action,
            "lives": self.lives,
            "played": bytes(self.played).hex(),
        }
        text = json.dumps(header).encode()
        emulator = b"" if self.emulator.reload else self.ale.cloneState(include_rng=True).serialize()
        return struct.pack("<I", len(text)) + text + self.a.tobytes() + self.b.tobytes() + emulator

    def restore(self, state: bytes) -> None:
        (length,) = struct.unpack_from("<I", state)
        header = json.loads(state[4 : 4 + length])
        if (header["preset"], header["game"]) != (self.preset["hash"], self.game):
            raise ValueError(f"state of {header['game']} under another game or preset than {self.spec.version}")
        self._clear(header["begun"][0], header["cap"])
        self.begun = tuple(header["begun"])
        for name in ("draws", "frames", "reset_frames", "steps", "score", "last_action", "lives"):
            setattr(self, name, header[name])
        self.game_goes_on, self.shot_count = False, 0
        size, at = self.a.size, 4 + length
        self.a[:] = np.frombuffer(state, np.uint8, size, at).reshape(self.a.shape)
        self.b[:] = np.frombuffer(state, np.uint8, size, at + size).reshape(self.b.shape)
        if not self.emulator.reload:
            self.ale.restoreState(ale_py.ALEState(state[at + 2 * size :]))
            self.emulator.fresh = False
            return
        self.played = list(bytes.fromhex(header["played"]))
        self.emulator.start(self.spare[0])
        for code in self.played:
            self.ale.act(self.action_of[code])
            if self.ale.game_over():
                self.emulator.start(self.spare[0])

    def close(self) -> None:
        self.kernel = None


def make(config: dict[str, Any], render: bool = False) -> Atari:
    """`config`: {"kind": "atari", "game": "frostbite", "preset": AtariPreset::ToJson()}."""
    unknown = set(config) - KEYS
    if unknown or "game" not in config or "preset" not in config:
        raise SetupError(CONFIG, f"atari: expected the keys game and preset, got {sorted(config)}")
    return Atari(str(config["game"]), config["preset"], render)
