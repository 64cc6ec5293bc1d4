"""What scripts rely on: commands, options, field names of the last line with --json, exit codes, keys."""

import json
import os
import re

import pytest
from samara_cli import ATARI, CARTPOLE, ROOT, TESTS, ok, samara, train

COMMANDS = ["train", "eval", "play", "report", "list", "doctor", "fsck", "hash", "export", "import",
            "check", "act", "actor", "token", "certificates"]
HASH = re.compile(r"[0-9a-f]{64}")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("contract") / "run"
    return folder, train(folder, *CARTPOLE)


def test_train_prints_the_contract(run):
    folder, result = run
    assert {
        "run", "generation", "frames", "population_hash",
        "elite_mean", "elite_median", "random_mean", "seconds",
    } <= set(result)  # fmt: skip
    assert result["run"] == str(folder) and result["generation"] == 4
    assert HASH.fullmatch(result["population_hash"])
    assert result["seconds"] > 0 and isinstance(result["frames"], int)
    assert len(result["elite_returns"]) == 4 and len(result["random_returns"]) == 4
    assert result["elite_mean"] == sum(result["elite_returns"]) / 4
    assert result["random_mean"] == sum(result["random_returns"]) / 4


def test_frames_are_population_and_validation_and_nothing_else(run):
    folder, result = run
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    generations = [line for line in lines if "fitness_mean" in line]
    assert [line["generation"] for line in generations] == [1, 2, 3, 4]
    # a CartPole step is a frame and its reward is 1: fitness adds up to frames of the population
    population = sum(12 * line["fitness_mean"] for line in generations)
    validation = result["frames"] - population
    assert validation > 0
    # 2 candidates play 2 episodes of 1 to 500 frames in each of 4 generations
    assert 4 * 2 * 2 <= validation <= 4 * 2 * 2 * 500


def test_eval_prints_the_contract(run):
    folder, _ = run
    result = ok("eval", folder, "--episodes", 5, "--json").json
    assert set(result) == {"policy", "source", "seed", "episodes", "mean", "median", "std", "returns", "frames"}
    assert (result["policy"], result["seed"]) == ("elite", 0)
    assert result["source"] == f"{folder}, elite of generation 4"
    assert result["episodes"] == 5 == len(result["returns"]) == len(result["frames"])
    assert result["mean"] == pytest.approx(sum(result["returns"]) / 5)
    assert sorted(result["returns"])[2] == result["median"]
    assert result["returns"] == result["frames"]  # CartPole: one point a frame
    assert ok("eval", folder, "--episodes", 5, "--json").json == result
    assert ok("eval", folder, "--episodes", 5, "--seed", 9, "--json").json != result


def test_eval_plays_two_hundred_episodes_by_default(run):
    assert ok("eval", run[0], "--json").json["episodes"] == 200


def test_hash_and_fsck_print_the_contract(run):
    folder, result = run
    last = ok("hash", folder, "--json").json
    assert last == {"generation": 4, "population_hash": result["population_hash"]}
    second = ok("hash", folder, "--generation", 2, "--json").json
    assert set(second) == set(last) and second["generation"] == 2
    assert second["population_hash"] != last["population_hash"]
    assert ok("hash", folder).out.split() == ["generation", "4", last["population_hash"]]
    assert ok("fsck", folder, "--json").json["sound"] is True


def test_other_commands_end_with_one_object(run, tmp_path):
    folder, _ = run
    policy, page = tmp_path / "elite.safetensors", tmp_path / "report.html"
    assert ok("export", folder, policy, "--json").json["file"] == str(policy)
    assert ok("report", folder, "--out", page, "--json").json["file"] == str(page)
    assert set(ok("list", "--json").json) == {"presets", "envs", "games", "algorithms", "networks", "keys"}
    doctor = ok("doctor", "--json").json
    assert doctor["good"] is True and {f["what"] for f in doctor["findings"]} >= {"samara", "CPU", ".venv"}
    assert any(f["what"].startswith("GPU") for f in doctor["findings"])


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command):
    outcome = ok(command, "--help")
    assert "--json" in outcome.out and outcome.err == ""
    listed = ok("--help").out
    assert re.search(rf"^\s*{command}\s+\S", listed, re.M)


def test_version():
    assert ok("--version").out.startswith("samara ")


