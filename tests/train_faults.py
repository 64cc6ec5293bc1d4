"""Training runs under faults: what tests/test_train_faults.py does for seconds and tests/long/train_faults.py for minutes.

Every scenario starts real runs of `samara train`, disturbs them, checks the invariants and returns its counts.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from remote_link import Link
from samara_cli import BINARY, ROOT, TESTS, environment, ok, train

BATCH, UNROLL = 16, 20
FRAMES_AN_UPDATE = BATCH * UNROLL  # CartPole: a frame a step
CARTPOLE = ["classic/cartpole-vtrace", "run.random_episodes=0", "learn.test_episodes=0", "run.checkpoint_seconds=1",
            f"learn.batch={BATCH}", f"learn.unroll={UNROLL}"]
DETERMINISTIC = "learn.mode=deterministic"
SIMULATED = "CartPole-v0"  # no native copy: Gymnasium's, in actor processes
SIMULATORS = f"env.id={SIMULATED}"
PONG = ["atari/vtrace-desktop", "run.video=false", "run.random_episodes=0", "learn.test_episodes=0", "learn.environments=8",
        "learn.batch=4", "run.checkpoint_seconds=1"]
FOREVER = "learn.frames=1e15"
VARIABLES = {"PYTHONPATH": f"{ROOT / 'build/python'}:{TESTS / 'envs'}"}


class Background:
    """A process whose output goes to a file: one that nobody reads must not block it."""

    def __init__(self, log: Path, *command: object) -> None:
        self.log = log
        with open(log, "ab") as file:
            self.process = subprocess.Popen(list(map(str, command)), stdout=file, stderr=file, cwd=ROOT,
                                            env=environment(**VARIABLES))

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def running(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: int) -> None:
        if self.running():
            self.process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait(30)

    def wait(self, seconds: float = 60) -> int:
        return self.process.wait(seconds)


class Training(Background):
    """`samara train` with its folder; resumed when there is one."""

    def __init__(self, run: Path, *arguments: object, listen: str = "", terms: Iterable[object] = ()) -> None:
        self.run = run
        where = ["--resume", run] if run.exists() else [*arguments, "--out", run]
        opened = ["--listen", listen, *terms] if listen else []
        starts = len(list(run.parent.glob(f"{run.name}-*.log")))
        super().__init__(run.with_name(f"{run.name}-{starts}.log"), BINARY, "train", *where, *opened, "--quiet", "--json")

    def lines(self) -> list[dict]:
        """The lines of metrics, of updates only."""
        try:
            text = (self.run / "metrics.jsonl").read_text()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind("\n") + 1].splitlines()
        return [line for line in map(json.loads, whole) if "update" in line and "event" not in line]

    def last(self) -> dict:
        lines = self.lines()
        return lines[-1] if lines else {}

    def wait_for(self, condition: Callable[[dict], bool], seconds: float = 90) -> dict:
        """The first last line of metrics that meets the condition."""
        end = time.monotonic() + seconds
        while not ((last := self.last()) and condition(last)):
            assert self.running(), f"ended with {self.process.returncode}:\n{self.text()[-2000:]}"
            assert time.monotonic() < end, f"not within {seconds} s: {last}\n{self.text()[-2000:]}"
            time.sleep(0.05)
        return last

    def wait_for_updates(self, more: int, seconds: float = 90) -> dict:
        begin = self.last().get("update", 0)
        return self.wait_for(lambda line: line["update"] >= begin + more, seconds)

    def result(self) -> dict:
        """What it printed at its end."""
        return json.loads(self.text().strip().splitlines()[-1])

    def children(self, older: float = 0) -> list[int]:
        """Actor processes that have run for so many seconds."""
        now, tick = time.clock_gettime(time.CLOCK_BOOTTIME), os.sysconf("SC_CLK_TCK")
        found = []
        for task in Path(f"/proc/{self.process.pid}/task").glob("*"):
            try:
                for pid in map(int, (task / "children").read_text().split()):
                    begun = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
                    if now - begun / tick >= older:
                        found.append(pid)
            except (FileNotFoundError, ProcessLookupError):
                continue
        return found

    def stop(self) -> dict:
        """Asks it to stop, which saves; the last line of metrics."""
        self.signal(signal.SIGTERM)
        assert self.wait() == 75, self.text()[-2000:]
        return self.last()


class Actor(Background):
    """A remote actor, in C++ or in Python."""

    def __init__(self, folder: Path, address: str, slots: int, *arguments: object, python: bool = False,
                 env: str = "CartPole-v1", prefix: Iterable[object] = ()) -> None:
        program = [ROOT / ".venv/bin/python", "-m", "samara.actor"] if python else [BINARY, "actor"]
        self.kind = "python" if python else "native"
        super().__init__(folder / f"{self.kind}-{os.urandom(4).hex()}.log", *prefix, *program, "--connect", address,
                         "--env", env, "--slots", slots, *arguments)


def check_updates(lines: list[dict]) -> None:
    """Every update learnt from one whole batch, and none was counted twice or left out (free-running, no stale ones)."""
    assert lines
    for before, line in zip(lines, lines[1:], strict=False):
        assert line["update"] > before["update"] and line["frames"] > before["frames"]
    for line in lines:
        assert line["frames"] == line["update"] * FRAMES_AN_UPDATE, line
        assert line["drops"]["skipped_updates"] == line["drops"]["stale_unrolls"] == 0


def counted(drops: dict) -> dict:
    return {reason: n for reason, n in drops.items() if n}


def rate(training: Training, seconds: float) -> float:
    """Frames a second over so long."""
    begin = training.wait_for_updates(1)
    time.sleep(seconds)
    end = training.wait_for_updates(1)
    return (end["frames"] - begin["frames"]) / (end["seconds"] - begin["seconds"])


def undisturbed(folder: Path, *arguments: object) -> dict:
    return train(folder / "undisturbed", *arguments, PYTHONPATH=VARIABLES["PYTHONPATH"], timeout=3600)


def every(period: float) -> Iterator[None]:
    """Goes on each `period` seconds, however long what is done meanwhile takes."""
    due = time.monotonic()
    while True:
        due = max(due + period, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
        yield


class Hunter:
    """Signals processes at random; one that was killed may take a while to go and is not counted twice."""

    def __init__(self, seed: int) -> None:
        self.chosen = random.Random(seed)
        self.killed: set[int] = set()

    def send(self, pids: Iterable[int], number: int = signal.SIGKILL) -> int:
        """The process that was chosen; 0 when there was none."""
        there = sorted(set(pids) - self.killed)
        if not there:
            return 0
        pid = self.chosen.choice(there)
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return 0
        if number == signal.SIGKILL:
            self.killed.add(pid)
        return pid

    @property
    def kills(self) -> int:
        return len(self.killed)


# --- 1. actors are killed

def local_actors_killed(folder: Path, seconds: float, actors: int = 6, period: float = 0.1, grown_up: float = 1.0,
                        seed: int = 1) -> dict:
    """One of the engine's own actor processes that have run for `grown_up` seconds is killed every `period`."""
    training = Training(folder / "run", *CARTPOLE, SIMULATORS, f"fleet.actors={actors}", FOREVER)
    try:
        before = rate(training, 3)
        begin, hunter = training.last(), Hunter(seed)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            hunter.send(training.children(grown_up))
            assert training.running(), training.text()[-2000:]
            time.sleep(period)
        last = training.wait_for_updates(1)
        healed = time.monotonic()
        after = rate(training, 3)
        while after < 0.5 * before:
            assert time.monotonic() - healed < 60, (before, after)
            after = rate(training, 3)
        final = training.stop()
    finally:
        training.kill()
    check_updates(training.lines())
    # an actor that was killed before it served counts as one start
    assert hunter.kills > 3 and 0 < final["respawns"] <= hunter.kills, (hunter.kills, final)
    assert final["drops"]["lost_episodes"] > 0
    assert set(counted(final["drops"])) <= {"lost_episodes", "partial_unrolls"}
    assert last["update"] > begin["update"] + 2, "training went on"
    return {"seconds": seconds, "kills": hunter.kills, "respawns": final["respawns"], "drops": counted(final["drops"]),
            "updates_meanwhile": last["update"] - begin["update"], "frames_per_second_before": round(before),
            "after": round(after), "violations": 0}


