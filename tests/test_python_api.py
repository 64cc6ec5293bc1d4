"""`import samara`: runs started, watched, stopped and read from Python; each number next to the program's own."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
import samara
from samara_cli import CARTPOLE, ROOT, ok

from samara.values import words

PRESET, SMALL = CARTPOLE[0], dict(word.split("=") for word in CARTPOLE[1:])
LONG = SMALL | {"ga.generations": 1_000_000, "run.stop_when_solved": False}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return samara.train(PRESET, SMALL, tmp_path_factory.mktemp("runs") / "ga")


def test_train_does_what_the_program_does(run, tmp_path):
    theirs = ok("train", *CARTPOLE, "--out", tmp_path / "run", "--quiet", "--json").json
    same = ("population_hash", "elite_mean", "elite_returns", "random_mean", "frames", "generation")
    assert {key: run.result[key] for key in same} == {key: theirs[key] for key in same}
    assert run.config["ga"]["population"] == 12 and run.config["run"]["seed"] == 3
    assert samara.load(run.path).result == run.result


def test_wrong_arguments_are_named():
    for call, message in ((lambda: samara.train(3), "preset: 3, expected the name of a preset or a .toml file"),
                          (lambda: samara.start(None), "preset: None, expected the name of a preset or a .toml file"),
                          (lambda: samara.train(PRESET, out=3), "out: 3, expected the folder to create"),
                          (lambda: samara.load(3), "path: 3, expected a run folder"),
                          (lambda: samara.Policy(3), "path: 3, expected a run folder or a policy file")):  # fmt: skip
        with pytest.raises(TypeError) as raised:
            call()
        assert str(raised.value) == message


def test_a_policy_says_what_it_is(run):
    assert repr(samara.load(run.path).policy()) == f"samara.Policy({str(run.path)!r})"
    assert repr(samara.Policy(str(run.path), "elite")) == f"samara.Policy({str(run.path)!r}, 'elite')"


def test_the_module_is_the_program(tmp_path):
    def module(*words, **more):
        return subprocess.run([sys.executable, "-m", "samara", *words], capture_output=True, text=True, env=os.environ | more)

    assert module("--version").stdout == ok("--version").out
    refused = module("train", "nosuch")
    assert refused.returncode == 78 and refused.stderr.startswith("samara: ")
    missing = module("--version", SAMARA_PROGRAM=str(tmp_path / "none"))
    assert missing.returncode == 66 and missing.stderr == f"samara: {tmp_path}/none: No such file or directory\n"


def test_the_command_that_pip_installs_runs_the_program(tmp_path):
    """SAMARA_PROGRAM, then the package's own, then PATH, where the command itself does not count."""
    shutil.copytree(ROOT / "python/samara", tmp_path / "lib/site/samara", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    programs = {}
    for place in ("lib/site/samara/bin", "path", "named"):
        programs[place] = tmp_path / place / "samara"
        programs[place].parent.mkdir()
        programs[place].write_text(f"#!/bin/sh\necho {place} $VIRTUAL_ENV$SAMARA_SCRIPT_FOLDER $*\n")
        programs[place].chmod(0o700)
    command = tmp_path / "bin/samara"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\nfrom samara.__main__ import main\nmain()\n")
    command.chmod(0o700)

    def called(path, **more):
        clean = {"PATH": f"{path}:/usr/bin:/bin", "PYTHONPATH": str(tmp_path / "lib/site")}
        return subprocess.run([command, "list", "x"], capture_output=True, text=True, env=clean | more, cwd=tmp_path)

    prefix = "" if sys.prefix == sys.base_prefix else f" {sys.prefix}"
    for place, path, more in (("named", "path", {"SAMARA_PROGRAM": str(programs["named"])}),
                              ("lib/site/samara/bin", "path", {}), ("path", "path", {})):  # fmt: skip
        assert called(tmp_path / path, **more).stdout == f"{place}{prefix} list x\n"
        programs[place].unlink()
    alone = called(command.parent)
    assert alone.returncode == 66 and alone.stderr.startswith("samara: no program `samara`"), "not called without end"


def test_metrics_are_the_lines_of_the_file(run, monkeypatch):
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    monkeypatch.setitem(sys.modules, "pandas", None)  # as where it is not installed
    assert run.metrics() == [line for line in lines if "event" not in line]
    assert [line["generation"] for line in run.metrics()] == [1, 2, 3, 4]
    assert run.metrics(events=True) == [line for line in lines if "event" in line] != []


def test_metrics_are_a_frame_with_pandas(run):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = run.metrics()
    assert isinstance(frame, pandas.DataFrame) and list(frame["generation"]) == [1, 2, 3, 4]


def test_evaluate_plays_the_episodes_of_eval(run):
    mine = run.evaluate(episodes=20, seed=5)
    assert mine == ok("eval", run.path, "--episodes", 20, "--seed", 5, "--json").json
    assert run.evaluate(episodes=20, random=True)["policy"] == "random"


def test_report_is_made_again(run):
    (run.path / "report.html").unlink()
    assert run.report().read_text().lower().startswith("<!doctype html>")


def test_errors_have_the_programs_line_and_code(tmp_path):
    for arguments, code, words in [
        (("cartpole",), 78, "unknown preset"),
        ((PRESET, {"ga.populaton": 5}), 78, "the nearest known one is ga.population"),
        ((PRESET, {}, ROOT), 73, str(ROOT)),
    ]:
        with pytest.raises(samara.Error, match=words) as caught:
            samara.train(*arguments)
        assert caught.value.exit_code == code and "\n" not in str(caught.value)
    with pytest.raises(samara.Error, match="expected a run folder") as caught:
        samara.load(tmp_path)
    assert caught.value.exit_code == 66


def test_damaged_files_are_named(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    broken = samara.load(tmp_path / "run")
    (broken.path / "result.json").write_text("{}")
    (broken.path / "config.toml").unlink()
    with open(broken.path / "metrics.jsonl", "a") as file:
        file.write("garbage\n5\n")
    for read, name in ((lambda: broken.result, "result.json"), (lambda: broken.config, "config.toml")):
        with pytest.raises(samara.Error, match=name) as caught:
            read()
        assert caught.value.exit_code == 65
    assert len(broken.metrics()) == len(run.metrics())


def test_words_that_are_options_are_refused():
    for preset, overrides in (("--help", {}), (PRESET, {"--out": "x"})):
        with pytest.raises(samara.Error, match="expected a"):
            samara.train(preset, overrides)


def test_a_missing_program_is_one_clear_error(monkeypatch):
    monkeypatch.setenv("SAMARA_PROGRAM", "/nowhere/samara")
    with pytest.raises(samara.Error, match="/nowhere/samara: No such file or directory: expected the program") as caught:
        samara.train(PRESET)
    assert caught.value.exit_code == 66


def test_a_callback_sees_every_line_and_stops_the_run(tmp_path):
    seen = []

    def watch(line):
        seen.append(line)
        return np.bool_(line.get("generation", 0) >= 3)  # true, and not True

    run = samara.train(PRESET, LONG, tmp_path / "run", callback=watch)
    assert len(list(run.lines(follow=True))) == len(list(run.lines()))  # no process writes more
    assert run.result is None
    assert seen[0]["event"] == "random_policy"
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert seen == lines and len(lines) >= 4
    # everything was saved: what goes on is the run itself, and its new lines are the callback's
    again = []
    assert run.resume(callback=lambda line: again.append(line) or len(again) >= 2).path == run.path
    assert again[0]["event"] == "resumed" and again[1]["generation"] == lines[-1]["generation"] + 1


def test_a_running_run_is_iterated_and_stopped(tmp_path):
    with samara.start(PRESET, LONG, tmp_path / "run") as running:
        for line in running:
            if line.get("generation", 0) >= 2:
                running.stop()
        assert running.path == tmp_path / "run" and not running.running
        assert running.wait().result is None
    with samara.start(PRESET, LONG, tmp_path / "other") as running:
        next(iter(running))
    assert not running.running


def test_a_run_that_fails_is_told_however_it_is_watched():
    with pytest.raises(samara.Error, match="ga.populaton"), samara.start(PRESET, {"ga.populaton": 3}) as running:
        for _ in running:
            pass
    with pytest.raises(samara.Error, match="no-such-preset"), samara.start("no-such-preset") as running:
        while running.running:
            time.sleep(0.01)
    with samara.start("no-such-preset") as running, pytest.raises(samara.Error):
        running.wait()  # and not once more


def test_a_run_that_is_killed_says_how_to_go_on(tmp_path):
    with samara.start(PRESET, LONG, tmp_path / "run") as running:
        next(iter(running))
        os.kill(running._process.pid, signal.SIGKILL)
        with pytest.raises(samara.Error, match=r"killed by SIGKILL; samara.load\('.*/run'\).resume\(\) goes on"):
            running.wait()
    assert samara.load(tmp_path / "run").resume(callback=lambda line: True).result is None


def test_a_folder_of_runs_names_one(run):
    with pytest.raises(samara.Error, match=f"it holds [0-9]+: name one, such as {run.path.parent}/"):
        samara.load(run.path.parent)


def test_a_resumed_run_yields_only_new_lines(tmp_path):
    """Also after a kill, where lines of before are removed because their steps are computed again."""
    words = {"learn.frames": 8_000, "run.random_episodes": 0, "learn.test_episodes": 0, "learn.mode": "free"}
    run = samara.train("classic/cartpole-vtrace", words, tmp_path / "run")
    before = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    with open(run.path / "metrics.jsonl", "a") as file:  # of an update that no checkpoint has
        file.write(json.dumps({"update": 10**6, "frames": 10**9, "filler": "x" * 5000}) + "\n")
    seen = []
    run.resume({"learn.frames": 16_000}, callback=seen.append)
    updates = [line["update"] for line in seen if "event" not in line]
    assert updates == sorted(updates) and updates and not any("filler" in line for line in seen)
    assert all(line not in before for line in seen)


def test_a_run_ends_with_the_program_that_started_it(tmp_path):
    script = f"""
        import samara
        running = samara.start({PRESET!r}, {LONG!r}, {str(tmp_path / "run")!r})
        next(iter(running))
        print(running._process.pid)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not os.path.exists(f"/proc/{int(done.stdout)}")


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
@pytest.mark.parametrize("preset", [PRESET, "classic/cartpole-dqn"])
def test_a_run_is_saved_when_the_program_that_started_it_is_killed(by, preset, tmp_path):
    words = LONG if preset == PRESET else {"learn.frames": 10**9, "run.random_episodes": 0}
    script = f"""
        import samara, signal, threading
        def train():
            samara.train({preset!r}, {words!r}, {str(tmp_path / "run")!r}, callback=lambda line: print(line, flush=True))
        training = threading.Thread(target=train)  # the kernel's own signal of a parent's death is one of a thread's
        training.start()
        training.join()
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE)
    for _ in range(2):
        assert parent.stdout.readline()
    (child,) = children_of(parent.pid)
    parent.send_signal(by)
    try:
        assert parent.wait(30) == -by
    finally:
        parent.kill()
    ended = wait_until(lambda: not is_running(child), 60)
    if not ended:
        os.kill(child, signal.SIGKILL)
    assert ended, "the run goes on without its parent"
    run = samara.load(tmp_path / "run")
    done = max(line.get("generation", line.get("update", 0)) for line in run.lines())
    assert max(int(file.name.split("-")[1]) for file in (run.path / "checkpoints").glob("ckpt-*")) >= done > 0
    assert ok("fsck", run.path).code == 0
    assert run.resume(callback=lambda line: True).result is None


def test_a_forked_process_keeps_no_run_alive(tmp_path):
    script = f"""
        import os, samara, time
        running = samara.start({PRESET!r}, {LONG!r}, {str(tmp_path / "run")!r})
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        print(running._process.pid, flush=True)
        next(iter(running))
        os.kill(os.getpid(), 9)
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE)
    child = int(parent.stdout.readline())
    assert parent.wait(30) == -signal.SIGKILL
    ended = wait_until(lambda: not is_running(child), 15)
    if not ended:
        os.kill(child, signal.SIGKILL)
    assert ended, "a forked process holds the run"


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return holds


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def children_of(pid):
    return [int(word) for task in Path(f"/proc/{pid}/task").iterdir() for word in (task / "children").read_text().split()]


def test_a_run_outlives_the_thread_that_started_it(tmp_path):
    started = []
    thread = threading.Thread(target=lambda: started.append(samara.start(PRESET, LONG, tmp_path / "run")))
    thread.start()
    thread.join()
    with started[0] as running:
        for line in running:
            if line.get("generation", 0) >= 2:
                running.stop()
        assert running.wait().result is None


def test_numbers_of_numpy_are_values(run, tmp_path):
    words = SMALL | {"run.seed": np.int64(3), "ga.population": np.int32(12)}
    assert samara.train(PRESET, words, tmp_path / "run").result["population_hash"] == run.result["population_hash"]


def test_tables_and_lists_are_values(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "same.py").write_text("def Same(env): return env\n")
    kwargs = {"sutton_barto_reward": True}
    keys = {"env.id": "gymnasium:CartPole-v1", "env.kwargs": kwargs, "env.wrappers": ["same:Same"], "fleet.actors": 1,
            "ga.population": 4, "ga.parents": 2, "ga.generations": 1, "ga.validation_episodes": 1, "ga.validation_candidates": 1,
            "ga.test_episodes": 1, "run.random_episodes": 1, "run.final_test_episodes": 2}
    run = samara.train("classic/cartpole-ga", keys)
    assert run.config["env"]["kwargs"] == kwargs and run.config["env"]["wrappers"] == ["same:Same"]
    assert run.result["elite_mean"] == -1, "the other reward of CartPole"
    assert samara.train("classic/cartpole-ga", keys | {"env.wrappers": "same:Same"}).config == run.config
    envs = samara.make_vec("gymnasium:CartPole-v1", 2, kwargs=kwargs, wrappers="same:Same")
    envs.reset(seed=1)
    assert envs.step(np.array([0, 1]))[1].tolist() == [0, 0]
    envs.close()
    with pytest.raises(samara.Error, match="samara's own") as refused:
        samara.make_vec("CartPole-v1", 2, kwargs=kwargs)
    assert refused.value.exit_code == 78


def test_values_are_written_as_toml():
    assert words({"a.b": {"x": [1, 2.5], "y z": {"t": "w\"", "on": True}}, "c.d": "word", "e.f": np.int64(3)}) == [
        'a.b={"x" = [1, 2.5], "y z" = {"t" = "w\\"", "on" = true}}', "c.d=word", "e.f=3"]
    numbers = {"f": np.float32(0.5), "b": np.bool_(True), "a": np.arange(3), "path": Path("x/y"), "r": range(2)}
    assert words({"env.kwargs": numbers}) == [
        'env.kwargs={"f" = 0.5, "b" = true, "a" = [0, 1, 2], "path" = "x/y", "r" = [0, 1]}']
    assert words({"ga": {"population": 8, "parents": np.int8(2)}, "env": {"kwargs": {"size": 4}}}) == [
        "ga.population=8", "ga.parents=2", 'env.kwargs={"size" = 4}']


def test_classes_name_what_actors_import():
    import gymnasium.wrappers as wrappers
    from gymnasium.envs.classic_control import CartPoleEnv

    home = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
    clip = f"{wrappers.ClipReward.__module__}:ClipReward"
    assert words({"env.id": CartPoleEnv, "env.wrappers": ["a:B", wrappers.ClipReward]}) == [
        f"env.id={home}", f'env.wrappers=["a:B", "{clip}"]']
    assert words({"env.wrappers": wrappers.ClipReward}) == [f"env.wrappers={clip}"]


class Nowhere:
    class Inner:
        pass


@pytest.mark.parametrize(("overrides", "error", "message"), [
    ([("ga.population", 4)], TypeError, r"overrides: list, expected a dict of keys, such as \{'run.seed': 3\}"),
    ({"env.kwargs": {"at": {"task": Nowhere}}}, TypeError, "env.kwargs.at.task: .*Nowhere.*, expected a text, number"),
    ({"env.kwargs": {"sizes": [1, None]}}, TypeError, r"env.kwargs.sizes\[1\]: None, expected a text, number"),
    ({"es.sigma": float("nan")}, ValueError, "es.sigma: nan, expected a finite number"),
    ({"env.id": Nowhere.Inner}, ValueError, "env.id: .* has no attribute Nowhere.Inner"),
    ({"env.wrappers": [3]}, TypeError, "env.wrappers: 3, expected a text or a class"),
    ({3: 4}, samara.Error, "3: expected a key"),
])  # fmt: skip
def test_values_that_no_key_has_are_refused_in_one_line(overrides, error, message, tmp_path):
    with pytest.raises(error, match=f"^{message}") as refused:
        samara.train(PRESET, overrides, tmp_path / "run")
    assert "\n" not in str(refused.value) and not (tmp_path / "run").exists()


TASK = """
import gymnasium, numpy as np
from gymnasium import spaces

class Mine(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)
    def __init__(self, pay=1): self.pay = pay
    def reset(self, *, seed=None, options=None): return np.zeros(2, np.float32), {}
    def step(self, action): return np.zeros(2, np.float32), self.pay, True, False, {}
"""
ONE = {"fleet.actors": 1, "ga.population": 4, "ga.parents": 2, "ga.generations": 1, "ga.validation_episodes": 1,
       "ga.validation_candidates": 1, "ga.test_episodes": 1, "run.random_episodes": 1, "run.final_test_episodes": 2,
       "run.video": False}
TRAIN = TASK + f"""
import samara
KEYS = {ONE!r}
def go(**more): return samara.train("classic/cartpole-ga", KEYS | more, OUT)
"""


def script(folder, text, cwd):
    """Runs it as a file of `folder`, from another current folder."""
    folder.mkdir()
    (folder / "mine.py").write_text(text.replace("OUT", repr(str(folder / "run"))))
    return subprocess.run([sys.executable, folder / "mine.py"], cwd=cwd, capture_output=True, text=True, timeout=60,
                          env=os.environ | {"PYTHONPATH": str(ROOT / "build/python")})


def test_actors_find_the_environment_of_the_script_itself(tmp_path):
    (tmp_path / "mine.py").write_text("raise SystemExit('the current folder comes last')")
    guarded = TRAIN + """
if __name__ == "__main__":
    print(go(**{"env.id": "mine:Mine", "env.kwargs": {"pay": np.float32(2)}}).result["elite_mean"])
    envs = samara.make_vec("mine:Mine", 2, kwargs={"pay": np.int64(3)})
    envs.reset(seed=1)
    print(envs.step(np.zeros(2, int))[1].tolist())
    print(samara.make_vec(Mine, 1).spec_fields["id"])
"""
    done = script(tmp_path / "elsewhere", guarded, tmp_path)
    assert done.stdout.splitlines() == ["2.0", "[3.0, 3.0]", "gym/mine:Mine"], done.stderr[-2000:]


def test_the_scripts_folder_hides_no_module(tmp_path):
    """Of an actor: it is looked through after the installed packages."""
    (tmp_path / "here").mkdir()
    hostile = TRAIN + """
import pathlib
(pathlib.Path(__file__).parent / "json.py").write_text("raise SystemExit('hidden')")
if __name__ == "__main__":
    print(go(**{"env.id": "mine:Mine"}).result["elite_mean"])
"""
    done = script(tmp_path / "elsewhere", hostile, tmp_path / "here")
    assert done.stdout.splitlines() == ["1.0"], done.stderr[-2000:]


@pytest.mark.parametrize("line", ['go(**{"env.id": "mine:Mine"})', 'samara.make_vec("mine:Mine", 2)', 'samara.make_vec(Mine, 2)'])
def test_a_script_without_a_guard_starts_nothing_in_actors(line, tmp_path):
    done = script(tmp_path / "elsewhere", TRAIN + line, tmp_path)
    assert done.returncode == 1
    assert 'put that under if __name__ == "__main__"' in done.stderr.splitlines()[-1]


def test_an_environment_may_ask_a_policy_in_its_actor(run, tmp_path):
    opponent = TASK.replace("self.pay = pay", f"import samara; self.policy = samara.Policy({str(run.path)!r})").replace(
        "self.pay, True", "float(self.policy(np.zeros(4))), True")
    (tmp_path / "opponents.py").write_text(opponent)
    assert ok("check", "opponents:Mine", "--seconds", 0.1, cwd=tmp_path).code == 0


def test_a_class_of_a_program_that_is_no_module_is_refused(tmp_path):
    done = subprocess.run([sys.executable, "-c", TRAIN.replace("OUT", "None") + 'go(**{"env.id": Mine})'], cwd=tmp_path,
                          capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT / "build/python")})
    assert done.stderr.splitlines()[-1] == (
        "ValueError: env.id: Mine is defined in the program itself, which actor processes cannot import: put it into a module")


def test_actors_find_modules_of_folders_that_the_script_added(tmp_path):
    (tmp_path / "library").mkdir()
    (tmp_path / "library/task.py").write_text(TASK)
    added = f"import sys\nsys.path.insert(0, {str(tmp_path / 'library')!r})\nimport task\n" + TRAIN + """
if __name__ == "__main__":
    print(go(**{"env.id": task.Mine}).result["elite_mean"])
    print(samara.make_vec(task.Mine, 1).spec_fields["id"])
"""
    done = script(tmp_path / "elsewhere", added, tmp_path)
    assert done.stdout.splitlines() == ["1.0", "gym/task:Mine"], done.stderr[-2000:]


def test_messages_name_what_python_has(run):
    with pytest.raises(samara.Error) as refused:
        samara.train(PRESET, SMALL, run.path)
    assert str(refused.value) == f"{run.path}: exists; choose another out=, or continue it by samara.load('{run.path}').resume()"
    told = samara.program.failure(77, '{"error": "a.file: runs code; expected --trust if you trust it", "exit": 77}', "")
    assert str(told) == "a.file: runs code; expected trust=True if you trust it"


def test_the_default_folder_is_the_programs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(samara.train(PRESET, SMALL).path) == "runs/cartpole-ga-01"
    assert (tmp_path / "runs/cartpole-ga-01/result.json").exists()


def test_an_interrupt_saves_and_names_the_folder(tmp_path):
    def interrupt():
        while not (tmp_path / "run" / "metrics.jsonl").exists():
            time.sleep(0.01)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt) as caught:
        samara.train(PRESET, LONG, tmp_path / "run")
    thread.join()
    assert f"samara.load('{tmp_path / 'run'}').resume() continues" in caught.value.__notes__[0]
    assert ok("fsck", tmp_path / "run").code == 0


@pytest.mark.parametrize("where", ["begin", "call", "end"])
def test_an_exception_of_a_callback_saves_and_names_the_folder(where, tmp_path):
    class Careless:
        def begin(self, run):
            assert where != "begin", "careless"

        def __call__(self, line):
            assert where != "call" or line.get("generation", 0) < 2, "careless"
            return line.get("generation", 0) >= 3

        def end(self, run):
            assert where != "end", "careless"

    with pytest.raises(AssertionError, match="careless") as caught:
        samara.train(PRESET, LONG, tmp_path / "run", callback=Careless())
    assert caught.value.__notes__ == [f"samara: stopped; samara.load('{tmp_path / 'run'}').resume() continues"]
    run = samara.load(tmp_path / "run")
    assert run.result is None and ok("fsck", run.path).code == 0
    assert run.resume(callback=lambda line: True).result is None


def test_a_callback_that_fails_at_the_end_names_the_finished_run(run, tmp_path):
    def careless(line):
        pass

    def fail(run):
        raise AssertionError("careless")

    careless.end = fail
    with pytest.raises(AssertionError, match="careless") as caught:
        samara.train(PRESET, SMALL, tmp_path / "run", callback=careless)
    assert caught.value.__notes__ == [f"samara: finished; samara.load('{tmp_path / 'run'}') opens it"]
    assert samara.load(tmp_path / "run").result["population_hash"] == run.result["population_hash"]


def test_a_callback_is_one_function(tmp_path):
    with pytest.raises(TypeError, match="callback: list, expected a function"):
        samara.train(PRESET, SMALL, tmp_path / "run", callback=[print])
    assert not (tmp_path / "run").exists()


def test_the_package_imports_nothing_before_it_is_used():
    """Actor processes import it too."""
    code = ("import sys; before = set(sys.modules); import samara; "
            "print(sorted(set(sys.modules) - before - {'samara', '__future__', 'importlib', 'typing'}))")
    done = subprocess.run([sys.executable, "-c", "import importlib, typing; " + code], capture_output=True, text=True,
                          check=True, env=os.environ | {"PYTHONPATH": str(ROOT / "build/python")})
    assert done.stdout.strip() == "[]"
    assert samara.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        samara.trian
    assert set(samara.__all__) <= set(dir(samara)) and all(hasattr(samara, name) for name in samara.__all__)


def test_the_pages_examples_run(tmp_path):
    """The code blocks of doc/python.md, one after the other, as somebody pastes them. Stable-Baselines3: test_vector.py."""
    blocks = [block for block in re.findall(r"^```python\n(.*?)^```", (ROOT / "doc/python.md").read_text(), re.M | re.S)
              if "stable_baselines3" not in block]
    assert len(blocks) > 3
    done = subprocess.run([sys.executable, "-c", "\n".join(blocks)], cwd=tmp_path, capture_output=True, text=True,
                          timeout=120, env=os.environ | {"PYTHONPATH": str(ROOT / "build/python")})
    assert done.returncode == 0, done.stderr[-3000:]
