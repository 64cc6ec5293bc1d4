"""What is code and what is data (SECURITY.md): only what the user named runs, and weights are numbers."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from samara_cli import BINARY, CARTPOLE, ROOT, environment, ok, samara, train
from test_bad_input import contents, refused

# short runs on CartPole by Gymnasium and not natively, or by a module of the user's
PYTHON = [*CARTPOLE, "ga.generations=1", "ga.population=2", "fleet.actors=1", "env.test_frames_max=20", "run.video=false"]
MODULE = """
from pathlib import Path
import gymnasium
Path(__file__).with_name("ran").touch()
gymnasium.register("Foo-v0", entry_point="gymnasium.envs.classic_control.cartpole:CartPoleEnv", max_episode_steps=30)
"""
HOSTILE = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\nraise SystemExit(3)\n"


@pytest.fixture
def place(tmp_path):
    """A current folder with a module of somebody's, and one that would hide NumPy."""
    folder = tmp_path / "place"
    folder.mkdir()
    (folder / "mine.py").write_text(MODULE)
    (folder / "numpy.py").write_text(HOSTILE)
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    train(folder, *CARTPOLE)
    return folder


def rewrite(source: Path, target: Path, metadata=lambda m: m, tensors=lambda t: t) -> Path:
    with safe_open(source, "np") as file:
        kept = {name: file.get_tensor(name) for name in file.keys()}
        words = file.metadata()
    save_file(tensors(kept), target, metadata(words))
    return target


def says(key, value):
    """Metadata whose configuration has another value."""
    return lambda m: m | {"config": re.sub(rf"(?m)^{key} = .*$", f"{key} = {value}", m["config"], count=1)}


@pytest.fixture(scope="module")
def policy(finished, tmp_path_factory):
    file = tmp_path_factory.mktemp("policy") / "elite.safetensors"
    ok("export", finished, file)
    return file


# -- modules ----------------------------------------------------------------------------------------------


def test_the_current_folder_hides_no_module(place, tmp_path):
    for variables in ({}, {"PYTHONPATH": ""}, {"PYTHONPATH": ":/nowhere::"}):
        run = tmp_path / f"run{len(variables)}{variables.get('PYTHONPATH', '')[:1].replace(':', 'c')}"
        train(run, *PYTHON, "env.id=CartPole-v0", cwd=place, **variables)
        assert not (place / "ran").exists(), variables


def test_other_starts_of_python_are_isolated_too(place):
    for name in ("csv", "zipfile", "json", "email"):
        (place / f"{name}.py").write_text(HOSTILE)
    assert "numpy (actors)                       2." in samara("doctor", cwd=place).out
    for arguments in (["-m"], ["-P", "-m"]):
        subprocess.run([ROOT / ".venv/bin/python", *arguments, "samara.actor", "--help"], cwd=place, check=True,
                       capture_output=True, env=environment(PYTHONPATH=str(ROOT / "build/python")))
    assert not (place / "ran").exists()


def test_no_python_that_lies_in_the_current_folder_is_run(place, tmp_path):
    program = place / ".venv" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\ntouch ran\n")
    program.chmod(0o700)
    (tmp_path / "bin").mkdir()
    elsewhere = tmp_path / "bin" / "samara"  # not next to a .venv
    shutil.copy(BINARY, elsewhere)
    clean = {key: value for key, value in environment().items() if key != "VIRTUAL_ENV"}
    for command in (["doctor"], ["train", *PYTHON, "env.id=CartPole-v0", "--out", tmp_path / "run"]):
        done = subprocess.run([elsewhere, *command], cwd=place, env=clean, capture_output=True, text=True)
        assert done.returncode == 66 and not (place / "ran").exists(), done


def test_a_module_that_the_user_names_comes_from_the_current_folder_last(place, tmp_path):
    run = tmp_path / "run"
    train(run, *PYTHON, "env.id=mine:Foo-v0", cwd=place)
    assert (place / "ran").exists()  # by mine.py: numpy.py would have ended the actors
    # one's own run goes on as it is
    ok("eval", run, "--episodes", 1, cwd=place)
    ok("train", "--resume", run, "ga.generations=2", "--quiet", cwd=place)