def local_actors_killed_bits(folder: Path, *arguments: object, period: float = 1.5, actors: int = 2, seed: int = 2) -> dict:
    """Deterministic: with actors killed all along, the parameters of the undisturbed run."""
    arguments = (*arguments, DETERMINISTIC, f"fleet.actors={actors}")
    want = undisturbed(folder, *arguments)
    training, hunter = Training(folder / "run", *arguments), Hunter(seed)
    try:
        start = time.monotonic()
        training.wait_for_updates(1)
        while training.running():
            update, deadline = training.last()["update"], time.monotonic() + 90
            hunter.send(training.children())
            time.sleep(hunter.chosen.uniform(0.5, 1.5) * period)
            # on a busy machine an actor that is never left to start would be given up
            while training.running() and training.last()["update"] == update:
                assert time.monotonic() < deadline, training.text()[-2000:]
                time.sleep(0.05)
        assert training.wait() == 0, training.text()[-2000:]
    finally:
        training.kill()
    result = training.result()
    assert hunter.kills > 0 and result["respawns"] >= 1 and result["drops"]["lost_episodes"] >= 1, (hunter.kills, result)
    assert result["parameter_hash"] == want["parameter_hash"]
    assert (result["frames"], result["episodes"]) == (want["frames"], want["episodes"])
    return {"seconds": round(time.monotonic() - start), "kills": hunter.kills, "respawns": result["respawns"],
            "drops": counted(result["drops"]), "updates": result["updates"], "same_hash": True}


