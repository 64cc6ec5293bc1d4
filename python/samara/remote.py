# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A remote actor in Python: ``python -P -m samara.actor --connect ADDR --env ID --slots N``.

It steps environments in this process, one after the other, for a learner process on another machine; start one process per
core. EnvPool's tasks whose pools are kept (``fresh=false``; Football) share one pool with its own threads: doc/remote_actors.md
says where that pays. For Atari games ``samara actor`` is the better choice: there the emulators are processes of their own. Exit
codes: 0 training has finished, 69 no learner process, 75 stopped by a signal, 77 and 78 refused by the learner process.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import re
import signal
import socket
import ssl
import stat
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from samara import _native, wire
from samara.environment import CONFIG, NO_INPUT, PREFIXES, USAGE, Batch, Environment, SetupError, Step, how_to_install, make, make_batch
from samara.messages import one_line, spec_fields

BAD_DATA, UNAVAILABLE, STOPPED, NOT_PERMITTED = 65, 69, 75, 77
BACKOFF_FIRST, BACKOFF_LAST = 0.1, 10.0
FLUSH_SECONDS = 0.002  # rows wait so long for others of their message
WELCOME_SECONDS = 60.0  # until Hello is answered; gRPC's keepalive detects a learner process that has ended
# the addresses that `samara actor` accepts too (src/fleet/remote/address.cc)
ADDRESS = re.compile(r"unix:(?:.*[^/])|(?:[^\s/:]+|\[[0-9a-fA-F:.]+\]):\d{1,5}")
TOKEN = re.compile(rb"[!-~]{32,1024}")
FAILURES_MAX = 5  # of one environment without an episode that ended


class Ended(SetupError):
    """The end of this actor: an exit code, and one line with the reason."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are Ended."""

    def error(self, message: str) -> NoReturn:
        """Raises Ended."""
        raise Ended(USAGE, f"{message}; see --help")


def parse_arguments(given: list[str]) -> argparse.Namespace:
    """Parses and checks the command line; raises Ended."""
    parser = Parser(prog="python -m samara.actor", description=__doc__.split("\n")[0])
    parser.add_argument("--connect", required=True, help="unix:/folder/socket or HOST:PORT")
    parser.add_argument("--env", required=True, help="atari/GAME, dummy, an id of Gymnasium, envpool:TASK, dmlab:LEVEL,"
                        " or an adapter's configuration as a JSON object")
    parser.add_argument("--preset", default="ale-v5", help="of Atari games: `samara list envs` (default ale-v5)")
    parser.add_argument("--slots", type=int, default=1, help="environments")
    parser.add_argument("--threads", type=int, default=0, help="of a batched simulator (EnvPool); 0: as many as cores")
    parser.add_argument("--token-file", type=Path)
    parser.add_argument("--ca", type=Path, help="TLS: certificate authority of the learner process's certificate (PEM)")
    parser.add_argument("--certificate", type=Path, help="this actor's certificate, which learner processes on other machines require (PEM)")
    parser.add_argument("--key", type=Path, help="private key of the certificate (PEM)")
    parser.add_argument("--connect-timeout", type=float, default=60.0, help="seconds until the first connection")
    parser.add_argument("--reconnect-timeout", type=float, default=3600.0,
                        help="seconds to reconnect after a connection was lost")
    parser.add_argument("--json", action="store_true", help="last line: one JSON object")
    arguments = parser.parse_args(given)
    if not 1 <= arguments.slots <= 65536:
        raise Ended(CONFIG, f"--slots {arguments.slots}: expected 1 to 65536")
    if not 0 <= arguments.threads <= 4096:
        raise Ended(CONFIG, f"--threads {arguments.threads}: expected 0 to 4096")
    for name in ("connect_timeout", "reconnect_timeout"):
        if not 0.0 <= getattr(arguments, name) <= 1e7:
            raise Ended(USAGE, f"--{name.replace('_', '-')} {getattr(arguments, name)}: expected 0 to 1e7")
    if not ADDRESS.fullmatch(arguments.connect):
        raise Ended(CONFIG, f"address {arguments.connect!r}: expected unix:/folder/socket, HOST:PORT or [IPV6]:PORT,"
                            " such as 127.0.0.1:7777")
    return arguments


