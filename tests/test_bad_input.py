"""What is wrong with the input is said in one line, with the documented exit code, soon, and nothing is lost.

Exit codes are those of README.md: 64 usage, 65 bad data, 66 input missing,
69 unavailable, 73 cannot create, 74 input or output, 78 configuration.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from samara_cli import ATARI, BINARY, CARTPOLE, ROOT, TESTS, Running, environment, ok, resume, samara, train

PATIENCE = float(os.environ.get("SAMARA_TEST_PATIENCE", "15"))  # s; a second where nothing else runs
FAULTY = {"PYTHONPATH": str(TESTS / "envs")}


def refused(code, *args, words=(), seconds=PATIENCE, warnings=False, **options):
    """One line on standard error with `words` in it, the same in the JSON object, `code`, soon."""
    outcome = samara(*args, "--json", **options)
    assert outcome.code == code, outcome
    lines = outcome.err.splitlines()
    if warnings:
        lines = lines[-1:]  # before it: the header of the run and warnings
    assert len(lines) == 1 and lines[0].startswith("samara: "), outcome
    said = outcome.json
    if args[0] == "fsck":  # and what it has found
        said = {key: said[key] for key in ("error", "exit")}
    assert said == {"error": lines[0].removeprefix("samara: "), "exit": code}, outcome
    for word in words:
        assert word in lines[0], outcome
    assert outcome.seconds < seconds, outcome
    return outcome


@pytest.fixture
def out(tmp_path):
    """A place for a run that must not come to be."""
    path = tmp_path / "run"
    yield path
    assert os.listdir(tmp_path) == [], "a refused run left something behind"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    train(folder, *CARTPOLE)
    return folder


@pytest.fixture
def run(finished, tmp_path):
    """A copy of a good run, to be damaged."""
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def contents(folder):
    return {p.relative_to(folder): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# -- names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given, words",
    [
        (["classic/cartpole-g"], ["classic/cartpole-g:", "classic/cartpole-ga", "samara list presets"]),
        (["atari/deepga"], ["atari/deepga:", "atari/deep-ga"]),
        (["classic/cartpole-ga", "ga.populaton=3"], ["ga.populaton:", "ga.population", "samara list keys"]),
        (["classic/cartpole-ga", "population=3"], ["population:", "ga.population"]),
        (["classic/cartpole-ga", "network.name=LargModel"], ["LargModel", "'LargeModel'"]),
        (["classic/cartpole-ga", "network.name=largemodel"], ["largemodel", "'LargeModel'"]),
        (["classic/cartpole-ga", "network.name=mlp-16-relo"], ["mlp-16-relo", "mlp-<units>"]),
        (["classic/cartpole-ga", "network.name=LargeModel"], ["LargeModel", "needs images", "mlp"]),
        (["classic/cartpole-ga", "run.algorithm=deepga"], ["run.algorithm=deepga", "deep-ga"]),
        (["classic/cartpole-ga", "ga.noise=normall"], ["ga.noise=normall", "nearest: normal"]),
        (["atari/deep-ga-desktop", "env.preset=deepga-gp"], ["env.preset=deepga-gp", "deepga-gpu"]),
        (["atari/deep-ga-desktop", "env.game=pongg"], ["env.game=pongg", "nearest is pong"]),
        (["atari/deep-ga-desktop", "env.game=Frostbite!"], ["env.game=Frostbite!", "frostbite"]),
        (["atari/deep-ga-desktop", "env.game=combat"], ["env.game=combat", "single-player"]),
        (["classic/cartpole-ga", "env.id=CartPol-v1"], ["CartPol-v1", "CartPole"]),
        (["classic/cartpole-ga", "env.id=CartPole-v99"], ["CartPole-v99"]),
        (["classic/cartpole-ga", "env.preset=ale-v5"],
         ["env.preset=ale-v5 has no effect with env.id=CartPole-v1", "samara train atari/ppo-quick env.preset=ale-v5"]),
        (["classic/cartpole-ppo", "network.layers=[64, 64]"], ["layers [64, 64]: a list, expected one text, as in "]),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(given, words, out):
    refused(78, "train", *given, "--out", out, words=words)


@pytest.mark.parametrize("given, meant", [
    ("cartpole-ga", "classic/cartpole-ga"),
    ("CartPole-v1", "classic/cartpole-ga"),
    ("Pendulum-v1", "classic/pendulum-"),
    ("Humanoid", "mujoco/humanoid-es"),
    ("TMaze-v0", "memory/t-maze-r2d2"),
    ("catch", "classic/catch-vtrace"),
    ("PointReach-v0", "goal/reach-sac"),
    ("classic/es", "classic/cartpole-es"),
])
def test_what_a_preset_is_called_for_short_is_understood(given, meant, out):
    refused(78, "train", given, "--out", out, words=[f"the nearest known one is {meant}"])


@pytest.mark.parametrize("given", ["nope", "x.safetensors", "my_task.py", "frostbiter/x"])
def test_nothing_is_suggested_for_what_is_like_no_preset(given, out):
    outcome = refused(78, "train", given, "--out", out, words=[f"{given}: unknown preset ("])
    assert "nearest" not in outcome.err


def test_what_is_no_preset_says_what_it_is(tmp_path):
    (tmp_path / "my_task.py").write_text("")
    refused(78, "train", tmp_path, words=[f"{tmp_path}: a folder, expected a preset"])
    refused(78, "train", tmp_path / "my_task.py", words=["my_task.py: a file whose name does not end in .toml"])


@pytest.mark.parametrize("given, game", [
    ("pong", "pong"), ("atari/pong", "pong"), ("ALE/MsPacman-v5", "ms_pacman"), ("PongNoFrameskip-v4", "pong"),
    ("space invaders", "space_invaders"), ("ALE/TicTacToe3D-v5", "tic_tac_toe_3d"),
])  # fmt: skip
def test_a_game_is_no_preset_by_any_of_its_names(given, game):
    refused(78, "train", given, words=[f"{given}: an Atari game", f"samara train atari/ppo-quick env.game={game} ("])


def test_nothing_is_suggested_for_what_is_like_no_network(out):
    outcome = refused(78, "train", "classic/cartpole-ga", "network.name=resnet", "--out", out,
                      words=["no network 'resnet'; expected a name of `samara list networks`"])
    assert "nearest" not in outcome.err


@pytest.mark.parametrize("preset, given, meant", [
    ("classic/cartpole-ppo", "lr", "optimizer.learning_rate"),
    ("classic/cartpole-ppo", "total_timesteps", "learn.frames"),
    ("classic/cartpole-ppo", "n_envs", "learn.environments"),
    ("classic/cartpole-ga", "total_timesteps", "ga.frames"),
    ("classic/cartpole-ga", "population_size", "ga.population"),
    ("classic/cartpole-ga", "lr", None),
])  # fmt: skip
def test_keys_as_other_libraries_call_them(preset, given, meant, out):
    outcome = refused(78, "train", preset, f"{given}=1", "--out", out, words=[f"{given}: unknown key"])
    assert f"the nearest known one is {meant} (" in outcome.err if meant else "nearest" not in outcome.err


@pytest.mark.parametrize("words", [
    ["classic/cartpole-ga", "env.game=pong"],
    ["atari/deep-ga-desktop", "env.game=pong", "env.id=CartPole-v1"],
])
def test_a_game_next_to_an_environment_is_refused(words, out):
    expected = ["env.game=pong has no effect with env.id=CartPole-v1", "samara train atari/ppo-quick env.game=pong"]
    refused(78, "train", *words, "--out", out, words=expected)


def test_a_game_next_to_an_environment_in_a_file(finished, tmp_path):
    file = tmp_path / "both.toml"
    file.write_text('[env]\nid = "CartPole-v1"\ngame = "pong"\n')
    refused(78, "train", file, "--dry-run", words=["env.game=pong has no effect"])
    ok("train", finished / "config.toml", "--dry-run")  # every key is in it
    ok("train", "atari/deep-ga-desktop", "env.id=CartPole-v1", "network.name=linear", "--dry-run")


def test_the_algorithm_is_checked_before_the_keys_it_has(tmp_path):
    refused(78, "train", "classic/cartpole-ppo", "run.algorithm=dpo", words=["run.algorithm=dpo: expected one of", "ppo)"])
    (tmp_path / "mine.toml").write_text('[learn]\nbatch = 4\n[run]\nalgorithm = "dpo"\n')
    refused(78, "train", tmp_path / "mine.toml", words=["dpo: expected one of"])
    refused(78, "train", "classic/cartpole-ga", "run.algorithm=", words=["run.algorithm=: expected one of"])


def test_help_and_version_are_commands_too():
    for words, options in ((["help"], ["--help"]), (["version"], ["--version"]), (["help", "eval"], ["eval", "--help"])):
        assert samara(*words).out == samara(*options).out != ""
        assert samara(*words).code == 0


def test_unknown_commands_and_options_are_usage(tmp_path):
    refused(64, "trian", words=["trian: unknown command", "train"])
    refused(64, "resume", words=["the nearest known one is train"])
    refused(64, "watch", words=["the nearest known one is play"])
    assert "nearest" not in refused(64, "foo", words=["foo: unknown command ("]).err
    refused(64, "--foo", words=["--foo: unknown option"])
    refused(64, "train", "classic/cartpole-ga", "--ga.population", 5, words=["has no dashes: ga.population=5"])
    refused(64, "train", "classic/cartpole-ga", "--seed", 5, words=["has no dashes: run.seed=5"])
    refused(64, "train", "classic/cartpole-ga", "--ga.frames=7", words=["has no dashes: ga.frames=7"])
    refused(64, "train", "classic/cartpole-ga", "--oot", "x", words=["--oot", "--out"])
    refused(64, "eval", "x", "--episods", 3, words=["--episods", "--episodes"])
    refused(64, "eval", words=["target is required"])
    refused(64, "train", words=["preset"])
    refused(64, "train", "a", "b", words=["b: expected one preset"])
    refused(64, "train", "classic/cartpole-ga", "--resume", "auto", words=["--out"])
    refused(64, "train", "classic/cartpole-ga", "--resume", tmp_path, words=["--resume DIR takes neither"])
    refused(64, "eval", "x", "--episodes", "many", words=["--episodes", "many"])
    refused(64, "eval", "x", "--episodes", 0, words=["--episodes", "0"])
    refused(64, "list", "preset", words=["preset"])
    for words in (["train", ""], ["train", "classic/cartpole-ga", "--out", ""], ["train", "--resume", ""], ["eval", ""],
                  ["train", "classic/cartpole-ga", "--out", tmp_path / "x", "--seeds", ""], ["export", "x", ""]):  # fmt: skip
        refused(64, *words, words=["not an empty text"])
    assert os.listdir(tmp_path) == []


# -- values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "assignment, expected",
    [
        ("ga.population=x", "an integer 1 to"),
        ("ga.population=", "an integer 1 to"),
        ("ga.population=0", "an integer 1 to"),
        ("ga.population=-5", "an integer 1 to"),
        ("ga.population=1.5", "an integer 1 to"),
        ("ga.population=99999999999999999999", "an integer 1 to"),
        ("ga.population=12 ", "an integer 1 to"),
        ("ga.mutation_power=nan", "a number 0 to"),
        ("ga.mutation_power=-1", "a number 0 to"),
        ("ga.mutation_power=0x1p3", "a number 0 to"),
        ("run.video=yes", "true or false"),
        ("run.device=gpu", "run.device=gpu: expected auto, cpu, cuda"),
        ("run.device=cuda:0,cpu", "expected auto, cpu, cuda"),
        ("run.seed=-1", "an integer 0 to"),
        ("run.name=a\x07b", "control characters"),
        ("run.name=a\x7fb", "control characters"),
        ("run.name=\udcff", "UTF-8"),
        ("fleet.actors=100000", "an integer 0 to 4096"),
    ],
)
def test_values_out_of_range_or_mistyped_are_refused(assignment, expected, out):
    refused(78, "train", "classic/cartpole-ga", assignment, "--out", out, words=[expected], seconds=PATIENCE)


@pytest.mark.parametrize(
    "assignment, expected",
    [
        ("optimizer.beta1=1", "a number 0 to 0.9999999"),
        ("optimizer.beta2=1", "a number 0 to 0.9999999"),
        ("learn.entropy_target=1e300", "expected a number -10000 to 10000, or none"),
        ("learn.entropy_target=nan", "expected a number -10000 to 10000, or none"),
        ("run.device=gpu", "run.device=gpu: expected auto, cpu, cuda"),
    ],
)
def test_values_that_no_learner_can_use_are_refused(assignment, expected, out):
    refused(78, "train", "classic/cartpole-a2c", assignment, "--out", out, words=[expected])


@pytest.mark.parametrize(
    "text, words",
    [
        ("[ga]\npopulation = 'many'\n", ["ga.population", "an integer"]),
        ("[ga]\npopulation = [3]\n", ["ga.population", "one text, number or boolean"]),
        ("population = 3\n", ["population", "table"]),
        ("[ga]\npopulation = 3\npopulation = 4\n", [":3:"]),
        ("[ga\n", [":1:"]),
        ("[gaa]\npopulation = 3\n", ["gaa.population", "ga.population"]),
        ("\x00\x01\x02", [":1:"]),
        ("[ga]\n[ga.deep]\npopulation = 3\n", ["ga.deep"]),
        ("x = " + "[" * 5000 + "]" * 5000, [":1:"]),
    ],
)
def test_files_that_are_no_configuration_are_refused(text, words, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(text)
    refused(78, "train", file, "--out", tmp_path / "run", words=[str(file), *words])
    assert os.listdir(tmp_path) == ["mine.toml"]


def test_files_that_are_missing_or_no_files(tmp_path):
    refused(66, "train", tmp_path / "mine.toml", words=["mine.toml", "no such file"])
    (tmp_path / "folder.toml").mkdir()
    outcome = samara("train", tmp_path / "folder.toml", "--json")
    assert outcome.code in (65, 66, 74, 78) and "folder.toml" in outcome.err
    os.mkfifo(tmp_path / "pipe.toml")
    outcome = samara("train", tmp_path / "pipe.toml", "--json", timeout=20)
    assert outcome.code in (65, 66, 74, 78) and "pipe.toml" in outcome.err


# -- places -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["eval", "play", "hash", "fsck", "report"])
def test_a_missing_run_folder(command, tmp_path):
    words = ["nowhere", "run folder"]
    refused(66, command, tmp_path / "nowhere", words=words)
    refused(66, command, tmp_path, words=[str(tmp_path), "run"])
    assert os.listdir(tmp_path) == []


def test_resuming_or_exporting_what_is_no_run(tmp_path):
    (tmp_path / "file").write_text("x")
    refused(66, "train", "--resume", tmp_path / "nowhere", words=["nowhere", "no such run folder"])
    refused(66, "train", "--resume", tmp_path, words=["not a run folder"])
    refused(66, "train", "--resume", tmp_path / "file", words=["file"])
    refused(66, "export", tmp_path / "nowhere", tmp_path / "x.safetensors", words=["nowhere"])
    assert os.listdir(tmp_path) == ["file"]


def test_a_run_of_another_user_says_so(run):
    """Not that there is none."""
    run.chmod(0)
    user = {"user": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    for command in (["eval"], ["report"], ["hash"], ["train", "--resume"]):
        done = subprocess.run([BINARY, *command, run], capture_output=True, text=True, env=environment(), **user)
        assert done.returncode == 77 and "Permission denied" in done.stderr and str(run) in done.stderr, done
    run.chmod(0o700)


def test_inspecting_a_learning_run_says_what_it_holds(run):
    file = run / "config.toml"
    text = file.read_text().partition("\n")[2].replace('algorithm = "deep-ga"', 'algorithm = "ppo"')
    file.write_text(f"# samara run configuration, format 1, sha256 {hashlib.sha256(text.encode()).hexdigest()}\n{text}")
    (run / "checkpoints" / "journal.bin").unlink()
    for options in ([], ["--lineage"]):
        refused(64, "inspect", run, *options, words=[f"{run} is a learning run", "policies of an evolution", "samara eval"])


def test_a_place_that_is_taken(run, tmp_path):
    before = contents(run)
    refused(73, "train", *CARTPOLE, "--out", run, words=[str(run), "--resume"])
    assert contents(run) == before
    (tmp_path / "file").write_text("precious")
    refused(73, "train", *CARTPOLE, "--out", tmp_path / "file", words=[str(tmp_path / "file")])
    refused(73, "train", *CARTPOLE, "--out", tmp_path / "file" / "run", words=[str(tmp_path / "file")])
    refused(73, "train", *CARTPOLE, "--out", tmp_path / ("x" * 300), words=["File name too long", "--out"])
    # no place for files, and not for want of space
    refused(73, "train", *CARTPOLE, "--out", "/proc/samara-run", words=["/proc/samara-run", "choose another --out"])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thing").write_text("precious")
    refused(73, "train", *CARTPOLE, "--out", tmp_path / "full", words=[str(tmp_path / "full")])
    assert (tmp_path / "file").read_text() == (tmp_path / "full" / "thing").read_text() == "precious"
    assert sorted(os.listdir(tmp_path)) == ["copy", "file", "full"]


def test_two_runs_on_one_folder(tmp_path):
    run = tmp_path / "run"
    first = Running(tmp_path / "log", "train", *CARTPOLE, "ga.generations=100000", "--out", run, "--quiet")
    try:
        first.wait_for("generation 2:")
        refused(73, "train", "--resume", run, words=[str(run)], seconds=2)
        refused(73, "train", *CARTPOLE, "--out", run, words=[str(run)], seconds=2)
        refused(73, "train", *CARTPOLE, "ga.generations=100000", "--out", run, "--resume", "auto", seconds=2)
        ok("hash", run)  # readers may look
        ok("fsck", run)
        assert first.process.poll() is None
    finally:
        first.kill()


# -- damage -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["run.json", "config.toml", "incarnation.json"])
@pytest.mark.parametrize("how", ["cut", "flip", "empty", "missing"])
def test_damaged_parts_of_a_run_folder(name, how, run):
    file = run / name
    good = file.read_bytes()
    bad = {"cut": good[: len(good) // 2], "flip": good[:40] + bytes([good[40] ^ 1]) + good[41:], "empty": b""}
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(bad[how])
    code = 66 if (name, how) == ("run.json", "missing") else 65
    for command in (["fsck", run], ["train", "--resume", run], ["eval", run], ["hash", run]):
        refused(code, *command, words=[str(run)])
    if how == "missing":
        if name == "config.toml":
            refused(65, "report", run, words=[str(file), "missing"])
        file.write_bytes(good)
    else:
        assert file.read_bytes() == bad[how], "the damaged file is evidence, it must stay"
        file.write_bytes(good)
    ok("fsck", run)


def test_a_finished_run_saves_its_last_checkpoint_again(run):
    """Its result stands only with what the result speaks of."""
    result = resume(run)
    last = max((run / "checkpoints").glob("ckpt-*"))
    with open(last / "state.bin", "ab") as file:
        file.write(b"x")
    assert samara("fsck", run).code == 65
    again = ok("train", "--resume", run, "--quiet", "--json").json
    assert again["population_hash"] == result["population_hash"] and again["elite_returns"] == result["elite_returns"]
    assert samara("fsck", run).code == 0


def test_edited_configuration_says_what_to_do_instead(run):
    file = run / "config.toml"
    file.write_text(file.read_text().replace("population = 12", "population = 13"))
    refused(65, "train", "--resume", run, words=["config.toml", "edited", "--resume"])


def test_damaged_policy_files(finished, tmp_path):
    policy = tmp_path / "elite.safetensors"
    ok("export", finished, policy)
    good = policy.read_bytes()
    bad = tmp_path / "bad.safetensors"
    for size in (0, 7, 8, 100, len(good) // 2, len(good) - 1):
        bad.write_bytes(good[:size])
        refused(65, "eval", bad, words=[str(bad)])
    for damaged in (good + b"x", b"\xff" * 8 + good[8:], b"PK\x03\x04" + good):
        bad.write_bytes(damaged)
        outcome = samara("eval", bad, "--json")
        assert outcome.code in (65, 78) and str(bad) in outcome.err, outcome
    bad.write_bytes(good.replace(b"CartPole-v1", b"CartPole-v9"))
    refused(78, "eval", bad, words=["CartPole-v9"])
    bad.write_bytes(good.replace(b"samara-policy-1", b"samara-policy-2"))
    refused(65, "play", bad, words=["samara-policy-2"])
    bad.write_bytes(good.replace(b'"fc1.weight"', b'"fcX.weight"'))
    refused(65, "eval", bad, words=["fc"])


def test_damaged_genome_files(tmp_path):
    genome = json.loads((TESTS / "data" / "uber_frostbite_genome.json").read_text())
    file, out = tmp_path / "genome.json", tmp_path / "policy.safetensors"
    cases = {
        "not json": b"{",
        "list": b"[]",
        "bytes": bytes(range(256)),
        "initial_index": json.dumps(genome | {"initial_index": 250_000_000}).encode(),
        "mutation_indices": json.dumps(genome | {"mutation_indices": [1, -2]}).encode(),
        "mutation_power": json.dumps(genome | {"mutation_power": "big"}).encode(),
        "lacks": json.dumps({k: v for k, v in genome.items() if k != "game"}).encode(),
        "twice": json.dumps(genome).replace("{", '{"initial_index": 3, ', 1).encode(),
    }
    for what, damaged in cases.items():
        file.write_bytes(damaged)
        refused(65, "import", file, "--out", out, words=[str(file)])
        assert not out.exists(), what
    file.write_text(json.dumps(genome | {"game": "frostbyte"}))
    refused(78, "import", file, "--out", out, words=["frostbyte", "frostbite"])
    file.write_text(json.dumps(genome | {"network": "HugeModel"}))
    refused(78, "import", file, "--out", out, words=["HugeModel", "LargeModel"])
    refused(66, "import", tmp_path / "nothing.json", "--out", out, words=["nothing.json"])
    assert os.listdir(tmp_path) == ["genome.json"]


def outputs(run, file, tmp_path):
    """Every command that writes one file."""
    yield "export", run, file
    yield "import", tmp_path / "no.json", "--out", file
    yield "report", run, "--out", file
    yield "report", run, "--curve", file
    yield "eval", run, "--episodes", 1, "--video", file
    yield "play", run, "--video", file
    yield "token", file


def test_places_that_cannot_be_written(finished, tmp_path):
    for command in outputs(finished, tmp_path / "no" / "x", tmp_path):
        refused(73, *command, words=[f"no folder {tmp_path / 'no'}"])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["run.json", "config.toml", "metrics.jsonl", "checkpoints/journal.bin", "checkpoints/new"])
def test_a_file_that_a_run_keeps_is_not_written(run, tmp_path, name):
    before = contents(run)
    (tmp_path / "link").symlink_to(run)
    for folder in (run, tmp_path / "link"):
        for command in outputs(run, folder / name, tmp_path):
            refused(73, *command, words=[f"the run {run} keeps it"])
    assert contents(run) == before


@pytest.mark.parametrize("name", ["archive.csv", "archive.svg", "map.svg", "learning_curve.svg", "report.html",
                                  "videos/elite.mp4"])  # fmt: skip
def test_a_file_that_a_run_made_is_replaced_by_its_own_command_only(name, run, tmp_path):
    before = contents(run)
    own = {"report.html": ["--out"], "learning_curve.svg": ["--curve"], "videos/elite.mp4": ["--video"]}.get(name, [])
    for command in outputs(run, run / name, tmp_path):
        if not set(own) & set(command) or command[0] == "import":
            refused(73, *command, words=[f"the run {run} keeps it"])
    assert contents(run) == before
    ok("export", run, run / "mine.safetensors")


def test_a_run_makes_its_report_and_curve_again(run):
    (run / "report.html").unlink(missing_ok=True)
    ok("report", run, "--out", run / "report.html", "--curve", run / "learning_curve.svg")
    assert (run / "report.html").exists() and (run / "learning_curve.svg").exists()


def test_seeds_go_into_no_run(run):
    before = contents(run)
    refused(73, "train", *CARTPOLE, "--seeds", "1..2", "--out", run, words=["--seeds makes a folder of runs"])
    assert contents(run) == before


def test_what_is_no_file_is_never_replaced(finished, tmp_path):
    """A file written by rename would take the place of a device such as /dev/null."""
    folder, pipe = tmp_path / "folder", tmp_path / "pipe"
    folder.mkdir()
    os.mkfifo(pipe)
    for place, words in ((folder, ["a folder"]), (pipe, ["device"])):
        refused(73, "export", finished, place, words=[str(place), *words])
        refused(73, "report", finished, "--out", place, words=[str(place), *words])
        refused(73, "eval", finished, "--episodes", 1, "--video", place, words=[str(place), *words])
    assert folder.is_dir() and pipe.is_fifo() and sorted(os.listdir(tmp_path)) == ["folder", "pipe"]


def test_a_generation_that_is_not_there(finished):
    refused(66, "hash", finished, "--generation", 9, words=["no generation 9"])
    refused(64, "hash", finished, "--generation", 0, words=["--generation"])
    refused(64, "eval", finished, "--noops", "3..1", words=["--noops 3..1"])
    refused(64, "train", *CARTPOLE, "--seeds", "abc", words=["--seeds abc: expected a number or a range"])
    refused(64, "eval", finished, "--seed", "-1", words=["--seed"])
    refused(78, "train", finished, words=[str(finished), "a run folder", "--resume"])
    refused(78, "eval", finished, "ga.populaton=3", words=["ga.population"])


# -- simulators -------------------------------------------------------------------------------------------


def test_no_venv(out):
    refused(66, "train", *ATARI, "--out", out, words=["SAMARA_VENV=/nowhere", "make setup"], SAMARA_VENV="/nowhere")
    refused(66, "train", *CARTPOLE, "env.id=Hopper-v5", "--out", out, words=["SAMARA_VENV"], SAMARA_VENV="/nowhere")


def test_classic_control_needs_no_venv(tmp_path):
    train(tmp_path / "run", *CARTPOLE, "ga.generations=1", SAMARA_VENV="/nowhere")


@pytest.mark.parametrize(
    "name, code, words",
    [
        ("faulty:FailsToBuild-v0", 78, ["FailsToBuild-v0", "RuntimeError: no licence for this simulator"]),
        ("faulty:Nothing-v0", 78, ["Nothing"]),
        ("nowhere:Fine-v0", 66, ["nowhere"]),
        ("faulty:Texts-v0", 78, ["Texts-v0", "Text(", "expected a Box"]),
        ("faulty:Empty-v0", 78, ["Empty-v0", "(0,)", "expected at least one"]),
        ("faulty:Spaceless-v0", 78, ["Spaceless-v0", "no observation_space"]),
        ("faulty:Several-v0", 78, ["Several-v0", "Tuple", "expected Discrete"]),
    ],
)
def test_environments_that_cannot_be_used(name, code, words, out):
    refused(code, "train", *CARTPOLE, f"env.id={name}", "--out", out, words=words, **FAULTY)


@pytest.mark.parametrize(
    "name, words",
    [
        ("RaisesInReset", ["ValueError: a reset that never works"]),
        ("RaisesInStep", ["ValueError: the third step fails", "step 4"]),
        ("Dies", ["exit status 9"]),
        ("SpeaksNaN", ["not a finite number"]),
        ("WrongShape", ["shape (5,)"]),
    ],
)
def test_environments_that_fail_while_playing(name, words, tmp_path):
    run = tmp_path / "run"
    refused(
        69, "train", *CARTPOLE, f"env.id=faulty:{name}-v0", "fleet.actors=1", "--out", run, "--quiet",
        words=[f"faulty:{name}-v0", *words], warnings=True, seconds=3 * PATIENCE, **FAULTY,
    )  # fmt: skip


def test_a_dictionary_of_observations_is_flattened(tmp_path):
    options = ["env.id=faulty:Mapping-v0", "fleet.actors=1", "ga.generations=2"]
    assert train(tmp_path / "run", *CARTPOLE, *options, **FAULTY)["generation"] == 2


# -- a full disk ------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """A filesystem of two megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], capture_output=True)
    if made.returncode:
        pytest.skip("NOT TESTED: mounting a small filesystem needs root")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_disk_that_is_full_at_the_start(small_disk):
    refused(74, "train", *CARTPOLE, "--out", small_disk / "run", words=[str(small_disk), "MiB free", "--out"])
    assert os.listdir(small_disk) == []