def test_presets_exist_and_every_one_is_sound():
    names = [row["name"] for row in ok("list", "presets", "--json").json["presets"]]
    assert {
        "atari/deep-ga", "atari/deep-ga-desktop", "atari/deep-ga-2017-distributed", "atari/random-search",
        "classic/cartpole-ga", "mujoco/humanoid-ga",
    } <= set(names)  # fmt: skip
    assert set(names) >= {str(p.relative_to(ROOT / "presets"))[:-5] for p in (ROOT / "presets").rglob("*.toml")}


KEYS = {
    "run.seed": "7", "env.game": '"pong"', "env.preset": '"ale-v5"', "fleet.actors": "2", "fleet.slots": "5",
    "fleet.threads": "2", "ga.population": "33", "ga.generations": "9", "ga.frames": "12345",
    "ga.validation_candidates": "2", "ga.validation_episodes": "3", "ga.test_episodes": "4",
    "network.name": '"Model"',
}  # fmt: skip


def test_keys_that_scripts_set_are_accepted():
    import tomllib

    words = [f"{key}={value.strip(chr(34))}" for key, value in KEYS.items()]
    config = tomllib.loads(ok("train", "atari/deep-ga-desktop", *words, "--dry-run").out)
    for key, value in KEYS.items():
        table, name = key.split(".")
        assert config[table][name] == tomllib.loads(f"v = {value}")["v"], key
    known = {row["name"].split(" = ")[0] for row in ok("list", "keys", "--json").json["keys"]}
    own = set()
    algorithms = set()
    for preset in sorted((ROOT / "presets/classic").glob("*.toml")):
        config = tomllib.loads(ok("train", preset, "--dry-run").out)
        algorithms.add(config["run"]["algorithm"])
        own |= {f"{t}.{k}" for t in config for k in config[t]}
    for preset in ("atari/random-search-desktop", "maze/hard-ga-ns", "maze/hard-map-elites", "maze/hard-cma-mae",
                   "mujoco/humanoid-trap-ns-es", "mujoco/humanoid-trap-nsr-es", "mujoco/humanoid-trap-nsra-es",
                   "toy/washout", "memory/recall-r2d2"):
        config = tomllib.loads(ok("train", preset, "--dry-run").out)
        algorithms.add(config["run"]["algorithm"])
        own |= {f"{t}.{k}" for t in config for k in config[t]}
    assert algorithms == {row["name"] for row in ok("list", "algorithms", "--json").json["algorithms"]}
    assert set(KEYS) <= known == own


EVOLUTION = "deep-ga or random-search or ga-ns or map-elites or ssga"


@pytest.mark.parametrize("words, says", [
    (["classic/cartpole-vtrace", "ga.population=10"], f"ga.population belongs to run.algorithm={EVOLUTION}; this run is vtrace"),
    (["classic/cartpole-ga", "vtrace.gamma=0.9"], "vtrace.gamma belongs to run.algorithm=vtrace; this run is deep-ga"),
    (["classic/cartpole-ga", "network.lstm=16"], "network.lstm belongs to run.algorithm=vtrace"),
    (["classic/cartpole-ga", "run.algorithm=random-search", "learn.frames=5"], "this run is random-search"),
    (["classic/cartpole-vtrace", "run.algorithm=deep-ga"], "learn.batch belongs to run.algorithm=vtrace"),
    (["classic/cartpole-es", "run.algorithm=pgpe"], "expected a preset of pgpe ('samara list presets'), or a .toml file"),
])
def test_a_key_of_another_algorithm_is_refused(words, says):
    """What a run would not read is refused, and said to be another algorithm's."""
    refused = samara("train", *words, "--dry-run")
    assert refused.code == 78 and says in refused.err and "unknown key" not in refused.err


def test_keys_are_listed_with_their_algorithm():
    about = {row["name"].split(" = ")[0]: row["about"] for row in ok("list", "keys", "--json").json["keys"]}
    assert about["ga.population"].endswith(f"[{EVOLUTION}]") and about["vtrace.gamma"].endswith("[vtrace]")
    assert about["network.lstm"].endswith(" [learning]") and about["network.gru"].endswith(" [learning]")
    assert "[" not in about["run.seed"] and "[" not in about["network.name"]


