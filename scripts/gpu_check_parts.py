"""The parts of scripts/gpu-check: what each one runs, and which figures it takes from that."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterator

Figures = dict[str, Any]


@dataclass
class Step:
    """One command of a part. `figures` maps its output to what the report keeps, and raises ValueError for output
    that shows a failure."""
    name: str
    command: list[str | Path]
    seconds: float  # its time limit
    figures: Callable[[str], Figures] = lambda _: {}
    watch: bool = False  # sample the utilization of the GPU meanwhile
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Setting:
    """Facts of this call that the parts need."""
    root: Path
    build: Path
    pack: Path
    python: str
    out: Path
    runs: Path  # a folder for training runs, which are not kept
    device: str
    cores: int
    compile: bool  # False: `build` is a finished one

    @property
    def gpu(self) -> bool:
        return self.device != "cpu"

    @property
    def venv(self) -> Path:
        return self.root / ".venv" if not self.compile and (self.root / ".venv").exists() else self.build / "venv"


def last_json(text: str) -> Figures:
    """The last line that is a JSON object."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except ValueError:
                continue
    raise ValueError("its output has no line with a JSON object")


# --- build

TORCH_TESTS = ["nn_torch_test", "rl_torch_test", "replica_torch_test"]
DEVICE_TESTS = ["nn_device_test", "evo_device_test"]
TARGETS = ["samara", "samara-torch", "_native", "samara-ranks", "bench_device_population", *TORCH_TESTS, *DEVICE_TESTS]


def make_environment(venv: Path, python: str, pack: Path) -> None:
    """An environment of this Python that finds the packages next to its torch, with the wheels of the pack."""
    subprocess.run([python, "-m", "venv", "--without-pip", "--clear", venv], check=True)
    (site,) = (venv / "lib").glob("python3*/site-packages")
    for wheel in sorted((pack / "wheels").glob("*.whl")):
        zipfile.ZipFile(wheel).extractall(site)
    torch = ask(python, "import importlib.util as i; print(*i.find_spec('torch').submodule_search_locations)")
    (site / "torch.pth").write_text(f"{Path(torch).parent}\n")


def ask(python: str, script: str) -> str:
    return subprocess.run([python, "-c", script], check=True, capture_output=True, text=True).stdout.strip()


def build(s: Setting) -> Iterator[Step]:
    if not s.compile:
        return
    yield Step("environment", [sys.executable, __file__, s.build / "venv", s.python, s.pack], 60)
    headers = Path(ask(s.python, "import sysconfig; print(sysconfig.get_path('include'))"))
    options = {"CMAKE_BUILD_TYPE": "Release", "CMAKE_UNITY_BUILD": "ON", "SAMARA_VENV": s.build / "venv",
               "CMAKE_PREFIX_PATH": s.pack / "usr", "SAMARA_CUDA": "ON" if s.gpu else "AUTO",
               "SAMARA_CUDA_KERNELS": "ON" if s.gpu else "AUTO",
               "SAMARA_TORCH_BATCH": "4" if s.cores > 8 else "",
               # without them there are no actors, and so no Atari
               "SAMARA_PYTHON": "ON" if (headers / "Python.h").exists() else "OFF",
               # left out on every machine: remote actors, videos, folders of JPEG files
               "SAMARA_GRPC": "OFF", "CMAKE_DISABLE_FIND_PACKAGE_PkgConfig": "ON", "CMAKE_DISABLE_FIND_PACKAGE_JPEG": "ON"}
    yield Step("configure", ["cmake", "-S", s.root, "-B", s.build, "-G", "Ninja",
                             *(f"-D{key}={value}" for key, value in options.items())], 120)
    known = subprocess.run(["ninja", "-C", s.build, "-t", "targets", "all"], capture_output=True, text=True).stdout
    targets = [name for name in TARGETS if re.search(rf"^{name}: ", known, re.M)]
    yield Step("compile", ["ninja", "-C", s.build, "-k", "0", "-j", str(s.cores), *targets], 600)


# --- doctor and tests


def doctor(s: Setting) -> Iterator[Step]:
    if s.gpu:
        yield Step("nvidia-smi", ["nvidia-smi", "-L"], 20, lambda text: {"gpus": text.strip().splitlines()})
    script = "import json, torch; print(json.dumps({'torch': torch.__version__, 'cuda': torch.cuda.is_available()}))"
    yield Step("torch", [s.venv / "bin/python", "-c", script], 60, last_json)
    # samara doctor ends with an error where MuJoCo is missing, which is not packed
    yield Step("samara doctor", ["sh", "-c", '"$0" doctor --json || test $? = 66', s.build / "samara"], 60, findings)


