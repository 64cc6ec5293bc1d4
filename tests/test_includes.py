"""Includes in src/ only point down, in the order of src/README.md; torch and GoogleTest stay in their places. Python's modules
import each other in no circle."""

import ast
import re
import subprocess
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)


def tracked(*patterns):
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns],
                            cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [Path(name) for name in listed.split("\0") if name and (ROOT / name).exists()]


def includes_of(path):
    return INCLUDE.findall((ROOT / path).read_text())


SOURCES = {path: includes_of(path) for path in tracked("*.h", "*.cc")}


def folders():
    """The folders of src/, lowest first."""
    return re.findall(r"^- `([\w/]+)/`:", (ROOT / "src/README.md").read_text(), re.M)


def folder(path):
    """The listed folder of a file of src/."""
    return "/".join(Path(path).parts[1:-1])


def test_the_list_names_every_folder():
    assert {folder(path) for path in SOURCES if path.parts[0] == "src"} == set(folders())
    assert folders()[0] == "core" and folders()[-1] == "cli"


def test_includes_point_down():
    order = {name: i for i, name in enumerate(folders())}
    includes = [(path, name) for path, names in SOURCES.items() if path.parts[0] == "src" and not path.stem.endswith("_test_util")
                for name in names if str(Path(name).parent) in order]
    assert len(includes) > 1000
    assert not [f"{path} includes {name}" for path, name in includes
                if order[str(Path(name).parent)] > order[folder(path)] and not path.stem.endswith("_test")
                and path.name != "registry.cc"]  # which lists what is in folders below its own
    # evolution and reinforcement learning do not know each other, nor the replicator
    apart = {"evo": {"rl", "replica"}, "rl": {"evo", "replica"}, "replica": {"evo", "rl"}}
    assert not [f"{path} includes {name}" for path, name in includes if name.split("/")[0] in apart.get(path.parts[1], ())]


def test_includes_name_files_that_exist():
    tops = {name.split("/")[0] for name in folders()}
    assert not [f"{path} includes {name}" for path, names in SOURCES.items() for name in names
                if name.split("/")[0] in tops and not (ROOT / "src" / name).exists()]


def test_torch_stays_with_gradients():
    users = {path for path, names in SOURCES.items() if path.parts[0] == "src"
             for name in names if name.startswith(("torch/", "ATen/", "c10/")) or name.startswith("nn/torch/")}
    assert users, "the pattern finds nothing"
    assert not {path for path in users if path.parts[:3] != ("src", "nn", "torch") and path.parts[1] not in ("rl", "replica")
                and path not in {Path("src/bench/ranks.cc"), Path("src/bench/micro/population_kernel.cc")}}


def test_the_extensions_of_actors_and_environments_are_without_torch():
    assert not [path for path, names in SOURCES.items() if path.parts[:2] in {("python", "native"), ("python", "engine")}
                for name in names if name.startswith(("torch/", "nn/torch/", "samara/", "replica/"))]


def test_grpc_stays_with_the_transport():
    """No file includes torch and gRPC: each brings its own protobuf."""
    users = {path for path, names in SOURCES.items() for name in names if name.startswith(("grpc/", "grpcpp/"))}
    assert users, "the pattern finds nothing"
    transport, echo = ("src", "fleet", "remote", "grpc"), ("src", "bench", "grpc")
    assert not {path for path in users if path.parts[:4] != transport and path.parts[:3] != echo}


def test_googletest_is_reached_from_tests_only():
    """A header that includes GoogleTest is a test's helper: only tests and such headers include it."""
    testing = {path for path, names in SOURCES.items()
               if any(name.startswith(("gtest/", "gmock/")) for name in names)}
    helpers = {str(path.relative_to("src")) for path in testing if path.suffix == ".h" and path.parts[0] == "src"}
    wrong = [path for path in testing if path.suffix == ".cc" and not path.stem.endswith("_test")]
    wrong += [path for path, names in SOURCES.items() if set(names) & helpers
              and not path.stem.endswith("_test") and str(path).removeprefix("src/") not in helpers]
    assert testing and not wrong


