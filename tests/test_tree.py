"""Habits of the tree that a machine can check: format, sizes, links, configuration keys in presets and pages."""

import json
import re
import shutil
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
    program = shutil.which("clang-format-14")
    assert program, "clang-format-14 is missing: run `make setup`"
    files = [str(path) for path in tracked("*.h", "*.cc")]
    done = subprocess.run([program, "--dry-run", "-Werror", *files], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, "run `make format`\n" + done.stderr[:2000]


def test_no_large_file():
    assert not [str(path) for path in tracked() if (ROOT / path).stat().st_size > BYTES_MAX]


def test_links_of_pages_lead_somewhere():
    broken = []
    for page in tracked("*.md"):
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", (ROOT / page).read_text()):
            if "://" not in target and not ((ROOT / page).parent / target).exists():
                broken.append(f"{page}: {target}")
    assert not broken


def test_files_named_in_pages_exist():
    """`src/...`, `doc/...` and so on between back quotes are paths of this tree."""
    named = re.compile(r"`((?:src|doc|tests|python|bench|presets|scripts|cmake)/[\w./-]+\.\w+)`")
    assert not [f"{page}: {path}" for page in tracked("*.md") for path in named.findall((ROOT / page).read_text())
                if not (ROOT / path).exists()]


def test_keys_are_unique_and_have_help(keys):
    assert len(keys) == len(set(keys)) and len(keys) > 30


def test_presets_use_known_keys_and_are_accepted(keys):
    presets = tracked("presets/*.toml")
    assert presets
    for preset in presets:
        tables = tomllib.loads((ROOT / preset).read_text())
        used = {f"{table}.{name}" for table, rows in tables.items() for name in rows}
        assert used <= set(keys), preset
        name = str(preset.relative_to("presets").with_suffix(""))
        # a dry run starts what the run would: without its package the task is refused
        if used & {"env.id"} and tables["env"]["id"].startswith("envpool:") and find_spec("envpool") is None:
            continue
        effective = tomllib.loads(samara("train", name, "--dry-run"))
        assert {k: v for t, rows in effective.items() for k, v in ((f"{t}.{n}", x) for n, x in rows.items())
                if k in used} == {f"{t}.{n}": x for t, rows in tables.items() for n, x in rows.items()}


def test_pages_name_known_keys(keys):
    """`ga.population` and the like between back quotes is a key; `ga.*` a table."""
    tables = {key.split(".")[0] for key in keys}
    named = re.compile(r"`((?:%s)\.[a-z_0-9]+)(?:=[^`]*)?`" % "|".join(sorted(tables)))
    files = {"json", "jsonl", "toml", "cc", "h", "py", "txt", "safetensors"}
    unknown = [f"{page}: {key}" for page in tracked("*.md") for key in named.findall((ROOT / page).read_text())
               if key not in keys and key.split(".")[1] not in files]
    assert not unknown