def limited(bytes_max):
    """A limit of file sizes makes every longer write fail, as a full disk would."""
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, bytes_max))


def test_a_disk_that_fills_up_while_running(tmp_path):
    """The run waits for space with every reported generation safe, ends with 74 after the time it was given,
    and goes on to the same result once there is space."""
    run, want = tmp_path / "run", train(tmp_path / "whole", *CARTPOLE, "ga.generations=40")
    command = [BINARY, "train", *CARTPOLE, "ga.generations=40", "run.disk_retry_seconds=1", "--out", run, "--quiet", "--json"]
    start = time.monotonic()
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment(), timeout=60, preexec_fn=lambda: limited(20_000)
    )
    assert done.returncode == 74, done
    assert time.monotonic() - start < 30
    last = done.stderr.splitlines()[-1]
    assert str(run) in last and "--resume" in last, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"error": last.removeprefix("samara: "), "exit": 74}
    ok("fsck", run)
    reached = ok("hash", run, "--json").json["generation"]
    assert 1 <= reached < 40
    assert resume(run)["population_hash"] == want["population_hash"]


# -- small things, each once wrong ------------------------------------------------------------------------


def test_a_network_that_is_not_the_policys(finished, tmp_path):
    refused(78, "eval", finished, "network.name=linear", words=["386 parameters", "expected 10", "linear"])
    refused(78, "eval", finished, "network.name=linear", "--video", tmp_path / "x.mp4", words=["386 parameters"])
    refused(78, "eval", finished, "env.id=Acrobot-v1", words=["386 parameters"])