def test_a_policy_file_runs_no_module_of_its_own(place, policy, tmp_path):
    evil = rewrite(policy, place / "evil.safetensors", says("id", '"mine:Foo-v0"'))
    for command in (["eval", evil], ["eval", evil, "--random"], ["play", evil, "--video", tmp_path / "x.mp4"],
                    ["eval", evil, "--video", tmp_path / "x.mp4"]):
        refused(77, *command, words=[str(evil), "mine:Foo-v0", "--trust"], cwd=place)
    ok("export", evil, tmp_path / "copy.safetensors", cwd=place)  # starts nothing
    ok("eval", evil, "--episodes", 1, "env.id=CartPole-v1", cwd=place)  # another environment, the user's
    assert not (place / "ran").exists()
    ok("eval", evil, "--episodes", 1, "--trust", cwd=place)
    assert (place / "ran").exists()


@pytest.mark.parametrize("chosen", ["envpool:Basic-v1?vzd_path=./evil", "dmlab:level?runfiles=.", "dmlab:./level.lua"])
def test_a_policy_file_chooses_no_program_by_options(chosen, policy, tmp_path):
    evil = rewrite(policy, tmp_path / "evil.safetensors", says("id", f'"{chosen}"'))
    refused(77, "eval", evil, words=[str(evil), chosen, "--trust"])


@pytest.mark.parametrize(("key", "value"), [("wrappers", '["mine:Foo"]'), ("kwargs", '{"xml_file" = "./evil.xml"}')])
def test_a_policy_file_chooses_no_wrapper_and_no_path(key, value, place, policy, tmp_path):
    evil = rewrite(policy, tmp_path / "evil.safetensors", says(key, value))
    for command in (["eval", evil], ["eval", evil, "env.id=CartPole-v0"]):  # which would be wrapped too
        refused(77, *command, words=[str(evil), "wrappers", "--trust"], cwd=place)
    assert not (place / "ran").exists()


# -- whose run it is --------------------------------------------------------------------------------------


def give_away(run):
    if os.getuid() != 0:
        pytest.skip("NOT TESTED: giving a file to another user needs root")
    os.chown(run, 65534, 65534)


@pytest.mark.parametrize(
    "how, words",
    [
        (give_away, ["belongs to another user (65534)"]),
        (lambda run: run.chmod(0o777), ["other users may write", "0777"]),
        (lambda run: (run / "config.toml").chmod(0o666), ["config.toml", "other users may write"]),
    ],
)
def test_a_run_of_others_is_played_and_resumed_only_when_trusted(how, words, tmp_path):
    run = tmp_path / "run"
    train(run, *CARTPOLE, "run.video=false")
    how(run)
    before = contents(run)
    for command in (["eval", run], ["play", run, "--video", tmp_path / "x.mp4"], ["train", "--resume", run, "ga.generations=5"],
                    ["train", *CARTPOLE, "run.video=false", "--out", run, "--resume", "auto"]):
        refused(77, *command, words=[str(run), "--trust", *words])
    assert contents(run) == before
    ok("export", run, tmp_path / "x.safetensors")
    for given in ("--trust", "env.id=CartPole-v1"):
        ok("eval", run, "--episodes", 1, given)
    ok("train", "--resume", run, "ga.generations=5", "--quiet", "--trust")
    ok("train", "--resume", run, "ga.generations=6", "--quiet", "env.id=CartPole-v1")


def test_a_run_of_others_brings_no_wrapper(place, tmp_path):
    run = tmp_path / "run"
    (place / "wraps.py").write_text(MODULE + "def Same(env): return env\n")
    train(run, *PYTHON, "env.id=CartPole-v0", "env.wrappers=wraps:Same", cwd=place)
    (place / "ran").unlink()
    run.chmod(0o777)
    for command in (["eval", run], ["train", "--resume", run, "ga.generations=5"]):
        refused(77, *command, "env.id=CartPole-v0", words=[str(run), "--trust"], warnings=True, cwd=place)
    assert not (place / "ran").exists()