def test_the_extension_links_only_what_both_licences_cover():
    """All that the actors' extension includes, transitively, and what implements it, is offered under both."""
    todo, seen = [path for path in SOURCES if path.parts[:2] == ("python", "native")], set()
    while todo:
        path = todo.pop()
        if path in seen or path not in SOURCES:
            continue
        seen.add(path)
        for name in SOURCES[path]:
            header = Path("src") / name
            todo += [header, header.with_suffix(".cc")]
    assert Path("src/nn/pixels.cc") in seen
    missing = [str(path) for path in sorted(seen)
               if "SPDX-License-Identifier: Apache-2.0 OR MIT" not in (ROOT / path).read_text().split("\n")[0]]
    assert not missing


def test_files_offered_under_both_licences_say_so():
    dual = [path for path in tracked("src/core/*", "src/nn/*", "src/fleet/slot.h", "src/fleet/slot_server.h", "python/*")
            if path.suffix in {".h", ".cc", ".py"} and path.parts[:3] != ("src", "nn", "torch")
            and path.parts[:2] != ("python", "replica")]
    assert len(dual) > 50
    assert not [str(path) for path in dual
                if "SPDX-License-Identifier: Apache-2.0 OR MIT" not in (ROOT / path).read_text().split("\n")[0]]


def test_types_of_one_namespace_have_different_names():
    """Two of one name in one program are undefined behaviour: the linker keeps one of their inline functions."""
    named = {}
    for path in tracked("*.h", "*.cc"):
        if not str(path).startswith(("src/", "include/")):
            continue
        text = re.sub(r"^namespace \{\n.*?^\}  // namespace$", "", (ROOT / path).read_text(), flags=re.M | re.S)
        space = tuple(re.findall(r"^namespace ([\w:]+) \{", text, re.M))
        for name in re.findall(r"^(?:struct|class|enum class|union) (\w+)(?: final)?(?: : [^;{]*)?\s*\{", text, re.M):
            named.setdefault((space, name), []).append(str(path))
    assert len(named) > 300
    assert not {name: paths for (_, name), paths in named.items() if len(paths) > 1}


def imports_of_module(source):
    """The dotted names that a module imports when it runs, also in functions: without those under `if TYPE_CHECKING`."""
    todo, names = [ast.parse(source)], []
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            todo += node.orelse
            continue
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        todo += ast.iter_child_nodes(node)
    return names


def import_graph(sources):
    """{module: the modules of `sources` that it imports} of {module: source}."""
    def module_of(name):
        while name and name not in sources:
            name = name.rpartition(".")[0]
        return name
    return {name: set(filter(None, map(module_of, imports_of_module(source)))) for name, source in sources.items()}


def circle(graph):
    """Modules each of which imports one next to it in the list, if they do so in a circle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_python_modules_import_each_other_in_no_circle():
    sources = {".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__"): (ROOT / path).read_text()
               for path in tracked("python/samara/*.py")}
    graph = import_graph(sources)
    assert "samara.environment" in graph["samara.remote"] and "samara.replica.nest" in graph["samara.replica.inputs"]
    assert not circle(graph)


@pytest.mark.parametrize(("text", "found"), [
    ("import p.b", True), ("from p.b import f", True), ("from p import b", True), ("def g():\n    from p.b import f", True),
    ("try:\n    import p.b as other\nexcept ImportError:\n    pass", True), ("if TYPE_CHECKING:\n    pass\nelse:\n    import p.b", True),
    ("if TYPE_CHECKING:\n    from p.b import f", False), ("import b, q.p.b\nfrom p.bb import f", False)])
def test_circles_of_imports_are_found(text, found):
    assert bool(circle(import_graph({"p": "", "p.a": text, "p.b": "from p import c", "p.c": "from p.a import g"}))) is found