def findings(text: str) -> Figures:
    """Where something is missing a line with an error comes last."""
    (line,) = (line for line in text.splitlines() if line.startswith("{") and "findings" in json.loads(line))
    return {row["what"]: row["found"] for row in json.loads(line)["findings"]}


def tests_run(text: str) -> Figures:
    found = {word.lower(): int(count) for word, count in re.findall(r"^\[  (PASSED|SKIPPED) +\] (\d+) test", text, re.M)}
    if not found.get("passed"):
        raise ValueError("no test ran")
    return found


def tests(s: Setting) -> Iterator[Step]:
    """Those of devices; in programs that have others too, by the words in their names."""
    for program in DEVICE_TESTS:
        yield Step(program, [s.build / program], 60, tests_run)
    for program in TORCH_TESTS:
        yield Step(program, [s.build / program, "--gtest_filter=*Device*:*Gpu*:*Cuda*:*Nccl*:TensorStepTest*"], 60, tests_run)


# --- benchmarks


def bench(s: Setting, name: str, seconds: float, *options: str, watch: bool = True) -> Step:
    command = [s.build / "samara", "bench", name, "--json", *options]
    return Step(" ".join([name, *options]), command, seconds, last_json, watch and s.gpu)


def json_lines(text: str) -> Figures:
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    if not rows:
        raise ValueError("its output has no line with a JSON object")
    return {"all": rows}


def population(s: Setting) -> Iterator[Step]:
    sizes = ["1", "1000"] if s.gpu else ["0.05", "8"]
    kernels = s.build / "bench_device_population"
    if not list(s.build.glob("python/samara/_native*")):  # no Atari to record frames of
        yield Step("kernels alone", [kernels, s.device, *sizes], 60, json_lines, s.gpu)
    quick = [] if s.gpu else ["--seconds", "0.05"]
    yield bench(s, "population", 150, "--device", s.device, "--no-rivals", *quick)


def schedule(s: Setting) -> Iterator[Step]:
    quick = ["--seconds", "1" if s.gpu else "0.05", "--no-rivals"]
    yield bench(s, "schedule", 120, "--device", s.device, "--out", str(s.out / "schedule.svg"), *quick)


def inference(s: Setting) -> Iterator[Step]:
    for name, own in (("inference", []), ("vtrace", ["--no-rivals"])):
        yield bench(s, name, 60, "--device", s.device, "--seconds", "1" if s.gpu else "0.05", *own)


def replicator(s: Setting) -> Iterator[Step]:
    """One GPU holds one rank of NCCL."""
    ranks = ["--ranks", "1"] if s.gpu else []
    for mode, pairs in (("fast", ["--pairs", "3" if s.gpu else "1"]), ("exact", ["--pairs", "1", "--no-rivals"])):
        yield bench(s, "replicate", 75, "--device", s.device, "--mode", mode, *pairs, *ranks, watch=False)


# --- training runs


def learning_figures(folder: Path, workers: int) -> Figures:
    """Rates and shares over the second half of a run's lines."""
    lines = [row for row in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()) if "update" in row
             and "event" not in row]
    if len(lines) < 2:
        raise ValueError("fewer than two lines of metrics")
    first, last = lines[(len(lines) - 1) // 2], lines[-1]
    later = lines[lines.index(first) + 1:]
    total = {key: sum(row[key] for row in later) for key in last if key.startswith("seconds_")}
    server = total["seconds_inference"] + total["seconds_server"] + total["seconds_server_wait"]
    learner = sum(value for key, value in total.items() if key.startswith("seconds_learner_"))
    rate = (last["frames"] - first["frames"]) / (last["seconds"] - first["seconds"])
    return {"frames_per_second": rate, "hours_per_billion_frames": 1e9 / rate / 3600,
            "environment_busy": total["seconds_environment"] / (workers * server),
            "inference_thread_busy": 1 - total["seconds_server_wait"] / server,
            "learner_thread_busy": 1 - total["seconds_learner_wait"] / learner,
            "rows_per_batch": last["rows_per_batch"], "updates": last["update"]}


def evolution_figures(folder: Path, workers: int) -> Figures:
    """Returns the figures of the last generation, and the hashes of all."""
    lines = [row for row in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()) if "generation" in row
             and "event" not in row]
    if not lines:
        raise ValueError("no generation ended")
    last = lines[-1]
    rate = last["frames_per_second"]
    span = last["seconds_population"] + last["seconds_validation"] + last["seconds_between"]
    return {"frames_per_second": rate, "hours_per_billion_frames": 1e9 / rate / 3600,
            "packing": last["seconds_environment"] / (workers * span), "generations": last["generation"],
            "seconds_population": last["seconds_population"], "seconds_inference": last["seconds_inference"],
            "population_hashes": [row["population_hash"][:16] for row in lines]}


