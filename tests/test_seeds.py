"""`samara train --seeds`: runs at the same time, one folder, one view, one report."""

import json
import os
import re
import shlex
import signal
import time
import tomllib

import pytest
from samara_cli import CARTPOLE, Running, ok, samara, train

SHORT = [word for word in CARTPOLE if not word.startswith("run.seed")]
LONG = [*SHORT, "ga.population=64", "ga.generations=100000"]


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    out = tmp_path_factory.mktemp("seeds") / "three"
    return out, ok("train", *SHORT, "--seeds", "4,0..1", "--out", out, "--parallel", 2, "--json")


def test_runs_at_the_same_time_have_the_bits_of_each_alone(together, tmp_path):
    out, outcome = together
    results = outcome.json["runs"]
    assert [result["run"] for result in results] == [str(out / f"seed-{n}") for n in (4, 0, 1)]
    for seed, result in zip((4, 0, 1), results):
        alone = train(tmp_path / f"alone-{seed}", *SHORT, f"run.seed={seed}")
        assert result["population_hash"] == alone["population_hash"], seed
        assert result["elite_returns"] == alone["elite_returns"], seed
    assert len({result["population_hash"] for result in results}) == 3


def test_one_report_is_over_all_and_each_run_has_its_own(together):
    out, outcome = together
    assert outcome.json["report"] == str(out / "report.html") and (out / "report.html").stat().st_size > 10_000
    assert all((out / f"seed-{n}" / "report.html").exists() for n in (4, 0, 1))


def test_the_view_counts_seeds_and_the_end_sums_them_up(together):
    out, outcome = together
    assert "3 of 3 seeds done" in outcome.err
    again = ok("train", *SHORT, "--seeds", "4,0..1", "--out", out)  # nothing is left to do
    scores = [r["elite_mean"] for r in outcome.json["runs"]]
    assert "seeds    3: mean" in again.err and "report over 3 seeds:" in again.out
    assert re.search(r"three: finished before, nothing is left to do; raise ga\.generations=\d+ to go on", again.err)
    assert "finished before" not in outcome.err
    best = outcome.json["runs"][scores.index(max(scores))]["run"]
    assert f"best     {best}" in again.err
    quiet = ok("train", *SHORT, "--seeds", "4,0..1", "--out", out, "--quiet")
    assert "seeds done" not in quiet.err


def test_a_dry_run_shows_every_seed_and_its_folder(tmp_path):
    words = [*SHORT, "--seeds", "4,0..1", "--dry-run", "--json"]
    shown = ok("train", *words, "--out", tmp_path / "three")
    folders = {n: str(tmp_path / "three" / f"seed-{n}") for n in (4, 0, 1)}
    assert shown.json["seeds"] == [{"seed": n, "run": folder} for n, folder in folders.items()]
    toml = shown.out[: shown.out.rindex("\n{")]
    assert toml.startswith("".join(f"# seed {n}: {folder}\n" for n, folder in folders.items()))
    alone = ok("train", *SHORT, "run.seed=4", "--dry-run", "--json")
    assert tomllib.loads(toml) == tomllib.loads(alone.out[: alone.out.rindex("\n{")])
    assert shown.json["config_hash"] == alone.json["config_hash"]
    assert ok("train", *words, cwd=tmp_path).json["seeds"][0]["run"] == "runs/cartpole-ga-01/seed-4"
    warned = ok("train", *words, "run.seed=7", cwd=tmp_path)
    assert "run.seed=7 changes nothing" in warned.err and list(tmp_path.iterdir()) == []


def test_the_end_says_what_to_do_next(tmp_path):
    words = [*SHORT, "--seeds", "0,1", "--out", tmp_path / "my seeds"]
    first = ok("train", *words).err
    best = re.search(r"  best     (.*)\n", first).group(1)
    assert best.startswith(f"{tmp_path}/my seeds/seed-") and f"  watch    samara play '{best}'\n" in first
    program, *command = shlex.split(re.search(r"  go on    (.*)\n", first).group(1))
    before, after = (int(re.search(r"ga\.generations=(\d+)", " ".join(map(str, w))).group(1)) for w in (words, command))
    assert program == "samara" and after == 2 * before
    results = ok(*command, "--json").json["runs"]
    assert [result["generation"] for result in results] == [after] * 2


def test_runs_that_a_score_ended_go_on_without_it(tmp_path):
    words = ["classic/cartpole-ppo", "learn.frames=20000", "run.stop_at=15", "run.random_episodes=1", "run.video=false",
             "--seeds", "0,1", "--out", tmp_path / "seeds"]  # fmt: skip
    first = ok("train", *words).err
    [more] = re.findall(r"  go on    (.*)\n", first)
    assert "run.stop_at=none" in more and "run.stop_at=15" not in more and "learn.frames=20000" in more


