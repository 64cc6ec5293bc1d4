"""A run that begins from a policy: of a file, of a run, of a smaller network; the file is needed once."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from samara_cli import CARTPOLE, Running, ok, resume, samara, train

ES = ["classic/cartpole-es", "run.seed=3", "es.generations=3", "es.validation_episodes=4", "es.test_episodes=2",
      "run.final_test_episodes=4", "run.random_episodes=4"]  # fmt: skip


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A trained run and its elite as a file."""
    folder = tmp_path_factory.mktemp("policy")
    train(folder / "run", *CARTPOLE)
    ok("export", folder / "run", folder / "elite.safetensors")
    return folder


def identity(run):
    return json.loads((run / "run.json").read_text())["initial_policy"]


def ancestors(run):
    return ok("inspect", run, "--lineage", "--json").json["ancestors"]


def test_a_population_begins_from_a_genome_as_a_seed_list(policy, tmp_path):
    file = tmp_path / "policy.safetensors"
    shutil.copy(policy / "elite.safetensors", file)
    words = [*CARTPOLE, "run.seed=8", f"run.init_from={file}"]
    result = train(tmp_path / "a", *words)
    file.unlink()  # from here on the run folder is enough
    assert resume(tmp_path / "a") == result
    begun = identity(tmp_path / "a")
    assert begun["source"] == str(file) and begun["parameters_fresh"] == 0 and begun["parameters_copied"] == 386
    # the elite's seeds continue those of the policy
    before, after = ancestors(policy / "run"), ancestors(tmp_path / "a")
    assert after[0]["generation"] == 0 and after[0]["mutations"] == before[-1]["mutations"]
    assert after[0]["key"] == before[-1]["key"]
    assert "run.init_from" in samara("train", *words, "--out", tmp_path / "b", "--json").json["error"]


def test_the_file_may_go_and_a_kill_may_come(policy, tmp_path):
    """A perceptron's centre in a larger one, killed, resumed without the file: as if undisturbed."""
    file = tmp_path / "policy.safetensors"
    shutil.copy(policy / "elite.safetensors", file)
    words = [*ES, f"run.init_from={file}", "network.name=mlp-20-16-relu", "es.generations=20"]
    whole = train(tmp_path / "whole", *words)
    running = Running(tmp_path / "log", "train", *words, "--out", tmp_path / "killed", "--quiet")
    running.wait_for("generation 1: ")
    running.kill()
    file.unlink()
    assert resume(tmp_path / "killed")["population_hash"] == whole["population_hash"]
    for run in "whole", "killed":
        ok("fsck", tmp_path / run)
        shutil.move(tmp_path / run, tmp_path / f"{run}-moved")
        assert ok("hash", tmp_path / f"{run}-moved", "--json").json["population_hash"] == whole["population_hash"]


@pytest.mark.parametrize("words", [CARTPOLE, ES], ids=["ga", "es"])
def test_a_larger_network_takes_what_fits(policy, tmp_path, words):
    elite = load_file(policy / "elite.safetensors")
    run = tmp_path / "run"
    words = [*words, f"run.init_from={policy / 'elite.safetensors'}", "network.name=mlp-20-16-relu"]
    log = ok("train", *words, "--out", run, "--quiet").err
    lines = [line for line in log.splitlines() if "begins from" in line]
    assert len(lines) == 1 and "386 of 470 parameters copied, 84 fresh" in lines[0], log
    ok("export", run / "initial.safetensors", tmp_path / "first.safetensors")
    first = load_file(tmp_path / "first.safetensors")
    for name, values in elite.items():
        part = first[name][tuple(slice(0, n) for n in values.shape)]
        assert np.array_equal(part, values), name
    assert np.any(first["fc1.weight"][16:] != 0) and np.any(first["fc2.weight"][:, 16:] != 0)
    # another seed draws the rest anew and copies the same
    other = ["--out", tmp_path / "other", "--quiet"]
    ok("train", *[w for w in words if not w.startswith("run.seed")], "run.seed=4", *other)
    again = load_file(tmp_path / "other" / "initial.safetensors")
    assert np.array_equal(again["out.weight"], first["out.weight"])
    assert np.any(again["fc1.weight"][16:] != first["fc1.weight"][16:])


