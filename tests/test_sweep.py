"""`samara train --sweep`: every combination of values, one folder, one report."""

import json
import re
from pathlib import Path

import pytest
from samara_cli import CARTPOLE, ok, samara, train

SHORT = [word for word in CARTPOLE if not word.startswith("run.seed")]
SWEEP = ["--sweep", "ga.population=8,16", "--sweep", "ga.mutation_power=0.1,0.02"]
SETTINGS = [{"ga.population": p, "ga.mutation_power": s} for p in ("8", "16") for s in ("0.1", "0.02")]


def folder(keys) -> str:
    return ",".join(f"{key}={keys[key]}" for key in ("ga.population", "ga.mutation_power"))


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    out = tmp_path_factory.mktemp("sweep") / "out"
    return out, ok("train", *SHORT, *SWEEP, "run.name=swept", "--seeds", "3,4", "--out", out, "--json")


def test_every_combination_runs_with_the_bits_of_a_run_alone(swept, tmp_path):
    out, outcome = swept
    settings = outcome.json["settings"]
    assert [setting["keys"] for setting in settings] == SETTINGS
    for setting, keys in zip(settings, SETTINGS):
        assert setting["runs"] == [str(out / folder(keys) / f"seed-{n}") for n in (3, 4)]
    results = {result["run"]: result for result in outcome.json["runs"]}
    assert list(results) == [run for setting in settings for run in setting["runs"]]
    for setting in settings:
        assert setting["scores"] == [results[run]["elite_mean"] for run in setting["runs"]]
    last = SETTINGS[-1]
    alone = train(tmp_path / "alone", *SHORT, *(f"{k}={v}" for k, v in last.items()), "run.seed=4")
    assert alone["population_hash"] == results[str(out / folder(last) / "seed-4")]["population_hash"]
    assert len({result["population_hash"] for result in results.values()}) == 8


def test_the_end_ranks_settings_and_the_same_command_goes_on(swept):
    out, outcome = swept
    words = [*SHORT, *SWEEP, "run.name=swept", "--seeds", "3,4", "--out", out]
    again = ok("train", *words)
    assert "8 of 8 runs done" in outcome.err and "finished before, nothing is left to do" in again.err
    means = {f"population={s['keys']['ga.population']} mutation_power={s['keys']['ga.mutation_power']}":
             sum(s["scores"]) / 2 for s in outcome.json["settings"]}  # fmt: skip
    ranked = [line.split(":")[0].split(maxsplit=1)[1] for line in again.err.splitlines() if ": mean " in line]
    assert sorted(ranked) == sorted(means) and [means[name] for name in ranked] == sorted(means.values(), reverse=True)
    best = max(outcome.json["runs"], key=lambda result: result["elite_mean"])["run"]
    assert f"  best run {best}\n" in again.err
    assert "--sweep ga.population=8,16 --sweep ga.mutation_power=0.1,0.02 --seeds 3,4 --out" in again.err
    assert "report over 8 runs:" in again.out