def remote_actors_killed_bits(folder: Path, frames: int, period: float = 0.1, seed: int = 3) -> dict:
    """Deterministic: of native remote actors, twice as many as are needed, one is killed every `period` and another
    one comes."""
    arguments = (*CARTPOLE, DETERMINISTIC, f"learn.frames={frames}")
    want = undisturbed(folder, *arguments)
    address, chosen, kills = f"unix:{folder}/s/socket", random.Random(seed), 0
    training = Training(folder / "run", *arguments, listen=address)
    crew = [Actor(folder, address, 8) for _ in range(8)]
    try:
        start = time.monotonic()
        for _ in every(period):
            if not training.running():
                break
            i = chosen.randrange(len(crew))
            kills += crew[i].running()
            crew[i].kill()
            crew[i] = Actor(folder, address, 8)
        assert training.wait() == 0, training.text()[-2000:]
    finally:
        for process in (training, *crew):
            process.kill()
    result = training.result()
    assert kills > 5 and result["drops"]["lost_episodes"] > 0
    assert result["parameter_hash"] == want["parameter_hash"]
    assert (result["frames"], result["episodes"]) == (want["frames"], want["episodes"])
    wrong = {"remote_" + r for r in ("duplicate", "stale", "foreign", "malformed", "oversized", "not_finite", "out_of_range", "expired")}
    assert not wrong & set(counted(result["drops"]))
    return {"seconds": round(time.monotonic() - start), "kills": kills, "respawns": result["respawns"],
            "drops": counted(result["drops"]), "updates": result["updates"], "same_hash": True}


# --- 2. actors freeze

