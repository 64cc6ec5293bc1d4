"""A torch.nn.Module as the torso of a learner's network: trained, resumed, shared by ranks, played, exported, refused."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import samara
import torch
from safetensors.torch import load_file
from samara_cli import BINARY, ROOT, Running, environment, ok, resume, train
from test_bad_input import contents, refused
from test_launch import until
from test_train_ranks import result

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
PPO = ["classic/cartpole-ppo", "run.random_episodes=0", "run.video=false", "learn.test_episodes=4"]
SHORT = [*PPO, "learn.shards=2", "learn.updates=6"]
SAME = ("parameter_hash", "frames", "test_returns")


class Torso(torch.nn.Module):
    """Two dense layers, of which the second adds to the first."""

    def __init__(self, inputs=4, units=32):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(inputs, units), torch.nn.LayerNorm(units))
        self.outer = torch.nn.Linear(units, units)

    def forward(self, x):
        x = torch.tanh(self.inner(x))
        return x + torch.tanh(self.outer(x))


class Images(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = torch.nn.Conv2d(channels, 4, 8, 4)
        self.fc = torch.nn.Linear(4 * 20 * 20, 16)

    def forward(self, x):
        return self.fc(self.conv(x).relu().view(x.size(0), -1)).relu()


def saved(module, file):
    torch.jit.script(module).save(file)
    return file


def hash_of(outcome):
    return [outcome[key] for key in SAME]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    torch.manual_seed(1)
    return saved(Torso(), tmp_path_factory.mktemp("module") / "torso.pt")


@pytest.fixture(scope="module")
def run(tmp_path_factory, file):
    folder = tmp_path_factory.mktemp("run") / "run"
    train(folder, *SHORT, f"network.module={file}")
    return folder


def test_cartpole_is_learned_by_a_module_from_python(tmp_path):
    torch.manual_seed(2)
    module = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh())
    words = {"learn.frames": 50_000, "optimizer.schedule_frames": 50_000, "run.video": False, "run.random_episodes": 0}
    run = samara.train("classic/cartpole-ppo", words, tmp_path / "run", network=module)
    assert run.result["test_mean"] >= 450
    assert run.config["network"]["module"].startswith("sha256:")
    ok("report", run.path)
    assert f"network.module={run.path}/module.pt" in (run.path / "report.html").read_text(), "the command that repeats it"
    # the run folder is all that is needed: played again, and asked for single actions
    assert run.evaluate(episodes=10)["mean"] >= 400
    with run.policy() as policy:
        assert policy(np.zeros(4, np.float32)) in (0, 1)


def exported(run, tmp_path):
    """The trained torso as PyTorch has it, and the heads."""
    file = tmp_path / "agent.safetensors"
    ok("export", run, file)
    tensors = load_file(file)
    torso = Torso()
    torso.load_state_dict({name.removeprefix("torso."): t for name, t in tensors.items() if name.startswith("torso.")})
    return file, torso.eval(), tensors


def test_the_exported_policy_is_the_modules_in_pytorch(run, tmp_path):
    file, torso, tensors = exported(run, tmp_path)
    assert {name for name in tensors if not name.startswith(("torso.", "value_torso."))} == {
        "policy.weight", "policy.bias", "value.weight", "value.bias"}
    observations = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    with torch.no_grad():
        logits = torso(torch.from_numpy(observations)) @ tensors["policy.weight"].T + tensors["policy.bias"]
    with samara.load(run).policy() as policy:
        actions = [policy(observation) for observation in observations]
    assert actions == logits.argmax(1).tolist() and 0 < sum(actions) < 200


def test_a_policy_file_is_played_with_its_module(run, file, tmp_path):
    policy, _, _ = exported(run, tmp_path)
    played = ["--episodes", 3, "--json"]
    theirs = ok("eval", run, *played).json["returns"]
    assert ok("eval", policy, f"network.module={run}/module.pt", *played).json["returns"] == theirs
    with samara.Policy(policy, network=run / "module.pt") as played_too, samara.load(run).policy() as of_run:
        observations = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
        assert [played_too(o) for o in observations] == [of_run(o) for o in observations]
    refused(78, "eval", policy, words=["the module itself is not here", "expected network.module=FILE"])
    other = saved(Torso(), tmp_path / "other.pt")
    refused(78, "eval", policy, f"network.module={other}", words=["the policy has sha256:"])
    refused(78, "eval", run, f"network.module={other}", words=["the policy has sha256:"])


@pytest.mark.slow
def test_the_page_of_networks_runs(tmp_path):
    """Its blocks one after the other, with the command of the prose between them."""
    first, second = re.findall(r"^```python\n(.*?)^```", (ROOT / "doc/networks.md").read_text(), re.M | re.S)
    (tmp_path / "program.py").write_text(
        f"{first}\nimport subprocess\n"
        f"subprocess.run([{str(BINARY)!r}, 'export', run.path, 'agent.safetensors'], check=True)\n"
        f"{second}\nassert logits.shape == (1, 2)\n")
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True,
                          env=environment(PYTHONPATH=str(ROOT / "build/python")))
    assert done.returncode == 0, done.stderr


def test_it_begins_with_the_parameters_of_the_file(file, tmp_path):
    """Also the torso of its own that the value's head has here; another seed changes the heads alone."""
    begun = []
    for seed in (1, 2):
        train(tmp_path / str(seed), *SHORT, f"network.module={file}", "learn.updates=1", "optimizer.learning_rate=0",
              f"run.seed={seed}")
        ok("export", tmp_path / str(seed), tmp_path / f"{seed}.safetensors")
        begun.append(load_file(tmp_path / f"{seed}.safetensors"))
    for name, value in torch.jit.load(file).state_dict().items():
        for torso in ("torso.", "value_torso."):
            assert all(torch.equal(tensors[torso + name], value) for tensors in begun), name
    assert not torch.equal(begun[0]["policy.weight"], begun[1]["policy.weight"])


