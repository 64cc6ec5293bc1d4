"""The mazes against an implementation of their rules in NumPy, which shares no code or table with the native one."""

import json
import subprocess
from collections import deque
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
TRACE = ROOT / "build" / "env_trace"
# of uber-research/deep-neuroevolution, gym_tensorflow/maze/hard_maze.txt
MAZE = json.loads((ROOT / "tests" / "data" / "hard_maze.json").read_text())
WALLS, GOAL = np.array(MAZE["walls"]), np.array(MAZE["goal"], float)
A, B = WALLS[:, :2], WALLS[:, 2:]
RADIUS, RANGE = 8, 100


def unit(degrees):
    return np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])


def distances(points):
    """Of each point from the nearest wall."""
    points = np.asarray(points, float)[..., None, :]
    along = B - A
    t = np.clip(((points - A) * along).sum(-1) / (along * along).sum(-1), 0, 1)
    return np.linalg.norm(points - A - t[..., None] * along, axis=-1).min(-1)


class Robot:
    def __init__(self):
        self.at, self.heading, self.speed, self.turn = np.array(MAZE["start"], float), float(MAZE["heading_degrees"]), 0.0, 0.0

    def move(self, outputs):
        """One step by two outputs of [0, 1]: turn and speed."""
        turn, speed = (np.clip(outputs, 0, 1) - 0.5) * 6
        self.turn = np.clip(self.turn + np.clip(turn - self.turn, -0.2, 0.2), -3, 3)
        self.speed = np.clip(self.speed + np.clip(speed - self.speed, -0.2, 0.2), -3, 3)
        moved = self.at + unit(self.heading) * self.speed
        self.heading += self.turn
        self.heading += 360 * (self.heading < 0) - 360 * (self.heading > 360)
        if distances(moved) >= RADIUS:
            self.at = moved

    def ranges(self):
        """Lengths of the six rays, by solving two equations for each with each wall."""
        rays = np.array([unit(self.heading + d) for d in (-90, -45, 0, 45, 90, -180)]) * RANGE
        equations = np.stack(np.broadcast_arrays(rays[:, None], A - B), -1)
        r, s = np.moveaxis(np.linalg.solve(equations, np.broadcast_to(A - self.at, (6, 13, 2))[..., None])[..., 0], -1, 0)
        return np.where((0 < r) & (r < 1) & (0 < s) & (s < 1), r, 1).min(1)

    def sensors(self):
        to = GOAL - self.at
        angle = (np.degrees(np.arctan2(to[1], to[0])) - self.heading + 45) % 360
        quarters = [float(90 * i <= angle < 90 * (i + 1)) for i in range(4)]
        return np.array([1, *self.ranges(), *quarters])

    def picture(self):
        """84 x 84 gray: the same disc and wall rules, on the whole picture at once."""
        middle = (np.arange(84) + 0.5) * 2.5
        pixels = np.stack(np.meshgrid(middle, middle), -1)  # [row][column] of (x, y)
        gray = np.zeros((84, 84))
        near = lambda centre, radius: ((pixels - centre) ** 2).sum(-1) <= radius**2
        gray[near(GOAL, 10)] = 64
        gray[distances(pixels) <= 1.8] = 128
        gray[near(self.at, RADIUS)] = 192
        gray[near(self.at + 5 * unit(self.heading), 3)] = 255
        return gray.ravel()


def path_lengths():
    """Breadth-first over cells in which the robot's centre can be; None elsewhere."""
    middle = np.arange(400) + 0.5
    free = distances(np.stack(np.meshgrid(middle, middle, indexing="ij"), -1)) >= RADIUS - np.sqrt(0.5)
    lengths, cells = {tuple(GOAL.astype(int)): 0}, deque([tuple(GOAL.astype(int))])
    while cells:
        x, y = cells.popleft()
        for to in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            if to not in lengths and free[to]:
                lengths[to] = lengths[x, y] + 1
                cells.append(to)
    return lengths


