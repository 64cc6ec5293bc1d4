"""An exported policy plays the same game in a few lines of PyTorch, episode by episode."""

import re
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import torch
from published_replay import Network, play
from samara_cli import ATARI, CARTPOLE, ROOT, ok, train
from safetensors import safe_open
from safetensors.torch import load_file, save_file


@pytest.mark.parametrize(("network", "storage"), [
    pytest.param("Model", "float32", marks=pytest.mark.slow), pytest.param("Model", "bf16", marks=pytest.mark.slow), ("LargeModel", "int8")])
def test_an_atari_elite_plays_the_same_with_ale_py_alone(network, storage, tmp_path):
    torch.set_num_threads(1)
    run, file = tmp_path / "run", tmp_path / "elite.safetensors"
    options = [f"network.name={network}", f"network.storage={storage}", "ga.generations=1", "env.test_frames_max=0"]
    train(run, *ATARI, *options)
    ok("export", run, "--individual", "elite", file)
    counts = [4, 17] if network == "Model" else [9]
    net = Network(network, load_file(file))
    for noops, (total, frames, lead) in zip(counts, play("frostbite", net, counts)):
        result = ok("eval", file, "--noops", noops, "--json").json
        assert (result["returns"], result["frames"]) == ([total], [frames]), f"smallest lead {lead}"
        again = ok("eval", run, "--noops", noops, "--json").json
        assert again | {"source": result["source"]} == result


def test_a_cartpole_policy_plays_the_same_in_gymnasium(tmp_path):
    """Gymnasium's own CartPole, started where samara's actors start theirs: reset(seed=key mod 2^31) is not
    visible from outside, so the comparison runs over the distribution of returns of many episodes."""
    run, file = tmp_path / "run", tmp_path / "elite.safetensors"
    train(run, *CARTPOLE)
    ok("export", run, file)
    result = ok("eval", file, "--episodes", 400, "--json").json
    weights, env, returns = load_file(file), gymnasium.make("CartPole-v1"), []
    for seed in range(400):
        observation, _ = env.reset(seed=seed)
        total, over = 0, False
        while not over:
            x = torch.from_numpy(observation)
            for name in ("fc1", "fc2"):
                x = torch.relu(weights[f"{name}.weight"] @ x + weights[f"{name}.bias"])
            x = weights["out.weight"] @ x + weights["out.bias"]
            observation, reward, terminated, truncated, _ = env.step(int(x.argmax()))
            total, over = total + reward, terminated or truncated
        returns.append(total)
    # two samples of 400 from one distribution: means within five standard errors
    error = np.hypot(np.std(returns), result["std"]) / 20
    assert abs(np.mean(returns) - result["mean"]) < 5 * error + 1e-9, (np.mean(returns), result["mean"])
    assert np.mean(returns) > 40  # random: about 22


def test_a_recurrent_policy_plays_the_same_in_gymnasium(tmp_path):
    """PyTorch's own cells, with zeros at the start of each episode."""
    run, file = tmp_path / "run", tmp_path / "elite.safetensors"
    train(run, *CARTPOLE, "network.layers=gru 12, lstm 8")
    ok("export", run, file)
    result = ok("eval", file, "--episodes", 400, "--json").json
    weights, env, returns = load_file(file), gymnasium.make("CartPole-v1"), []
    cells = torch.nn.GRUCell(4, 12), torch.nn.LSTMCell(12, 8)
    for cell, name in zip(cells, ("gru1.", "lstm1.")):
        cell.load_state_dict({k.removeprefix(name): v for k, v in weights.items() if k.startswith(name)})
    with torch.no_grad():
        for seed in range(150):
            observation, _ = env.reset(seed=seed)
            total, over, gru, lstm = 0, False, None, None
            while not over:
                gru = cells[0](torch.from_numpy(observation)[None], gru)
                lstm = cells[1](gru, lstm)
                x = lstm[0] @ weights["out.weight"].T + weights["out.bias"]
                observation, reward, terminated, truncated, _ = env.step(int(x.argmax()))
                total, over = total + reward, terminated or truncated
            returns.append(total)
    error = np.hypot(np.std(returns) / 150**0.5, result["std"] / 20)
    assert abs(np.mean(returns) - result["mean"]) < 5 * error + 1e-9, (np.mean(returns), result["mean"])


