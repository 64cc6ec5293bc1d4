"""What scripts/setup prints on a machine where all goes well, with stand-ins for the package tools and Python."""

import shutil

import pytest
from samara_cli import ROOT
from test_no_root import program, run

# a tool that prints as much as apt-get and pip do
TALKS = "#!/bin/sh\nfor i in $(seq 40); do echo out $i; echo error $i >&2; done\n"
# `-c`: a version, where one is printed; `-m venv FOLDER`: the folder, with this program in it; any other call prints
PYTHON = """#!/bin/sh
case "$1 $2" in
  -c*print*) echo 3.11; exit ;;
  -c*) exit ;;
  "-m venv") mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; cp "$0" "$3/bin/python3.11" ;;
esac
""" + TALKS.removeprefix("#!/bin/sh\n")


@pytest.fixture
def tree(tmp_path):
    tree = tmp_path / "tree"
    (tree / "scripts").mkdir(parents=True)
    for name in ("scripts/setup", "requirements.txt", "requirements-envpool.txt"):
        shutil.copy(ROOT / name, tree / name)
    program(tree / "scripts/unpack-packages", TALKS)
    program(tmp_path / "bin/apt-get", TALKS)
    program(tmp_path / "bin/id", "#!/bin/sh\necho 0\n")
    program(tmp_path / "bin/python", PYTHON)
    program(tmp_path / "bin/dpkg-query", "#!/bin/sh\nexit 1\n")  # nothing is installed
    return tree


@pytest.mark.parametrize("options", [[], ["--no-root"], ["--envpool"]])
def test_it_prints_at_most_three_lines(options, tree):
    python = {"SAMARA_PYTHON": str(tree.parent / "bin/python")}
    done = run("scripts/setup", *options, tree=tree, **python)
    assert done.returncode == 0 and not done.stderr, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) <= 3 and all(line.startswith("setup: ") for line in lines) and lines[-1] == "setup: ready", lines
    program(tree.parent / "bin/dpkg-query", "#!/bin/sh\necho install ok installed\n")
    again = run("scripts/setup", tree=tree, **python)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def test_what_a_tool_prints_is_shown_where_it_fails(tree):
    program(tree.parent / "bin/apt-get", TALKS + "exit 100\n")
    done = run("scripts/setup", tree=tree)
    assert done.returncode == 1 and "error 40\n" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("setup: apt-get update failed: ")


@pytest.mark.parametrize("release", [None, "11.8", "12.1", "13.0"])
def test_cuda_installs_its_compiler_where_there_is_none_or_an_old_one(release, tree):
    setup = tree / "scripts/setup"  # not what this machine has
    setup.write_text(setup.read_text().replace("/usr/local/cuda", str(tree / "cuda")))
    calls = tree.parent / "calls"
    program(tree.parent / "bin/python", PYTHON.replace("#!/bin/sh\n", f'#!/bin/sh\necho "$@" >> {calls}\n'))
    says = f"echo Cuda compilation tools, release {release}, V{release}.1" if release else "exit 127"  # before this machine's
    program(tree.parent / "bin/nvcc", f"#!/bin/sh\n{says}\n")
    done = run("scripts/setup", tree=tree, SAMARA_PYTHON=str(tree.parent / "bin/python"), SAMARA_CUDA="1")
    assert done.returncode == 0, done.stderr
    torch, *others = [line.split()[-1] for line in calls.read_text().splitlines() if " install " in line and "-r" not in line]
    assert torch == "torch===2.13.0" and others == ([] if release in ("12.1", "13.0") else ["cuda-toolkit[nvcc]"])
