"""A peer made of bytes: says to an engine whatever a test wants to say."""

from __future__ import annotations

import queue
import sys

import grpc
from samara_cli import ROOT

sys.path.insert(0, str(ROOT / "python"))
from samara import wire  # noqa: E402

CARTPOLE = {
    "id": "native/CartPole-v1",
    "observation_dtype": "float32",
    "observation_shape": [4],
    "action_discrete": True,
    "action_n": 2,
    "action_low": [],
    "action_high": [],
    "action_names": ["LEFT", "RIGHT"],
    "frames_per_step": 1,
    "steps_max": 500,
    "render_height": 0,
    "render_width": 0,
    "render_frames": 0,
}


class Peer:
    """One stream; several may share a channel."""

    def __init__(self, channel: grpc.Channel, metadata=None, method: str = wire.METHOD) -> None:
        self.outgoing: queue.SimpleQueue = queue.SimpleQueue()
        stream = channel.stream_stream(method, request_serializer=None, response_deserializer=None)
        self.call = stream(iter(self.outgoing.get, None), metadata=metadata, timeout=60)
        self.incarnation = 0

    def send(self, message: bytes) -> None:
        self.outgoing.put(message)

    def receive(self) -> wire.Message:
        """The next message that is no sign of life."""
        while True:
            message = wire.parse(next(self.call))
            if message.rows:
                return message

    def join(self, spec: dict, slots: int = 1, name: str = "peer") -> dict:
        self.send(wire.hello(name, slots, spec))
        message = self.receive()
        assert message.kind == wire.WELCOME
        self.incarnation = message.incarnation
        return wire.parse_text(message)

    def commands(self):
        message = self.receive()
        assert message.kind == wire.COMMANDS
        return wire.parse_commands(message, wire.command_type(0))

    def status(self) -> grpc.StatusCode:
        """How the engine ended the stream."""
        try:
            for _ in self.call:
                pass
        except grpc.RpcError as error:
            return error.code()
        finally:
            self.close()
        return grpc.StatusCode.OK

    def close(self) -> None:
        self.outgoing.put(None)
        self.call.cancel()