def test_a_file_of_others_names_no_wrapper(place, tmp_path):
    file = place / "theirs.toml"
    file.write_text('[env]\nwrappers = ["mine:Foo"]\n')
    file.chmod(0o666)
    refused(77, "train", file, "env.id=CartPole-v0", "--dry-run", words=["theirs.toml", "--trust"], cwd=place)
    assert not (place / "ran").exists()


def test_a_file_of_others_names_no_module(place, tmp_path):
    file = place / "mine.toml"
    file.write_text('[env]\nid = "mine:Foo-v0"\n')
    file.chmod(0o666)
    refused(77, "train", file, "--out", tmp_path / "run", words=["mine.toml", "--trust"], cwd=place)
    assert not (place / "ran").exists() and not (tmp_path / "run").exists()


# -- weights ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_numbers_are_refused(value, policy, tmp_path):
    def spoil(tensors):
        tensors["fc1.weight"].reshape(-1)[3] = value
        return tensors

    bad = rewrite(policy, tmp_path / "bad.safetensors", tensors=spoil)
    out = tmp_path / "out.safetensors"
    for command in (["eval", bad], ["play", bad, "--video", tmp_path / "x.mp4"], ["export", bad, out]):
        refused(65, *command, words=[str(bad), "not a finite number", "--allow-nonfinite"])
    assert not out.exists()
    begin = samara("train", *CARTPOLE, f"run.init_from={bad}", "--out", tmp_path / "run", "--json")
    assert begin.code == 65 and "not a finite number" in begin.json["error"]
    assert "--allow-nonfinite" not in begin.json["error"], "train has no such option"
    ok("eval", bad, "--episodes", 1, "--allow-nonfinite")
    ok("export", bad, out, "--allow-nonfinite")


def test_an_agents_weights_too(tmp_path):
    config = ok("train", "classic/cartpole-vtrace", "--dry-run").out
    bad, good = tmp_path / "bad.safetensors", tmp_path / "good.safetensors"
    for file, value in ((good, 1.0), (bad, np.nan)):
        save_file({"body.weight": np.full((2, 2), value, np.float32)}, file, {"format": "samara-agent-1", "config": config})
    for command in (["eval", bad], ["export", bad, tmp_path / "x.safetensors"]):
        refused(65, *command, words=[str(bad), "weight 0 of body.weight", "--allow-nonfinite"])
    ok("export", good, tmp_path / "x.safetensors")


@pytest.mark.parametrize("key, value", [("outputs", "-0.0"), ("outputs", "1e-400"), ("height", "1.0"), ("width", "1e300"),
                                        ("channels", "-4"), ("outputs", '"2"')])
def test_counts_in_a_policy_file_are_counts(key, value, policy, tmp_path):
    def change(metadata):
        return metadata | {"network": re.sub(rf'"{key}":\d+', f'"{key}":{value}', metadata["network"])}

    bad = rewrite(policy, tmp_path / "bad.safetensors", change)
    refused(65, "eval", bad, words=[str(bad), f"no count '{key}'"])


# -- messages ---------------------------------------------------------------------------------------------

BIG = "x" * 100_000


