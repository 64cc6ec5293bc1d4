"""What a newcomer reads: help, lists, next steps, messages of common mistakes."""

import fcntl
import json
import os
import re
import shlex
import struct
import subprocess
import termios

import cv2
import pytest
from samara_cli import ATARI, BINARY, CARTPOLE, ROOT, ok, samara

SECTIONS = ("presets", "envs", "games", "algorithms", "networks", "keys")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("first hour") / "my run"
    return folder, ok("train", *CARTPOLE, "run.video=true", "--out", folder)


def test_a_run_ends_with_what_to_do_next(run):
    folder, outcome = run
    assert f"  watch    samara play '{folder}'\n" in outcome.err
    command = re.search(r"  go on    samara (train --resume '.*' \S+)\n", outcome.err).group(1)
    assert command.endswith(" ga.generations=8")
    again = subprocess.run(f"{BINARY} {command}", shell=True, capture_output=True, text=True, cwd=ROOT)
    assert again.returncode == 0 and "8 generations" in again.stderr


def test_a_run_of_another_task_is_named_after_it():
    def name(*words):
        return re.search(r'name = "(.*)"', ok("train", "classic/cartpole-ga", *words, "--dry-run").out).group(1)

    assert name() == "cartpole-ga"
    assert name("env.id=gymnasium:MountainCar-v0") == "cartpole-ga-MountainCar-v0"
    assert name("env.id=MountainCar-v0", "run.name=mine") == "mine"


BLIND = """
import gymnasium as gym

class Blind(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.low, {}

    def step(self, action):
        return self.observation_space.low, float(action), True, False, {}

gym.register("Blind-v0", Blind)
"""


def test_what_draws_nothing_is_not_to_be_watched(tmp_path):
    (tmp_path / "blind.py").write_text(BLIND)
    words = [*CARTPOLE, "env.id=blind:Blind-v0", "ga.generations=2", "run.video=true"]
    for more in ([], ["--seeds", "0,1"]):
        err = ok("train", *words, *more, "--out", str(len(more)), cwd=tmp_path).err
        assert "  go on    samara train" in err and "samara play" not in err


LEARNERS = ["classic/cartpole-a2c", "classic/cartpole-sac", "classic/cartpole-dqn", "classic/pendulum-td3", "classic/pendulum-d4pg",
            "memory/recall-r2d2"]  # fmt: skip


@pytest.mark.parametrize("preset, frames, seconds", [
    ("classic/cartpole-ppo", 4000, 60), pytest.param("classic/cartpole-ppo", 30_000, 1, marks=pytest.mark.slow),
    *(pytest.param(preset, 3000, 60, marks=pytest.mark.slow) for preset in LEARNERS)])  # fmt: skip
def test_what_a_learning_run_says_to_do_next_gives_the_longer_run(preset, frames, seconds, tmp_path):
    """Its bits are those of a run that had the larger budget from the start; it goes on where it last had its environments."""
    words = [preset, "run.random_episodes=0", "run.video=false", "learn.test_episodes=4", f"run.checkpoint_seconds={seconds}"]
    first = ok("train", *words, f"learn.frames={frames}", "--out", tmp_path / "run")
    command = re.search(r"  go on    samara (train --resume .*)\n", first.err).group(1)
    assert command.split()[-1] == f"learn.frames={2 * frames}"  # no schedule is over by then
    again = subprocess.run(f"{BINARY} {command} --json", shell=True, capture_output=True, text=True, cwd=ROOT)
    assert again.returncode == 0, again.stderr
    where = "from its start" if seconds == 60 else "from the last state with environments"
    assert f"deterministic: goes on {where}, as a run of the larger budget would" in again.stderr
    whole = ok("train", *words, f"learn.frames={2 * frames}", "--out", tmp_path / "whole", "--json").json
    result = json.loads(again.stdout.splitlines()[-1])
    assert {key: result[key] for key in ("parameter_hash", "frames", "test_returns")} == \
        {key: whole[key] for key in ("parameter_hash", "frames", "test_returns")}


def test_a_run_that_a_score_ended_says_so(tmp_path):
    words = ["classic/cartpole-ga", "run.random_episodes=0", "run.video=false", "run.final_test_episodes=4", "run.stop_when_solved=true"]
    first = ok("train", *words, "--out", tmp_path / "run")
    assert "  go on    samara train --resume " in first.err and first.err.count(" run.stop_when_solved=false\n") == 1
    again = ok("train", "--resume", tmp_path / "run")
    assert "nothing is left to do; set run.stop_when_solved=false to go on" in again.err