def local_actors_frozen(folder: Path, *arguments: object, actors: int = 3, period: float = 1.0, timeout: float = 3,
                        seed: int = 4) -> dict:
    """Deterministic: actors stop at random; half of them go on a little later, the others are found out after
    fleet.step_timeout."""
    arguments = (*arguments, DETERMINISTIC, f"fleet.actors={actors}", f"fleet.step_timeout={timeout}")
    want = undisturbed(folder, *arguments)
    training, hunter = Training(folder / "run", *arguments), Hunter(seed)
    frozen, continued = 0, 0
    try:
        start = time.monotonic()
        training.wait_for_updates(1)
        while training.running():
            pid = hunter.send(training.children(), signal.SIGSTOP)
            frozen += pid > 0
            time.sleep(hunter.chosen.uniform(0.5, 1.5) * period)
            if pid and frozen % 2:
                continued += hunter.send([pid], signal.SIGCONT) > 0
            else:
                time.sleep(timeout)
            # an episode that stands still over several freezes would be taken for one that freezes its actors
            begin = training.last()["update"]
            while training.running() and training.last()["update"] < begin + 2:
                time.sleep(0.05)
        assert training.wait() == 0, training.text()[-2000:]
    finally:
        training.kill()
    result = training.result()
    assert frozen > 1 and continued > 0 and result["respawns"] > 0
    assert result["parameter_hash"] == want["parameter_hash"]
    return {"seconds": round(time.monotonic() - start), "frozen": frozen, "continued": continued,
            "respawns": result["respawns"], "drops": counted(result["drops"]), "updates": result["updates"],
            "same_hash": True}


def remote_actors_frozen(folder: Path, seconds: float, seed: int = 5) -> dict:
    """One of four remote actors stops; every other one goes on before its lease is over, the rest long after it."""
    address, chosen = f"unix:{folder}/s/socket", random.Random(seed)
    training = Training(folder / "run", *CARTPOLE, SIMULATORS, FOREVER, "fleet.actors=1", listen=address)
    crew = [Actor(folder, address, 8, *(("--threads", 1) if i < 3 else ()), python=i == 3, env=SIMULATED)
            for i in range(4)]
    frozen, expiries, slowest = 0, 0, 0.0
    try:
        training.wait_for(lambda line: line["live_slots"] == 32)
        end = time.monotonic() + seconds
        while time.monotonic() < end or frozen < 2:
            actor = crew[frozen % 4] if frozen < 4 else chosen.choice(crew)
            expired = training.last()["drops"]["remote_expired"]
            actor.signal(signal.SIGSTOP)
            frozen += 1
            if frozen % 2:  # its lease of 10 s ends
                begin = time.monotonic()
                training.wait_for(lambda line: line["drops"]["remote_expired"] == expired + 1, 30)
                slowest = max(slowest, time.monotonic() - begin)
                expiries += 1
                training.wait_for(lambda line: line["live_slots"] == 24, 30)
                training.wait_for_updates(2, 30)  # the others go on
            else:
                time.sleep(chosen.uniform(1, 4))
            actor.signal(signal.SIGCONT)
            training.wait_for(lambda line: line["live_slots"] == 32, 60)
            training.wait_for_updates(1, 30)
        last = training.stop()
        assert all(actor.running() for actor in crew), "they wait for the engine"
    finally:
        for process in (training, *crew):
            process.signal(signal.SIGCONT)
            process.kill()
    check_updates(training.lines())
    assert last["drops"]["remote_expired"] == expiries
    assert set(counted(last["drops"])) <= {"lost_episodes", "partial_unrolls", "remote_expired", "stale_events",
                                           "remote_duplicate", "remote_stale"}
    return {"seconds": seconds, "frozen": frozen, "leases_expired": expiries, "slowest_to_notice": round(slowest, 1),
            "updates": last["update"], "drops": counted(last["drops"]), "violations": 0}


# --- 3. the engine is killed

def saved(run: Path) -> int:
    """The newest checkpoint's update; -1 without one."""
    steps = [json.loads(m.read_text())["step"] for m in run.glob("checkpoints/ckpt-*/manifest.json")]
    return max(steps, default=-1)


