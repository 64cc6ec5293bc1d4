"""What README.md and doc/ show can be typed: options, presets and keys of commands are known, runs are accepted, Python runs.

The blocks of doc/python.md, doc/policy_file_format.md and doc/networks.md run in test_python_api.py, test_export.py and
test_network_module.py.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from functools import cache

import pytest
from samara_cli import CARTPOLE, ROOT, Running, environment, ok, samara
from test_includes import tracked
from test_launch import until
from test_loggers import MLFLOW, WANDB

PAGES = tracked("README.md", "doc/*.md", "presets/README.md")
# in place of a value, or of a part of one
PLACEHOLDER = re.compile(r"\b[A-Z]{1,2}\b|\b[A-Z]{3,}\b|\.\.\.|[<>]")


def blocks(page, *languages):
    text = (ROOT / page).read_text()
    return [body for language, body in re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S) if language in languages]


def words_of(text):
    """The words of a command, until its description: a word behind two spaces, or a comment."""
    text = re.split(r"\s{2,}(?!\S+[=.]|-|samara)|\s+#", text.strip())[0]
    try:
        return shlex.split(text)
    except ValueError:  # an apostrophe of a description
        return text.split()


def commands_of(line):
    for part in re.split(r"\s{2,}(?=samara )| && |; ", line):
        words = words_of(part.removeprefix("$ "))
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            del words[0]
        if words and words[0] in ("samara", "build/samara") and len(words) > 1:
            yield words[1:]


@cache
def shown():
    """Every command of a page, in a block of lines or between back quotes: (page, words)."""
    found = []
    for page in PAGES:
        lines = [line for body in blocks(page, "", "sh", "bash") for line in body.replace("\\\n", " ").split("\n")]
        prose = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.M | re.S)
        spans = re.findall(r"`((?:build/)?samara [^`]+)`", prose)
        # [--option] of a synopsis, A|B
        found += [(str(page), words) for line in lines + spans for words in commands_of(re.sub(r"[\[\]]", "", line).replace("\n", " "))]
    return found


@cache
def options(command):
    outcome = samara(command, "--help")
    assert outcome.code == 0, f"no command {command!r}"
    return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", outcome.out))


@cache
def names(what):
    return {row["name"].split(" = ")[0] for row in json.loads(ok("list", what, "--json").out.splitlines()[-1])[what]}


def complaint(words):
    """Why samara would refuse these words; None where it would not."""
    command, *rest = words
    if command in ("help", "version") or command.startswith("-"):
        return None
    if command == "launch":  # options of the program behind it are its own
        rest = rest[: next((i for i, w in enumerate(rest) if i and not w.startswith("-") and not rest[i - 1].startswith("-")), None)]
    unknown = [w for w in rest if w.startswith("-") and w.split("=")[0] not in options(command)]
    if unknown:
        return f"no option {unknown}"
    keys = [w.split("=")[0] for w in rest if re.fullmatch(r"[a-z0-9]+\.[a-z_.A-Z]+=.*", w)]
    unknown = [k for k in keys if k not in names("keys") and not k.startswith("env.kwargs.") and k != "table.key"]
    if unknown:
        return f"no key {unknown}"
    preset = next((w for w in rest if "=" not in w and not w.startswith("-")), "") if command == "train" else ""
    if "/" in preset and preset not in names("presets") and not preset.endswith((".toml", "/")) and not PLACEHOLDER.search(preset):
        return None if rest[rest.index(preset) - 1] in ("--resume", "--out") else f"no preset {preset}"
    return None


def test_commands_have_known_options_presets_and_keys():
    assert len(shown()) > 150, "the pattern finds too little"
    wrong = [f"{page}: samara {' '.join(words)}: {why}" for page, words in shown() if (why := complaint(words))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("words", "why"), [
    ("eval RUN --episode 3", "no option"), ("train classic/cartpole-gb", "no preset"), ("train X ga.populaton=3", "no key"),
    ("launch -n 2 --restart 3 ./train --my-option", "no option"),
])  # fmt: skip
def test_a_wrong_command_is_found(words, why):
    assert complaint(words.split()).startswith(why)


@cache
def trained():
    """What pages train, all of which has values: words of `samara train`, once each."""
    found = {}
    for _, (command, *words) in shown():
        if command == "train" and words and words[0] in names("presets") and not any(PLACEHOLDER.search(w) for w in words):
            for name in ("--seeds", "--sweep", "--out"):  # one run of them; places are those of the reader
                while name in words:
                    i = words.index(name)
                    words = words[:i] + words[i + 2 :]
            if not any(w.startswith("run.init_from=") for w in words):
                found[tuple(w for w in words if w not in ("--json", "--quiet", "--dry-run"))] = None
    return list(found)


def started():
    """Those with keys of their own: presets alone are tested in test_tree.py."""
    return [words for words in trained() if len(words) > 1]


def accepted(words):
    outcome = samara("train", *words, "--dry-run", cwd=ROOT)
    return None if outcome.code == 0 else outcome


def quick(words):
    """Native environments: no process of Python is started for it."""
    return not words[0].startswith(("atari/", "football/")) and "env.id=LunarLander-v3" not in words


def test_runs_are_accepted():
    runs = [words for words in started() if quick(words)]
    assert len(runs) > 10
    assert not (refused := [outcome for words in runs if (outcome := accepted(words))]), refused


@pytest.mark.slow
def test_runs_of_games_are_accepted():
    for words in started():
        outcome = None if quick(words) else accepted(words)
        # a package that set-up does not install, an instruction that not every processor has
        assert outcome is None or outcome.code == 66 or "this processor has no" in outcome.err, outcome


@pytest.mark.slow
def test_runs_train_until_they_are_stopped(tmp_path):
    folder = tmp_path / "run"
    assert len(trained()) > 40
    for i, words in enumerate(trained()):
        run = Running(tmp_path / f"{i}.log", "train", *words, "--out", folder)
        # before that a stop leaves nothing behind
        until(lambda run=run: (folder / "run.json").exists() or run.process.poll() is not None, 60)
        try:
            run.wait(8)
        except subprocess.TimeoutExpired:
            run.send(signal.SIGINT)
        code, said = run.wait(), run.text()
        # a package that set-up does not install, an instruction that not every processor has
        if code == 66 or "this processor has no" in said:
            continue
        assert code in (0, 75), f"{words}: exit {code}\n{said}"
        assert code == 0 or f"samara train --resume {folder}" in said, f"{words}\n{said}"
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_commands_on_a_run_do_what_pages_say(tmp_path):
    ok("train", *CARTPOLE, "ga.population=20", "--out", tmp_path / "run", "--quiet")
    values = {"RUN": "run", "RUN...": "run", "G": "2", "NAME": "elite", "parent:K": "parent:2"}
    typed = {
        (command, *(values.get(w, w) for w in words))
        for _, (command, *words) in shown()
        if command in ("eval", "play", "report", "export", "inspect", "hash", "fsck") and {"RUN", "RUN..."} & set(words) and "|" not in words
    }
    assert len(typed) > 12, typed
    for words in sorted(typed):
        if words[0] != "play" or "--video" in words:  # on a terminal: test_first_hour.py
            ok(*words, cwd=tmp_path)


@pytest.mark.parametrize("page", ["README.md", "doc/metrics.md"])
def test_python_runs(page, tmp_path):
    """Block after block in one program, in a folder of its own; packages that set-up does not install write notes."""
    for name, text in {"wandb": WANDB, "mlflow": MLFLOW}.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "program.py").write_text("\n".join(blocks(page, "python")))
    path = os.pathsep.join([str(ROOT / "build/python"), str(tmp_path)])
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=environment(PYTHONPATH=path, NOTES=str(tmp_path / "notes")),
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs/cartpole-ga-01/report.html").exists()


# what the pages of the replicator take as there: a model, batches, a step for one device
ONE_DEVICE = """
import torch
torch.manual_seed(0)
net, steps = torch.nn.Linear(4, 2), 100
batches = [(torch.randn(8, 4), torch.randint(2, (8,))) for _ in range(steps)]
calls = 0
def step(x, y):
    global calls
    calls += 1
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()
"""


@pytest.mark.slow
@pytest.mark.skipif(not list((ROOT / "build/python/samara").glob("_replica*")), reason="NOT TESTED: built without torch")
def test_python_of_the_replicator_runs_and_goes_on(tmp_path):
    """The second block in place of the loop of the first."""
    first, second = blocks("doc/replicator.md", "python")
    first, loop, _ = first.partition("for batch in batches")
    (tmp_path / "train.py").write_text(ONE_DEVICE + first + second + "print(replicator.step, calls > 0)")
    assert loop
    for learned in (True, False):  # a new run; one that was at its end
        done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True,
                              env=environment(PYTHONPATH=str(ROOT / "build/python")))
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["100", str(learned)]


def test_other_python_is_tested_elsewhere():
    tested = {"README.md", "doc/metrics.md", "doc/replicator.md"}
    assert {str(page) for page in PAGES if blocks(page, "python")} == tested | {
        "doc/python.md", "doc/policy_file_format.md", "doc/networks.md"}


def test_the_picture_of_the_readme_is_made_as_it_says(tmp_path):
    """The last two of its commands, on a shorter video."""
    (line,) = [line for body in blocks("README.md", "") for line in body.split("\n") if "scripts/animate" in line]
    (tmp_path / "runs").mkdir()
    ok("train", "classic/cartpole-ga", "ga.generations=3", "run.video=true", "--out", "runs/x", cwd=tmp_path)
    shutil.copy(tmp_path / "runs/x/videos/elite.mp4", tmp_path / "elite.mp4")
    program, script, *words = line.split()
    words[words.index("--start") + 1] = "0"
    subprocess.run([ROOT / program, ROOT / script, *words], cwd=tmp_path, check=True, env=environment())
    made = (tmp_path / "frostbite.gif").read_bytes()
    assert made[:6] == b"GIF89a" and made.count(b"\x21\xf9\x04") > 2, "several pictures"
    assert (ROOT / "doc/images/frostbite.gif").stat().st_size < 600_000


def compiles(source, like, tmp_path):
    """Whether a compiler accepts this text as it accepts a unit of the target `like`."""
    units = json.loads((ROOT / "build" / "compile_commands.json").read_text())
    unit = next((unit for unit in units if f"/{like}.dir/" in unit["file"]), None)
    if unit is None:
        pytest.skip("this build has no torch")
    words = shlex.split(unit["command"])
    paths = [word for i, word in enumerate(words) if word.startswith(("-I", "-D", "-std=")) or "-isystem" in words[max(0, i - 1) : i + 1]]
    (tmp_path / "page.cc").write_text(source)
    done = subprocess.run(["g++", "-fsyntax-only", *paths, str(tmp_path / "page.cc")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_cpp_of_the_replicator_compiles(tmp_path):
    alone, three_lines, checkpoint = blocks("doc/replicator.md", "cpp")
    net, optimizer, *step, loop = alone.strip().split("\n")
    include, wrapped, replicated = three_lines.strip().split("\n")
    compiles(f"""
        #include <torch/torch.h>
        #include <samara/checkpoint.h>
        {include}
        using torch::nn::functional::cross_entropy;
        struct Batch {{ torch::Tensor x, y; }};
        torch::nn::Sequential MakeNet() {{ return torch::nn::Sequential(torch::nn::Linear(4, 2)); }}
        int64_t steps = 3;
        std::vector<Batch> batches(3);
        void Alone() {{
          {alone}
        }}
        int main() {{
          {net}
          {wrapped}
          {chr(10).join(step)}
          {replicated}
          {checkpoint}
          return 0;
        }}""", "train_replicated", tmp_path)  # fmt: skip


@pytest.mark.slow
def test_cpp_of_plug_ins_compiles(tmp_path):
    (program,) = blocks("doc/adding-an-algorithm.md", "cpp")
    include, statement = blocks("doc/networks.md", "cpp")[0].split("\n", 1)
    compiles(f"{include}\n{program.replace('{...}', '{}')}\nvoid Networks() {{ {statement} }}", "samara", tmp_path)


def test_the_page_of_tests_names_every_file_with_slow_ones():
    text = (ROOT / "doc/testing.md").read_text()
    slow = [path for path in tracked("tests/*.py") if "mark.slow" in (ROOT / path).read_text()]
    assert [str(path) for path in slow if f"`{path}`" not in text] == []


def test_toml_of_networks_is_accepted(tmp_path):
    (table,) = blocks("doc/networks.md", "toml")
    preset = (ROOT / "presets/atari/deep-ga-quick.toml").read_text()
    (tmp_path / "mine.toml").write_text(re.sub(r"^\[network\]\n(?:.+\n)*", table, preset, flags=re.M))
    assert 'layers = "conv 16 8x8/4 relu' in ok("train", tmp_path / "mine.toml", "--dry-run", "--out", tmp_path / "run").out
