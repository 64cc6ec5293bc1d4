"""`scripts/setup --no-root`: packages unpacked into .deps of a tree serve the compiler, pkg-config and the loader."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from samara_cli import ROOT

ARCH = f"{platform.machine()}-linux-gnu"
pytestmark = pytest.mark.skipif(not (shutil.which("dpkg-deb") and shutil.which("g++") and shutil.which("pkg-config")),
                                reason="needs dpkg-deb, g++ and pkg-config")  # fmt: skip

PROGRAM = "#include <answer.h>\n#include <cstdio>\nint main() { std::printf(\"%d\\n\", answer()); }\n"
PC = f"prefix=/usr\nlibdir=${{prefix}}/lib/{ARCH}\nName: answer\nDescription: a number\nVersion: 1\nLibs: -L${{libdir}} -lanswer\n"
# what apt-get would leave, and a note of each call
APT_GET = """#!/bin/sh
echo "$@" >>{calls}
for word in "$@"; do case $word in Dir::Cache=*) cache=${{word#*=}} ;; install) cp {archives}/*.deb "$cache/archives/" ;; esac; done
"""


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def package(archives, name, files):
    """An archive of these files: text, a path that is copied, or a link (`-> target`)."""
    root = archives / name
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN/control").write_text(f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: t <t@t>\nDescription: t\n")
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copy(content, root / path)
        elif content.startswith("-> "):
            (root / path).symlink_to(content[3:])
        else:
            (root / path).write_text(content)
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", root, archives / f"{name}_1_all.deb"], check=True, capture_output=True)


def shared_library(folder, name, source, *others):
    (folder / f"{name}.cc").write_text(source)
    file = folder / f"lib{name}.so.1"
    subprocess.run(["g++", "-shared", "-fPIC", f"-Wl,-soname,{file.name}", folder / f"{name}.cc", *others, "-o", file], check=True)
    return file


@pytest.fixture
def tree(tmp_path):
    """A tree with the scripts, and a package tool that has libanswer, which needs libdeep."""
    tree, archives = tmp_path / "tree", tmp_path / "archives"
    (tree / "scripts").mkdir(parents=True)
    archives.mkdir()
    for script in ("setup", "unpack-packages"):
        shutil.copy(ROOT / "scripts" / script, tree / "scripts")
    deep = shared_library(tmp_path, "deep", 'extern "C" int deep() { return 42; }')
    answer = shared_library(tmp_path, "answer", 'extern "C" int deep(); extern "C" int answer() { return deep(); }', deep)
    script = f"/* GNU ld script */\nGROUP ( /lib/{ARCH}/libc.so.6 /usr/lib/{ARCH}/libx_nonshared.a )\n"
    package(archives, "libanswer-dev", {
        "usr/include/answer.h": 'extern "C" int answer();\n', f"usr/lib/{ARCH}/libanswer.so": "-> libanswer.so.1",
        f"usr/lib/{ARCH}/pkgconfig/answer.pc": PC, f"usr/lib/{ARCH}/libm-of-system.so": "-> libm.so.6",
        f"usr/lib/{ARCH}/libabsolute.so": f"-> /usr/lib/{ARCH}/libanswer.so.1", f"usr/lib/{ARCH}/libx.so": script})  # fmt: skip
    # before /usr was one folder, and still in Debian 12
    package(archives, "libanswer1", {f"lib/{ARCH}/libanswer.so.1": answer, f"lib/{ARCH}/libdeep.so.1": deep, "bin/answer": "x"})
    package(archives, "libc6", {f"lib/{ARCH}/libc.so.6": "another build than the loader's"})
    program(tmp_path / "bin/apt-get", APT_GET.format(calls=tmp_path / "calls", archives=archives))
    return tree


def run(*command, tree, **variables):
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SAMARA_")}
    path = f"{tree.parent / 'bin'}:{clean['PATH']}"
    return subprocess.run(command, cwd=tree, env={**clean, "PATH": path, **variables}, capture_output=True, text=True)


def test_what_is_unpacked_serves_the_compiler_and_the_loader(tree):
    done = run("scripts/unpack-packages", "libanswer-dev", tree=tree)
    assert done.returncode == 0, done.stderr
    deps = tree / ".deps"
    libraries = deps / "usr/lib" / ARCH
    assert (deps / "lib").is_symlink() and (libraries / "libdeep.so.1").exists() and (deps / "usr/bin/answer").exists()
    assert not (libraries / "libc.so.6").exists(), "the C library is the system's"
    # links to what only the system has, and to what only the archive has
    assert (libraries / "libm-of-system.so").samefile(f"/usr/lib/{ARCH}/libm.so.6")
    assert (libraries / "libabsolute.so").samefile(libraries / "libanswer.so.1")
    assert (libraries / "libx.so").read_text().split()[-2:] == [f"{libraries}/libx_nonshared.a", ")"]
    assert f"GROUP ( /lib/{ARCH}/libc.so.6 " in (libraries / "libx.so").read_text()
    (tree / "main.cc").write_text(PROGRAM)
    build = '. .deps/environment; . .deps/environment; g++ $CXXFLAGS main.cc $(pkg-config --libs answer) $LDFLAGS -o main; echo "$PATH"'
    done = run("bash", "-ec", build, tree=tree)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split(":").count(f"{deps}/usr/bin") == 1, "read twice, in effect once"
    assert subprocess.run([tree / "main"], env={}, capture_output=True, text=True, check=True).stdout == "42\n"
    assert (deps / "sources").read_text() == "libanswer-dev 1\nlibanswer1 1\n"
    assert not (deps / "apt").exists() and (deps / "packages").read_text() == "libanswer-dev\n"


def test_setup_remembers(tree):
    """Packages in .deps are not missing, whatever the system says; set-up goes on to Python."""
    program(tree.parent / "bin/dpkg-query", "#!/bin/sh\nexit 1\n")
    for times in (1, 1):  # the second call finds them
        done = run("scripts/setup", "--no-root", tree=tree, SAMARA_PYTHON="/nowhere")
        assert done.returncode == 1 and done.stderr == "setup: SAMARA_PYTHON=/nowhere: expected a Python from 3.11 to 3.13\n"
        calls = (tree.parent / "calls").read_text().splitlines()
        assert len([line for line in calls if " install " in line]) == times
    assert "libgrpc++-dev" in calls[-1] and "--download-only" in calls[-1]
    # without the option too; a package that was not asked for is added
    run("scripts/setup", "--lint", tree=tree, SAMARA_PYTHON="/nowhere")
    assert (tree.parent / "calls").read_text().splitlines()[-1].endswith("--no-install-recommends clang-tidy-14 clang-14")


def test_without_root_set_up_names_the_way(tree):
    for name, text in {"dpkg-query": "exit 1", "id": "echo 1000", "sudo": "exit 1"}.items():
        program(tree.parent / "bin" / name, f"#!/bin/sh\n{text}\n")
    done = run("scripts/setup", tree=tree)
    assert done.returncode == 1 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert "'scripts/setup --no-root' unpacks them into this tree" in done.stderr and "apt-get install" in done.stderr
    assert not (tree.parent / "calls").exists()


def test_without_debians_tools_there_is_one_line(tree):
    tools = tree.parent / "tools"
    tools.mkdir()
    for tool in ("bash", "dirname", "uname", "mktemp", "grep", "tail", "rm"):
        (tools / tool).symlink_to(shutil.which(tool))
    done = run("scripts/setup", "--no-root", tree=tree, PATH=str(tools))
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert "no apt-get: expected Debian" in done.stderr and not (tree / ".deps").exists()


def test_a_download_that_fails_leaves_nothing_to_read(tree):
    program(tree.parent / "bin/apt-get", "#!/bin/sh\necho no network >&2\nexit 100\n")
    done = run("scripts/unpack-packages", "libanswer-dev", tree=tree)
    assert done.returncode == 1 and "no network" in done.stderr and "check the network" in done.stderr
    assert not (tree / ".deps/environment").exists()
