"""DQN end to end; what it shares with SAC is tested there (test_sac.py)."""

import pytest
from samara_cli import Running, ok, resume, samara, train
from test_launch import until
from test_ppo import hash_of

CARTPOLE = ["classic/cartpole-dqn", "run.random_episodes=0", "learn.test_episodes=10"]


def test_cartpole_is_learned_in_seconds(tmp_path):
    assert train(tmp_path / "run", *CARTPOLE)["test_mean"] >= 475


def test_bits_of_any_threads_and_of_a_run_that_was_stopped(tmp_path):
    words = [*CARTPOLE, "learn.shards=2", "learn.frames=20000", "run.checkpoint_seconds=1", "dqn.dueling=true",
             "dqn.steps=3", "replay.alpha=0.6", "replay.beta=0.4"]
    first = train(tmp_path / "a", *words, "fleet.threads=1")
    folder = tmp_path / "b"
    run = Running(tmp_path / "log", "train", *words, "fleet.threads=3", "learn.threads=1", "--out", folder)
    until(lambda: list(folder.glob("checkpoints/ckpt-*/replay.bin")))
    run.send(15)
    assert run.wait() == 75
    assert hash_of(resume(folder)) == hash_of(first)


def test_a_score_is_noticed_though_training_explores(tmp_path):
    """An environment that acts at random keeps the mean of five episodes low; what plays without is looked at."""
    outcome = train(tmp_path / "run", *CARTPOLE, "run.stop_at=300", "dqn.epsilon=1", "learn.test_greedy=false")
    assert outcome["evaluation_mean"] >= 300 and outcome["solved_frames"] < 60000


def test_an_exported_agent_plays_as_its_run(tmp_path):
    run, policy = tmp_path / "run", tmp_path / "agent.safetensors"
    train(run, *CARTPOLE, "learn.frames=3000")
    ok("export", run, policy)
    scores = [ok("eval", target, "--episodes", "3", "--json").json["returns"] for target in (run, policy)]
    assert scores[0] == scores[1]


@pytest.mark.parametrize("words, says", [
    (["env.id=Pendulum-v1"], "run.algorithm=dqn: the environment's actions are continuous"),
    (["dqn.epsilon_last=0.5"], "expected at most dqn.epsilon"),
    (["learn.entropy_target=1", "learn.entropy_cost=1"], "learn.entropy_target: dqn has no policy"),
])
def test_what_cannot_work_is_refused(tmp_path, words, says):
    refused = samara("train", *CARTPOLE, *words, "--out", tmp_path / "run")
    assert refused.code == 78 and says in refused.err and len(refused.err.splitlines()) == 1