def watch_and_kill(training: Training, life: float, early: bool) -> float:
    """Kills it so many seconds after it began to listen, or `early` after its start; the seconds between listening and
    the first update, or infinity."""
    begin = training.last().get("update", -1)
    end, listens, first = time.monotonic() + (life if early else 60), 0.0, float("inf")
    while training.running() and (now := time.monotonic()) < end:
        if not listens and "listens at" in training.text():
            listens = now
            end = end if early else now + life
        if listens and first == float("inf") and training.last().get("update", -1) > begin:
            first = now - listens
        time.sleep(0.02)
    assert training.process.poll() in (None, 0), training.text()[-2000:]
    training.kill()
    return first


def engine_killed(folder: Path, frames: int, *more: object, longest: float = 3, seed: int = 6) -> dict:
    """The engine is killed at random moments and resumed; the same two remote actors, one of them in Python, wait and
    come back."""
    address, chosen, run = f"unix:{folder}/s/socket", random.Random(seed), folder / "run"
    arguments = (*CARTPOLE, SIMULATORS, "fleet.actors=1", f"learn.frames={frames}", *more)
    want = undisturbed(folder, *arguments) if DETERMINISTIC in more else None
    crew = [Actor(folder, address, 16, "--threads", 1, env=SIMULATED),
            Actor(folder, address, 16, python=True, env=SIMULATED)]
    starts, kills, resumes, slowest = 0, 0, 0, 0.0
    start = time.monotonic()
    try:
        while not (run / "result.json").exists():
            starts += 1
            ledger = saved(run)
            training = Training(run, *arguments, listen=address)
            first = watch_and_kill(training, chosen.uniform(0.3, longest), early=starts % 5 == 0)
            kills += not (run / "result.json").exists()
            # never behind the checkpoint that was there
            resumed = re.findall(r"resumed after update (\d+)", training.text())
            if resumed:
                resumes += 1
                assert int(resumed[0]) >= ledger, (resumed, ledger)
                slowest = max(slowest, first) if first < float("inf") else slowest
            # actors outlive it
            assert all(actor.running() or actor.wait() == 0 for actor in crew), [actor.text()[-500:] for actor in crew]
            assert time.monotonic() - start < 3600, "no progress"
        codes = [actor.wait(40) for actor in crew]
    finally:
        for actor in crew:
            actor.kill()
    assert codes == [0, 0], [actor.text()[-500:] for actor in crew]
    result = training.result()
    assert frames <= result["frames"] < frames + FRAMES_AN_UPDATE and kills > 1 and resumes > 0
    assert result["frames"] == result["updates"] * FRAMES_AN_UPDATE
    if want:
        assert result["parameter_hash"] == want["parameter_hash"]
        assert (result["frames"], result["episodes"]) == (want["frames"], want["episodes"])
    return {"seconds": round(time.monotonic() - start), "starts": starts, "kills": kills, "resumes": resumes,
            "slowest_first_update": round(slowest, 1), "frames": result["frames"], "updates": result["updates"],
            "actors_that_gave_up": 0, "drops": counted(result["drops"]), "same_hash": want is not None}


# --- 4. links are cut

