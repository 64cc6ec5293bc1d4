"""R2D2 end to end: it learns, its bits are those of any number of actors, threads and ranks and of a resumed run."""

import pytest
from samara_cli import ok, samara, train
from test_sac import (
    INTERRUPTIONS,
    expect_parts_to_be_written_once,
    expect_the_same_bits_after_interruptions,
    expect_the_same_bits_of_any_workers,
)

RECALL = ["memory/recall-r2d2", "run.random_episodes=0", "learn.test_episodes=20"]
# Two shards with a replay each, which is full after a third of the run.
SHARDS = [*RECALL, "learn.frames=20000", "learn.shards=2", "replay.capacity=6000", "r2d2.target_every=7",
          "r2d2.cross_episodes=false", "learn.unroll=10", "replay.batch=160"]


@pytest.mark.default_tier
@pytest.mark.parametrize("words", [
    pytest.param([], id="lstm"),
    pytest.param(["network.lstm=0", "network.gru=32", "learn.frames=150000"], id="gru", marks=pytest.mark.slow),
])
def test_recall_is_learned_in_seconds(tmp_path, words):
    assert train(tmp_path / "run", *RECALL, *words)["test_mean"] >= 0.9


@pytest.mark.parametrize("word", ["network.layers=normalize, dense 32 relu", pytest.param("r2d2.cross_episodes=true", marks=pytest.mark.slow)])
def test_actors_threads_and_ranks_leave_no_trace(tmp_path, word):
    expect_the_same_bits_of_any_workers(tmp_path, *SHARDS, word, other=["replay.compress=none"])


@pytest.mark.slow
@pytest.mark.parametrize("how", INTERRUPTIONS)
def test_a_run_that_is_interrupted_goes_on_with_its_replay(tmp_path, how):
    expect_the_same_bits_after_interruptions(tmp_path, how, *SHARDS, "learn.frames=100000",
                                             "network.layers=normalize, dense 32 relu")


@pytest.mark.slow
def test_parts_of_sequences_are_written_once(tmp_path):
    expect_parts_to_be_written_once(tmp_path, *SHARDS, "learn.frames=120000", "replay.capacity=60000", "replay.ratio=0.2",
                                    "run.checkpoint_seconds=1", "run.video=false")


@pytest.mark.slow
def test_frames_an_export_and_free_mode(tmp_path):
    run, policy = tmp_path / "run", tmp_path / "agent.safetensors"
    train(run, "atari/r2d2-desktop", "run.random_episodes=0", "learn.test_episodes=0", "env.frames_max=2000",
          "learn.environments=4", "learn.unroll=10", "r2d2.burn_in=5", "learn.batch=4", "replay.start=160", "replay.batch=80",
          "replay.capacity=2000", "learn.frames=6000", "learn.mode=free")
    ok("train", "--resume", run, "learn.frames=8000", "--json")
    ok("export", run, policy)
    scores = [ok("eval", target, "--episodes", "2", "--json").json["returns"] for target in (run, policy)]
    assert scores[0] == scores[1]


@pytest.mark.parametrize("code, words, says", [
    (78, ["env.id=Pendulum-v1"], "run.algorithm=r2d2: expected an environment with one discrete action"),
    (78, ["replay.batch=100"], "replay.batch=100: r2d2 learns from whole sequences; expected a multiple of learn.unroll=12"),
    (78, ["r2d2.epsilon_last=0.5"], "expected at most r2d2.epsilon"),
    (78, ["learn.entropy_target=1", "learn.entropy_cost=1"], "learn.entropy_target: r2d2 has no policy"),
    (78, ["replay.alpha=0"], "replay.beta=0.6: corrects for priorities"),
    (71, ["replay.capacity=1e9"], "lower replay.capacity"),
])
def test_what_cannot_work_is_refused(tmp_path, code, words, says):
    refused = samara("train", *RECALL, *words, "--out", tmp_path / "run")
    assert refused.code == code and says in refused.err and len(refused.err.splitlines()) == 1
    assert not (tmp_path / "run").exists()
