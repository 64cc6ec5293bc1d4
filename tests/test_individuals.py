"""Any policy of an evolution by name, and where the best one comes from."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file
from samara_cli import CARTPOLE, ok, samara, train

GA = [*CARTPOLE, "ga.generations=6"]
ES = ["classic/cartpole-es", "run.seed=3", "es.generations=4", "es.validation_episodes=4", "es.test_episodes=2",
      "run.final_test_episodes=4", "run.random_episodes=4"]  # fmt: skip


@pytest.fixture(scope="module")
def ga(tmp_path_factory):
    run = tmp_path_factory.mktemp("ga") / "run"
    train(run, *GA)
    return run


@pytest.fixture(scope="module")
def es(tmp_path_factory):
    run = tmp_path_factory.mktemp("es") / "run"
    train(run, *ES)
    return run


def exported(run, folder, name, *more):
    file = folder / f"{name.replace(':', '-')}.safetensors"
    ok("export", run, file, "--individual", name, *more)
    with safe_open(file, "numpy") as opened:
        metadata = opened.metadata()
    return load_file(file), metadata


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def lines(run):
    """metrics.jsonl without events."""
    every = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in every if "event" not in line]


def test_every_policy_of_a_population_can_be_exported(ga, tmp_path):
    found = ok("inspect", ga, "--json").json
    assert (found["algorithm"], found["generation"], found["individuals"]) == ("deep-ga", 6, 12)
    assert [row["name"] for row in found["candidates"]] == ["elite", *(f"parent:{k}" for k in range(8))]
    # parents are members of the last generation, or the elite: by their seeds
    members = [exported(ga, tmp_path, str(i))[1]["genome"] for i in range(12)]
    assert len(set(members)) == 12
    elite, about = exported(ga, tmp_path, "elite")
    assert about["source"] == f"{ga}, elite of generation 6"
    for row in found["candidates"][1:4]:
        tensors, metadata = exported(ga, tmp_path, row["name"])
        assert metadata["genome"] in [*members, about["genome"]]
        if metadata["genome"] in members:
            assert found["fitness"][members.index(metadata["genome"])] == row["fitness"]
    # an individual plays by its number too
    result = ok("eval", ga, "--individual", 3, "--episodes", 5, "--json").json
    file = tmp_path / "3.safetensors"
    assert result["policy"] == "3" and "individual 3 of generation 6" in result["source"]
    assert result["returns"] == ok("eval", file, "--episodes", 5, "--json").json["returns"]


def test_an_earlier_generation_is_rebuilt_from_the_journal(ga, tmp_path):
    elite, about = exported(ga, tmp_path, "elite", "--generation", "2")
    assert "elite of generation 2" in about["source"]
    first = exported(ga, tmp_path, "5", "--generation", "1")[1]["genome"]
    assert len(first) == 2 * 16  # no mutation yet
    child = exported(ga, tmp_path, "5", "--generation", "3")[1]["genome"]
    assert len(child) >= 2 * (16 + 12)
    outcome = samara("export", ga, tmp_path / "x.safetensors", "--generation", "9", "--json")
    assert outcome.code == 66 and "no generation 9" in outcome.json["error"]


def test_members_of_a_generation_whose_predecessor_was_lost_are_refused(ga, tmp_path):
    run = Path(shutil.copytree(ga, tmp_path / "run"))
    (run / "checkpoints" / "journal.bin").unlink()
    ok("train", "--resume", run, "--quiet")
    refused = samara("export", run, tmp_path / "x.safetensors", "--individual", "5", "--json")
    assert refused.code == 65 and "generation 5" in refused.err and "cannot be rebuilt" in refused.err, refused
    assert ok("inspect", run, "--json").json["individuals"] == 0
    lost = samara("inspect", run, "--lineage")
    assert lost.code == 65 and "generations 1 to 5 were lost" in lost.err, lost
    assert exported(run, tmp_path, "elite")[1]["genome"] == exported(ga, tmp_path, "elite")[1]["genome"]
    gone = samara("eval", run, "--generation", 3)
    assert gone.code == 66 and "no generation 3: it was lost" in gone.err, gone
    ok("train", "--resume", run, "ga.generations=7", "--quiet")
    exported(run, tmp_path, "5")  # the one after it is known again


@pytest.mark.parametrize("name", ["12", "parent:8", "centre", "elites", "-1", "1e3"])
def test_a_name_that_is_none_lists_those_there_are(ga, tmp_path, name):
    outcome = samara("export", ga, tmp_path / "x.safetensors", f"--individual={name}", "--json")
    assert outcome.code == 64 and f"--individual {name}" in outcome.json["error"], outcome
    assert "expected" in outcome.json["error"] and len(outcome.err.splitlines()) == 1


def test_only_individuals_that_can_be_named_are_listed(tmp_path):
    """The first generation of a novelty search by ES begins with an empty archive: it is not rebuilt."""
    run = tmp_path / "run"
    train(run, "classic/cartpole-es", "run.algorithm=ns-es", "env.id=HardMaze", "network.name=mlp-8-relu",
          "run.seed=3", "es.generations=2", "es.population=4", "es.validation_episodes=1", "es.test_episodes=1",
          "env.frames_max=20", "novelty.centres=2", "run.final_test_episodes=1", "run.random_episodes=1",
          "run.video=false")  # fmt: skip
    for generation, individuals in ((1, 0), (2, 4)):
        words = ["--generation", generation]
        assert ok("inspect", run, *words, "--json").json["individuals"] == individuals
        assert ("the individuals that played" in ok("inspect", run, *words).out) == (individuals > 0)
        named = samara("export", run, tmp_path / "x.safetensors", "--individual", "3", *words, "--json")
        assert named.code == (0 if individuals else 64), named
        wrong = samara("export", run, tmp_path / "x.safetensors", "--individual", "none", *words, "--json")
        assert ("0 to 3" in wrong.json["error"]) == (individuals > 0), wrong


def test_a_file_has_one_policy(ga, tmp_path):
    exported(ga, tmp_path, "elite")
    outcome = samara("eval", tmp_path / "elite.safetensors", "--individual", "3", "--json")
    assert outcome.code == 64 and "holds one policy" in outcome.json["error"]


def test_the_centre_of_an_evolution_strategy(es, tmp_path):
    centre, about = exported(es, tmp_path, "centre")
    assert same(centre, exported(es, tmp_path, "elite")[0]) and "genome" not in about
    before = exported(es, tmp_path, "centre", "--generation", "3")[0]
    assert not same(centre, before)
    # members of generation 4 lie on both sides of the centre before it
    plus, minus = (exported(es, tmp_path, str(i))[0] for i in (6, 7))
    for name, values in before.items():
        assert np.allclose(plus[name] + minus[name], 2 * values, atol=1e-5)
        assert np.any(plus[name] != minus[name])


def test_the_lineage_of_an_elite(ga, tmp_path):
    lineage = ok("inspect", ga, "--lineage", "--json").json
    ancestors = lineage["ancestors"]
    elite = exported(ga, tmp_path, "elite")[1]["genome"]
    assert (len(elite) - 32) // 24 == ancestors[-1]["mutations"]
    assert [a["mutations"] for a in ancestors] == list(range(len(ancestors)))
    metrics = {line["generation"]: line for line in lines(ga)}
    for a in ancestors:
        genome = exported(ga, tmp_path, str(a["individual"]), "--generation", str(a["generation"]))[1]["genome"]
        # the header counts the mutations: the seeds are what must be a prefix
        assert elite[:8] == genome[:8] and elite[16:].startswith(genome[16:])
        key = genome[-24:-8] if a["mutations"] else genome[16:32]
        assert bytes.fromhex(key)[::-1].hex() == a["key"]
        assert a["frames"] == metrics[a["generation"]]["frames"]
        assert a["fitness"] <= metrics[a["generation"]]["fitness_max"]
    generations = [a["generation"] for a in ancestors]
    assert generations == sorted(set(generations)) and generations[0] == 1
    table = ok("inspect", ga, "--lineage").out.splitlines()
    assert len(table) == 1 + len(ancestors) and table[-1].split()[0] == str(generations[-1])
    early = ok("inspect", ga, "--lineage", "--generation", "1", "--json").json
    assert len(early["ancestors"]) == 1 and early["generation"] == 1


SSGA = ('[run]\nalgorithm = "ssga"\nseed = 3\nvideo = false\nrandom_episodes = 1\nfinal_test_episodes = 2\n'
        '[env]\nid = "CartPole-v1"\n[network]\nname = "mlp-16-16-relu"\n'
        "[ga]\npopulation = 12\nbirths = 12\nevaluations = 200\n")  # fmt: skip


def test_the_lineage_of_a_steady_state_ga(tmp_path):
    """Every ancestor, with the first generation whose end it lived to see, if any."""
    (tmp_path / "ssga.toml").write_text(SSGA)
    run = tmp_path / "run"
    last = train(run, tmp_path / "ssga.toml")["generation"]
    ancestors = ok("inspect", run, "--lineage", "--json").json["ancestors"]
    elites = {g: exported(run, tmp_path, "elite", "--generation", g)[1]["genome"] for g in range(1, last + 1)}
    assert ancestors[-1]["mutations"] == (len(elites[last]) - 32) // 24 > 0
    assert [a["mutations"] for a in ancestors] == list(range(len(ancestors)))
    keys = [elites[last][16:32], *(elites[last][at : at + 16] for at in range(32, len(elites[last]), 24))]
    assert [bytes.fromhex(key)[::-1].hex() for key in keys] == [a["key"] for a in ancestors]
    generations = [a["generation"] for a in ancestors if a["generation"] is not None]
    assert generations == sorted(generations) and ancestors[-1]["generation"] is not None
    for a in ancestors:
        assert a["individual"] is None and (a["frames"] is None) == (a["generation"] is None) == (a["fitness"] is None)
        elite = [g for g, genome in elites.items() if (len(genome) - 32) // 24 == a["mutations"]
                 and elites[last][16:].startswith(genome[16:])]  # fmt: skip
        assert not elite or a["generation"] <= elite[0], "an elite lives at the end of its generation"
    table = ok("inspect", run, "--lineage").out.splitlines()
    assert table[0].split() == ["generation", "frames", "fitness", "mutations", "key", "power"]
    assert len(table) == 1 + len(ancestors)


def test_the_lineage_of_safe_mutations(tmp_path):
    """Their seeds alone do not rebuild an individual, but say which one it descends from."""
    (tmp_path / "ssga.toml").write_text(SSGA)
    for name, words in (("ssga", [tmp_path / "ssga.toml"]), ("deep-ga", GA)):
        train(tmp_path / name, *words, "ga.mutation=sm_r", "ga.mutation_power=1", "run.seed=4")
        lineage = ok("inspect", tmp_path / name, "--lineage", "--json").json
        ancestors = lineage["ancestors"]
        assert lineage["centres"] == [] and [a["mutations"] for a in ancestors] == list(range(len(ancestors)))
        assert len(ancestors) > 1 and {a["individual"] for a in ancestors} == {None}
        # every parent of a Deep GA is in the state of its generation
        assert name == "ssga" or None not in {a["generation"] for a in ancestors}


def test_the_history_of_a_centre(es, tmp_path):
    centres = ok("inspect", es, "--lineage", "--json").json["centres"]
    assert [c["generation"] for c in centres] == [0, 1, 2, 3, 4]
    files = {g: exported(es, tmp_path, "centre", "--generation", str(g))[0] for g in range(1, 5)}
    flat = {g: np.concatenate([v.ravel() for v in t.values()]).astype(float) for g, t in files.items()}
    for c in centres[2:]:
        assert np.isclose(c["step"], np.linalg.norm(flat[c["generation"]] - flat[c["generation"] - 1]))
        assert np.isclose(c["length"], np.linalg.norm(flat[c["generation"]]))
    assert centres[0]["mean"] is None and centres[0]["step"] == 0
    assert [c["mean"] for c in centres[1:]] == [line["elite_validation_mean"] for line in lines(es)]


def test_a_learning_run_has_no_lineage(tmp_path):
    outcome = samara("inspect", tmp_path, "--lineage", "--json")
    assert outcome.code == 66