def links_cut(folder: Path, link: Link, seconds: float, deterministic: bool = False, seed: int = 7) -> dict:
    """Half of the environments lie behind a link that is cut again and again, cleanly and silently by turns; TLS and a
    token. Free-running the others go on, deterministic the run waits and ends with the undisturbed one's bits."""
    ok("certificates", folder / "pki", "--host", link.address)
    ok("token", folder / "token")
    pki, chosen = folder / "pki", random.Random(seed)
    terms = ("--certificate", pki / "engine.pem", "--key", pki / "engine.key", "--client-ca", pki / "ca.pem",
             "--token-file", folder / "token")
    secrets = ("--ca", pki / "ca.pem", "--certificate", pki / "actor.pem", "--key", pki / "actor.key",
               "--token-file", folder / "token")
    training = Training(folder / "run", *CARTPOLE, FOREVER, *([DETERMINISTIC] if deterministic else []),
                        listen=f"{link.address}:0", terms=terms)
    crew: list[Background] = []
    cuts, slowest_free, slowest_rejoin = 0, 0.0, 0.0
    try:
        while "listens at" not in training.text():
            assert training.running(), training.text()
            time.sleep(0.05)
        address = re.findall(r"listens at (\S+?):? ", training.text())[0]
        crew = [Actor(folder, address, 16, *secrets), Actor(folder, address, 16, *secrets, prefix=link.prefix)]
        training.wait_for_updates(2)
        start = time.monotonic()
        while cuts < 2 or time.monotonic() - start < seconds:
            cut, heal = ((link.down, link.up), (link.swallow, link.deliver))[cuts % 2]
            gone = training.text().count(": gone, with 16 slots")
            cut()
            begin = time.monotonic()
            while training.text().count(": gone, with 16 slots") == gone:
                assert time.monotonic() - begin < 20, training.text()[-1000:]
                time.sleep(0.02)
            slowest_free = max(slowest_free, time.monotonic() - begin)
            cuts += 1
            if not deterministic:
                training.wait_for_updates(2, 30)
            time.sleep(chosen.uniform(0, 5))
            joined = training.text().count("32 of 32 slots live")
            heal()
            begin = time.monotonic()
            while training.text().count("32 of 32 slots live") == joined:
                assert time.monotonic() - begin < 30, training.text()[-1000:]
                time.sleep(0.02)
            slowest_rejoin = max(slowest_rejoin, time.monotonic() - begin)
            training.wait_for_updates(2, 30)
            assert all(actor.running() for actor in crew), [actor.text()[-500:] for actor in crew]
        last = training.stop()
    finally:
        for process in (training, *crew):
            process.kill()
    check_updates(training.lines())
    # a lease of 10 s; the longest back-off of 15 s and an attempt's time
    assert slowest_free < 14 and slowest_rejoin < 28
    # gRPC may notice either kind of cut before the lease does
    assert last["drops"]["remote_expired"] <= cuts and last["respawns"] >= cuts
    result = {"seconds": round(time.monotonic() - start), "cuts": cuts, "slowest_to_notice": round(slowest_free, 1),
              "slowest_to_rejoin": round(slowest_rejoin, 1), "updates": last["update"], "drops": counted(last["drops"])}
    if deterministic:
        # as many updates without actors elsewhere
        want = undisturbed(folder, *CARTPOLE, FOREVER, DETERMINISTIC, f"learn.updates={last['update']}")
        found = ok("hash", folder / "run", "--json").json
        assert found == {"update": last["update"], "parameter_hash": want["parameter_hash"]}
        result["same_hash"] = True
    return result


# --- 5. wrong messages

def attacked(folder: Path, trials: int, deterministic: bool = False) -> dict:
    """A peer that has a lease says everything that is wrong, among three good actors. Deterministic: to the bits of the
    undisturbed run, once a fourth one comes."""
    from remote_attack import attack, check_ends, spec_of_engine

    address = f"unix:{folder}/s/socket"
    training = Training(folder / "run", *CARTPOLE, FOREVER, *([DETERMINISTIC] if deterministic else []), listen=address)
    crew = []
    try:
        while "listens at" not in training.text():
            assert training.running(), training.text()
            time.sleep(0.05)
        spec = spec_of_engine(address)
        crew = [Actor(folder, address, 8) for _ in range(3)]
        while "24 of 32 slots live" not in training.text():
            time.sleep(0.05)
        start = time.monotonic()
        ends = attack(address, spec, trials)
        took = time.monotonic() - start
        meanwhile = training.last() if deterministic else training.wait_for_updates(2)
        crew.append(Actor(folder, address, 8))
        training.wait_for(lambda line: line["live_slots"] == 32)
        training.wait_for_updates(5)
        # before the stop, which ends them too
        assert all(actor.running() for actor in crew), [actor.text()[-500:] for actor in crew]
        last = training.stop()
    finally:
        for process in (training, *crew):
            process.kill()
    drops = last["drops"]
    check_ends(ends, {"drops": {k.removeprefix("remote_"): n for k, n in drops.items()}, "out_of_order": 0}, trials)
    check_updates(training.lines())
    result = {"seconds": round(took), "wrong_messages": trials, "kinds": len(ends), "updates": last["update"],
              "updates_meanwhile": meanwhile.get("update", 0), "drops": counted(drops)}
    if deterministic:
        want = undisturbed(folder, *CARTPOLE, FOREVER, DETERMINISTIC, f"learn.updates={last['update']}")
        assert ok("hash", folder / "run", "--json").json["parameter_hash"] == want["parameter_hash"]
        result["same_hash"] = True
    return result