def test_what_shows_nothing_for_a_while_is_announced(run):
    err = run[1].err
    assert "random policy: 4 episodes to compare with" in err and "final test: 4 episodes" in err


def test_an_atari_run_starts_with_a_handful_of_lines(tmp_path):
    outcome = ok("train", *ATARI, "--out", tmp_path / "run")
    before = outcome.err[: outcome.err.index("generation 1")].splitlines()
    assert len(before) <= 5, before
    assert "limit_counts_reset" not in outcome.err
    assert "limit_counts_reset" in (tmp_path / "run" / "log.txt").read_text()


def test_a_finished_run_says_that_it_is(run):
    again = ok("train", "--resume", run[0])
    assert "finished before, nothing is left to do; raise ga.generations=" in again.err


def test_the_video_shows_the_score(run):
    video = cv2.VideoCapture(str(run[0] / "videos" / "elite.mp4"))
    first = video.read()[1].astype(int)
    height, width, _ = first.shape
    corner, middle = first[-28:, :60], first[: height // 2]
    assert corner.min() < 60 and corner.max() > 180, "no light letters on dark"
    assert (corner < 60).mean() > 0.5 > (middle < 60).mean()


def test_samara_alone_prints_the_help():
    alone, asked = samara(), samara("--help")
    assert alone.code == 64 and alone.out == asked.out and "First steps:" in alone.out


def commands():
    return re.findall(r"^  ([a-z]+) {2,}\S", ok("--help").out.split("Subcommands:")[1], re.M)


def test_every_help_has_an_example_and_fits_a_hundred_columns():
    assert {"train", "play", "completion"} <= set(commands())
    for command in commands():
        text = ok(command, "--help").out
        assert f"Examples:\n  s" in text, command
        wide = [line for line in text.splitlines() if len(line) > 100]
        # a usage line and CLI11's own ranges are one word each
        assert not [line for line in wide if not line.startswith("Usage:")], (command, wide)


def test_the_list_of_commands_fits_eighty_columns():
    text = ok("--help").out
    assert not [line for line in text.splitlines() if len(line) > 80]
    train = ok("train", "--help").out
    assert "Usage: samara train [OPTIONS] PRESET|FILE.toml [table.key=value ...]\n" in train
    for command in commands():
        text = ok(command, "--help").out
        assert not re.search(r"(INT|FLOAT):(INT|FLOAT)|\n\n\n", text), command
    assert "--parallel INT in [1 - 4096]\n" in train


def on_terminal(columns, *words, term="xterm"):
    """What the program prints on a terminal of that width."""
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    env = os.environ | {"TERM": term}
    process = subprocess.Popen([BINARY, *map(str, words)], stdin=its, stdout=its, stderr=its, cwd=ROOT, env=env)
    os.close(its)
    text = b""
    try:
        while part := os.read(ours, 1 << 16):
            text += part
    except OSError:  # the other end is closed
        pass
    assert process.wait() == 0, text
    return text.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("section", SECTIONS[1:])
def test_lists_fit_a_narrow_terminal(section):
    names = [row["name"] for row in ok("list", section, "--json").json[section]]
    long = [name for name in names if len(name) > 70]  # a name stays whole
    wide = [line for line in on_terminal(72, "list", section).splitlines() if len(line) > 72 and line.strip() not in long]
    assert not wide


def test_keys_name_the_kind_of_algorithms_that_have_them():
    about = {row["name"].split(" =")[0]: row["about"] for row in ok("list", "keys", "--json").json["keys"]}
    assert about["learn.frames"].endswith(") [learning]") and about["run.final_test_episodes"].endswith(") [evolution]")
    assert about["ga.population"].count("[") == 1 and "ga" in about["ga.population"].split("[")[1]
    assert about["run.seed"].endswith(")")
    assert not [text for text in about.values() if text.count(" or ") > 6]


def test_a_terminal_that_moves_no_cursor_gets_lines_that_fit(tmp_path):
    text = on_terminal(60, "train", *CARTPOLE, "--out", tmp_path / "run", term="dumb")
    while_it_lives = text[text.index("generation 1: ") : text.index("  elite  ")].splitlines()
    assert not [line for line in while_it_lives if len(line) >= 60]


def test_the_end_of_a_run_fits_its_terminal(tmp_path):
    out = tmp_path / "a run of some length"
    text = on_terminal(60, "train", *CARTPOLE, "--out", out, "--quiet")
    end = text[text.index("  elite  ") :]
    lines = end.splitlines()
    assert all(len(line) <= 60 or len(line.split("/")) > 3 for line in lines), end
    assert re.search(r"\n  frames   .*\n  cost     [\d,]+ frames per core-second, [\d,]+ frames/s;\s+a\s+billion: ", end), end
    command = re.search(r"  go on    (samara (?:.*\\\n)+.*)\n", end).group(1)
    words = shlex.split(command.replace("\\\n", " "))
    assert words[:4] == ["samara", "train", "--resume", str(out)] and words[4].startswith("ga.generations=")


@pytest.mark.parametrize("section", SECTIONS)
def test_lists_fit_a_hundred_columns(section):
    text = ok("list", section).out
    assert max(map(len, text.splitlines())) <= 100
    names = [row["name"] for row in ok("list", section, "--json").json[section]]
    assert all(name in text for name in names)


def test_presets_are_a_table_with_what_was_measured():
    lines = ok("list", "presets").out.splitlines()
    assert lines[1].split() == ["name", "task", "method", "budget", "time", "score"]
    line = next(line for line in lines if line.startswith("  goal/reach-sac "))
    assert line.split(None, 1)[1].split() == "PointReach-v0 sac 40k frames 18 to 41 s -15.9 to -14.9".split()
    rows = {row["name"]: row for row in ok("list", "presets", "--json").json["presets"]}
    assert rows["classic/cartpole-ga"]["score"] == "494 to 500"
    assert rows["atari/dqn-desktop"]["method"] == "r2d2 (dqn)" and rows["atari/r2d2-desktop"]["method"] == "r2d2"
    assert rows["atari/deep-ga"]["score"] == "not run" and rows["atari/deep-ga"]["budget"] == "1B frames"
    assert "score:" not in rows["classic/cartpole-ga"]["about"]
    noted = {p for p in (ROOT / "presets").rglob("*.toml") if "\n# score: " in p.read_text()}
    assert {n for n, row in rows.items() if row["score"]} == {str(p.relative_to(ROOT / "presets"))[:-5] for p in noted}


def test_a_part_of_a_name_chooses_and_says_more():
    few = ok("list", "presets", "bitflip").out
    assert "goal/bitflip-dqn" in few and "hindsight" in few.lower() and "cartpole" not in few
    assert len(ok("list", "games", "pong").out.splitlines()) <= 4
    assert samara("list", "presets", "nosuch").code == 78


def test_the_lists_themselves_are_listed():
    whole = ok("list", "--json")
    lines = ok("list").out.splitlines()
    for name, rows in whole.json.items():
        assert any(line.split()[:4] == [str(len(rows)), "samara", "list", name] for line in lines), name
    assert len(lines) < 10


def test_games_and_networks_have_numbers():
    assert len(ok("list", "games", "--json").json["games"]) == 104
    line = next(line for line in ok("list", "networks").out.splitlines() if line.startswith("  Nature "))
    assert "1,693,362" in line and "evolution and learning" in line
    one = ok("list", "networks", "mlp-32-relu").out  # 8 x 32 + 32 + 32 x 4 + 4
    assert "420" in one and "dense 32 relu" in one


def test_bash_completes_commands_options_and_presets():
    script = ok("completion", "bash").out
    ask = script + """
complete_of() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _samara; printf '%s\\n' "${COMPREPLY[@]}"; }
complete_of samara tr; echo --; complete_of samara train --see; echo --; complete_of samara train classic/cartpole-g
echo --; complete_of samara train ga.popul
"""
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.split("--\n") == ["train\n", "--seeds\n", "classic/cartpole-ga\n", "ga.population=\n"]
    assert "bashcompinit" in ok("completion", "zsh").out
    assert "__fish_seen_subcommand_from new' -a '--" in ok("completion", "fish").out
    assert ok("completion", "bash", "--json").json["script"] == script
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_scores_have_the_digits_that_they_need(tmp_path):
    out = tmp_path / "run"
    ok("train", "memory/recall-vtrace", "run.algorithm=vtrace", "learn.frames=2000", "learn.test_episodes=2",
       "run.random_episodes=2", "--out", out, "--quiet")
    text = ok("eval", out, "--episodes", 7, "--random")
    mean = ok("eval", out, "--episodes", 7, "--random", "--json").json["mean"]
    assert float(re.search(r"mean (-?[\d.]+)", text.out).group(1)) == pytest.approx(mean, abs=0.0006)


def test_a_video_is_an_mp4(run, tmp_path):
    refused = samara("play", run[0], "--video", tmp_path / "a.avi")
    assert refused.code == 64 and "ends in .mp4" in refused.err and not (tmp_path / "a.avi").exists()


def test_files_have_names_of_their_formats(run, tmp_path):
    for command, ending in ((["export", run[0], tmp_path / "x.pt"], ".safetensors"),
                            (["report", run[0], "--curve", tmp_path / "x.png"], ".svg")):  # fmt: skip
        refused = samara(*command)
        assert refused.code == 64 and f"{command[-1]}: expected a name that ends in {ending}" in refused.err
        assert not list(tmp_path.iterdir())


def test_a_configuration_is_no_policy(tmp_path):
    (tmp_path / "own.toml").write_text("[run]\nname = 'own'\n")
    refused = samara("eval", tmp_path / "own.toml")
    assert refused.code == 66
    assert refused.err == f"samara: {tmp_path}/own.toml: a TOML file; expected a run folder or a policy file\n"


def test_a_generation_that_is_not_there_is_compared_with_the_last(run):
    missing = samara("hash", run[0], "--generation", 999)
    assert missing.code == 66
    assert re.search(r"no generation 999, the last is \d+; the run is finished, and a larger budget", missing.err)
    assert "--resume" not in missing.err


def test_a_folder_that_cannot_be_made_says_what_to_do(tmp_path):
    (tmp_path / "runs").write_text("a file")
    refused = samara("train", *CARTPOLE, cwd=tmp_path)
    assert refused.code == 73 and "choose another --out" in refused.err and ".tmp" not in refused.err


TASK = '''
import gymnasium as gym
import numpy as np


class Task(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, size=2, wrong=False):
        self.size, self.wrong = size, wrong

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(self.size, np.float32), {}

    def step(self, action):
        self.t += 1
        if self.wrong and self.t == 4:
            raise ValueError("boom")
        return np.zeros(self.size, np.float32), 1.0, self.t > 9, False, {}


class Unseeded(Task):
    def reset(self):
        return super().reset()


gym.register("Good-v0", Task)
gym.register("Boom-v0", Task, kwargs={"wrong": True})
gym.register("Shape-v0", Task, kwargs={"size": 3})
'''


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "my_tasks.py").write_text(TASK)
    return folder


