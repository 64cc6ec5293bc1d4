"""Metrics where other programs draw them: TensorBoard's file, Weights & Biases and MLflow behind fake packages, CSV."""

import csv
import io
import json
import os
import struct
import subprocess
import sys

import pytest
from PIL import Image
from samara_cli import CARTPOLE, ROOT, environment, ok, samara, train
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

import samara as package
from samara import loggers

# Packages that write down how they are called.
WANDB = '''
import json, os
def note(*what):
    with open(os.environ["NOTES"], "a") as file:
        file.write(json.dumps(what) + "\\n")
class Summary:
    def update(self, values): note("summary", values)
class Config:
    def update(self, values, allow_val_change): note("config", values)
def fail_at(step):
    if os.environ.get("FAIL_AT") == step: raise RuntimeError(f"no network\\nat {step}")
def Video(path, format): note("video", os.path.basename(path))
class Run:
    summary, config = Summary(), Config()
    def __setattr__(self, name, value): note(name, value)
    def log(self, values, step=None):
        fail_at("log")
        if step is not None: note("log", step, values)
    def save(self, path, base_path, policy): note("save", os.path.relpath(path, base_path))
    def finish(self, exit_code=0):
        fail_at("finish")
        note("finish", exit_code)
def init(**keys):
    fail_at("init")
    note("init", keys)
    return Run()
'''
MLFLOW = WANDB.partition("class Summary")[0] + '''
def set_tracking_uri(uri): note("uri", uri)
def set_experiment(name): note("experiment", name)
def start_run(**keys): note("start", keys)
def set_tag(name, value): note("tag", name, value)
def log_params(values): note("params", {k: str(v) for k, v in values.items()})
def log_metrics(values, step): note("log", step, values)
def log_artifact(path): note("save", os.path.basename(path))
def end_run(status): note("finish", status)
'''


@pytest.fixture(scope="module", params=["deep-ga", "dqn"])
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / request.param
    if request.param == "deep-ga":
        train(folder, *CARTPOLE, "run.video=true")
    else:
        train(folder, "classic/cartpole-dqn", "learn.frames=3000", "learn.evaluate_every=1500", "run.video=false", "run.seed=1")
    return package.load(folder)


@pytest.fixture
def notes(tmp_path, monkeypatch):
    for name, text in {"wandb": WANDB, "mlflow": MLFLOW}.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    yield lambda: [json.loads(line) for line in (tmp_path / "notes").read_text().splitlines()]
    for name in ("wandb", "mlflow"):
        sys.modules.pop(name, None)


def films(run):
    return sorted((run.path / "videos").glob("*.mp4"))


def scalars(run):
    """Of the event file: {(step, tag): value}."""
    events = EventAccumulator(str(run.path), size_guidance={"scalars": 0}).Reload()
    return events, {(e.step, tag): e.value for tag in events.Tags()["scalars"] for e in events.Scalars(tag)}


def test_tensorboard_has_groups_frames_and_evaluations(run):
    _, found = scalars(run)
    lines = [line for line in run.lines() if "event" not in line]
    groups = {tag.split("/")[0] for _, tag in found}
    assert {"charts", "time", "counts", "eval"} <= groups <= {*loggers.GROUPS, "eval", "algorithm"}
    name = "charts/fitness_mean" if "fitness_mean" in lines[0] else "losses/loss"
    expected = {line["frames"]: line[name.split("/")[1]] for line in lines}
    assert {step: v for (step, tag), v in found.items() if tag == name} == pytest.approx(
        {k: v for k, v in expected.items() if v is not None}, rel=1e-6)
    evaluations = [line for line in run.lines() if line.get("event") == "evaluation"]
    assert [found[e["frames"], "eval/return_mean"] for e in evaluations] == pytest.approx([e["mean"] for e in evaluations])
    result = run.result
    final = result.get("elite_mean", result.get("test_mean"))
    assert found[result["frames"], "eval/final_mean"] == pytest.approx(final)
    assert len(evaluations) == 2 * ("test_mean" in result)


def test_python_has_the_same_names_and_steps(run):
    _, found = scalars(run)
    logged = {}
    for line in run.lines():
        step, values = loggers.scalars_of(line)
        logged |= {(step, tag): value for tag, value in values.items()}
    assert logged.keys() == found.keys()
    assert found == pytest.approx(logged, rel=1e-6)