# --- 6. many streams

class Streams(Background):
    """tests/remote_streams.cc: actors of one slot each, all in one process. Their thousands of threads stand in for other
    machines: they yield to the engine."""

    def __init__(self, folder: Path, address: str, count: int) -> None:
        self.log = folder / f"streams-{os.urandom(4).hex()}.log"
        with open(self.log, "wb") as file:
            self.process = subprocess.Popen(
                ["nice", "-n", "15", str(ROOT / "build/remote_streams"), address, "CartPole-v1", str(count)], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=file, text=True, env=environment())

    def ask(self) -> dict:
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def jain(counts: list[int]) -> float:
    return sum(counts) ** 2 / (len(counts) * sum(n * n for n in counts))


def resident_kb(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def many_streams(folder: Path, streams: int, seconds: float, processes: int = 4) -> dict:
    """One training run whose environments are `streams` remote actors of one slot each, from few processes."""
    address = f"unix:{folder}/s/socket"
    training = Training(folder / "run", *CARTPOLE, FOREVER, f"learn.environments={streams}", listen=address)
    crew: list[Streams] = []
    try:
        while "listens at" not in training.text():
            assert training.running(), training.text()
            time.sleep(0.05)
        time.sleep(1)
        alone = resident_kb(training.process.pid)
        start = time.monotonic()
        parts = [streams // processes + (i < streams % processes) for i in range(processes)]
        crew = [Streams(folder, address, part) for part in parts]
        while f"{streams} of {streams} slots live" not in training.text():
            # lines of that many actors are rate-limited in the log: the metrics know as well
            if training.last().get("live_slots") == streams:
                break
            assert training.running() and time.monotonic() - start < 120, training.last()
            time.sleep(0.05)
        connected = time.monotonic() - start
        training.wait_for_updates(2)
        before = [n for part in crew for n in part.ask()["steps"]]
        begin, begun = training.last(), time.monotonic()
        time.sleep(seconds)
        after = [n for part in crew for n in part.ask()["steps"]]
        took = time.monotonic() - begun
        grown = resident_kb(training.process.pid) - alone
        last = training.wait_for_updates(1)
        saved = training.stop()
    finally:
        for process in (training, *crew):
            process.kill()
    check_updates(training.lines())
    steps = [b - a for a, b in zip(before, after, strict=True)]
    drops = counted(saved["drops"])
    assert saved["live_slots"] == streams, saved["live_slots"]
    # thousands of threads next to the engine may keep it, or themselves, from a lease's signs of life
    assert set(drops) <= {"lost_episodes", "partial_unrolls", "remote_expired"}, drops
    result = {"streams": streams, "processes": processes, "connect_seconds": round(connected, 1),
              "rows_per_second": round(sum(steps) / took), "updates": last["update"] - begin["update"],
              "kb_per_stream": round(grown / streams, 1), "fairness": round(jain(steps), 4),
              "fewest_steps": min(steps), "most_steps": max(steps), "drops": drops}
    assert result["connect_seconds"] <= 60 and result["fairness"] >= 0.95 and result["kb_per_stream"] <= 100, result
    return result
