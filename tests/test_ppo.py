"""PPO end to end: it learns, its bits are those of any number of actors and ranks and of a resumed run, it is exported."""

import json
import signal

import pytest
from samara_cli import Running, ok, resume, samara, train
from test_launch import until
from test_train_ranks import result

CARTPOLE = ["classic/cartpole-ppo", "run.random_episodes=0", "learn.test_episodes=4"]
# Statistics of observations and values, a deviation of its own, minibatches of transitions.
PENDULUM = ["classic/pendulum-ppo", "learn.environments=4", "learn.batch=4", "learn.unroll=64", "learn.epochs=3",
            "learn.minibatches=4", "run.random_episodes=0", "learn.test_episodes=4"]
# An LSTM, whose minibatches are whole sequences.
RECALL = ["memory/recall-vtrace", "run.algorithm=ppo", "learn.mode=deterministic", "learn.lag=0", "learn.batch=32",
          "ppo.units=sequences", "learn.minibatches=4", "learn.epochs=2", "run.random_episodes=0", "learn.test_episodes=4"]

# Images of bytes, each number normalized.
CATCH = ["classic/cartpole-ppo", "env.id=Catch-v0?pixels=16", "network.layers=normalize, conv 8 4x4/2 relu, dense 32 relu",
         "network.value=shared", "network.normalize_value=true", "run.random_episodes=0", "run.video=false", "learn.test_episodes=4"]


def hash_of(outcome):
    return outcome["parameter_hash"], outcome["frames"], outcome["test_returns"]


def weights_of(file):
    bytes_ = file.read_bytes()
    size = int.from_bytes(bytes_[:8], "little")
    header = json.loads(bytes_[8:8 + size])
    start = 8 + size
    return {name: bytes_[start + entry["data_offsets"][0]:start + entry["data_offsets"][1]]
            for name, entry in header.items() if name != "__metadata__"}


@pytest.mark.default_tier
def test_cartpole_is_learned_in_seconds(tmp_path):
    outcome = train(tmp_path / "run", *CARTPOLE, "learn.test_episodes=20", "learn.frames=60000",
                    "optimizer.schedule_frames=60000")
    assert outcome["test_mean"] >= 475 and outcome["frames"] <= 60200
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if "update" in line and "event" not in line][-1]
    assert 0 <= last["clip_fraction"] <= 1 and last["kl"] >= 0


