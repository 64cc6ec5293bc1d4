"""MAP-Elites and CMA-MAE end to end: the archive that a run leaves is what its solutions do, whatever played and whatever was killed."""

import csv
from pathlib import Path

import pytest
from samara_cli import ok, resume, samara, train
from test_resume import kill_and_resume, record_ends

COMMON = ["run.seed=3", "run.random_episodes=1", "run.stop_when_solved=false", "run.video=false"]
MAZES = {
    "map-elites": ["maze/hard-map-elites", *COMMON, "ga.population=30", "ga.generations=5"],
    "cma-mae": ["maze/hard-cma-mae", *COMMON, "map.population=10", "map.emitters=3", "map.generations=5"],
}
MORE = {"map-elites": "ga.generations=60", "cma-mae": "map.generations=40"}


def archive(run: Path) -> list[dict]:
    return list(csv.DictReader((run / "archive.csv").open()))


@pytest.fixture(scope="module", params=MAZES)
def maze(request, tmp_path_factory):
    run = tmp_path_factory.mktemp("maze") / "run"
    return run, train(run, *MAZES[request.param], "fleet.threads=1"), request.param


@pytest.mark.parametrize("how", [["fleet.threads=3"], ["fleet.threads=2", "fleet.native=slots", "fleet.slots=5"]])
def test_threads_and_slots_come_to_the_same_archive(how, maze, tmp_path):
    run, want, name = maze
    assert train(tmp_path / "run", *MAZES[name], *how)["population_hash"] == want["population_hash"]
    assert archive(tmp_path / "run") == archive(run)


def test_every_solution_plays_as_the_archive_says(maze):
    run, _, _ = maze
    solutions = archive(run)
    assert len({row["cell"] for row in solutions}) == len(solutions) > 10
    for k in range(0, len(solutions), 5):
        played = ok("eval", run, "--individual", f"parent:{k}", "--episodes", 1, "--json").json
        assert played["returns"] == [pytest.approx(float(solutions[k]["return"]), rel=1e-6)]


@pytest.mark.parametrize("name", MAZES)
def test_a_run_killed_five_times(name, tmp_path):
    settings = [*MAZES[name], MORE[name], "fleet.threads=1", "run.checkpoint_seconds=1"]
    want = train(tmp_path / "whole", *settings)
    kill_and_resume(tmp_path, settings, want, seed=5, kills=5, span=1.0)


def test_the_picture_has_a_cell_for_each_solution(maze):
    run, result, _ = maze
    assert Path(result["archive"]).name == "archive.svg"
    text = (run / "archive.svg").read_text()
    assert text.count("<title>-") == len(archive(run))  # returns in the maze are below 0


def test_a_grid_that_does_not_fit_is_one_line(tmp_path):
    for words, message in [(["env.id=CartPole-v1"], "no position of a body"), (["map.low=0,0"], "map.high 0"),
                           (["map.low=0", "map.high=1"], "expected 2"), (["map.cells=1001"], "map.cells")]:  # fmt: skip
        refused = samara("train", *MAZES["map-elites"], *words, "--out", tmp_path / "run")
        assert refused.code == 78 and message in refused.err, refused
        assert len(refused.err.strip().splitlines()) == 1


@pytest.mark.parametrize("name", MAZES)
def test_a_journal_that_lost_its_end_gets_it_back_from_the_checkpoint(name, tmp_path):
    run = tmp_path / "run"
    settings = MAZES[name]
    more = settings[-1].replace("=5", "=8")
    want = train(tmp_path / "whole", *settings, more)
    train(run, *settings)
    journal = run / "checkpoints" / "journal.bin"
    journal.write_bytes(journal.read_bytes()[: record_ends(journal)[-3]])
    assert resume(run, more)["population_hash"] == want["population_hash"]
    assert archive(run) == archive(tmp_path / "whole")
    ok("fsck", run)


def test_a_corner_without_a_number_and_infinite_corners(tmp_path):
    for words in ["map.low=-1e308,-1e308", "map.high=1e308,1e308"], ["map.low=1,1", "map.high=1,2"]:
        refused = samara("train", *MAZES["map-elites"], *words, "--out", tmp_path / "run")
        assert refused.code == 78 and "expected the first below the second" in refused.err