def test_an_exception_of_an_environment_is_shown_where_it_is(tasks):
    failed = samara("train", *CARTPOLE, "env.id=my_tasks:Boom-v0", "fleet.actors=1", "--out", tasks / "boom", cwd=tasks)
    assert failed.code == 69
    assert 'raise ValueError("boom")' in failed.err and "my_tasks.py" in failed.err
    assert failed.err.count("is started again") == 1, failed.err


def test_an_exception_is_told_once_by_several_actors_and_with_the_users_lines_alone(tasks):
    failed = samara("train", *CARTPOLE, "env.id=my_tasks:Boom-v0", "fleet.actors=2", "fleet.slots=4",
                    "--out", tasks / "booms", cwd=tasks)  # fmt: skip
    assert failed.code == 69 and failed.err.count("is started again") == 1, failed.err
    assert failed.err.count('raise ValueError("boom")') == 1, failed.err
    assert "gymnasium" not in failed.err and "gym.py" not in failed.err and "^^^" not in failed.err, failed.err
    assert failed.err.endswith("booms/log.txt has all that was printed\n"), failed.err
    assert "gymnasium" in (tasks / "booms/log.txt").read_text()


def test_an_observation_of_another_shape_names_the_space(tasks):
    failed = samara("train", *CARTPOLE, "env.id=my_tasks:Shape-v0", "fleet.actors=1", "--out", tasks / "shape", cwd=tasks)
    assert "an observation of shape (3,), expected one of observation_space=Box(-1.0, 1.0, (2,), float32)" in failed.err
    assert "actor.py" not in failed.err
    failed = samara("check", "my_tasks:Task?size=3", cwd=tasks)
    assert "an observation of shape (3,), expected one of" in failed.err
    assert "unexpected keyword argument 'sise'" in samara("check", "my_tasks:Task?sise=3", cwd=tasks).err


def test_a_reset_without_a_seed_says_what_is_expected(tasks):
    failed = samara("check", "my_tasks:Unseeded", cwd=tasks)
    assert "got an unexpected keyword argument 'seed': expected reset(self, *, seed=None, options=None)" in failed.err


def test_a_module_that_is_elsewhere_says_where_it_was_searched(tasks, tmp_path):
    ok("train", *CARTPOLE, "env.id=my_tasks:Good-v0", "fleet.actors=1", "--out", tasks / "good", cwd=tasks)
    failed = samara("eval", tasks / "good", cwd=tmp_path)
    assert failed.code == 66 and "No module named 'my_tasks'" in failed.err and f"in the current folder {tmp_path}" in failed.err