def environment_config(given: str, preset: str) -> dict[str, Any]:
    """Returns the configuration of an adapter for --env and --preset."""
    config: Any = {"kind": "dummy"} if given == "dummy" else {"kind": "gym", "id": given}
    if given.startswith("atari/"):
        config = {"kind": "atari", "game": given.removeprefix("atari/"), "preset": preset}
    elif given.startswith("{"):
        try:
            config = json.loads(given)
        except json.JSONDecodeError as error:
            raise SetupError(CONFIG, f"--env: expected a JSON object: {error}") from error
    if config.get("kind") == "atari" and isinstance(config.setdefault("preset", preset), str):
        try:
            config["preset"] = json.loads(_native.atari_preset(config["preset"]))
        except ValueError as error:
            raise SetupError(CONFIG, str(error)) from error
    if config.get("kind") == "gym" and (names_module(config.get("id")) or config.get("wrappers")):
        config["path"] = os.getcwd()
    return config


def names_module(given: Any) -> bool:
    """Returns whether an id names a module, as ``module:Name-v0`` does, and not an adapter."""
    return isinstance(given, str) and ":" in given and given.partition(":")[0] not in PREFIXES


def read_token(file: Path) -> str:
    """Returns the token in a file that others may not read; raises Ended."""
    try:
        mode = file.stat().st_mode
        token = file.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise Ended(NO_INPUT, f"{file}: {error.strerror}: `samara token FILE` makes one") from error
    if stat.S_IMODE(mode) & 0o077:
        raise Ended(NOT_PERMITTED, f"{file}: others may read this token: chmod 600 {file}")
    if not TOKEN.fullmatch(token):
        raise Ended(BAD_DATA, f"{file}: expected one token of 32 to 1024 printable characters: `samara token FILE` makes one")
    return token.decode()