def run_of(s: Setting, name: str) -> Path:
    return s.runs / name.replace("/", "-").replace(" ", "-")


def train(s: Setting, name: str, preset: str, device: str, figures: Callable[[Path, int], Figures],
          *keys: str, seconds: float = 90) -> Step:
    folder = run_of(s, name)
    command = [s.build / "samara", "train", preset, "--out", folder, "--json", f"run.device={device}",
               f"fleet.actors={s.cores}", "run.random_episodes=0", "run.video=false", *keys]
    return Step(name, command, seconds, lambda _: figures(folder, s.cores), device != "cpu")


def learning(s: Setting) -> Iterator[Step]:
    """V-trace on Pong."""
    minutes = "run.minutes=0.4" if s.gpu else "run.minutes=0.1"
    environments = 16 * s.cores if s.gpu else 8 * s.cores
    for preset, keys in (("atari/vtrace-desktop", []), ("atari/vtrace", ["network.precision=bfloat16"])):
        yield train(s, preset, preset, s.device, learning_figures, minutes, "learn.test_episodes=1",
                    f"learn.environments={environments}", f"learn.batch={max(8, environments // 4)}", *keys)
        if not s.gpu:
            return


def determinism(s: Setting) -> Iterator[Step]:
    """V-trace on Pong in deterministic mode, twice: the parameters end with the same bits."""
    first, second = "deterministic", "deterministic again"

    def figures(name: str) -> Figures:
        result = json.loads((run_of(s, name) / "result.json").read_text())["result"]
        if name == second and result["parameter_hash"] != figures(first)["parameter_hash"]:
            raise ValueError(f"another hash than before: {result['parameter_hash']}")
        return {"parameter_hash": result["parameter_hash"], "updates": result["updates"]}

    for name in (first, second):
        yield train(s, name, "atari/vtrace-desktop", s.device, lambda folder, _, name=name: figures(name),
                    "learn.mode=deterministic", "network.precision=float32", "learn.environments=32", "learn.batch=8",
                    "learn.test_episodes=1", f"learn.frames={400_000 if s.gpu else 8_000}")


def evolution(s: Setting) -> Iterator[Step]:
    """Deep GA on Frostbite, with episodes of at most 500 steps, on the GPU and on the CPU: the same populations."""
    small = [] if s.gpu else ["ga.population=8", "ga.parents=2", "env.frames_max=200", "env.test_frames_max=200"]
    on_device = f"atari/deep-ga on {s.device}"

    def figures(folder: Path, workers: int) -> Figures:
        found = evolution_figures(folder, workers)
        there, here = evolution_figures(run_of(s, on_device), workers)["population_hashes"], found["population_hashes"]
        if there[:len(here)] != here:
            raise ValueError(f"populations differ: {there} and {here}")
        return found

    for device, generations in [(s.device, 2)] + [("cpu", 1)] * s.gpu:
        yield train(s, f"atari/deep-ga on {device}", "atari/deep-ga", device, figures, f"ga.generations={generations}",
                    "env.frames_max=2000", "env.test_frames_max=2000", "ga.validation_candidates=2",
                    "ga.validation_episodes=5", "ga.test_every=0", "ga.test_episodes=1", "run.final_test_episodes=1", *small)


# in the order in which they run; seconds of each on a machine with a GPU
PARTS: dict[str, tuple[Callable[[Setting], Iterator[Step]], float]] = {
    "build": (build, 400), "doctor": (doctor, 60), "tests": (tests, 150), "population": (population, 120),
    "evolution": (evolution, 120), "schedule": (schedule, 60), "inference": (inference, 60),
    "replicator": (replicator, 90), "determinism": (determinism, 60), "learning": (learning, 110)}

if __name__ == "__main__":
    make_environment(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
