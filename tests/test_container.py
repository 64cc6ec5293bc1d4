"""Containerfile and the list of what a build with it does not read."""

import os
import re
import subprocess
from fnmatch import fnmatch

from samara_cli import ROOT


def test_the_container_is_built_from_all_tracked_files():
    """What .containerignore leaves out is nothing that the build reads; both engines read one list."""
    patterns = [line for line in (ROOT / ".containerignore").read_text().splitlines() if not line.startswith("#")]
    assert (ROOT / ".dockerignore").samefile(ROOT / ".containerignore") and ".git" in patterns
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")[:-1]
    left_out = [path for path in tracked for pattern in patterns if fnmatch(path.split("/")[0], pattern)]
    assert len(tracked) > 500 and not left_out
    for script in re.findall(r"scripts/\w+", (ROOT / "Containerfile").read_text()):
        assert os.access(ROOT / script, os.X_OK)