def test_one_report_is_over_all_and_can_be_made_again(swept, tmp_path):
    out, outcome = swept
    html = (out / "report.html").read_text()
    assert outcome.json["report"] == str(out / "report.html")
    for keys in SETTINGS:
        assert f"ga.mutation_power={keys['ga.mutation_power']}, ga.population={keys['ga.population']}" in html
    ok("report", out, "--out", tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text().count("ga.population=16") == html.count("ga.population=16")
    refused = samara("eval", out)
    assert refused.code == 66 and f"holds 8 runs: name one, such as {out}/ga.population=16" in refused.err


def test_values_that_are_no_file_names_have_folders_of_their_own(tmp_path):
    """Whatever the order of values: the same command with more of them goes on."""
    out = tmp_path / "out"
    one, two = "dense 8 tanh", "dense 4 tanh, dense 4 tanh"
    values = [f"{one};{two}", f"{two}; {one}", f"{two};"]
    (first, second), (third, fourth), (fifth,) = [
        ok("train", *SHORT, "run.seed=7", "--sweep", f"network.layers={text}", "--out", out, "--json").json["settings"] for text in values
    ]
    assert first == fourth and second == third == fifth and second["keys"] == {"network.layers": two}
    for setting, name, parameters in ((first, "network.layers=dense-8-tanh-", 4 * 8 + 8 + 8 * 2 + 2),
                                      (second, "network.layers=dense-4-tanh,-dense-4-tanh-", 4 * 4 + 4 + 4 * 4 + 4 + 4 * 2 + 2)):  # fmt: skip
        (run,) = setting["runs"]
        assert re.fullmatch(re.escape(f"{out}/{name}") + "[0-9a-f]{8}/seed-7", run)
        assert json.loads((Path(run) / "run.json").read_text())["network"]["parameters"] == parameters
    assert len(list(out.glob("*=*"))) == 2


def test_a_setting_that_cannot_begin_does_not_stop_the_others(tmp_path):
    out = tmp_path / "out"
    words = ["train", *SHORT, "--sweep", "env.id=nowhere:Task,CartPole-v1", "--seeds", "0,1,2", "--out", out, "--parallel", "1", "--json"]
    refused = samara(*words)
    assert refused.code == 66 and refused.json["error"].startswith("id=nowhere:Task seed 0: ")
    assert "3 of 6 runs are done" in refused.json["error"]
    assert sorted(path.parent.name for path in out.glob("env.id=CartPole-v1/*/result.json")) == ["seed-0", "seed-1", "seed-2"]


def test_a_dry_run_checks_every_setting_and_lists_the_runs(tmp_path):
    words = ["train", *SHORT, *SWEEP, "--seeds", "0,1", "--dry-run", "--json"]
    shown = ok(*words, cwd=tmp_path)
    assert [(run["keys"], run["seed"]) for run in shown.json["runs"]] == [(k, n) for k in SETTINGS for n in (0, 1)]
    first = shown.json["runs"][0]["run"]
    assert first == f"runs/cartpole-ga-01/{folder(SETTINGS[0])}/seed-0" and list(tmp_path.iterdir()) == []
    assert shown.out.startswith(f"# population=8 mutation_power=0.1 seed 0: {first}\n")
    warned = ok(*words, "ga.population=5", cwd=tmp_path)
    assert "ga.population=5 changes nothing: --sweep says which values run" in warned.err
    refused = samara("train", *SHORT, "--sweep", "network.name=mlp-8-tanh,Model", "--dry-run", cwd=tmp_path)
    assert refused.code == 78 and "--sweep network.name=Model: " in refused.err
    (tmp_path / "file").write_text("mine")
    refused = samara(*words, "--out", "file", cwd=tmp_path)
    assert refused.code == 73 and "cannot be created: Not a directory: choose another --out" in refused.err
    last = tmp_path / "out" / folder(SETTINGS[-1]) / "seed-1"
    (last / "mine").mkdir(parents=True)
    refused = samara(*words, "--out", "out", cwd=tmp_path)
    assert refused.code == 73 and f"{last.relative_to(tmp_path)}: exists; choose another --out" in refused.err


@pytest.mark.parametrize("sweep, code, says", [
    (["ga.population"], 64, "expected KEY=VALUE,VALUE, such as ga.population=50,100"),
    (["=1"], 64, "expected KEY=VALUE,VALUE"),
    (["ga.population="], 64, "a value is empty"),
    (["ga.population=8,,9"], 64, "a value is empty"),
    (["ga.population=;"], 64, "a value is empty"),
    (["ga.population=8,9,8"], 64, "8 is there twice; values that have commas end in ';'"),
    (["ga.population=8", "ga.population=9"], 64, "there are two for this key"),
    (["ga.mutation_power=0.1,1e-1"], 64, "--sweep ga.mutation_power=1e-1: the same setting as --sweep ga.mutation_power=0.1"),
    (["run.seed=1,2"], 64, "--seeds says which seeds run"),
    (["ga.sigma=0.1"], 78, "--sweep ga.sigma=0.1: ga.sigma: unknown key"),
    (["ga.population=8,x"], 78, "--sweep ga.population=x: ga.population=x: expected an integer"),
    ([f"ga.population={','.join(map(str, range(2, 1000)))}", f"ga.frames={','.join(map(str, range(1, 200)))}"], 64, "more than 1000 settings"),
])  # fmt: skip
def test_what_is_no_sweep_is_refused_before_anything_is_made(tmp_path, sweep, code, says):
    words = [word for text in sweep for word in ("--sweep", text)]
    refused = samara("train", *SHORT, *words, "--out", tmp_path / "out", "--json")
    assert refused.code == code and says in refused.json["error"]
    assert not (tmp_path / "out").exists()


def test_an_existing_run_is_no_folder_for_a_sweep(swept, tmp_path):
    run = swept[1].json["runs"][0]["run"]
    refused = samara("train", *SHORT, *SWEEP, "--out", run)
    assert refused.code == 73 and "--sweep makes a folder of runs: choose another --out" in refused.err