def test_what_there_is_to_choose_from_is_said_in_full():
    listed = ok("list", "--json").json
    games = {row["name"] for row in listed["games"]}
    assert len(games) == 104 and "env.game=frostbite" in games and "env.game=combat" not in games
    envs = {row["name"]: row["about"] for row in listed["envs"]}
    assert len(set(envs.values())) > 12 and "MultiBinary" in envs["env.id=NAME or MODULE:NAME"]
    networks = {row["name"]: row["about"] for row in listed["networks"]}
    assert "1693362 parameters" in networks["Nature"] and "evolution and learning" in networks["impala_shallow"]
    assert "residual 16, residual 32, residual 32, dense 256 relu; learning" in networks["impala_deep"]
    assert "torch.nn.Module" in networks.pop("network.module=FILE.pt")
    assert all(re.search(r"dense \d+|rnn \d+|no hidden layer", about) for about in networks.values())


@pytest.mark.parametrize("words, says", [
    (["atari/deep-ga-desktop", "env.game=frostbyte"], "no such game; nearest is frostbite"),
    (["atari/deep-ga-desktop", "env.preset=ale"], "no such Atari preset"),
    (["classic/cartpole-ga", "env.id=nonsense"], "nonsense"),
    (["classic/cartpole-ga", "network.name=resnet"], "no network 'resnet'"),
    (["classic/cartpole-ga", "ga.episodes=1000", "ga.population=10000000"], "at most 4e9"),
    (["classic/cartpole-vtrace", "network.name=resnet"], "no network 'resnet'"),
    (["classic/cartpole-vtrace", "learn.shards=3"], "a divisor of learn.batch"),
    (["classic/cartpole-vtrace", "env.stack=2"], "are not stacked"),
    (["classic/cartpole-vtrace", "network.normalize_value=true"], "vtrace has no targets to normalize values by"),
    (["atari/deep-ga-desktop", "env.preset=dqn-noframeskip-v4"], "goes on with the game of the one before"),
    (["classic/cartpole-es", "env.id=Blackjack-v1", "network.layers=normalize, dense 8 tanh", "es.observation_share=0.5"],
     "env.frames_max=0: gym/Blackjack-v1 records up to"),
])
def test_a_dry_run_refuses_what_the_run_refuses(words, says, tmp_path):
    dry = samara("train", *words, "--out", tmp_path / "run", "--dry-run")
    real = samara("train", *words, "--out", tmp_path / "run")
    assert dry.code == real.code == 78 and dry.err == real.err and says in dry.err
    assert dry.out == "" and list(tmp_path.iterdir()) == []


def test_a_dry_run_refuses_places_and_options_too(run, tmp_path):
    taken = samara("train", *CARTPOLE, "--out", run[0], "--dry-run")
    assert taken.code == 73 and "choose another --out" in taken.err
    assert samara("train", *CARTPOLE, "--seeds", "0..1", "--resume", run[0]).code == 64
    assert f"or continue it by --resume {run[0]}" in taken.err
    (run[0].parent / "file").write_text("mine")
    for place in (run[0].parent, run[0].parent / "file"):  # no run, so nothing to continue
        taken = samara("train", *CARTPOLE, "--out", place, "--dry-run")
        assert taken.code == 73 and "exists; choose another --out" in taken.err and "--resume" not in taken.err
    assert samara("train", *CARTPOLE, "--listen", "127.0.0.1:0", "--dry-run").code == 64
    ok("train", *CARTPOLE, "--seeds", "0..1", "--out", run[0].parent, "--dry-run")  # there may be runs


def test_a_dry_run_warns_as_the_run_does(tmp_path):
    words = [*CARTPOLE, "ga.parents=100"]
    dry = ok("train", *words, "--dry-run")
    ok("train", *words, "--out", tmp_path / "run", "--quiet")
    warning = "ga.parents=100 is clamped to ga.population=12"
    assert f"warning: {warning}" in dry.err and f"warning {warning}" in (tmp_path / "run" / "log.txt").read_text()
    assert "parents = 12\n" in dry.out and "parents = 12\n" in (tmp_path / "run" / "config.toml").read_text()
    unused = ok("train", *CARTPOLE, "ga.mutation_clip=1", "--dry-run")
    assert unused.err == "samara: warning: ga.mutation_clip=1 has no effect with ga.mutation=plain\n"
    # the command that made the run goes on with it
    ok("train", *words, "--out", tmp_path / "run", "--resume", "auto", "--quiet")
    beyond = ok("train", "classic/cartpole-vtrace", "learn.frames=2e6", "--dry-run")
    assert "learn.frames=2000000 goes beyond optimizer.schedule_frames=1000000" in beyond.err
    assert ok("train", "classic/cartpole-vtrace", "--dry-run").err == ""
    assert "no budget" in ok("train", "classic/cartpole-ga", "ga.generations=0", "--dry-run").err