def test_parameters_that_need_no_gradient_stay(tmp_path):
    torch.manual_seed(1)
    module = Torso()
    module.inner.requires_grad_(False)
    begun = {name: value.clone() for name, value in module.state_dict().items()}
    run = samara.train(PPO[0], {"learn.updates": 3, "run.random_episodes": 0, "learn.test_episodes": 0, "run.video": False,
                                "network.value": "shared"}, tmp_path / "run", network=module)
    ok("export", run.path, tmp_path / "agent.safetensors")
    tensors = load_file(tmp_path / "agent.safetensors")
    same = {name for name, value in begun.items() if torch.equal(tensors["torso." + name], value)}
    assert same == {name for name in begun if name.startswith("inner.")}


def test_actors_and_ranks_leave_no_trace(run, file, tmp_path):
    words = [*SHORT, f"network.module={file}"]
    first = json.loads((run / "result.json").read_text())["result"]
    assert hash_of(train(tmp_path / "a", *words, "fleet.threads=3", "learn.threads=1")) == hash_of(first)
    assert hash_of(result("samara", 2, *words, "--out", tmp_path / "both")) == hash_of(first)
    assert (tmp_path / "both/module.pt").read_bytes() == (run / "module.pt").read_bytes() == file.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_module_may_go_and_a_kill_may_come(file, tmp_path, how):
    words = [*PPO, "learn.updates=150", "run.checkpoint_seconds=1"]
    mine = shutil.copy(file, tmp_path / "mine.pt")
    whole = train(tmp_path / "whole", *words, f"network.module={file}")
    running, folder = Running(tmp_path / "log", "train", *words, f"network.module={mine}", "--out", tmp_path / "cut"), tmp_path / "cut"
    until(lambda: list(folder.glob("checkpoints/ckpt-*/server.bin")))
    running.send(how)
    assert running.wait() in (75, -how)
    os.remove(mine)  # the run folder has it
    assert hash_of(resume(folder)) == hash_of(whole)