def test_the_file_says_what_it_is(tmp_path):
    run, file = tmp_path / "run", tmp_path / "elite.safetensors"
    train(run, *CARTPOLE)
    ok("export", run, file)
    with safe_open(file, "numpy") as opened:
        metadata = opened.metadata()
        shapes = {name: list(opened.get_slice(name).get_shape()) for name in opened.keys()}
    assert metadata["format"] == "samara-policy-1" and "CartPole-v1" in metadata["config"]
    assert shapes == {
        "fc1.weight": [16, 4], "fc1.bias": [16], "fc2.weight": [16, 16], "fc2.bias": [16],
        "out.weight": [2, 16], "out.bias": [2],
    }  # fmt: skip


def test_exporting_again_gives_the_same_bytes(tmp_path):
    run = tmp_path / "run"
    train(run, *CARTPOLE)
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    ok("export", run, a)
    ok("export", run, b)
    assert a.read_bytes() == b.read_bytes()


@pytest.mark.slow
def test_the_pages_examples_play_both_kinds(tmp_path):
    """doc/policy_file_format.md, as somebody pastes it: modules load the tensors strictly, and play what samara plays."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "doc/policy_file_format.md").read_text(), re.M | re.S)
    learning = ["classic/cartpole-vtrace", "learn.frames=100000", "learn.test_episodes=1", "run.random_episodes=0"]
    evolving = ["classic/cartpole-ga", "ga.generations=6"]
    for words, name in ((evolving, "elite"), (learning, "agent")):
        train(tmp_path / name, *words)
        ok("export", tmp_path / name, tmp_path / f"{name}.safetensors")
        [block] = [block for block in blocks if f"{name}.safetensors" in block]
        done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        played = ok("eval", tmp_path / f"{name}.safetensors", "--episodes", 100, "--json").json
        # means of 10 and 100 episodes of one distribution
        assert abs(float(done.stdout) - played["mean"]) < 5 * played["std"] / 10**0.5 + 1e-9, (done.stdout, played)
        assert played["mean"] > 60  # random: about 22


def test_the_pages_onnx_file_computes_what_the_network_does(tmp_path):
    pytest.importorskip("onnxscript", reason="no onnxscript")
    runtime = pytest.importorskip("onnxruntime", reason="no onnxruntime")
    page = (ROOT / "doc/policy_file_format.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    [define] = [block[: block.index("\nenv, ")] for block in blocks if "elite.safetensors" in block]
    [export] = [block for block in blocks if "torch.onnx.export" in block]
    train(tmp_path / "run", *CARTPOLE)
    ok("export", tmp_path / "run", tmp_path / "elite.safetensors")
    done = subprocess.run([sys.executable, "-c", define + export], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    tensors = load_file(tmp_path / "elite.safetensors")
    session = runtime.InferenceSession(tmp_path / "elite.onnx")
    for rows in (1, 5):
        x = np.random.default_rng(rows).normal(size=(rows, 4)).astype(np.float32)
        expected = torch.from_numpy(x)
        for name in ("fc1", "fc2", "out"):
            expected = expected @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]
            expected = expected.relu() if name != "out" else expected
        [outputs] = session.run(None, {"observation": x})
        np.testing.assert_allclose(outputs, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_agents_of_the_first_format_are_still_read(tmp_path):
    """What samara exported before: the learner's own names, and an LSTM with one bias."""
    run, file, older = tmp_path / "run", tmp_path / "agent.safetensors", tmp_path / "older.safetensors"
    train(run, "classic/catch-vtrace", "learn.frames=2000", "learn.test_episodes=1", "run.random_episodes=0",
          "network.lstm=8")  # fmt: skip
    ok("export", run, file)
    with safe_open(file, "numpy") as opened:
        metadata = opened.metadata()
    tensors = load_file(file)
    assert metadata["format"] == "samara-agent-2"
    torch.nn.LSTMCell(64, 8).load_state_dict({k[5:]: v for k, v in tensors.items() if k.startswith("lstm.")})
    assert not tensors.pop("lstm.bias_hh").any()
    names = {"lstm.weight_ih": "lstm_input", "lstm.weight_hh": "lstm_recurrent", "lstm.bias_ih": "lstm_bias"}
    save_file({names.get(name, name.replace(".", "_")): tensor for name, tensor in tensors.items()}, older,
              metadata | {"format": "samara-agent-1"})  # fmt: skip
    played = [ok("eval", policy, "--episodes", 5, "--json").json["returns"] for policy in (run, file, older)]
    assert played[0] == played[1] == played[2]