def test_dry_run_touches_nothing(tmp_path):
    ok("train", *CARTPOLE, "--out", tmp_path / "run", "--dry-run", cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_out_runs_are_numbered(tmp_path):
    first = ok("train", *CARTPOLE, "ga.generations=1", "--json", cwd=tmp_path).json
    second = ok("train", *CARTPOLE, "ga.generations=1", "--json", cwd=tmp_path).json
    assert (first["run"], second["run"]) == ("runs/cartpole-ga-01", "runs/cartpole-ga-02")
    assert first["population_hash"] == second["population_hash"]


def test_a_run_is_its_owners_alone(tmp_path):
    folder = tmp_path / "parent" / "run"
    old = os.umask(0)
    try:
        train(folder, *CARTPOLE, "run.video=true")
    finally:
        os.umask(old)
    written = [folder.parent, folder, *folder.rglob("*")]
    assert {"log.txt", "report.html", "videos"} <= {path.name for path in written}
    assert [path for path in written if path.stat().st_mode & 0o077] == []


def test_a_file_trains_like_the_preset_it_was_written_from(tmp_path):
    config = tmp_path / "mine.toml"
    config.write_text(ok("train", *CARTPOLE, "--dry-run").out)
    a, b = train(tmp_path / "a", config), train(tmp_path / "b", *CARTPOLE)
    assert a["population_hash"] == b["population_hash"]


def test_human_output_names_score_and_folder(tmp_path):
    outcome = ok("train", *CARTPOLE, "--out", tmp_path / "run")
    text = outcome.out + outcome.err
    assert str(tmp_path / "run") in text and "elite" in text and "random" in text and "generation 4" in text


def test_random_policy_on_the_same_episodes(run):
    elite = ok("eval", run[0], "--episodes", 20, "--json").json
    random = ok("eval", run[0], "--episodes", 20, "--random", "--json").json
    assert 10 < random["mean"] < 40 < elite["mean"]  # CartPole: about 22 at random
    assert (elite["policy"], random["policy"]) == ("elite", "random")
    text = ok("eval", run[0], "--episodes", 3, "--random").out
    assert text.startswith("random policy, in the environment of ")
    assert ok("eval", run[0], "--episodes", 3).out.startswith(f"{run[0]}, elite of generation 4\n")


def test_no_ops_are_refused_where_there_are_none(run):
    refused = samara("eval", run[0], "--noops", "1..3", "--json")
    assert refused.code == 64 and "episodes of CartPole-v1 begin without no-ops" in refused.err
    both = samara("eval", run[0], "--noops", "1..3", "--episodes", 5)
    assert both.code == 64 and "--noops" in both.err and "--episodes" in both.err


def test_import_prints_the_file(tmp_path):
    policy, genome = tmp_path / "uber.safetensors", tmp_path / "genome.json"
    whole = json.loads((TESTS / "data" / "uber_frostbite_genome.json").read_text())
    genome.write_text(json.dumps(whole | {"initial_index": 0, "mutation_indices": [7]}))  # seconds less than 265
    result = ok("import", genome, "--out", policy, "--json").json
    assert result["file"] == str(policy) and result["parameters"] == 4_052_658 and policy.exists()
    for preset in ("ale-sticky", "dopamine"):
        refused = samara("eval", policy, f"env.preset={preset}", "--noops", "3")
        assert refused.code == 64 and f"episodes of env.preset={preset} begin without no-ops" in refused.err


def test_a_run_keeps_every_row_of_the_atari_preset(tmp_path):
    ok("train", *ATARI, "ga.generations=1", "--out", tmp_path / "run", "--quiet")
    identity = json.loads((tmp_path / "run" / "run.json").read_text())
    text = json.dumps(identity)
    for row in ("repeat", "sticky", "resize", "noop", "stack", "gray"):
        assert row in text
    assert "repeat" in (tmp_path / "run" / "log.txt").read_text()


def test_samara_without_a_command_is_usage():
    assert samara().code == 64