@pytest.mark.slow
def test_messages_do_not_repeat_what_is_big(policy, tmp_path):
    toml, token, genome = tmp_path / "big.toml", tmp_path / "token", tmp_path / "genome.json"
    token.write_text(BIG)
    token.chmod(0o600)
    commands = [
        ["train", BIG], ["train", BIG + ".toml"], [BIG], ["train", "classic/cartpole-ga", "--" + BIG], ["train", "--resume", BIG],
        ["eval", BIG], ["eval", policy, "--episodes", BIG], ["eval", policy, "--noops", BIG], ["eval", policy, "--seed", BIG],
        ["eval", policy, BIG], ["report", BIG], ["hash", BIG], ["fsck", BIG], ["export", BIG, "x"], ["import", BIG, "--out", "x"],
        ["play", policy, "--speed", BIG], ["actor", "--connect", BIG, "--env", "CartPole-v1"],
        ["actor", "--connect", "unix:/nowhere/x", "--env", "atari/" + BIG], ["launch", "-n", BIG, "true"], ["launch", "-n", "1", BIG],
        ["actor", "--connect", "unix:/nowhere/x", "--env", "CartPole-v1", "--token-file", token],
        ["train", "classic/cartpole-ga", "--out", BIG], ["train", "classic/cartpole-ga", "--seeds", BIG, "--out", tmp_path / "s"],
        ["train", "classic/cartpole-vtrace", "--listen", BIG, "--out", tmp_path / "r"],
    ]
    for key in ("run.algorithm", "run.video", "env.id", "env.game", "env.preset", "network.name", "ga.population",
                "ga.mutation_power"):
        commands.append(["train", "atari/deep-ga-desktop", f"{key}={BIG}", "--out", tmp_path / "r"])
    commands.append(["train", "atari/deep-ga-desktop", f"{BIG}=1", "--out", tmp_path / "r"])
    for command in commands:
        check_short(samara(*command, "--json"))
    for text in (BIG, f"{BIG} = 1", f"[{BIG}]", f"[{BIG}]\nx = 1", f"[run]\n{BIG} = 1", f"[run]\nname = {BIG}",
                 f"[ga]\npopulation = '{BIG}'", f"[run]\nalgorithm = '{BIG}'", f"[ga]\npopulation = {'9' * 100_000}"):
        toml.write_text(text)
        check_short(samara("train", toml, "--out", tmp_path / "r", "--json"))
    for key in ("format", "config", "network", "genome"):
        for value in (BIG, f"[{BIG}]\nx=1", f'{{"name": "{BIG}", "height": 1, "width": 1, "channels": 4, "outputs": 2}}'):
            check_short(samara("eval", rewrite(policy, tmp_path / "p", lambda m, k=key, v=value: m | {k: v}), "--json"))
    for key in ("game", "network", "initial_index", "mutation_power", "noise_table", BIG):
        fields = json.loads((ROOT / "tests/data/uber_frostbite_genome.json").read_text())
        genome.write_text(json.dumps(fields | {key: BIG}))
        check_short(samara("import", genome, "--out", tmp_path / "x", "--json"))


def check_short(outcome):
    shown = [outcome.code, outcome.command[:3], outcome.err[:300], outcome.out[:300]]
    assert outcome.code in (64, 65, 66, 69, 73, 74, 77, 78), shown
    assert outcome.err.startswith("samara: ") and len(outcome.err) < 2500 and len(outcome.out) < 2500, shown
    assert len(outcome.err.splitlines()) == 1, shown


def test_an_empty_file_is_no_run(tmp_path):
    empty, toml = tmp_path / "empty", tmp_path / "empty.toml"
    empty.touch(), toml.write_text("# nothing yet\n")
    refused(65, "eval", empty, words=["empty file", "run folder or a policy file"])
    refused(78, "train", toml, "--out", tmp_path / "run", words=["empty.toml: empty", "[run]"])
    refused(66, "train", "--resume", empty, words=["not a run folder"])
    assert not (tmp_path / "run").exists()


# -- memory and signals -----------------------------------------------------------------------------------


def test_a_genome_of_the_noise_table_costs_no_gigabyte(tmp_path):
    genome = json.loads((ROOT / "tests/data/uber_frostbite_genome.json").read_text())
    file = tmp_path / "genome.json"
    file.write_text(json.dumps(genome | {"initial_index": 5, "mutation_indices": [70_001, 0]}))
    limit = 900_000_000  # bytes of address space; the table alone is 1,000,000,000
    done = subprocess.run([BINARY, "import", file, "--out", tmp_path / "policy"], env=environment(), cwd=ROOT,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert done.returncode == 0


def test_an_ignored_interrupt_stays_ignored(tmp_path):
    """As a shell starts what runs in the background of a script."""
    def ignore():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    commands = (["launch", "-n", "1", "sleep", "2"], ["train", *CARTPOLE, "ga.generations=30", "--quiet", "--out", tmp_path / "run"])
    started = [subprocess.Popen([BINARY, *map(str, command)], env=environment(), preexec_fn=ignore, stderr=subprocess.DEVNULL)
               for command in commands]
    for _ in range(3):  # launch takes what comes within a second for one request
        time.sleep(0.6)
        for process in started:
            process.send_signal(signal.SIGINT)
    assert [process.wait(60) for process in started] == [0, 0]