def test_parameters_without_a_genome_are_kept_once(policy, tmp_path):
    """A file that anything may have made: its tensors are what counts, not the genome it names."""
    tensors = load_file(policy / "elite.safetensors")
    tensors["fc1.bias"] += np.float32(0.5)
    from safetensors import safe_open

    with safe_open(policy / "elite.safetensors", "numpy") as opened:
        metadata = opened.metadata()
    save_file(tensors, tmp_path / "edited.safetensors", metadata)
    run = tmp_path / "run"
    # nothing but the policy plays well: mutations of 9 spoil it, and it stays the elite
    train(run, *CARTPOLE, f"run.init_from={tmp_path / 'edited.safetensors'}", "ga.mutation_power=9",
          "ga.validation_candidates=12", "ga.validation_episodes=30")  # fmt: skip
    ok("export", run, tmp_path / "elite.safetensors")
    ok("export", run, tmp_path / "member.safetensors", "--individual", "7")
    assert np.any(load_file(tmp_path / "member.safetensors")["fc1.bias"] != tensors["fc1.bias"])
    found = ok("inspect", run, "--json").json
    if found["candidates"][0]["mutations"] == 0:
        for name, values in load_file(tmp_path / "elite.safetensors").items():
            assert np.array_equal(values, tensors[name])
    assert ok("eval", run, "--episodes", "3", "--json").json["episodes"] == 3
    # a run that itself began from a policy is one to begin from
    train(tmp_path / "next", *CARTPOLE, f"run.init_from={run}")
    assert "elite of generation 4" in identity(tmp_path / "next")["source"]
    # without what it began from the run is damaged, and says so
    for spoil in (lambda f: f.unlink(), lambda f: f.write_bytes(b"x" * 100)):
        spoil(run / "initial.safetensors")
        for command in ["eval", "--episodes", "1"], ["export"], ["fsck"]:
            more = [tmp_path / "out.safetensors"] if command[0] == "export" else command[1:]
            outcome = samara(command[0], run, *more, "--json")
            assert outcome.code == 65 and "initial.safetensors" in outcome.json["error"], outcome
        assert samara("train", "--resume", run, "ga.generations=9", "--json").code == 65
        (run / "initial.safetensors").write_bytes(b"")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*CARTPOLE, "network.name=mlp-8-16-relu"], ["fc1.weight is 4 x 16", "4 x 8", "smaller one"]),
        ([*CARTPOLE, "network.name=linear"], ["fc1.weight (4 x 16) has no place in linear"]),
        ([*CARTPOLE, "env.id=Pendulum-v1"], ["has", "smaller one"]),
        ([*CARTPOLE, "run.algorithm=random-search"], ["random-search", "begins from no policy"]),
        ([*CARTPOLE, "ga.parents=0"], ["begins from no policy"]),
    ],
)
@pytest.mark.parametrize("dry", [False, True])
def test_what_cannot_fit_is_one_line(policy, tmp_path, words, said, dry):
    more = ["--dry-run"] if dry else []
    outcome = samara("train", *words, f"run.init_from={policy / 'elite.safetensors'}", "--out", tmp_path / "run",
                     "--quiet", "--json", *more)  # fmt: skip
    assert outcome.code == 78 and not (tmp_path / "run").exists(), outcome
    for word in ["run.init_from=", *said]:
        assert word in outcome.json["error"], outcome
    assert len(outcome.err.splitlines()) == 1, outcome


@pytest.mark.parametrize(("given", "code"), [("nowhere.safetensors", 66), ("tests/samara_cli.py", 65)])
def test_a_policy_that_is_none_is_refused(given, code, tmp_path):
    outcome = samara("train", *CARTPOLE, f"run.init_from={given}", "--out", tmp_path / "run", "--json")
    assert outcome.code == code and given in outcome.json["error"], outcome


def test_a_resumed_run_cannot_change_where_it_began(policy, tmp_path):
    run, file = tmp_path / "run", policy / "elite.safetensors"
    train(run, *CARTPOLE, f"run.init_from={file}")
    outcome = samara("train", "--resume", run, f"run.init_from={policy / 'run'}", "--json")
    assert outcome.code == 78 and "cannot change" in outcome.json["error"], outcome
    # a requeued command finds its run, whatever became of the file
    words = [*CARTPOLE, f"run.init_from={file}", "--out", run, "--resume", "auto", "--quiet", "--json"]
    assert ok("train", *words).json["generation"] == 4


@pytest.mark.parametrize("words", [CARTPOLE, ES], ids=["ga", "es"])
def test_the_same_bits_for_any_threads(policy, tmp_path, words):
    words = [*words, f"run.init_from={policy / 'elite.safetensors'}", "network.name=mlp-20-16-relu"]
    hashes = {train(tmp_path / str(n), *words, f"fleet.threads={n}")["population_hash"] for n in (1, 3)}
    hashes.add(train(tmp_path / "slots", *words, "fleet.native=slots", "fleet.threads=2")["population_hash"])
    assert len(hashes) == 1
