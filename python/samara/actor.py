# SPDX-License-Identifier: Apache-2.0 OR MIT
"""An actor process: ``python -P -m samara.actor``, started and supervised by the learner process.

It builds one environment per slot, sends Hello with their spec, and serves commands through shared
memory (src/fleet/slot.h) until the learner process ends it or has ended. Four descriptors are
inherited: the control socket (packets of one JSON object each), the segment of this actor, the
doorbell of the fleet, and the policies that this actor plays by itself (src/fleet/policy_segment.h).
Numerics run on one thread: the learner process sets OMP_NUM_THREADS and similar variables. With
arguments the process is a remote actor instead (samara/remote.py).
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # without -P, -m puts the current folder there: its modules would hide Python's own

import json
import os
import traceback

from samara import _native
from samara.environment import CONFIG, Environment, InterfaceError, SetupError, Spec, make
from samara.messages import one_line, own_line, spec_fields

CONTROL, SEGMENT, BELL, POLICIES = 3, 4, 5, 6  # ActorDescriptors in src/fleet/actor_process.h
PACKET_BYTES_MAX = 1 << 17
INTERNAL = 70


def send(message: dict) -> None:
    """Sends a message to the learner process."""
    os.write(CONTROL, json.dumps(message).encode())


def receive() -> dict:
    """Returns the next message; exits if the learner process has ended."""
    packet = os.read(CONTROL, PACKET_BYTES_MAX)
    if not packet:
        sys.exit(0)
    return json.loads(packet)


def be_first_to_go() -> None:
    """Asks the kernel to end an actor, which is started again, before the learner process when memory runs out."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
    except OSError:
        pass


def build(config: dict) -> list[Environment]:
    """Builds the environments of all slots."""
    environment = config["environment"] | {k: config[k] for k in ("actor", "incarnation")}
    environments = [make(environment, config["render"]) for _ in range(config["slots"])]
    spec = environments[0].spec
    if not spec.action_discrete and spec.action_n > _native.ACTION_VALUES_MAX:
        raise SetupError(
            CONFIG, f"{spec.id}: {spec.action_n} action dimensions, at most {_native.ACTION_VALUES_MAX}"
        )
    return environments


def hello(spec: Spec) -> dict:
    """Returns the first message."""
    return {
        "type": "hello",
        "protocol": _native.SLOT_PROTOCOL,
        "pid": os.getpid(),
        "spec": spec_fields(spec),
    }


def serve(config: dict, environments: list[Environment]) -> None:
    """Serves commands until the learner process ends this one; reports an exception of an environment."""
    spec = environments[0].spec
    render = spec.render_frames if config["render"] else 0
    slots = _native.Slots(
        SEGMENT,
        BELL,
        CONTROL,
        POLICIES,
        slots=len(environments),
        float32=spec.observation_dtype == "float32",
        observation_shape=list(spec.observation_shape),
        action_n=spec.action_n,
        discrete=spec.action_discrete,
        picture_shape=[render, spec.render_height, spec.render_width],
        memory=spec.memory,
        position=spec.position,
    )
    try:
        slots.serve(environments)
    except Exception as error:
        slot, episode, step = slots.current
        line = own_line(error)
        if line and not isinstance(error, InterfaceError):
            traceback.print_exc()  # before the learner process learns of it and ends this one
        where = f"{line and line + '; '}{spec.id}, slot {slot}, episode {episode}, step {step}"
        send({"type": "error", "code": INTERNAL, "slot": slot, "line": f"{one_line(error)} ({where})"})
        sys.exit(1)


def main() -> int:
    """Runs the process; returns its exit code."""
    if len(sys.argv) > 1:  # with arguments: started by a user
        from samara.remote import main as run_remote_actor

        return run_remote_actor(sys.argv[1:])
    for descriptor in (CONTROL, SEGMENT, BELL, POLICIES):
        os.set_inheritable(descriptor, False)  # a simulator's own children must not keep them
    _native.die_with_parent()
    be_first_to_go()
    config = receive()
    try:
        if config["protocol"] != _native.SLOT_PROTOCOL:
            raise SetupError(
                CONFIG,
                f"the learner process speaks slot protocol {config['protocol']}, the Python package"
                f" {_native.SLOT_PROTOCOL}: build both from one source",
            )
        environments = build(config)
    except Exception as error:  # the learner process reports it and decides
        code = error.code if isinstance(error, SetupError) else CONFIG
        if error.__cause__ is not None or not isinstance(error, SetupError):
            traceback.print_exception(error.__cause__ or error)
        send({"type": "error", "code": code, "line": one_line(error)})
        return code
    send(hello(environments[0].spec))
    receive()  # welcome: the segment has its size now
    serve(config, environments)
    for environment in environments:
        environment.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
