"""Habits of the tree that a machine can check: format, sizes, links, configuration keys in presets and pages."""

import json
import re
import subprocess
import tomllib
from importlib.util import find_spec

import pytest

from test_includes import ROOT, tracked

SAMARA = ROOT / "build/samara"
BYTES_MAX = 1 << 20


def samara(*arguments):
    return subprocess.run([SAMARA, *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def keys():
    """name of every configuration key"""
    rows = json.loads(samara("list", "keys", "--json").strip().split("\n")[-1])["keys"]
    return [row["name"].split(" = ")[0] for row in rows]


def test_cpp_is_formatted():
    program = ROOT / ".venv" / "bin" / "clang-format"
    assert program.exists(), "no clang-format in .venv: run `make setup`"
    files = [str(path) for path in tracked("*.h", "*.cc")]
    done = subprocess.run([program, "--dry-run", "-Werror", *files], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, "run `make format`\n" + done.stderr[:2000]


def test_no_large_file():
    assert not [str(path) for path in tracked() if (ROOT / path).stat().st_size > BYTES_MAX]


def test_threads_are_owned_by_groups_that_stop_them():
    """A list of threads that is joined when a later one cannot start waits for ever: ThreadGroup stops them first."""
    lists = re.compile(r"(?:vector|deque|list|array)<(?:std::unique_ptr<)?(?:samara::)?(?:Thread|std::j?thread)\b")
    files = [path for path in tracked("src/*.h", "src/*.cc", "include/*.h", "python/*.h", "python/*.cc")
             if not re.search(r"_test\.cc$|test_util\.h$|store_contract\.h$|/micro/|core/thread\.(?:h|cc)$", str(path))]
    assert len(files) > 200
    assert not [str(path) for path in files if lists.search((ROOT / path).read_text())]


def test_links_of_pages_lead_somewhere():
    broken = []
    for page in tracked("*.md"):
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", (ROOT / page).read_text()):
            if "://" not in target and not ((ROOT / page).parent / target).exists():
                broken.append(f"{page}: {target}")
    assert not broken


def sections(page):
    """The anchors that GitHub gives a page's headings: small letters, no punctuation, '-' for each space."""
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.M | re.S)
    titles = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"^#+ (.*)$", text, re.M)]
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_sections_that_links_name_exist():
    broken = []
    for page in tracked("*.md"):
        for target, section in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", (ROOT / page).read_text()):
            named = (ROOT / page).parent / target if target else ROOT / page
            if "://" not in target and named.suffix == ".md" and section not in sections(named):
                broken.append(f"{page}: {target}#{section}")
    assert not broken


def test_files_named_in_pages_exist():
    """`src/...`, `doc/...` and so on between back quotes are paths of this tree."""
    named = re.compile(r"`((?:src|doc|tests|python|bench|presets|scripts|cmake)/[\w./-]+\.\w+)`")
    assert not [f"{page}: {path}" for page in tracked("*.md") for path in named.findall((ROOT / page).read_text())
                if not (ROOT / path).exists()]


def test_pages_wrap_at_100_columns():
    """Prose does; tables, code blocks and pictures cannot, and a code span is not broken."""
    long = []
    for page in tracked("doc/*.md", "README.md", "CONTRIBUTING.md", "SECURITY.md"):
        text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.M | re.S)
        long += [f"{page}: {line}" for line in text.split("\n")
                 if len(re.sub(r"`[^`]*`", "``", line)) > 100 and not line.startswith(("|", "![", "    "))]
    assert not long


def test_keys_are_unique_and_have_help(keys):
    assert len(keys) == len(set(keys)) and len(keys) > 30


@pytest.mark.parametrize("part", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(1, 6))])
def test_presets_use_known_keys_and_are_accepted(keys, part):
    """All of them know their keys; a sixth is started by the default tier."""
    presets = tracked("presets/*.toml")
    assert presets
    for i, preset in enumerate(presets):
        tables = tomllib.loads((ROOT / preset).read_text())
        used = {f"{table}.{name}" for table, rows in tables.items() for name in rows}
        assert used <= set(keys), preset
        name = str(preset.relative_to("presets").with_suffix(""))
        if i % 6 != part:
            continue
        # a dry run starts what the run would: without its package the task is refused
        if used & {"env.id"} and tables["env"]["id"].startswith("envpool:") and find_spec("envpool") is None:
            continue
        words = []
        if name == "atari/r2d2":  # its replay of 57 GB is refused where the memory is less
            words, tables["replay"]["capacity"] = ["replay.capacity=400000"], 400000
        effective = tomllib.loads(samara("train", name, "--dry-run", *words))
        assert {k: v for t, rows in effective.items() for k, v in ((f"{t}.{n}", x) for n, x in rows.items())
                if k in used} == {f"{t}.{n}": x for t, rows in tables.items() for n, x in rows.items()}


def test_pages_name_known_keys(keys):
    """`ga.population` and the like between back quotes is a key, unless it is a file or of what is listed here."""
    named = re.compile(r"`([a-z][a-z_0-9]*)\.([a-z_][a-z_0-9]*)(?:=[^`]*)?`")
    files = {"bin", "cc", "csv", "h", "html", "ini", "json", "jsonl", "key", "md", "pt", "py", "safetensors", "so", "svg", "toml", "txt"}
    others = {"config": "files of Uber's program", "fc1_norm": "tensors of policy files",
              "gru": "tensors of policy files", "lstm": "tensors of policy files",
              "normalize": "tensors of policy files", "gym": "Python", "mlflow": "Python", "np": "Python", "policy": "Python",
              "samara": "Python", "sys": "Python", "torch": "Python", "wandb": "Python"}
    found = [(page, *name) for page in tracked("*.md") for name in named.findall((ROOT / page).read_text())
             if name[0] not in others and name[1] not in files]
    assert len(found) > 500 and not others.keys() & {key.split(".")[0] for key in keys}
    assert not [f"{page}: {table}.{name}" for page, table, name in found if f"{table}.{name}" not in keys]


