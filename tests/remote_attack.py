"""Everything wrong that a peer with a token can say to an engine that plays CartPole."""

from __future__ import annotations

import random
import struct
import time

import grpc
import numpy as np
from remote_peer import CARTPOLE, Peer, wire


def answer(commands, peer, spoil=None, observation=(0.0, 0.1, 0.2, 0.3)) -> bytes:
    rows = np.zeros(len(commands), wire.EVENT)
    for field in ("sequence", "episode", "slot", "step"):
        rows[field] = commands[field]
    rows["reward"], rows["frames"] = 1.0, 1
    if spoil:
        spoil(rows)
    return wire.events(peer.incarnation, rows, np.tile(np.array(observation, "<f4"), (len(commands), 1)))


def spec_of_engine(address) -> dict:
    """CartPole's spec with the version that the engine names when it refuses another one."""
    with grpc.insecure_channel(address) as channel:
        peer = Peer(channel)
        peer.send(wire.hello("?", 1, CARTPOLE | {"version": "?"}))
        try:
            next(peer.call)
        except grpc.RpcError as error:
            found = error.details()
        peer.close()
    assert "version ? instead of " in found, found
    return CARTPOLE | {"version": found.split("version ? instead of ")[1]}


def wrong_messages(peer, commands, chosen):
    """(what it is, bytes, whether the stream ends at once) of one wrong message."""
    good = answer(commands, peer)
    flip = bytearray(good)
    flip[chosen.randrange(4)] ^= 1 << chosen.randrange(1, 8)
    inc = bytearray(good)
    inc[8 + chosen.randrange(8)] ^= 1 << chosen.randrange(8)
    nan = [float("nan"), float("inf"), -float("inf")]

    def set_field(name, value):
        return answer(commands, peer, lambda rows: rows.__setitem__(name, value))

    huge = chosen.getrandbits(32)
    return [
        ("length - 1", good[:-1], True),
        ("length + 1", good + b"x", True),
        ("empty", b"", True),
        ("random", chosen.randbytes(chosen.randrange(1, 3000)), True),
        ("no rows announced", struct.pack("<IIQ", wire.EVENTS, 0, peer.incarnation) + b"abc", True),
        ("many rows announced", struct.pack("<IIQ", wire.EVENTS, 2**32 - 1, peer.incarnation) + good[16:], True),
        ("kind", bytes(flip), True),
        ("incarnation", bytes(inc), True),
        ("hello again", wire.hello("again", 1, CARTPOLE), True),
        ("slot", set_field("slot", max(1, huge)), False),
        ("sequence", set_field("sequence", chosen.getrandbits(64) | 1 << 40), False),
        ("episode", set_field("episode", chosen.getrandbits(64) | 1 << 40), False),
        ("step", set_field("step", max(1, huge)), False),
        ("frames", set_field("frames", 1_000_001 + huge // 2), False),
        ("flags", set_field("flags", 16 << chosen.randrange(20)), False),
        ("reward", set_field("reward", chosen.choice(nan)), False),
        ("observation", answer(commands, peer, observation=(0, chosen.choice(nan), 0, 0)), False),
        ("large reward", set_field("reward", chosen.choice([1e30, -1e300, 1.1e6])), False),
        ("large observation", answer(commands, peer, observation=(0, chosen.choice([3e38, -1e7]), 0, 0)), False),
    ]


def join_when_free(channel, spec, name):
    """The slot of the peer before may still be on its way back."""
    deadline = time.monotonic() + 20
    while True:
        peer = Peer(channel)
        try:
            peer.join(spec, name=name)
            return peer
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def attack(address, spec, trials, seed=3):
    """Wrong messages from one peer at a time; how often each ended how."""
    ends: dict[str, set] = {}
    chosen = random.Random(seed)
    channel = None
    for trial in range(trials):
        if trial % 50 == 0:
            if channel:
                channel.close()
            channel = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
        peer = join_when_free(channel, spec, f"wrong {trial}")
        commands = peer.commands()
        kinds = wrong_messages(peer, commands, chosen)
        name, message, fatal = kinds[trial % len(kinds)]
        peer.send(message)
        if fatal:
            ends.setdefault(name, set()).add(peer.status())
        else:
            peer.send(wire.HEADER.pack(wire.EVENTS, 0, peer.incarnation))
            peer.send(b"")  # and out: the learner process had still listened
            ends.setdefault(name, set()).add(peer.status())
    channel.close()
    return ends


def check_ends(ends, last, trials):
    Code = grpc.StatusCode
    expected = {"length + 1": {Code.RESOURCE_EXHAUSTED}, "incarnation": {Code.ABORTED},
                "random": {Code.INVALID_ARGUMENT}}
    for name, codes in ends.items():
        assert codes == expected.get(name, {Code.INVALID_ARGUMENT}), name
    drops = last["drops"]
    # what does not end the stream is counted, and so is the message that then ended it
    wrong = sum(drops[k] for k in ("duplicate", "stale", "foreign", "malformed", "oversized", "not_finite", "out_of_range"))
    assert wrong >= trials and last["out_of_order"] == 0
    assert all(drops[k] > 0 for k in ("stale", "foreign", "malformed", "oversized", "not_finite", "out_of_range"))