def test_another_module_is_another_run(run, file, tmp_path):
    other = saved(Torso(), tmp_path / "other.pt")
    refused(78, "train", "--resume", run, f"network.module={other}", words=["which a resumed run cannot change"])
    assert resume(run, f"network.module={file}")["updates"] == 6  # the same bytes
    refused(78, "train", run / "config.toml", "--out", tmp_path / "run", words=["a module that a run keeps; expected a file"])
    hashes = [ok("train", *SHORT, *words, "--dry-run", "--json").json["config_hash"]
              for words in ([], [f"network.module={file}"], [f"network.module={other}"])]
    assert len(set(hashes)) == 3
    assert hashes[1] == json.loads((run / "run.json").read_text())["config_hash"]


@pytest.mark.parametrize("damage", [lambda f: f.unlink(), lambda f: f.write_bytes(f.read_bytes()[:-1] + b"x")])
def test_a_damaged_module_is_noticed(run, damage, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    assert ok("fsck", copy).code == 0
    damage(copy / "module.pt")
    before = contents(copy)
    for words in (["fsck", copy], ["eval", copy], ["train", "--resume", copy, "learn.updates=9"]):
        refused(65, *words, words=["module.pt"], warnings=True)
    assert {name for name in before if before[name] != contents(copy)[name]} <= {
        samara_file for samara_file in before if samara_file.name in ("incarnation.json", "log.txt", "lock")}


def test_a_run_of_others_brings_no_network(run, tmp_path):
    """An environment of one's own does not replace the module."""
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    copy.chmod(0o777)
    before = contents(copy)
    for command in (["eval", copy], ["train", "--resume", copy, "learn.updates=9"]):
        for words in ([], ["env.id=CartPole-v1"]):
            refused(77, *command, *words, words=["--trust"])
    assert contents(copy) == before
    assert ok("eval", copy, "--trust", "--episodes", 1).code == 0


def test_a_file_of_others_brings_no_network(file, tmp_path):
    preset = tmp_path / "theirs.toml"
    preset.write_text(ok("train", *SHORT, "--dry-run").out.replace('module = ""', f'module = "{file}"'))
    assert ok("train", preset, "--dry-run").code == 0
    preset.chmod(0o666)
    refused(77, "train", preset, "env.id=CartPole-v1", "--out", tmp_path / "run", words=["--trust"])


@pytest.mark.parametrize("algorithm", ["classic/cartpole-vtrace", "classic/cartpole-a2c", "memory/recall-r2d2"])
def test_other_algorithms_take_it(algorithm, tmp_path):
    inputs = ok("train", algorithm, "--dry-run", "--json").json["module_input"]
    file = saved(Torso(*inputs), tmp_path / "torso.pt")
    outcome = train(tmp_path / "run", algorithm, f"network.module={file}", "learn.updates=3", "run.random_episodes=0",
                    "learn.test_episodes=2", "run.video=false")
    assert outcome["updates"] == 3
    assert ok("eval", tmp_path / "run", "--episodes", 1).code == 0


MAZE = ["classic/cartpole-ppo", "env.id=ImageMazeDiscrete", "env.frames_max=100", "network.value=shared"]
PONG = ["atari/ppo-desktop", "env.game=pong", "fleet.actors=1"]


@pytest.mark.parametrize("task", [pytest.param(MAZE, id="maze"), pytest.param(PONG, id="pong", marks=pytest.mark.slow)])
def test_images_come_as_pytorch_has_them(task, tmp_path):
    """As [N, channels, rows, columns], a tensor that may be viewed as rows; bytes divided by 255."""
    words = [*task, "learn.updates=2", "learn.environments=4", "learn.batch=4", "learn.unroll=16", "learn.epochs=2",
             "run.random_episodes=0", "learn.test_episodes=0", "run.video=false"]
    assert ok("train", *words, "--dry-run", "--json").json["module_input"] == [4, 84, 84]
    outcome = train(tmp_path / "run", *words, f"network.module={saved(Images(4), tmp_path / 'images.pt')}")
    assert outcome["updates"] == 2


class Unscriptable(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.torso = Torso()

    def forward(self, x, **unknown):
        return self.torso(x)


class OneBatch(Unscriptable):
    def forward(self, x, **unknown):
        return self.torso(x).reshape(*map(int, x.shape[:1]), 32)


class Detached(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 8)

    def forward(self, x):
        return self.layer(x).detach()


class Raises(Detached):
    def forward(self, x):
        if x.size(0) > 0:
            raise ValueError("my reason")
        return self.layer(x)


class Noise(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.torso = Torso()

    def forward(self, x):
        return torch.nn.functional.dropout(self.torso(x), 0.5)


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(4, 8)

    def forward(self, x):
        return self.lstm(x)


def test_a_module_that_cannot_be_scripted_is_traced(tmp_path):
    words = {word.split("=")[0]: word.split("=")[1] for word in SHORT[1:]}
    torch.manual_seed(1)
    module = Unscriptable()
    with pytest.raises(Exception):
        torch.jit.script(module)
    run = samara.train(SHORT[0], words, tmp_path / "run", network=module)
    assert run.result["updates"] == 6
    with pytest.raises(samara.Error, match="traced for a batch of two") as caught:
        samara.train(SHORT[0], words, tmp_path / "no", network=OneBatch())
    assert caught.value.exit_code == 78 and not (tmp_path / "no").exists()


def test_python_says_what_is_wrong(file, tmp_path):
    for preset in ("classic/cartpole-dqn", "classic/cartpole-ga"):
        with pytest.raises(samara.Error, match="the algorithm takes no module of yours"):
            samara.train(preset, {}, tmp_path / "run", network=Unscriptable())
    for network, words, says in [
        (3, {}, "a int, expected a torch.nn.Module"),
        (Torso(), {"network.module": file}, "expected it left out where network= is given"),
        (Torso(7), {}, "fails for observations \\[3, 4\\]"),
    ]:
        with pytest.raises(samara.Error, match=says) as caught:
            samara.train(PPO[0], words, tmp_path / "run", network=network)
        assert caught.value.exit_code == 78 and "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("preset, module, code, says", [
    ("classic/cartpole-ppo", None, 66, "no such file"),
    ("classic/cartpole-ppo", b"text", 65, "no TorchScript"),
    ("classic/cartpole-ppo", Torso(5), 78, "fails for observations [3, 4]: "),
    ("classic/cartpole-ppo", torch.nn.Flatten(), 78, "no parameters that require a gradient"),
    ("classic/cartpole-ppo", torch.nn.LSTM(4, 8), 78, "no method forward(x)"),
    ("classic/cartpole-ppo", Recurrent(), 78, "gives Tuple; expected one tensor"),
    ("classic/cartpole-ppo", torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8)), 78,
     "running statistics are not learned here"),
    ("classic/cartpole-ppo", Noise(), 78, "without state and random draws"),
    ("classic/cartpole-ppo", Detached(), 78, "gives features that no parameter has a gradient of"),
    ("classic/cartpole-ppo", Raises(), 78, "fails for observations [3, 4]: ValueError: my reason"),
    ("classic/cartpole-ppo network.precision=bfloat16", Torso(), 78, "expected float32 with network.module"),
    ("classic/cartpole-dqn", Torso(), 78, "network.module: dqn learns with perceptrons"),
    ("classic/pendulum-sac", Torso(3), 78, "network.module: sac learns with perceptrons"),
    ("classic/cartpole-ga", Torso(), 78, "network.module belongs to run.algorithm="),
])
def test_what_cannot_work_is_refused(tmp_path, preset, module, code, says):
    file = tmp_path / "module.pt"
    if isinstance(module, bytes):
        file.write_bytes(module)
    elif module is not None:
        saved(module, file)
    refused(code, "train", *preset.split(), f"network.module={file}", "--out", tmp_path / "run", words=[says])
    assert not (tmp_path / "run").exists()