def test_the_best_agent_of_regular_evaluations_is_kept(tmp_path):
    words = [*CARTPOLE, "learn.frames=10000", "optimizer.learning_rate=0.01", "learn.test_episodes=0"]
    evaluated = [*words, "learn.evaluate_every=2000", "learn.evaluate_episodes=5"]
    first = train(tmp_path / "a", *evaluated, "fleet.threads=1")
    lines = [json.loads(line) for line in (tmp_path / "a/metrics.jsonl").read_text().splitlines()]
    evaluations = [line for line in lines if line.get("event") == "evaluation"]
    assert len(evaluations) == 5 and all(len(line["returns"]) == 5 for line in evaluations)
    assert [line["frames"] // 2000 for line in evaluations] == list(range(1, 6))
    best = max(evaluations, key=lambda line: line["mean"])
    assert (first["best_mean"], first["best_frames"]) == (best["mean"], best["frames"])
    # training is what it is without evaluations, and the best agent is what the run was there
    assert hash_of(train(tmp_path / "b", *words, "fleet.threads=2")) == hash_of(first)
    ok("export", tmp_path / "a", tmp_path / "best.safetensors", "--individual", "best")
    then = [*words, f"learn.frames={best['frames']}"]
    train(tmp_path / "c", *then)
    ok("export", tmp_path / "c", tmp_path / "then.safetensors")
    assert weights_of(tmp_path / "best.safetensors") == weights_of(tmp_path / "then.safetensors")
    played = ok("eval", tmp_path / "a", "--individual", "best", "--episodes", 2, "--json").json
    assert played["policy"] == "best" and f"after {best['frames']} frames" in played["source"]
    # a resumed run keeps it
    one = ["classic/cartpole-vtrace", "learn.mode=free", "run.random_episodes=0", "learn.test_episodes=0"]
    before = train(tmp_path / "d", *one, "learn.frames=3000", "learn.evaluate_every=2500")
    ok("export", tmp_path / "d", tmp_path / "before.safetensors", "--individual", "best")
    after = resume(tmp_path / "d", "learn.frames=6000", "learn.evaluate_every=0")
    assert after["frames"] > before["frames"] and after["best_mean"] == before["best_mean"] is not None
    ok("export", tmp_path / "d", tmp_path / "after.safetensors", "--individual", "best")
    assert weights_of(tmp_path / "before.safetensors") == weights_of(tmp_path / "after.safetensors")
    none = samara("export", tmp_path / "c", tmp_path / "none.safetensors", "--individual", "best")
    assert none.code == 66 and "holds no evaluated agent; learn.evaluate_every=FRAMES" in none.err
    other = samara("export", tmp_path / "a", tmp_path / "none.safetensors", "--individual", "3")
    assert other.code == 64 and "--individual best" in other.err


@pytest.mark.parametrize("words", [[*PENDULUM, "learn.updates=12"], [*PENDULUM, "learn.updates=12", "learn.lag=1"],
                                   [*CATCH, "learn.updates=6", "learn.shards=2"],
                                   [*RECALL, "learn.updates=6"], [*RECALL, "learn.updates=6", "network.lstm=0", "network.gru=24"]],
                         ids=["pendulum", "pendulum-lag", "catch", "recall-lstm", "recall-gru"])
def test_actors_leave_no_trace(tmp_path, words):
    first = train(tmp_path / "a", *words, "fleet.threads=1")
    assert hash_of(train(tmp_path / "b", *words, "fleet.threads=3", "learn.threads=1")) == hash_of(first)


def test_a_run_ends_when_an_evaluation_reaches_its_score(tmp_path):
    words = [*CARTPOLE, "run.stop_at=100", "learn.test_episodes=0"]
    first = train(tmp_path / "a", *words, "fleet.threads=1")
    assert first["evaluation_mean"] >= 100
    assert first["solved_frames"] == first["frames"] < 100_000 and 0 < first["solved_seconds"] <= first["seconds"]
    lines = [json.loads(line) for line in (tmp_path / "a/metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if line.get("event") == "evaluation"][-1]
    assert len(last["returns"]) == 20 and last["mean"] == first["evaluation_mean"] and last["frames"] == first["frames"]
    again = train(tmp_path / "b", *words, "fleet.threads=2")
    assert hash_of(again) == hash_of(first) and again["evaluation_mean"] == first["evaluation_mean"]
    # a finished run says its result again; what training without evaluations does is the same up to there
    assert resume(tmp_path / "a")["solved_frames"] == first["solved_frames"]
    plain = train(tmp_path / "c", *CARTPOLE, "learn.test_episodes=0", f"learn.frames={first['frames']}")
    assert hash_of(plain) == hash_of(first) and plain["solved_frames"] is None
    # nor does it matter when checkpoints are made
    assert hash_of(train(tmp_path / "1", *words, "run.checkpoint_seconds=1")) == hash_of(first)
    # extended it is a run of the larger budget, and has its best agent still
    longer = resume(tmp_path / "a", "run.stop_at=none")
    assert hash_of(longer) == hash_of(train(tmp_path / "e", *CARTPOLE, "learn.test_episodes=0"))
    assert (longer["best_mean"], longer["best_frames"]) == (first["evaluation_mean"], first["frames"])
    ok("eval", tmp_path / "a", "--individual", "best", "--episodes", 1)
    refused = samara("train", *CARTPOLE, "run.stop_at=high", "--out", tmp_path / "d")
    assert refused.code == 78 and "run.stop_at=high: expected a number or none" in refused.err
    refused = samara("train", *CARTPOLE, "run.stop_at=100", "learn.evaluate_episodes=19", "--out", tmp_path / "d")
    assert refused.code == 78 and "learn.evaluate_episodes=19" in refused.err and "expected 20 at least" in refused.err


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_interrupted_goes_on_with_the_same_bits(tmp_path, how):
    words = [*PENDULUM, "learn.updates=200", "run.checkpoint_seconds=1"]
    whole = train(tmp_path / "whole", *words)
    run, folder = Running(tmp_path / "log", "train", *words, "--out", tmp_path / "cut"), tmp_path / "cut"
    until(lambda: list(folder.glob("checkpoints/ckpt-*/statistics.bin")))
    run.send(how)
    assert run.wait() in (75, -how)
    assert hash_of(resume(folder)) == hash_of(whole)


def test_ranks_learn_what_one_learns(tmp_path):
    words = [*PENDULUM, "learn.shards=2", "learn.updates=12"]
    alone = train(tmp_path / "alone", *words)
    assert hash_of(result("samara", 2, *words, "--out", tmp_path / "both")) == hash_of(alone)


@pytest.mark.parametrize("words, says", [
    (["learn.minibatches=3000"], "learn.minibatches=3000: expected at most the"),
    (["network.lstm=8", "network.value=shared"], "expected sequences"),
    (["network.lstm=8", "ppo.units=sequences", "learn.minibatches=1"], "network.value=separate"),
    (["network.gru=8", "network.value=shared"], "ppo.units=transitions with network.gru=8: a state belongs"),
    (["network.gru=8", "ppo.units=sequences", "learn.minibatches=1"], "network.value=separate"),
    (["network.deviation=free"], "actions are discrete"),
    (["network.initial_deviation=0.5"], "only with network.deviation=free"),
    (["network.layers=conv 8 3x3 relu, normalize, dense 8 relu"], "normalize"),
])
def test_what_cannot_work_is_refused(tmp_path, words, says):
    refused = samara("train", *CARTPOLE, *words, "--out", tmp_path / "run")
    assert refused.code == 78 and says in refused.err and len(refused.err.splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("words", [PENDULUM, CATCH], ids=["pendulum", "catch"])
def test_an_exported_agent_plays_as_its_run(tmp_path, words):
    """Its file carries the statistics of observations."""
    run, policy = tmp_path / "run", tmp_path / "agent.safetensors"
    train(run, *words, "learn.updates=4")
    ok("export", run, policy)
    scores = [ok("eval", target, "--episodes", "3", "--json").json["returns"] for target in (run, policy)]
    assert scores[0] == scores[1]