def check_certificates(arguments: argparse.Namespace) -> None:
    """Raises Ended for files that cannot work; gRPC would only fail to connect."""
    files = ca, certificate, key = arguments.ca, arguments.certificate, arguments.key
    if (certificate is None) != (key is None):
        raise Ended(CONFIG, "--certificate and --key: expected both or neither")
    if ca is None and certificate is not None:
        raise Ended(CONFIG, "--certificate: needs --ca")
    for file in files:
        if file is not None and not os.access(file, os.R_OK):
            raise Ended(NO_INPUT, f"{file}: cannot be read")
    if key is not None and stat.S_IMODE(key.stat().st_mode) & 0o077:
        raise Ended(NOT_PERMITTED, f"{key}: others may read this key: chmod 600 {key}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        wrong = f"{ca}: no certificate in it; expected PEM"
        if ca is not None:
            context.load_verify_locations(ca)
        wrong = f"{certificate} and {key}: expected a certificate and its key, without a password, in PEM"
        if certificate is not None:
            context.load_cert_chain(certificate, key, password="")
            check_dates(certificate)
    except ssl.SSLError as error:
        raise Ended(BAD_DATA, wrong) from error


def check_dates(certificate: Path) -> None:
    """Raises Ended for a certificate that is not valid today."""
    # the one parser of certificates in Python's library
    dates = ssl._ssl._test_decode_cert(str(certificate))  # type: ignore[attr-defined]
    begin, end = (ssl.cert_time_to_seconds(dates[name]) for name in ("notBefore", "notAfter"))
    if time.time() < begin:
        raise Ended(BAD_DATA, f"{certificate}: not yet valid; is this machine's clock right?")
    if time.time() > end:
        raise Ended(BAD_DATA, f"{certificate}: no longer valid: make another one (`samara certificates`);"
                              " is this machine's clock right?")


def is_local(address: str) -> bool:
    """Returns whether an address is on this machine."""
    host = address.rpartition(":")[0].strip("[]")
    return address.startswith("unix:") or host == "localhost" or host == "::1" or host.startswith("127.")


class Slots:
    """The environments of this actor, and the rows that wait to be sent. Used by one thread."""

    def __init__(self, config: dict[str, Any], count: int, threads: int) -> None:
        self.config = config | {"actor": 0, "incarnation": 0}
        self.count = count
        self.environments: list[Environment] = []
        try:
            self.batch: Batch | None = make_batch(self.config, count, threads or len(os.sched_getaffinity(0)))
            if self.batch is None:
                self.environments = [make(self.config) for _ in range(count)]
        except (SetupError, MemoryError):
            raise
        except Exception as error:  # the simulator's own
            raise SetupError(CONFIG, f"--env: {one_line(error)}") from error
        self.spec = (self.batch or self.environments[0]).spec
        values = 0 if self.spec.action_discrete else self.spec.action_n
        self.command = wire.command_type(values)
        dtype = np.uint8 if self.spec.observation_dtype == "uint8" else np.float32
        # rows that wait to be sent
        self.rows = np.zeros(count, wire.EVENT)
        self.observations = np.zeros((count, *self.spec.observation_shape), dtype)
        self.waiting = 0
        self.failures = [0] * count  # of each simulator since one of its episodes ended
        self.begun: set[int] = set()  # slots with an episode in the batch
        self.steps = 0

    def event_bytes(self) -> int:
        """Returns the size of an event with its observation."""
        return wire.EVENT.itemsize + self.observations[0].nbytes

    def serve(self, commands: np.ndarray) -> Iterator[None]:
        """Executes commands; yields after each row that waits to be sent."""
        if len(np.unique(commands["slot"])) < len(commands):
            raise wire.Malformed("two commands for one slot")
        if self.batch is None:
            for command in commands:
                self.serve_alone(command)
                yield
            return
        # steps of episodes that were lost with an earlier simulator
        self.begun.update(commands["slot"][commands["kind"] == wire.RESET].tolist())
        alive = np.array([slot in self.begun for slot in commands["slot"].tolist()], bool)
        for command in commands[~alive]:
            self.add(command, None)
            yield
        asked = {int(command["slot"]): command for command in commands[alive]}
        try:
            self.batch.start(commands[alive])
            while asked:
                slot, step = self.batch.finish(self.observations[self.waiting])
                self.add(asked.pop(slot), step)
                yield
        except Exception as error:  # the simulator's own: all that it had begun is lost
            self.count_failure(0, self.spec.id, error)
            self.batch.restart()
            self.begun.clear()
            for command in asked.values():
                self.add(command, None)
                yield

    def serve_alone(self, command: np.void) -> None:
        """Executes one command in its slot's own environment."""
        slot, observation = int(command["slot"]), self.observations[self.waiting]
        try:
            environment = self.environments[slot]
            if command["kind"] == wire.RESET:
                environment.reset(int(command["seed"]), int(command["argument"]), int(command["frames_max"]), observation)
                step = Step(0.0, False, False, False, 0)
            else:
                action = int(command["argument"]) if self.spec.action_discrete else command["values"]
                step = Step(*environment.step(action, observation))
        except Exception as error:  # the simulator's own: its episode is lost, the actor continues
            self.count_failure(slot, f"{self.spec.id}, slot {slot}", error)
            self.environments[slot] = make(self.config)
            step = None
        self.add(command, step)

    def add(self, command: np.void, step: Step | None) -> None:
        """Adds the row that answers a command, whose observation is written already. None: the episode is lost."""
        slot = int(command["slot"])
        reward, frames, flags = 0.0, 0, wire.LOST
        if step is not None:
            reward, terminated, truncated, life_lost, frames = step
            flags = (bool(terminated) * wire.TERMINATED | bool(truncated) * wire.TRUNCATED
                     | bool(life_lost) * wire.LIFE_LOST)
            self.steps += int(command["kind"] == wire.ACT)
            if terminated or truncated:
                self.failures[slot if self.batch is None else 0] = 0
        self.rows[self.waiting] = (command["sequence"], command["episode"], reward, slot, command["step"], frames, flags)
        self.waiting += 1

    def count_failure(self, simulator: int, name: str, error: Exception) -> None:
        """Prints a failure; raises Ended when a simulator keeps failing."""
        self.failures[simulator] += 1
        line = f"{name}: {one_line(error)}"
        if self.failures[simulator] >= FAILURES_MAX:
            raise Ended(UNAVAILABLE, f"{line} ({FAILURES_MAX} times in a row without finishing an episode)") from error
        print(f"actor: {line}: created again", file=sys.stderr)

    def take(self, incarnation: int) -> bytes:
        """Returns the waiting rows as a message."""
        n, self.waiting = self.waiting, 0
        return wire.events(incarnation, self.rows[:n], self.observations[:n])


class Stream:
    """One connection."""

    def __init__(self, channel: Any, slots: Slots, name: str, token: str) -> None:
        self.slots = slots
        self.outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.outgoing.put(wire.hello(name, slots.count, spec_fields(slots.spec)))
        method = channel.stream_stream(wire.METHOD, request_serializer=None, response_deserializer=None)
        metadata = [("authorization", f"Bearer {token}")] if token else None
        self.call = method(self.requests(), metadata=metadata)
        self.welcome: dict[str, Any] = {}
        self.shutdown = False
        self.closed = threading.Event()
        self.sent = self.received = time.monotonic()

    def requests(self) -> Iterator[bytes]:
        """Yields the messages to send, for gRPC."""
        while (message := self.outgoing.get()) is not None:
            yield message

    def send(self, message: bytes) -> None:
        """Queues a message."""
        self.sent = time.monotonic()
        self.outgoing.put(message)

    def keep_alive(self) -> None:
        """Sends heartbeats while environments are slow; cancels the stream of a silent learner process."""
        before = time.monotonic()
        while not self.closed.wait(0.2):
            now = time.monotonic()
            self.received += max(0.0, now - before - 1.0)  # when this process did not run
            before = now
            if now - self.received > self.welcome.get("lease", WELCOME_SECONDS):
                self.call.cancel()
            elif self.welcome and now - self.sent > self.welcome["heartbeat"]:
                self.send(wire.HEADER.pack(wire.EVENTS, 0, self.welcome["incarnation"]))

    def run(self) -> None:
        """Serves until the learner process ends the stream: raises grpc.RpcError, or returns after a shutdown notice."""
        keeper = threading.Thread(target=self.keep_alive, name="keep alive", daemon=True)
        keeper.start()
        try:
            for message in self.call:
                self.received = time.monotonic()
                self.take(wire.parse(message))
                if self.shutdown:
                    return
        finally:
            self.closed.set()
            self.outgoing.put(None)
            self.call.cancel()
            keeper.join()
            self.slots.waiting = 0

    def take(self, message: wire.Message) -> None:
        """Handles a message of the learner process."""
        if message.kind == wire.WELCOME:
            self.welcome = wire.parse_text(message)
            print(f"actor: connected, {self.welcome['slots']} slots", file=sys.stderr)
        elif message.kind == wire.SHUTDOWN:
            self.shutdown = True
        elif message.kind == wire.COMMANDS and self.welcome:
            self.serve(wire.parse_commands(message, self.slots.command))
        else:
            raise wire.Malformed(f"kind {message.kind}")

    def serve(self, commands: np.ndarray) -> None:
        """Executes commands and sends their rows, at most `events_max` a message."""
        slots, most = self.slots, self.welcome["events_max"]
        if len(commands) and commands["slot"].max() >= min(self.welcome["slots"], slots.count):
            raise wire.Malformed(f"a command for slot {commands['slot'].max()}")
        start = time.monotonic()
        for _ in slots.serve(commands):
            now = time.monotonic()
            if slots.waiting >= most or now - start > FLUSH_SECONDS:
                self.send(slots.take(self.welcome["incarnation"]))
                start = now
        if slots.waiting:
            self.send(slots.take(self.welcome["incarnation"]))


def make_channel(grpc: Any, arguments: argparse.Namespace, slots: Slots) -> Any:
    """Returns a channel to the learner process, with TLS if --ca is given."""
    limit = max(1 << 20, slots.event_bytes(), slots.command.itemsize * slots.count) + (64 << 10)
    options = [
        ("grpc.max_receive_message_length", limit),
        ("grpc.max_send_message_length", -1),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.max_frame_size", 256 << 10),
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if arguments.ca is None:
        return grpc.insecure_channel(arguments.connect, options)
    files = [file.read_bytes() if file else None for file in (arguments.ca, arguments.key, arguments.certificate)]
    return grpc.secure_channel(arguments.connect, grpc.ssl_channel_credentials(*files), options)


def verdict(grpc: Any, error: Any) -> None:
    """Raises Ended if another attempt is useless."""
    code = error.code()
    line = f"the learner process refused this actor: {' '.join((error.details() or code.name).split())}"
    if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        raise Ended(NOT_PERMITTED, line)
    if code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED):
        raise Ended(CONFIG, line)


def advice(said: str, arguments: argparse.Namespace) -> str:
    """Returns advice for a user whose actor cannot connect, from the last message of gRPC or the learner process."""
    for words, what in (
        ("WRONG_VERSION_NUMBER", "it speaks without TLS: leave out --ca"),
        ("CERTIFICATE_VERIFY_FAILED", "its certificate is not valid today, or not signed by --ca"),
        ("Hostname Verification", "its certificate is for other names: `samara certificates --host NAME` makes one"),
        ("try later", "give it more slots or start fewer actors"),
    ):
        if words in said:
            return what
    running = "is `samara train --listen` running there"
    if "Socket closed" not in said:
        return running + "?"
    # this end's half of a handshake is done before the other end has looked at its certificate
    if arguments.certificate is not None:
        return ("it refuses this certificate: expected one for actors that its --client-ca has signed"
                " (`samara certificates`), valid today by its clock")
    if arguments.ca is not None:
        return ("it asks actors for a certificate: give --certificate actor.pem and --key actor.key"
                " (`samara certificates`)")
    return f"{running}, without TLS{' and by this user' if is_local(arguments.connect) else ''}? if with it: --ca"


def play(arguments: argparse.Namespace, slots: Slots, token: str) -> int:
    """Connects until training has finished; returns the number of connections."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC's own messages: they are reported below
    try:
        import grpc
    except ModuleNotFoundError as error:
        raise Ended(NO_INPUT, f"remote actors in Python need the package 'grpcio': {how_to_install()}") from error
    name = f"{socket.gethostname()}-{os.getpid()}-{random.getrandbits(32):08x}"
    connections, wait, since, last = 0, BACKOFF_FIRST, time.monotonic(), "no answer"
    while True:
        with make_channel(grpc, arguments, slots) as channel:
            stream = Stream(channel, slots, name, token)
            try:
                stream.run()
                stream.shutdown = True  # a learner process ends a stream with OK only after its shutdown notice
            except grpc.RpcError as error:
                verdict(grpc, error)
                last = error.details() or str(error.code())
        if stream.welcome:
            connections, wait, since = connections + 1, BACKOFF_FIRST, time.monotonic()
        if stream.shutdown:
            return connections
        timeout = arguments.reconnect_timeout if connections else arguments.connect_timeout
        if time.monotonic() - since > timeout:
            raise Ended(UNAVAILABLE, f"{arguments.connect}: no learner process within {timeout:.0f} s ({last}): "
                                     f"{advice(last, arguments)}")
        time.sleep(wait * random.uniform(0.5, 1.5))
        wait = min(2.0 * wait, BACKOFF_LAST)


def stop(number: int, frame: object) -> NoReturn:
    """Handles a signal: raises KeyboardInterrupt."""
    raise KeyboardInterrupt  # not an Exception: those of simulators are caught


def main(given: list[str]) -> int:
    """Runs a remote actor; returns its exit code."""
    start = time.monotonic()
    for number in (signal.SIGINT, signal.SIGTERM):
        # a SIGINT that was ignored at the start, as in the background of a script, stays ignored
        if number != signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        arguments = parse_arguments(given)
        token = read_token(arguments.token_file) if arguments.token_file else ""
        if token and arguments.ca is None and not is_local(arguments.connect):
            raise Ended(NOT_PERMITTED, f"{arguments.connect}: a token must not cross a network in the clear: give --ca,"
                                       " and --certificate and --key (`samara certificates`)")
        check_certificates(arguments)
        slots = Slots(environment_config(arguments.env, arguments.preset), arguments.slots, arguments.threads)
        connections = play(arguments, slots, token)
    except (SetupError, OSError, wire.Malformed, KeyboardInterrupt) as error:
        stopped = isinstance(error, KeyboardInterrupt)
        line = "stopped" if stopped else one_line(error)
        print(f"actor: {line}", file=sys.stderr)
        code = STOPPED if stopped else error.code if isinstance(error, SetupError) else CONFIG
        if "--json" in given:
            print(json.dumps({"error": line, "exit": code}))
        return code
    if arguments.json:
        print(json.dumps({"environment": slots.spec.id, "slots": slots.count, "steps": slots.steps,
                          "connections": connections, "seconds": time.monotonic() - start}))
    return 0
