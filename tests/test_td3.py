"""TD3 end to end; what it shares with SAC is tested there (test_sac.py)."""

import pytest
from samara_cli import Running, ok, resume, samara, train
from test_launch import until
from test_ppo import hash_of
from test_sac import INTERRUPTIONS, expect_the_same_bits_after_interruptions, expect_the_same_bits_of_any_workers

PENDULUM = ["classic/pendulum-td3", "run.random_episodes=0", "learn.test_episodes=4"]
# Two shards with a replay each, which is full before the end of the run; the policy learns in every third step.
SHARDS = [*PENDULUM, "learn.frames=1600", "learn.environments=2", "learn.batch=2", "learn.shards=2",
          "replay.capacity=1000", "replay.start=500", "td3.delay=3", "optimizer.clip_norm=10"]


def test_pendulum_is_learned_in_seconds(tmp_path):
    outcome = train(tmp_path / "run", *PENDULUM, "learn.frames=12000", "learn.test_episodes=20")
    assert outcome["test_mean"] > -200 and outcome["frames"] == 12000


def test_actors_threads_and_ranks_leave_no_trace(tmp_path):
    expect_the_same_bits_of_any_workers(tmp_path, *SHARDS)


def test_a_run_that_was_killed_goes_on_with_the_same_bits(tmp_path):
    words = [*SHARDS, "learn.frames=5000", "run.checkpoint_seconds=1"]
    first, folder = train(tmp_path / "a", *words), tmp_path / "b"
    run = Running(tmp_path / "log", "train", *words, "--out", folder)
    until(lambda: list(folder.glob("checkpoints/ckpt-*/replay.bin")))
    run.send(9)
    assert run.wait() == -9
    assert hash_of(resume(folder)) == hash_of(first)


@pytest.mark.slow
@pytest.mark.parametrize("how", INTERRUPTIONS)
def test_a_run_that_is_interrupted_goes_on_with_its_replay(tmp_path, how):
    expect_the_same_bits_after_interruptions(tmp_path, how, *SHARDS, "learn.frames=12000")


def test_tests_and_exported_agents_never_explore(tmp_path):
    """With draws that are functions of the episode, only other noise shows that there is none."""
    run, policy = tmp_path / "run", tmp_path / "agent.safetensors"
    train(run, *PENDULUM, "learn.frames=1500", "td3.noise=10")
    ok("export", run, policy)
    scores = [ok("eval", *words, "--episodes", "3", "--json").json["returns"]
              for words in ((run,), (policy, "td3.noise=0"))]
    assert scores[0] == scores[1]


@pytest.mark.parametrize("words, says", [
    (["env.id=CartPole-v1"], "run.algorithm=td3: the environment's actions are discrete"),
    (["learn.entropy_target=-1", "learn.entropy_cost=1"], "learn.entropy_target: td3 has no policy"),
    (["d4pg.atoms=9"], "d4pg.atoms belongs to run.algorithm=d4pg; this run is td3"),
])
def test_what_cannot_work_is_refused(tmp_path, words, says):
    refused = samara("train", *PENDULUM, *words, "--out", tmp_path / "run")
    assert refused.code == 78 and says in refused.err and len(refused.err.splitlines()) == 1
