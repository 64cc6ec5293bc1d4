"""Remote actors end to end: an engine program, samara actor, and peers that misbehave."""

import json
import shutil
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest
from remote_util import Actor, Engine, folder, needs_grpc, started  # noqa: F401: fixtures
from samara_cli import BINARY, catches, environment, ok, samara
from test_envpool import needs_envpool
from test_launch import until

pytestmark = needs_grpc


def test_actors_play_the_same_episodes_over_every_link(folder, started):
    """One actor or three, a Unix socket or TCP, with threads or without: the same bits."""
    hashes = []
    for address, actors, extra in ((f"unix:{folder}/s", 1, []), ("127.0.0.1:0", 3, []), (f"unix:{folder}/s", 2, ["--inline"])):
        engine = started(Engine(address, slots=6, env="CartPole-v1", episodes=200))
        crew = [started(Actor(engine.address, *extra, slots=6 // actors)) for _ in range(actors)]
        last = engine.end()
        assert last["done"] and last["out_of_order"] == 0 and last["lost"] == 0
        assert not any(last["drops"].values())
        for actor in crew:
            code, result, errors = actor.end()
            assert code == 0, errors
            assert result["connections"] == 1
        hashes.append(last["hash"])
    assert len(set(hashes)) == 1


def test_only_native_environments_are_stepped_inline(folder):
    failed = samara("actor", "--connect", f"unix:{folder}/s", "--env", "dummy", "--inline")
    assert failed.code == 78 and "--inline: expected a native environment" in failed.err


def test_python_simulators_play_the_same_bits_in_their_own_actor_and_behind_the_engines(folder, started):
    """`python -m samara.actor` and `samara actor`, which keeps Python in processes of its own."""
    hashes = []
    for python, slots in ((True, 1), (True, 4), (False, 4)):
        engine = started(Engine(f"unix:{folder}/s", slots=4, episodes=60))
        crew = [started(Actor(f"unix:{folder}/s", env="dummy", slots=slots, python=python)) for _ in range(4 // slots)]
        last = engine.end(60)
        assert last["done"] and last["lost"] == 0 and not any(last["drops"].values())
        assert [actor.end()[0] for actor in crew] == [0] * len(crew)
        hashes.append(last["hash"])
    assert len(set(hashes)) == 1


@pytest.mark.parametrize("environment,more", [
    ('{"kind": "dummy", "action": "box"}', []), ("Acrobot-v1", []), ("atari/pong", ["--preset", "ale-vector"]),
    ('{"kind": "atari", "game": "pong", "preset": "ale-vector"}', [])])
def test_python_actors_play_boxes_gymnasium_and_atari(folder, started, environment, more):
    engine = started(Engine(f"unix:{folder}/s", slots=2, episodes=2 if more else 4, print=100))
    actor = started(Actor(f"unix:{folder}/s", *more, env=environment, slots=2, python=True))
    assert engine.end(60)["done"]
    code, result, errors = actor.end()
    assert code == 0 and result["steps"] > 40, errors


@needs_envpool
@pytest.mark.parametrize("task", ["CartPole-v1?fresh=false", "Pendulum-v1?fresh=false&max_episode_steps=50", "FrozenLake-v1"])
def test_python_actors_play_envpool_in_one_pool_or_in_many(folder, started, task):
    engine = started(Engine(f"unix:{folder}/s", slots=8, episodes=40))
    actor = started(Actor(f"unix:{folder}/s", "--threads", 2, env=f"envpool:{task}", slots=8, python=True))
    last = engine.end(60)
    assert last["done"] and last["lost"] == 0 and not any(last["drops"].values())
    code, result, errors = actor.end()
    assert code == 0 and result["steps"] > 200 and result["slots"] == 8, errors


def test_python_simulators_that_break_cost_their_episode(folder, started):
    broken = '{"kind": "dummy", "fault": "raise", "fault_step": 3}'
    engine = started(Engine(f"unix:{folder}/s", slots=1, episodes=4, print=0.1))
    actor = started(Actor(f"unix:{folder}/s", env=broken, slots=1, python=True))
    code, _, errors = actor.end()
    assert code == 69 and "in a row" in errors, errors
    assert engine.stop()["lost"] >= 4


def test_python_actors_exit_like_the_others(folder, started):
    def ends(*arguments, **options):
        return started(Actor(*arguments, python=True, **options)).end()

    assert ends(f"unix:{folder}/none", "--connect-timeout", 0.5, env="dummy")[0] == 69
    assert ends(f"unix:{folder}/none", env="no/such-v0")[0] == 78
    for env, more, wrong, words in (
        ("ALE/Pong-v5", [], 78, "actor take atari/pong"),
        ("atari/pong", ["--preset", "ale-vectr"], 78, "nearest is ale-vector"),
        ('{"kind": "atari"}', [], 78, "expected the keys game and preset"),
        ("dummy", ["--connect-timeout", "nan"], 64, "--connect-timeout nan: expected 0 to 1e7"),
        ("dummy", ["--token-file", folder / "empty"], 65, "expected one token"),
        ("dummy", ["--token-file", folder / "bytes"], 65, "expected one token"),
    ):
        for name, content in (("empty", b""), ("bytes", bytes(range(128, 192)))):
            (folder / name).write_bytes(content)
            (folder / name).chmod(0o600)
        code, result, errors = ends(f"unix:{folder}/none", *more, env=env)
        assert code == wrong == result["exit"] and words in errors and len(errors.splitlines()) == 1, errors
    assert ends("foo", env="dummy")[0] == 78
    waits = started(Actor(f"unix:{folder}/none", env="dummy", python=True))
    until(lambda: catches(waits.process.pid, signal.SIGTERM))
    time.sleep(0.2)  # until it waits
    waits.process.terminate()
    code, result, errors = waits.end()
    assert code == 75 and result == {"error": "stopped", "exit": 75} and errors == "actor: stopped\n"
    ok("token", folder / "token")
    engine = started(Engine(f"unix:{folder}/s", slots=2, env="CartPole-v1", token=folder / "token"))
    assert ends(engine.address, env="dummy")[0] == 77
    code, _, errors = ends(engine.address, "--token-file", folder / "token", env="dummy")
    assert code == 78 and "id dummy/guess instead of native/CartPole-v1" in errors
    assert ends("10.1.2.3:1", "--token-file", folder / "token", env="dummy")[0] == 77
    (folder / "token").chmod(0o644)
    assert ends(engine.address, "--token-file", folder / "token", env="dummy")[0] == 77


def test_sockets_are_the_users_alone(folder, started):
    engine = started(Engine(f"unix:{folder}/new/s", slots=1, env="CartPole-v1"))
    assert engine.address == f"unix:{folder}/new/s"
    assert stat.S_IMODE((folder / "new").stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "new/s").stat().st_mode) & 0o077 == 0
    (folder / "open").mkdir(mode=0o755)
    refused = started(Engine(f"unix:{folder}/open/s", slots=1, env="CartPole-v1"))
    assert refused.process.wait(10) == 77


@pytest.mark.parametrize("link", ["unix", "tcp"])
def test_the_second_engine_on_an_address_ends_with_73(folder, started, link):
    engine = started(Engine(f"unix:{folder}/s" if link == "unix" else "127.0.0.1:0", slots=1, env="CartPole-v1"))
    second = started(Engine(engine.address, slots=1, env="CartPole-v1"))
    assert second.process.wait(10) == 73
    assert engine.process.poll() is None


def test_exits_tell_never_connected_from_rejected(folder, started):
    code, _, errors = started(Actor(f"unix:{folder}/none", "--connect-timeout", 1)).end()
    assert code == 69 and "no learner process within 1 s" in errors
    engine = started(Engine(f"unix:{folder}/s", slots=2, env="CartPole-v1"))
    code, _, errors = started(Actor(engine.address, env="Acrobot-v1")).end()
    assert code == 78 and "id native/Acrobot-v1 instead of native/CartPole-v1" in errors


def test_other_machines_need_certificates_and_a_token(folder, started):
    def refused(**keys):
        engine = Engine("0.0.0.0:0", slots=1, env="CartPole-v1", **keys)
        code = engine.process.wait(10)
        engine.readers[1].join(5)
        return code, "".join(engine.errors)

    token = folder / "token"
    ok("token", token)
    for keys in ({}, {"token": token}):
        code, errors = refused(**keys)
        assert code == 77
        for flag in ("--certificate", "--key", "--client-ca", "--token-file", "--token-only", "--insecure-i-know"):
            assert flag in errors
        assert len(errors.splitlines()) == 1
    ok("certificates", folder / "pki", "--host", "127.0.0.1")
    pki = folder / "pki"
    tls = {"certificate": pki / "engine.pem", "key": pki / "engine.key"}
    # what sufficed before: one line says what to add
    code, errors = refused(token=token, **tls)
    assert code == 77 and "missing: --client-ca." in errors and "actors then show --certificate" in errors
    code, errors = refused(client_ca=pki / "ca.pem", **tls)
    assert code == 77 and "missing: --token-file." in errors
    assert refused(token=token, client_ca=pki / "ca.pem", token_only=1, **tls)[0] == 78
    # the explicit way without certificates of actors
    engine = started(Engine("0.0.0.0:0", slots=1, env="CartPole-v1", token=token, token_only=1, episodes=5, **tls))
    actor = started(Actor(engine.address.replace("0.0.0.0", "127.0.0.1"), "--ca", pki / "ca.pem", "--token-file", token))
    assert engine.end()["done"] and actor.end()[0] == 0
    assert any("without certificates of actors" in line for line in engine.errors)
    token.chmod(0o640)
    assert refused(token=token, insecure=1)[0] == 77
    token.chmod(0o600)
    token.write_text("short\n")
    assert refused(token=token, insecure=1)[0] == 65


def test_token_files(folder):
    file = folder / "token"
    ok("token", file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(file.read_text().strip()) == 64
    assert samara("token", file).code == 73
    other = folder / "other"
    ok("token", other)
    assert other.read_text() != file.read_text()


def test_tokens_over_tls(folder, started):
    for name in ("one", "two", "wrong"):
        ok("token", folder / name)
    ok("certificates", folder / "pki", "--host", "localhost", "127.0.0.1")
    ok("certificates", folder / "other", "--host", "localhost")
    pki = folder / "pki"
    engine = started(Engine("127.0.0.1:0", slots=2, env="CartPole-v1", episodes=300, token=folder / "one",
                            token2=folder / "two", certificate=pki / "engine.pem", key=pki / "engine.key"))
    address = engine.address

    def ends(*arguments):
        code, _, errors = started(Actor(address, "--connect-timeout", 1, *arguments)).end()
        assert "Bearer" not in errors and (folder / "one").read_text().strip() not in errors
        return code

    def advised(words, *arguments):
        for python in (False, True):
            code, _, errors = started(Actor(address, "--connect-timeout", 1, *arguments, python=python,
                                            env="dummy" if python else "CartPole-v1")).end()
            assert code == 69 and words in errors, (python, errors)
            assert len(errors.strip().splitlines()) == 1, errors

    right = ("--ca", pki / "ca.pem", "--token-file", folder / "one")
    assert ends("--ca", pki / "ca.pem") == 77  # no token
    assert ends("--ca", pki / "ca.pem", "--token-file", folder / "wrong") == 77
    advised("if with it: --ca", "--token-file", folder / "one")  # plaintext against TLS
    advised("not signed by --ca", "--ca", folder / "other/ca.pem", "--token-file", folder / "one")
    seen = engine.wait_for_line(lambda line: True)
    assert seen["events"] == 0 and seen["drops"]["unauthenticated"] == 2
    crew = [started(Actor(address, *right, slots=1)),
            started(Actor(address, "--ca", pki / "ca.pem", "--token-file", folder / "two", slots=1))]
    assert engine.end()["done"]
    assert [actor.end()[0] for actor in crew] == [0, 0]


def test_certificates_and_tokens_are_read_again_without_losing_a_stream(folder, started):
    """SIGHUP. What makes no sense is refused, and what was there before goes on."""
    secrets = folder / "secrets"
    secrets.mkdir()
    used = [secrets / name for name in ("engine.pem", "engine.key", "token")]

    def install(which):
        for file in used:
            source = folder / which / file.name
            shutil.copy2(source, file.with_suffix(".new"))
            file.with_suffix(".new").rename(file)

    for which in ("one", "two"):
        ok("certificates", folder / which, "--host", "127.0.0.1")
        ok("token", folder / which / "token")
    install("one")
    engine = started(Engine("127.0.0.1:0", slots=2, env="CartPole-v1", certificate=used[0], key=used[1], token=used[2],
                            print=0.2))

    def actor(which, *more):
        return started(Actor(engine.address, "--ca", folder / which / "ca.pem", "--token-file", folder / which / "token",
                             *more, slots=1))

    def hang_up(words):
        engine.errors.clear()
        engine.process.send_signal(signal.SIGHUP)
        engine.wait_until(lambda: any(words in line for line in engine.errors))

    first = actor("one")
    engine.wait_for_line(lambda line: line["live"] == 1)
    install("two")
    hang_up("were reloaded")
    assert actor("one", "--connect-timeout", 1).end()[0] == 69, "another authority's certificate is shown now"
    second = actor("two")
    engine.wait_for_line(lambda line: line["live"] == 2)
    for file in used:
        good = file.read_bytes()
        file.write_bytes(b"nothing of use\n")
        hang_up("are unchanged: " + str(file))
        file.write_bytes(good)
    shutil.copy2(folder / "one/engine.key", used[1])
    hang_up(f"{used[1]}: not the key of {used[0]}")
    second.kill()
    third = actor("two")
    engine.wait_for_line(lambda line: line["live"] == 2 and line["respawns"] == 1)
    last = engine.stop()
    assert last["out_of_order"] == 0 and not any(last["drops"].values())
    for each in (first, third):
        code, result, errors = each.end()
        assert code == 0 and result["connections"] == 1, errors


def test_certificates_that_cannot_work_are_refused_at_the_start(folder, started):
    for which in ("one", "two"):
        ok("certificates", folder / which, "--host", "127.0.0.1")
    one, two = folder / "one", folder / "two"
    (folder / "text").write_text("no certificate\n")
    (folder / "text").chmod(0o600)
    for certificate, key, code, says in (
        (one / "engine.pem", two / "engine.key", 65, "not the key of"),
        (folder / "text", one / "engine.key", 65, "no certificate in it"),
        (one / "engine.pem", folder / "text", 65, "no key"),
        (one / "engine.pem", one / "none", 66, "none"),
    ):
        engine = started(Engine("127.0.0.1:0", slots=1, env="CartPole-v1", certificate=certificate, key=key))
        assert engine.process.wait(10) == code
        engine.readers[1].join(5)
        assert says in "".join(engine.errors) and len(engine.errors) == 1, engine.errors


def test_certificates_of_an_actor_that_cannot_work_are_refused_before_it_connects(folder, started):
    ok("certificates", folder / "pki", "--host", "127.0.0.1")
    ok("certificates", folder / "other", "--host", "127.0.0.1")
    pki = folder / "pki"
    (folder / "text").write_text("no certificate\n")
    shutil.copy(pki / "actor.key", folder / "open.key")
    (folder / "open.key").chmod(0o644)
    mine = ("--ca", pki / "ca.pem", "--certificate", pki / "actor.pem", "--key")
    for given, code, says in (
        (("--ca", folder / "text"), 65, "text: no certificate in it; expected PEM"),
        (("--ca", folder / "none"), 66, "none"),
        ((*mine, folder / "other/actor.key"), 65, "actor.key"),
        ((*mine, folder / "open.key"), 77, "chmod 600"),
        ((*mine[:4],), 78, "expected both or neither"),
        ((*mine[2:], pki / "actor.key"), 78, "--certificate: needs --ca"),
    ):
        for python in (False, True):
            got, _, errors = started(Actor("127.0.0.1:1", *given, env="dummy" if python else "CartPole-v1",
                                           python=python)).end()
            assert got == code and says in errors, (given, python, got, errors)


def test_tls_against_an_engine_without(folder, started):
    ok("certificates", folder / "pki", "--host", "127.0.0.1")
    engine = started(Engine("127.0.0.1:0", slots=1, env="CartPole-v1"))
    for python in (False, True):
        env = "dummy" if python else "CartPole-v1"
        code, _, errors = started(Actor(engine.address, "--ca", folder / "pki/ca.pem", "--connect-timeout", 1, env=env,
                                        python=python)).end()
        assert code == 69 and "no learner process within 1 s" in errors and "leave out --ca" in errors


def test_health_checks(folder, started):
    """grpc.health.v1 as Kubernetes asks for it: without a token, about nothing or about the service."""
    grpc = pytest.importorskip("grpc", reason="SKIPPED LOUDLY: no grpcio in .venv (make setup)")
    ok("token", folder / "token")
    mark = folder / "healthy"
    mark.touch()
    engine = started(Engine(f"unix:{folder}/s", slots=1, env="CartPole-v1", token=folder / "token", healthy=mark))
    with grpc.insecure_channel(engine.address) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")

        def asked(name=b""):
            return check(b"\n" + bytes([len(name)]) + name if name else b"", timeout=10)

        serving, not_serving = b"\x08\x01", b"\x08\x02"
        assert asked() == asked(b"samara.v1.Actors") == serving
        mark.unlink()
        assert asked() == asked(b"samara.v1.Actors") == not_serving
        for request, code in ((b"\n\x05other", grpc.StatusCode.NOT_FOUND), (b"\n\x09short", grpc.StatusCode.INVALID_ARGUMENT),
                              (b"\n", grpc.StatusCode.INVALID_ARGUMENT), (b"x" * 300, grpc.StatusCode.INVALID_ARGUMENT),
                              (b"\n\xff" + b"x" * 255, grpc.StatusCode.INVALID_ARGUMENT)):
            with pytest.raises(grpc.RpcError) as refused:
                check(request, timeout=10)
            assert refused.value.code() == code, request
    assert not any(engine.stop()["drops"].values())


def expired(pki: Path) -> tuple[Path, Path]:
    """An actor's certificate that was valid in 2020, and its key."""
    for name, text in (("index", ""), ("serial", "01\n"), ("openssl.cnf", CA_CONFIG)):
        (pki / name).write_text(text)
    for command in (
        "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj /CN=old -keyout old.key -out old.csr",
        "openssl ca -batch -config openssl.cnf -in old.csr -out old.pem -startdate 20200101000000Z -enddate 20200201000000Z",
    ):
        subprocess.run(command.split(), cwd=pki, check=True, capture_output=True)
    return pki / "old.pem", pki / "old.key"


CA_CONFIG = """[ca]
default_ca = samara
[samara]
dir = .
database = index
serial = serial
new_certs_dir = .
certificate = ca.pem
private_key = ca.key
default_md = sha256
policy = any
x509_extensions = actor
[any]
commonName = supplied
[actor]
basicConstraints = critical,CA:FALSE
extendedKeyUsage = clientAuth
"""


def test_actors_show_certificates_before_anything_else(folder, started):
    """As off this machine by default: 0.0.0.0. What is wrong with an actor's is said in one line."""
    for which in ("pki", "other"):
        ok("certificates", folder / which, "--host", "127.0.0.1")
    ok("token", folder / "token")
    pki = folder / "pki"
    engine = started(Engine("0.0.0.0:0", slots=2, env="CartPole-v1", client_ca=pki / "ca.pem", token=folder / "token",
                            certificate=pki / "engine.pem", key=pki / "engine.key", print=0.1))
    address = engine.address.replace("0.0.0.0", "127.0.0.1")
    right = ("--ca", pki / "ca.pem", "--token-file", folder / "token")
    for pair, code, says in (
        (None, 69, "it asks actors for a certificate: give --certificate actor.pem and --key actor.key"),
        ((folder / "other/actor.pem", folder / "other/actor.key"), 69, "it refuses this certificate"),
        ((pki / "engine.pem", pki / "engine.key"), 69, "it refuses this certificate"),  # not for actors
        (expired(pki), 65, "old.pem: no longer valid: make another one"),
    ):
        shown = ("--certificate", pair[0], "--key", pair[1]) if pair else ()
        for python in (False, True):
            got, _, errors = started(Actor(address, *right, *shown, "--connect-timeout", 0.2, python=python,
                                           env="dummy" if python else "CartPole-v1")).end()
            assert got == code and says in errors and len(errors.strip().splitlines()) == 1, (python, got, errors)
    shown = ("--certificate", pki / "actor.pem", "--key", pki / "actor.key")
    assert started(Actor(address, "--ca", pki / "ca.pem", *shown)).end()[0] == 77, "the token is asked for too"
    seen = engine.wait_for_line(lambda line: True)
    assert seen["drops"]["unauthenticated"] == 1 and seen["events"] == 0
    known = started(Actor(address, *right, *shown))
    engine.wait_for_line(lambda line: line["episodes"] > 20)
    engine.stop()
    assert known.end()[0] == 0


def test_certificates_refuse_what_is_no_name(folder):
    outcome = samara("certificates", folder / "pki", "--host", "a,IP:1.2.3.4")
    assert outcome.code == 78 and not (folder / "pki").exists()
    outcome = samara("certificates", folder / "pki", "--host", "a..b")
    assert outcome.code == 78 and not (folder / "pki").exists()
    outcome = samara("certificates", folder, "--host", "localhost")
    assert outcome.code == 73 and "exists already" in outcome.err




@pytest.mark.parametrize("mode", ["free", "deterministic"])
def test_an_engine_without_actors_stops_when_asked(mode, tmp_path):
    """It has played its random policy by itself by then."""
    run = tmp_path / "run"
    engine = subprocess.Popen([str(BINARY), "train", "classic/cartpole-vtrace", f"learn.mode={mode}", "--out", str(run),
                               "--listen", f"unix:{tmp_path}/own/engine", "run.random_episodes=2", "--quiet", "--json"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    until(lambda: '"random_policy"' in (run / "metrics.jsonl").read_text() if (run / "metrics.jsonl").exists() else False)
    engine.terminate()
    out, err = engine.communicate(timeout=30)
    assert engine.returncode == 75 and json.loads(out.splitlines()[-1])["exit"] == 75, err