def test_long_values_are_shortened(tmp_path):
    deep = tmp_path / "/".join(["x" * 200] * 20)
    for code, args in [
        (73, ["train", "classic/cartpole-ga", "--out", f"{deep}/{'y' * 3000}"]),
        (78, ["train", "classic/cartpole-ga", "--out", tmp_path / "run", f"env.id={'E' * 5000}"]),
        (66, ["eval", deep]),
        (78, ["train", "z" * 6000]),
        (78, ["actor", "--connect", "a" * 5000, "--env", "CartPole-v1"]),
    ]:
        outcome = samara(*args, "--json")
        assert outcome.code == code and len(outcome.json["error"]) < 1200, outcome
        assert "bytes more)" in outcome.json["error"]


def test_fsck_compares_an_evolutions_result_with_its_journal(run, tmp_path):
    train(tmp_path / "longer", *CARTPOLE, "ga.generations=5")
    train(tmp_path / "other", *CARTPOLE, "run.seed=9")
    shutil.copy(tmp_path / "longer" / "result.json", run / "result.json")
    refused(65, "fsck", run, words=["result.json: of generation 5", "journal ends with 4"])
    shutil.copy(tmp_path / "other" / "result.json", run / "result.json")
    refused(65, "fsck", run, words=["result.json: names another population hash"])


def test_thousands_of_environments_do_not_outlast_the_time_to_connect():
    outcome = samara("actor", "--connect", "127.0.0.1:1", "--env", "Acrobot-v1", "--threads", 4096,
                     "--connect-timeout", 0.01)  # fmt: skip
    assert outcome.code == 69 and "no learner process within 0.01 s" in outcome.err and outcome.seconds < 20


def test_a_stop_before_the_first_instruction_waits_for_the_handlers():
    """The signal is blocked by who starts the program, comes at once, and is dealt with as soon as it can be."""
    hold = lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # noqa: E731
    process = subprocess.Popen([str(BINARY), "list", "keys"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               preexec_fn=hold)  # fmt: skip
    process.send_signal(signal.SIGTERM)
    assert b"stopped" in process.communicate(timeout=60)[1] and process.returncode == 75
