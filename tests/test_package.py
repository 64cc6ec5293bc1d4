"""What pip builds needs the interpreter that asks for it, and neither SOURCE/.venv nor MuJoCo; `make build` needs no pip."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from samara_cli import ROOT


@pytest.mark.skipif(not shutil.which("ninja"), reason="needs ninja")
def test_the_extension_is_configured_in_any_environment(tmp_path):
    nanobind = pytest.importorskip("nanobind")
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    [site] = environment.glob("lib/python*/site-packages")
    (site / "nanobind").symlink_to(Path(nanobind.__file__).parent)
    python, build = environment / "bin/python", tmp_path / "build"
    assert subprocess.run([python, "-c", "import mujoco"], capture_output=True).returncode != 0
    # as scikit-build-core calls it
    options = {"SKBUILD": "2", "Python_EXECUTABLE": python, "SAMARA_TESTS": "OFF", "SAMARA_TORCH": "OFF",
               "SAMARA_GRPC": "OFF", "CMAKE_BUILD_TYPE": "Release"}  # fmt: skip
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("SAMARA_V", "PYTHON"))}
    done = subprocess.run(["cmake", "-G", "Ninja", "-S", ROOT, "-B", build, *(f"-D{k}={v}" for k, v in options.items())],
                          capture_output=True, text=True, env=clean)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    # all that pip builds there
    commands = subprocess.run(["ninja", "-C", build, "-t", "commands", "samara_wheel"], capture_output=True, text=True,
                              check=True).stdout  # fmt: skip
    assert "native/slots.cc" in commands and str(environment) in commands
    assert "mujoco" not in commands and "src/env/registry.cc" not in commands and "src/cli/main.cc" not in commands


def test_an_environment_finds_the_package_of_build(tmp_path):
    environment, link = tmp_path / "environment", ROOT / "scripts/link-package"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    code = [environment / "bin/python", "-c", "import samara; print(samara.__file__, samara.__version__, samara.train)"]
    assert subprocess.run(code, env=clean, cwd=tmp_path, capture_output=True).returncode != 0
    for folder in (environment, environment.name):
        subprocess.run([link, folder], cwd=tmp_path, check=True)
    found = subprocess.run(code, env=clean, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert found.startswith(str(ROOT / "build/python/samara/__init__.py") + " 0.1.0")
    # that of another tree stays
    [file] = environment.glob("lib/python*/site-packages/samara.pth")
    file.write_text(f"{tmp_path}\n")
    done = subprocess.run([link, environment], check=True, capture_output=True, text=True)
    assert "left as it is" in done.stderr and file.read_text() == f"{tmp_path}\n"
    file.write_text("/gone\n")
    subprocess.run([link, environment], check=True)
    assert file.read_text() == f"{ROOT / 'build/python'}\n"