def test_each_run_has_its_share_of_the_cores(together):
    runs = together[1].json["runs"]
    assert {run["cores"] for run in runs} == {max(1, -(-cores() // 2))}


def cores() -> int:
    found = [f["found"] for f in ok("doctor", "--json").json["findings"] if f["what"] == "CPU"]
    return int(found[0].split(" cores")[0].split()[-1])


def test_without_a_folder_the_next_free_one_is_taken(tmp_path):
    for number in ("01", "02"):
        result = ok("train", *SHORT, "--seeds", "0,1", "--json", cwd=tmp_path).json
        assert [r["run"] for r in result["runs"]] == [f"runs/cartpole-ga-{number}/seed-{n}" for n in (0, 1)]


def test_a_seed_given_twice_is_said(tmp_path):
    outcome = ok("train", *SHORT, "run.seed=5", "--seeds", "0", "--out", tmp_path / "a", "--json")
    assert "run.seed=5 changes nothing: --seeds 0 says which seeds run" in outcome.err
    assert outcome.json["runs"][0]["run"].endswith("seed-0")
    for seeds, says in (("0,1,0", "0 is there twice"), ("0,", "a list such as 0,1,2"), ("1..0", "expected a number")):
        refused = samara("train", *SHORT, "--seeds", seeds, "--out", tmp_path / "b")
        assert refused.code == 64 and says in refused.err
    assert samara("train", *SHORT, "--parallel", 2, "--out", tmp_path / "b").code == 64
    assert not (tmp_path / "b").exists()


def test_a_seed_that_fails_is_named_and_the_others_go_on(tmp_path):
    out = tmp_path / "seeds"
    (out / "seed-1").mkdir(parents=True)
    (out / "seed-1" / "mine.txt").write_text("not a run")
    words = ["train", *SHORT, "--seeds", "0..2", "--out", out, "--parallel", 2, "--json"]
    outcome = samara(*words, timeout=60)
    assert outcome.code == 73 and outcome.json["exit"] == 73
    assert "seed 1: " in outcome.json["error"] and "exists" in outcome.json["error"]
    assert f"2 of 3 seeds are done, continue with the same command and --out {out}" in outcome.json["error"]
    (out / "seed-1" / "mine.txt").unlink()
    assert len(ok(*words).json["runs"]) == 3


def test_a_folder_of_another_algorithm_is_told_as_that(together):
    """A refused configuration is not to be tried again by the same command."""
    refused = samara("train", "toy/washout", "--seeds", "0", "--out", together[0], "--json")
    assert refused.code == 78 and "holds another configuration" in refused.json["error"]
    assert refused.json["error"].endswith("0 of 1 seeds are done")


def wait_until(condition, running):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, running.text()
        time.sleep(0.02)


def test_a_seed_that_is_killed_is_said_to_be(tmp_path):
    out = tmp_path / "seeds"
    running = Running(tmp_path / "log.txt", "train", *LONG, "--seeds", "0..1", "--out", out, "--parallel", 2)
    wait_until(lambda: all((out / f"seed-{n}" / "metrics.jsonl").exists() for n in (0, 1)), running)
    for pid in running.children():
        os.kill(pid, signal.SIGKILL)
    assert running.wait(60) == 69
    assert "killed by signal 9" in running.text() and "0 of 2 seeds are done" in running.text()


def test_one_command_at_a_time_trains_a_folder(tmp_path):
    out = tmp_path / "seeds"
    words = ["train", *LONG, "--seeds", "0..1", "--out", out, "--parallel", 2]
    running = Running(tmp_path / "log.txt", *words)
    wait_until((out / "seed-0" / "metrics.jsonl").exists, running)
    second = samara(*words)
    assert second.code == 73 and f"{out}: held by another process" in second.err
    running.send(signal.SIGTERM)
    assert running.wait(60) == 75, running.text()


def test_a_folder_of_seeds_is_reported_as_a_whole_and_no_run(together, tmp_path):
    folder, _ = together
    page = tmp_path / "all.html"
    ok("report", folder, "--out", page)
    assert "3 runs" in page.read_text()
    refused = samara("eval", folder)
    assert refused.code == 66 and "holds 3 runs: name one, such as" in refused.err


def test_stopped_seeds_go_on_by_the_same_command(tmp_path):
    out = tmp_path / "seeds"
    settings = [*SHORT, "ga.generations=250"]
    words = ["train", *settings, "--seeds", "0..2", "--out", out, "--parallel", 2]
    running = Running(tmp_path / "log.txt", *words)
    files = [out / f"seed-{n}" / "metrics.jsonl" for n in (0, 1)]
    wait_until(lambda: all(file.exists() and '"generation":' in file.read_text() for file in files), running)
    running.send(signal.SIGTERM)
    assert running.wait(60) == 75
    assert f"continue with the same command and --out {out}" in running.text()
    assert all(0 < generations(out / f"seed-{n}") < 250 for n in (0, 1))
    assert not (out / "seed-2").exists()
    results = ok(*words, "--json").json["runs"]
    assert [result["generation"] for result in results] == [250] * 3
    alone = train(tmp_path / "alone", *settings, "run.seed=1")
    assert results[1]["population_hash"] == alone["population_hash"]


def generations(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return max((line.get("generation", 0) for line in lines), default=0)