# What opens, lists, makes or removes files without src/core/files.cc, and where that is no run folder's
OPENS = re.compile(r"\b(?:fopen|freopen|[io]?fstream|opendir|mkfifo|avio_open)\b|directory_iterator"
                   r"|::(?:open|openat|unlink|unlinkat|rename|renameat|mkdir|mkdirat|rmdir|truncate|symlink|link)\("
                   r"|filesystem::(?:rename|remove|remove_all|copy|copy_file|create_\w+|resize_file)\(")
OPENERS = {
    "src/core/files.cc": "the one place that opens what is below a run folder",
    "src/core/leave.cc": "removes half-made files where nothing but system calls may be used",
    "src/cli/list.cc": "the games of the installed ale-py", "src/fleet/remote/peer_owner.cc": "/proc/net/tcp",
    "src/fleet/remote/gate.cc": "the sockets' folder",
    "src/core/cpu.cc": "/proc/cpuinfo", "src/core/resources.cc": "/proc/meminfo, the control group's limit", "src/core/venv.cc": "where Python is installed",
    "src/env/mujoco/library.cc": "the wheel's library", "src/data/image_folder.cc": "the user's images",
    "src/replica/torch/connect.cc": "/proc/sys/kernel/random/boot_id",
    "src/fleet/remote/address.cc": "the folder of a socket",
    "src/storage/run_folder.cc": "the lock, a file by then, to see whether another process holds it",
    "src/replica/rendezvous/child.cc": "/dev/null", "src/replica/rendezvous/launch.cc": "the logs of ranks", "src/cli/credentials.cc": "openssl's own log",
    "src/bench/": "its own temporary folder, and /proc",
}


def test_one_file_opens_what_is_below_a_run_folder():
    """RootedPath (src/core/files.h) refuses links and pipes there; other ways to open a file do not."""
    users = {str(path) for path in tracked("src/*.cc", "src/*.h")
             if not path.stem.endswith("_test") and not path.stem.endswith("_test_util")
             and OPENS.search(re.sub(r"//.*", "", (ROOT / path).read_text()))}
    assert "src/core/files.cc" in users, "the pattern finds nothing"
    assert not {path for path in users if not path.startswith(tuple(OPENERS))}
    assert not [name for name in OPENERS if not any(path.startswith(name) for path in users)], "no longer needed"


# Documents that were never in the repository, by the forms in which comments cited them. A fact is stated, or a paper cited.
CITATIONS = re.compile(
    r"\b(?:AT|CI)-(?:\d+|\*)|\bD-\d+\b|\(D\d+\)|// ?[DF]\d+[:,]|  # F\d+\b|\(F(?:[1-9]|1[0-5])(?:,| to|\))|\bDESIGN(?:\.md)? (?:section )?\d"
    r"|\b(?:neuroevolution|central_inference|reliability)\.md\b"
    r"|\b(?:replicator|atari|DESIGN)\.md,? (?:sections? )?\d"
    r"|\bspecification (?:\w+\.md|AT)|reliability specification|[Dd]efects? (?:D-)?\d+ of the reference"
    r"|(?:\b|_)[Tt]he[ _]specification\b|[a-z]TheSpecification|\(spec, section|^\s*(?://|#) Sections? \d"
)


def test_what_is_cited_is_in_the_repository():
    """A page that is cited with a section lies in doc/, a rule that is cited is in a page or a paper."""
    texts = tracked("*.h", "*.cc", "*.py", "*.md", "*.toml", "*.cmake", "*CMakeLists.txt", "scripts/*")
    found = [f"{path}:{number}: {line.strip()}" for path in texts if path.name != "test_tree.py"
             for number, line in enumerate((ROOT / path).read_text().split("\n"), 1) if CITATIONS.search(line)]
    assert not found, "\n".join(found)


def test_the_citation_has_the_version_and_the_licence_of_the_package():
    given = dict(re.findall(r'^([\w-]+): "?(.+?)"?$', (ROOT / "CITATION.cff").read_text(), re.M))
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    title, version = map(str.strip, (ROOT / package["license-files"][0]).read_text().split("\n")[1:3])
    assert given["cff-version"] == "1.2.0" and given["title"].startswith(f"{package['name']}: ")
    assert given["version"] == package["version"]
    assert package["license"].split()[0] == given["license"] == f"{title.split()[0]}-{version.split()[1].rstrip(',')}"
    assert "[CITATION.cff](CITATION.cff)" in (ROOT / "README.md").read_text()


def test_every_promise_names_tests_that_exist():
    """doc/faults.md: a row of its first table without a test, or with one that is gone, is a promise that nothing holds."""
    table = (ROOT / "doc/faults.md").read_text().split("## Promises", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and not line.startswith(("| **", "| promise"))]
    python = "\n".join((ROOT / path).read_text() for path in tracked("tests/*.py"))
    cpp = "\n".join((ROOT / path).read_text() for path in tracked("src/*_test.cc"))
    missing = []
    for row in rows:
        names = re.findall(r"`([^`]+)`", row.split("|")[2])
        assert names, row
        for name in names:
            suite, _, case = name.partition(".")
            found = (ROOT / name).exists() if "/" in name else f"def {name}(" in python if name.startswith("test_") else \
                re.search(rf"TEST(?:_F|_P)?\({suite}, {case.replace('*', '')}", cpp)
            if not found:
                missing.append(name)
    assert len(rows) > 40 and not missing