def outputs_of(name, action):
    if name == "HardMazeDiscrete":
        return np.array([action[0] // 5, action[0] % 5]) / 4
    if name in ("HardMazeSigmoid", "BreadcrumbMaze"):
        return np.clip(action, 0, 1)
    return np.clip(action + 0.5, 0, 1)


def actions_of(name, episodes, steps):
    """Actions that are held for a while, so that the robot comes far: most episodes touch a wall."""
    rng = np.random.default_rng(7)
    turns = rng.normal(0, 0.15, (episodes, steps // 20 + 1)).repeat(20, 1)[:, :steps]
    actions = np.stack([turns, rng.uniform(-0.2, 1, (episodes, 1)).repeat(steps, 1)], -1).astype(np.float32)
    if name in ("HardMazeSigmoid", "BreadcrumbMaze"):
        actions += np.float32(0.5)
    return rng.integers(25, size=(episodes, steps, 1)) if name == "HardMazeDiscrete" else actions


def trace(name, rows, tmp_path):
    (tmp_path / "rows").write_bytes(np.array(rows, float).tobytes())
    out = subprocess.run([TRACE, name, tmp_path / "rows"], capture_output=True, check=True).stdout
    return np.frombuffer(out).reshape(len(rows), -1)


@pytest.mark.parametrize("name,episodes,steps", [("HardMaze", 5, 400), ("HardMazeSigmoid", 1, 400), ("HardMazeDiscrete", 1, 400),
                                                 ("BreadcrumbMaze", 4, 134)])
def test_episodes_equal_the_rules_in_numpy(name, episodes, steps, tmp_path):
    actions = actions_of(name, episodes, steps).astype(float)
    repeat, lengths = (3, path_lengths()) if name == "BreadcrumbMaze" else (1, None)
    rows, expected, blocked = [], [], 0
    for episode in actions:
        robot, moves = Robot(), 0
        after = robot.sensors()
        for i, action in enumerate(episode):
            rows.append([float(i == 0), *robot.at, robot.heading, robot.speed, robot.turn, moves, *action])
            before, last = after, i + 1 == steps
            for _ in range(min(repeat, 400 - moves)):
                at = robot.at
                robot.move(outputs_of(name, action))
                blocked += robot.at is at
                moves += 1
            far = np.linalg.norm(robot.at - GOAL)
            assert far >= 10, "these actions were to miss the goal"
            reward = 0 if not last else -far if lengths is None else -lengths[tuple(robot.at.astype(int))]
            after = robot.sensors()
            expected.append([reward, 0, last, *robot.at, robot.heading, robot.speed, robot.turn, moves, *before, *after])
    assert blocked > 20 or episodes == 1
    found = np.delete(trace(name, rows, tmp_path), slice(3, 9), axis=1)  # the state before
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found[:, 3:9], np.array(expected)[:, 3:9], rtol=1e-10, atol=1e-10)


def test_pictures_equal_the_rules_in_numpy(tmp_path):
    rng, rows, expected = np.random.default_rng(2), [], []
    for _ in range(30):
        robot = Robot()
        robot.at, robot.heading = rng.uniform(0, 210, 2), rng.uniform(0, 360)
        rows.append([1, *robot.at, robot.heading, 0, 0, 0, 0, 0])
        expected.append(robot.picture())
    np.testing.assert_array_equal(trace("ImageMaze", rows, tmp_path)[:, 15 : 15 + 84 * 84], expected)


def test_the_first_picture_is_the_one_stored(tmp_path):
    """tests/data/maze.pgm, for eyes: the start."""
    header, pixels = (ROOT / "tests/data/maze.pgm").read_bytes().split(b"255\n", 1)
    assert header == b"P5\n84 84\n"
    found = trace("ImageMaze", [[5, 0, 0, 0, 0, 0, 0, 0, 0]], tmp_path)[0, 15 : 15 + 84 * 84]
    np.testing.assert_array_equal(found, np.frombuffer(pixels, np.uint8))
    np.testing.assert_array_equal(found, Robot().picture())


def test_every_place_in_the_maze_has_a_path():
    """No position of the robot scores like a sealed cell because its cell is half in a wall."""
    rng, lengths = np.random.default_rng(3), path_lengths()
    points = rng.uniform((7, 8), (186, 198), (20000, 2))
    free = points[distances(points) >= RADIUS]
    assert len(free) > 5000
    assert not [p for p in free if tuple(p.astype(int)) not in lengths]
