"""What a real run leaves to be looked at: page, curve, video, events, live view."""

import json
import re
import shutil
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from urllib.parse import unquote

import cv2
import pytest
from samara_cli import ATARI, BINARY, CARTPOLE, ROOT, ok, train
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

VIDEO = [*ATARI, "run.video=true"]


@pytest.fixture(scope="module")
def atari(tmp_path_factory):
    run = tmp_path_factory.mktemp("atari") / "run"
    return run, train(run, *VIDEO)


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    run = tmp_path_factory.mktemp("cartpole") / "run"
    return run, train(run, *CARTPOLE)


class Page(HTMLParser):
    """Text, tags that were opened, everything that a browser would fetch, and what links lead to."""

    EMPTY = {"meta", "br", "hr", "img", "input", "link", "source"}

    def __init__(self, text):
        super().__init__()
        self.words, self.tags, self.fetched, self.links, self.open = "", [], [], [], []
        self.feed(text)
        self.close()
        assert not [tag for tag in self.open if tag in ("html", "body", "table", "svg", "div")], "tags left open"

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in self.EMPTY:
            self.open.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "data", "poster", "action", "xlink:href") and value:
                (self.links if tag == "a" else self.fetched).append(value)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        self.words += data


def check_page(path, words):
    text = path.read_text()
    page = Page(text)
    outside = [url for url in page.fetched if not url.startswith(("data:", "#"))]
    assert outside == [], "the page must stand alone"
    assert page.links and all(link.startswith("#") or (path.parent / unquote(link)).is_file() for link in page.links)
    assert "@import" not in text and "url(http" not in text
    assert "svg" in page.tags and "table" in page.tags
    for word in words:
        assert word in page.words, word


def test_the_report_of_a_run_stands_alone(atari):
    run, _ = atari
    ok("report", run)
    check_page(run / "report.html", ["frostbite", "Model", "this run's elite", "3.00k frames"])


def test_a_report_of_several_runs(atari, cartpole, tmp_path):
    page = tmp_path / "page.html"
    ok("report", atari[0], cartpole[0], "--out", page)
    check_page(page, ["CartPole", "frostbite"])


