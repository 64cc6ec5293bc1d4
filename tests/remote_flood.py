# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Floods of HTTP/2 frames that a stranger may send to an engine's port: neither token nor Hello.

    python remote_flood.py HOST:PORT resets|continuations MEGABYTES [CONNECTIONS [CA CERTIFICATE KEY]]
prints one JSON object: bytes sent, seconds, connections that were refused or ended.
"""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, RST_STREAM, SETTINGS, CONTINUATION = 1, 3, 4, 9
END_HEADERS = 4
PATH = b"/samara.v1.Actors/Play"
FRAME_MAX = 16384


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name: bytes, value: bytes) -> bytes:
    return b"\x40" + bytes([len(name)]) + name + bytes([len(value)]) + value


# of the first request, which fills HPACK's dynamic table, and of those that follow
FIRST = (b"\x83\x86" + literal(b":path", PATH) + literal(b":authority", b"x")
         + literal(b"content-type", b"application/grpc") + literal(b"te", b"trailers"))
NEXT = b"\x83\x86\xc1\xc0\xbf\xbe"


def resets(megabytes: float):
    """Streams that are opened and reset at once, 28 bytes each."""
    yield frame(HEADERS, END_HEADERS, 1, FIRST) + frame(RST_STREAM, 0, 1, bytes(4))
    stream, sent = 3, 0
    while sent < megabytes * 1e6:
        block = b"".join(frame(HEADERS, END_HEADERS, s, NEXT) + frame(RST_STREAM, 0, s, bytes(4))
                         for s in range(stream, stream + 2000, 2))
        stream, sent = stream + 2000, sent + len(block)
        yield block


def continuations(megabytes: float):
    """One header whose value is announced with a gigabyte, and never ends."""
    yield frame(HEADERS, 0, 1, b"\x83\x86\x00\x01x\x7f\x81\xff\xff\xff\x03")
    block = frame(CONTINUATION, 0, 1, b"a" * FRAME_MAX)
    for _ in range(int(megabytes * 1e6 / len(block)) + 1):
        yield block


PIECE = 1 << 20  # bytes, of one call
SEND_SECONDS = 20  # for a piece, on a busy machine


def flood(address: str, kind: str, megabytes: float, tls: tuple[str, str, str] | None = None, seconds: float = 60) -> dict:
    """What one connection sends until the engine ends it, or it has sent all, or the time is over."""
    host, _, port = address.rpartition(":")
    sent, ended, start = 0, "", time.monotonic()
    try:
        link = socket.create_connection((host.strip("[]"), int(port)), timeout=2)
        if tls is not None:
            context = ssl.create_default_context(cafile=tls[0])
            context.set_alpn_protocols(["h2"])
            if tls[1]:
                context.load_cert_chain(tls[1], tls[2])
            link = context.wrap_socket(link, server_hostname=host.strip("[]"))

        link.settimeout(SEND_SECONDS)

        def drain() -> None:  # so that nothing of the learner process's waits
            try:
                while link.recv(1 << 16):
                    pass
            except (OSError, ValueError):
                pass

        if tls is None:
            threading.Thread(target=drain, daemon=True).start()
        blocks = {"resets": resets, "continuations": continuations}[kind](megabytes)
        if kind == "resets":
            blocks = [b"".join(blocks)]  # all at once: made beforehand
        link.sendall(PREFACE + frame(SETTINGS, 0, 0))
        for block in blocks:
            for at in range(0, len(block), PIECE):
                link.sendall(block[at : at + PIECE])
                if tls is not None:  # two threads in one TLS connection crash OpenSSL
                    link.setblocking(False)
                    drain()
                    link.settimeout(SEND_SECONDS)
            sent += len(block)
            if time.monotonic() - start > seconds:
                ended = "time"
                break
        time.sleep(0.5)
        link.close()
    except OSError as error:
        ended = type(error).__name__
    return {"kind": kind, "bytes": sent, "seconds": round(time.monotonic() - start, 2), "ended": ended}


def floods(address: str, kind: str, megabytes: float, connections: int, tls=None) -> list[dict]:
    """The same over several connections at once."""
    results: list[dict] = []
    threads = [threading.Thread(target=lambda: results.append(flood(address, kind, megabytes / connections, tls)))
               for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def flood_by(user: int | None, folder: Path, address: str, kind: str, megabytes: float, connections: int, *tls: object) -> dict:
    """This file as a program of lowest priority, by another user where one is given."""
    program = shutil.copy(__file__, folder)  # another user may not read this tree
    folder.chmod(0o755)
    # nor a Python in somebody's home
    python = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin") if user else sys.executable
    assert python, "no python3 for other users"
    done = subprocess.run(["nice", "-n", "19", python, program, address, kind, str(megabytes), str(connections), *map(str, tls)],
                          user=user, group=user, extra_groups=[] if user else None, capture_output=True, text=True,
                          timeout=300, check=True)
    return json.loads(done.stdout)


def main(given: list[str]) -> None:
    address, kind, megabytes = given[0], given[1], float(given[2])
    connections = int(given[3]) if len(given) > 3 else 1
    tls = tuple(given[4:7]) if len(given) > 4 else None
    results = floods(address, kind, megabytes, connections, tls + ("",) * (3 - len(tls)) if tls else None)
    print(json.dumps({"kind": kind, "bytes": sum(r["bytes"] for r in results),
                      "seconds": max(r["seconds"] for r in results),
                      "ended": sum(bool(r["ended"]) for r in results), "connections": connections}))


if __name__ == "__main__":
    main(sys.argv[1:])