def test_tensorboard_has_the_configuration(run):
    events, _ = scalars(run)
    text = events.Tensors("config")[0].tensor_proto.string_val[0].decode()
    assert f"| run.seed | `{run.config['run']['seed']}` |" in text
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    given = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    assert given["run.seed"].number_value == run.config["run"]["seed"]
    assert given["run.video"].HasField("bool_value") and given["run.video"].bool_value is (run.result["run"].endswith("deep-ga"))
    assert given["run.algorithm"].string_value == run.config["run"]["algorithm"]
    assert given.keys() == {f"{table}.{key}" for table, keys in run.config.items() for key in keys}


def test_tensorboard_shows_the_video(run):
    events = EventAccumulator(str(run.path), size_guidance={"images": 0}).Reload()
    if not run.config["run"]["video"]:
        assert events.Tags()["images"] == []
        return
    (shown,) = events.Images("video")
    gif = shown.encoded_image_string
    assert gif[:6] == b"GIF89a" and struct.unpack("<HH", gif[6:10]) == (shown.width, shown.height)
    with Image.open(io.BytesIO(gif)) as picture:
        assert picture.n_frames > 5 and picture.convert("RGB").getpixel((5, 5)) == (255, 255, 255)  # CartPole's paper
    assert shown.step == run.result["frames"] and 100 < shown.width <= 400


def test_wandb(run, notes):
    run.log("wandb", project="mine", mode="offline")
    first, *rest, end = notes()
    assert first == ["init", {"project": "mine", "mode": "offline"}]
    assert rest[:2] == [["name", run.path.name], ["config", run.config]]
    logged = {(n[1], tag) for n in rest if n[0] == "log" for tag in n[2]}
    assert logged == set(scalars(run)[1]) and end == ["finish", 0]
    assert ["save", "report.html"] in rest and ["save", "config.toml"] in rest
    assert [n for n in rest if n[0] == "video"] == [["video", file.name] for file in films(run)]
    summary = next(n[1] for n in rest if n[0] == "summary")
    assert summary["result/frames"] == run.result["frames"]


def test_mlflow(run, notes):
    run.log("mlflow", tracking_uri="sqlite:///x", experiment="mine")
    seen = notes()
    assert seen[:3] == [["uri", "sqlite:///x"], ["experiment", "mine"], ["start", {}]]
    assert seen[3] == ["tag", "mlflow.runName", run.path.name]
    parameters = [n[1] for n in seen if n[0] == "params"]
    assert all(len(p) <= 100 for p in parameters)
    assert {k: v for p in parameters for k, v in p.items()}["run.seed"] == str(run.config["run"]["seed"])
    assert {(n[1], tag) for n in seen if n[0] == "log" for tag in n[2]} == set(scalars(run)[1])
    assert all(["save", file.name] in seen for file in films(run))
    assert ["save", "report.html"] in seen and seen[-1] == ["finish", "FINISHED"]


def test_a_callback_logs_while_a_run_trains(notes, tmp_path):
    logger = package.Logger("wandb")
    stop = {"generations": 0}

    def count(line):
        logger(line)
        stop["generations"] += "generation" in line and "event" not in line
        return stop["generations"] >= 2

    count.begin, count.end = logger.begin, logger.end
    keys = dict(word.split("=") for word in CARTPOLE[1:]) | {"ga.generations": 100000, "run.video": "false"}
    run = package.train(CARTPOLE[0], keys, tmp_path / "run", callback=count)
    seen = notes()
    assert run.result is None and seen[0][0] == "init" and seen[-1] == ["finish", 0]
    assert len([n for n in seen if n[0] == "log"]) >= 3  # the random policy too


SMALL = dict(word.split("=") for word in CARTPOLE[1:])


def test_a_log_that_fails_is_warned_about_once_and_the_run_goes_on(notes, tmp_path, monkeypatch):
    monkeypatch.setenv("FAIL_AT", "log")
    with pytest.warns(UserWarning) as warned:
        run = package.train(CARTPOLE[0], SMALL, tmp_path / "run", callback=package.Logger("wandb"))
    assert run.result["generation"] == 4
    assert [str(w.message) for w in warned if w.category is UserWarning] == [
        "logging to wandb failed, the run goes on: RuntimeError: no network at log"]
    assert notes()[-1] == ["finish", 0]