def test_the_curve_is_a_picture(atari):
    run, result = atari
    assert result["learning_curve"] == str(run / "learning_curve.svg")
    root = ElementTree.parse(run / "learning_curve.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert list(root.iter("{http://www.w3.org/2000/svg}text"))


def check_video(path, height, width, frames_least):
    video = cv2.VideoCapture(str(path))
    assert video.isOpened()
    assert (video.get(cv2.CAP_PROP_FRAME_HEIGHT), video.get(cv2.CAP_PROP_FRAME_WIDTH)) == (height, width)
    frames, brightest = 0, 0
    while True:
        more, picture = video.read()
        if not more:
            break
        frames, brightest = frames + 1, max(brightest, int(picture.max()))
    assert frames >= frames_least, frames
    assert brightest > 100, "the pictures are black"
    return frames


def test_the_elites_video_plays(atari):
    run, result = atari
    assert result["video"] == str(run / "videos" / "elite.mp4")
    probe = cv2.VideoCapture(result["video"])
    height, width = int(probe.get(cv2.CAP_PROP_FRAME_HEIGHT)), int(probe.get(cv2.CAP_PROP_FRAME_WIDTH))
    assert (width, height) == (320, 420)
    # pixels of 160x210 on a television screen are wider than high
    aspect = width / height * probe.get(cv2.CAP_PROP_SAR_NUM) / probe.get(cv2.CAP_PROP_SAR_DEN)
    assert aspect == pytest.approx(4 / 3, rel=0.01)
    check_video(result["video"], height, width, 190)


def test_play_and_eval_write_videos(atari, tmp_path):
    run, _ = atari
    played, evaluated = tmp_path / "play.mp4", tmp_path / "eval.mp4"
    one = ok("play", run, "--video", played, "--json").json
    assert one["frames"] > 0 and one["video"] == str(played)
    ok("eval", run, "--episodes", 1, "--video", evaluated, "--json")
    for path in (played, evaluated):
        video = cv2.VideoCapture(str(path))
        assert video.read()[0]


def test_playing_where_no_picture_can_be_drawn_says_what_to_do(atari):
    done = subprocess.run([BINARY, "play", atari[0]], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 78 and "--video" in done.stderr


def test_tensorboard_reads_the_events(cartpole):
    run, result = cartpole
    files = list(run.glob("events.out.tfevents.*"))
    assert len(files) == 1
    values = {}
    for event in EventFileLoader(str(files[0])).Load():
        for value in event.summary.value:
            number = value.tensor.float_val[0] if value.tensor.float_val else value.simple_value
            values.setdefault(value.tag, {})[event.step] = number
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    generations = [line for line in lines if "fitness_mean" in line]
    means = [tag for tag in values if tag.endswith("fitness_mean")]
    assert len(means) == 1, sorted(values)
    found = list(values[means[0]].values())
    assert found == pytest.approx([line["fitness_mean"] for line in generations], rel=1e-6)


# -- in a terminal ----------------------------------------------------------------------------------------


class Terminal:
    """A command in a tmux of its own."""

    def __init__(self, command, width=100, height=40):
        if shutil.which("tmux") is None:
            pytest.skip("NOT TESTED: tmux is not installed")
        self.tmux = ["tmux", "-L", f"samara-test-{time.monotonic_ns()}"]
        size = ["-x", str(width), "-y", str(height)]
        subprocess.run([*self.tmux, "-f", "/dev/null", "new-session", "-d", *size, command], check=True, cwd=ROOT)

    def screen(self, *options):
        return subprocess.run([*self.tmux, "capture-pane", "-p", *options], capture_output=True, text=True).stdout

    def wait_for(self, *words, seconds=60, options=()):
        end = time.monotonic() + seconds
        while not all(word in (screen := self.screen(*options)) for word in words):
            assert time.monotonic() < end, f"not seen: {words}\n{screen}"
            time.sleep(0.1)
        return screen

    def keys(self, *keys):
        subprocess.run([*self.tmux, "send-keys", *keys], check=True)

    def close(self):
        subprocess.run([*self.tmux, "kill-server"], capture_output=True)


def line(*words):
    return " ".join(f"'{word}'" for word in words)


def test_the_live_view_shows_generation_rate_and_phase(tmp_path):
    settings = [*ATARI, "ga.generations=1000", "run.random_episodes=2"]
    command = line(BINARY, "train", *settings, "--out", tmp_path / "run") + "; echo ended with $?; sleep 60"
    terminal = Terminal(command)
    try:
        screen = terminal.wait_for("generation 1", "frames/s", "population")
        assert "frostbite" in screen
        terminal.keys("C-c")
        terminal.wait_for("ended with 75")
    finally:
        terminal.close()
    ok("fsck", tmp_path / "run")


def test_playing_in_a_terminal_draws_pictures(atari):
    terminal = Terminal(line(BINARY, "play", atari[0], "--speed", 1) + "; echo ended with $?; sleep 60")
    try:
        seen = terminal.wait_for("q quit", options=["-e"])  # one and the same screen
        assert seen.count("\x1b[") > 200, "no colours"
        terminal.wait_for("ended with 0")
    finally:
        terminal.close()


def status_line(terminal):
    found = re.search(r"score (\S+)  step (\d+)  speed (\S+?)(, paused)?  \(q quit", terminal.screen())
    assert found, terminal.screen()
    return float(found[1]), int(found[2]), float(found[3]), found[4] is not None


def until(terminal, holds, seconds=20):
    end = time.monotonic() + seconds
    while not holds(state := status_line(terminal)):
        assert time.monotonic() < end, state
        time.sleep(0.1)
    return state


def test_keys_pause_step_hasten_and_end_an_episode(tmp_path):
    run = tmp_path / "run"
    train(run, *CARTPOLE, "ga.population=64", "ga.generations=12")  # episodes of many steps
    terminal = Terminal(line(BINARY, "play", run) + "; echo ended with $?; stty -a; sleep 60", height=24)
    try:
        terminal.wait_for("q quit")
        until(terminal, lambda now: now[1] > 0)
        terminal.keys("Space")
        score, step, speed, _ = until(terminal, lambda now: now[3])
        assert score == step > 0 and speed == 1  # CartPole: one point a step
        time.sleep(0.5)
        assert status_line(terminal)[1] == step, "time passes"
        terminal.keys(".")
        until(terminal, lambda now: now[1] == step + 1 and now[3])
        terminal.keys("+", "+", "-")
        until(terminal, lambda now: now[2] == 2)
        terminal.keys("Space")
        until(terminal, lambda now: now[1] > step + 1 and not now[3])
        terminal.keys("q")
        end = terminal.wait_for("ended with 0", "speed")  # stty's first line
        assert re.search(r"interrupted: return \d+ in \d+ frames so far", end.replace("\n", "")), end
        assert " icanon" in end and " echo " in end, "the terminal is as it was"
    finally:
        terminal.close()


def test_several_seeds_have_a_line_each(tmp_path):
    settings = [*CARTPOLE, "ga.population=64", "ga.generations=3000"]
    command = line(BINARY, "train", *settings, "--seeds", "0..4", "--parallel", 2, "--out", tmp_path / "seeds")
    terminal = Terminal(command + "; echo ended with $?; sleep 60", width=80, height=24)
    try:
        screen = terminal.wait_for("0 of 5 seeds done", "2 at once", "of 3000", "waiting")
        assert all(f"seed {n} " in screen for n in range(5))
        terminal.keys("C-c")
        terminal.wait_for("ended with 75")
    finally:
        terminal.close()
