# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Messages between the learner process and a remote actor, as in src/fleet/remote/wire.h, which explains them.

A message is a header, then text (Hello, Welcome, Shutdown) or rows. All numbers are little-endian.
"""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple

import numpy as np

METHOD = "/samara.v1.Actors/Play"
MAJOR, MINOR = 1, 0

HELLO, EVENTS, WELCOME, COMMANDS, SHUTDOWN = 1, 2, 3, 4, 5  # kinds of messages
RESET, ACT = 1, 2  # kinds of commands
TERMINATED, TRUNCATED, LIFE_LOST, LOST = 1, 2, 4, 8  # flags of events

HEADER = struct.Struct("<IIQ")  # kind, rows (of text: bytes), incarnation
EVENT = np.dtype(
    [
        ("sequence", "<u8"),
        ("episode", "<u8"),
        ("reward", "<f8"),
        ("slot", "<u4"),
        ("step", "<u4"),
        ("frames", "<u4"),
        ("flags", "<u4"),
    ]
)
COMMAND = [
    ("sequence", "<u8"),
    ("episode", "<u8"),
    ("seed", "<u8"),
    ("frames_max", "<i8"),
    ("slot", "<u4"),
    ("kind", "<u4"),
    ("step", "<u4"),
    ("argument", "<i4"),
]
assert EVENT.itemsize == 40 and np.dtype(COMMAND).itemsize == 48


class Malformed(Exception):
    """A message that cannot be parsed."""


class Message(NamedTuple):
    """A header, and the bytes after it."""

    kind: int
    rows: int
    incarnation: int
    rest: memoryview


def command_type(action_values: int) -> np.dtype:
    """Returns the type of a row of commands, which holds the values of box actions."""
    return np.dtype([*COMMAND, ("values", "<f4", (action_values,))])


def parse(message: bytes) -> Message:
    """Splits a message into header and rest; raises Malformed."""
    if len(message) < HEADER.size:
        raise Malformed(f"{len(message)} bytes")
    kind, rows, incarnation = HEADER.unpack_from(message)
    return Message(kind, rows, incarnation, memoryview(message)[HEADER.size :])


def parse_text(message: Message) -> dict[str, Any]:
    """Returns the JSON object of a message of text; raises Malformed."""
    if message.rows != len(message.rest):
        raise Malformed(f"{len(message.rest)} bytes of text, {message.rows} announced")
    fields = json.loads(bytes(message.rest))
    if not isinstance(fields, dict):
        raise Malformed("no JSON object")
    return fields


def parse_commands(message: Message, row: np.dtype) -> np.ndarray:
    """Returns the rows of a message of commands; raises Malformed."""
    if len(message.rest) != message.rows * row.itemsize:
        raise Malformed(f"{len(message.rest)} bytes for {message.rows} commands of {row.itemsize}")
    return np.frombuffer(message.rest, row)


def text_message(kind: int, fields: dict[str, Any]) -> bytes:
    """Returns a message of text."""
    text = json.dumps(fields).encode()
    return HEADER.pack(kind, len(text), 0) + text


def hello(actor: str, slots: int, spec: dict[str, Any]) -> bytes:
    """Returns the first message of an actor."""
    return text_message(HELLO, {"major": MAJOR, "minor": MINOR, "actor": actor, "slots": slots, "spec": spec})


def events(incarnation: int, rows: np.ndarray, observations: np.ndarray) -> bytes:
    """Returns a message of events. `rows`: of type EVENT; `observations`: one for each; without rows it is a heartbeat."""
    header = HEADER.pack(EVENTS, len(rows), incarnation)
    return b"".join((header, rows.tobytes(), observations.tobytes()))
