"""Memory that changes one bit of what one rank holds: the ranks differ before the next checkpoint is written, the minority is
named, and a run that is started again ends where the undisturbed one does."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys

import pytest
from samara_cli import BINARY, ROOT, environment

torch = pytest.importorskip("torch")
replica = pytest.importorskip("samara.replica", reason="built without torch")
STEPS, EVERY, WHEN = 8, 2, 5
TIE = "rank 0 | rank 1 differ, and without a majority it is not known which is wrong"


def flip(tensor):
    """The lowest bit of its first number."""
    with torch.no_grad():
        tensor.view(-1)[:1].view(torch.int32).bitwise_xor_(1)


def train(ranks, file, what="nothing", culprit=0, shard_state=False):
    """The exit code and the parameters' hash."""
    hashes = []

    def program(replicator):
        torch.manual_seed(1)
        # of plain batch norm every replica has statistics of its own
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), replica.CrossReplicaBatchNorm(8), torch.nn.BatchNorm1d(8),
                                    torch.nn.Linear(8, 1))
        optimizer = replicator.wrap(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), model,
                                    shard_state=shard_state)
        state = {"modules": {"net": model}, "optimizers": {"sgd": optimizer}}
        replica.load(replicator, file, **state)
        generator = torch.Generator().manual_seed(1)
        x, y = torch.randn(32, 4, generator=generator), torch.randn(32, 1, generator=generator)

        def step(x, y):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        while replicator.step < STEPS:
            replicator.run(step, x, y)
            mine = replicator.rank == culprit
            if mine and replicator.step == WHEN:
                if what == "parameter":
                    flip(model[0].weight)
                elif what == "momentum":
                    flip(optimizer.state[model[3].weight]["momentum_buffer"])
                elif what == "rate":
                    optimizer.param_groups[0]["lr"] *= 1 + 1e-12
                elif what == "statistics":
                    flip(model[1].running_var)
            if replicator.step % EVERY == 0:
                if mine and what == "step" and replicator.step > WHEN:
                    replicator.step += 1
                replica.save(replicator, file, **state, notes={"rank": replicator.rank})
        hashes.append(optimizer.parameter_hash)
    code = replica.replicate_threads(ranks, program, replicas=4)
    return code, hashes[0] if hashes else None


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    file = tmp_path_factory.mktemp("undisturbed") / "checkpoint.safetensors"
    code, parameters = train(1, file)
    assert code == 0
    return parameters, file.read_bytes()


def step_of(file):
    with file.open("rb") as checkpoint:
        header = json.loads(checkpoint.read(int.from_bytes(checkpoint.read(8), "little")))
    return int(header["__metadata__"]["step"])


@pytest.mark.parametrize("what, where", [
    ("parameter", "module.net.0.weight"), ("momentum", "optimizer.sgd.6.momentum_buffer"), ("rate", "optimizer.sgd.groups"),
    ("statistics", "module.net.1.running_var"), ("step", "step")])
@pytest.mark.parametrize("ranks, culprit, named", [(2, 0, TIE), (4, 0, "rank 0 differs from the other 3"),
                                                   (4, 2, "rank 2 differs from the other 3")])
def test_no_checkpoint_holds_what_the_ranks_do_not_agree_on(what, where, ranks, culprit, named, undisturbed, tmp_path, capfd):
    file = tmp_path / "checkpoint.safetensors"
    code, _ = train(ranks, file, what, culprit)
    said = capfd.readouterr().err
    assert code == 70 and f"{where} is not the same on all ranks: {named}" in said, said
    assert step_of(file) == WHEN - 1  # the last that all agreed on
    assert train(ranks, file) == (0, undisturbed[0])


def test_a_bit_that_changes_after_the_last_step_is_found(tmp_path, capfd):
    def program(replicator):
        model = torch.nn.Linear(2, 1)
        optimizer = replicator.wrap(torch.optim.SGD(model.parameters(), lr=0.1))
        if replicator.rank == 1:
            flip(model.weight)
        replica.save(replicator, tmp_path / "file", modules={"net": model}, optimizers={"sgd": optimizer})
    assert replica.replicate_threads(3, program, mode="fast", replicas=None) == 70
    assert "net.weight is not the same on all ranks: rank 1 differs from the other 2" in capfd.readouterr().err
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("ranks, options", [(4, {}), (2, {"shard_state": True}), (4, {"shard_state": True})])
def test_what_is_spread_over_the_ranks_comes_together(ranks, options, undisturbed, tmp_path):
    file = tmp_path / "checkpoint.safetensors"
    assert train(ranks, file, **options) == (0, undisturbed[0])
    assert file.read_bytes() == undisturbed[1]


@pytest.mark.slow
def test_the_relaunch_ends_where_the_undisturbed_run_does(tmp_path, monkeypatch, capsys):
    program = str(ROOT / "tests/replica/divergence.py")
    monkeypatch.setattr(sys, "argv", [program, str(tmp_path / "alone"), "nothing"])
    runpy.run_path(program)
    undisturbed = json.loads(capsys.readouterr().out)
    done = subprocess.run([str(BINARY), "launch", "-n", "2", "--restarts", "1", "--json", sys.executable, program,
                           str(tmp_path / "ranks"), "parameter"], capture_output=True, text=True, timeout=120,
                          env=environment(PYTHONPATH=str(ROOT / "build/python")))
    assert done.returncode == 0, done.stderr
    result, launch = (json.loads(line) for line in done.stdout.splitlines())
    assert launch["restarts"] == 1 and f"[rank 1] starts at step {WHEN - 1}" in done.stderr, done.stderr
    assert f"net.0.weight is not the same on all ranks: {TIE}" in done.stderr, done.stderr
    assert result == undisturbed