def test_a_logger_of_ones_own_has_the_same_care(tmp_path):
    class Mine:
        said = []

        def __init__(self, at):
            self.at = at

        def begin(self, run):
            self.said.append(run.path)

        def log(self, values, step):
            self.said.append(step)
            if len(self.said) >= self.at:
                raise OSError("disk full")

        def end(self, run):
            self.said.append(run.result["frames"])

    with pytest.warns(UserWarning, match="logging to Mine failed, the run goes on: OSError: disk full") as warned:
        run = package.train(CARTPOLE[0], SMALL, tmp_path / "run", callback=package.Logger(Mine, at=4))
    assert sum(w.category is UserWarning for w in warned) == 1
    steps = [loggers.scalars_of(line)[0] for line in run.lines() if loggers.scalars_of(line)[1]]
    assert Mine.said == [run.path, *steps, run.result["frames"]]


def test_a_finish_that_fails_loses_no_run(notes, tmp_path, monkeypatch):
    monkeypatch.setenv("FAIL_AT", "finish")
    with pytest.warns(UserWarning, match="no network at finish"):
        run = package.train(CARTPOLE[0], SMALL, tmp_path / "run", callback=package.Logger("wandb"))
    assert run.result["generation"] == 4


def test_a_logger_that_does_not_start_is_refused_before_the_run(notes, tmp_path, monkeypatch):
    monkeypatch.setenv("FAIL_AT", "init")
    with pytest.raises(package.Error, match="^logging to wandb did not start: RuntimeError: no network at init$") as refused:
        package.train(CARTPOLE[0], SMALL, tmp_path / "run", callback=package.Logger("wandb"))
    assert refused.value.exit_code == 69 and not (tmp_path / "run").exists()


def test_a_run_that_is_refused_ends_the_loggers(notes, tmp_path):
    with pytest.raises(package.Error, match="ga.population"):
        package.train(CARTPOLE[0], {"ga.populaton": 4}, tmp_path / "run", callback=package.Logger("wandb"))
    assert notes() == [["init", {"project": "samara"}], ["finish", 1]]


@pytest.mark.parametrize("step", ["init", "log"])
def test_logging_a_run_that_is_there_fails_with_an_error(step, run, notes, monkeypatch):
    monkeypatch.setenv("FAIL_AT", step)
    with pytest.raises(package.Error, match=f"no network at {step}") as refused:
        run.log("wandb")
    assert refused.value.exit_code == 69


def test_the_command_has_the_programs_exit_codes(run, notes, tmp_path):
    def code(*arguments, **variables):
        done = subprocess.run([sys.executable, "-m", "samara.loggers", *map(str, arguments)], capture_output=True, text=True,
                              env=environment(PYTHONPATH=os.pathsep.join(sys.path), **variables), timeout=60)
        assert done.returncode == 0 or (done.stderr.startswith("samara: ") and done.stderr.count("\n") == 1), done.stderr
        return done.returncode

    assert code(run.path) == code(run.path, "--to", "comet") == 64
    assert code(tmp_path / "none", "--to", "wandb") == 66
    assert code(run.path, "--to", "wandb", FAIL_AT="init") == 69


def test_the_command_follows_a_run(run, notes):
    done = subprocess.run([sys.executable, "-m", "samara.loggers", run.path, "--to", "wandb", "--follow", "--project", "p"],
                          env=environment(NOTES=os.environ["NOTES"], PYTHONPATH=os.pathsep.join(sys.path)), timeout=60)
    assert done.returncode == 0
    assert notes()[0][1]["project"] == "p" and notes()[-1] == ["finish", 0]


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(package.Error, match="pip install mlflow") as refused:
        package.Logger("mlflow")
    assert refused.value.exit_code == 66
    with pytest.raises(package.Error, match="wandb, mlflow") as refused:
        package.Logger("comet")
    assert refused.value.exit_code == 78


def test_a_table_of_all_lines(run, tmp_path):
    file = tmp_path / "metrics.csv"
    said = ok("report", run.path, "--out", tmp_path / "x.html", "--csv", file, "--json").json
    assert said["csv"] == str(file)
    rows = list(csv.DictReader(file.open(newline="")))
    lines = [line for line in run.lines() if "event" not in line]
    assert len(rows) == len(lines) and {row["run"] for row in rows} == {str(run.path)}
    for row, line in zip(rows, lines):
        assert float(row["frames"]) == line["frames"]
        for name in ("fitness_mean", "loss", "return_last100", "seconds"):
            if line.get(name) is not None:
                assert float(row[name]) == line[name]
    assert ("drops.lost_episodes" in rows[0]) == ("drops" in lines[0])
    assert samara("report", run.path, "--out", tmp_path / "x.html", "--csv", "/nonexistent/x.csv").code != 0
