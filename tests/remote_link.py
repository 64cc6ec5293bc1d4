"""A network link that can be cut: a namespace, and a pair of virtual devices between it and this one."""

from __future__ import annotations

import os
import subprocess

import pytest


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


class Link:
    """Two ways to cut it: `down`, which both kernels know of, and `swallow`, after which whatever either end sends is
    lost and nobody is told (frames go to an address that no device has)."""

    address, far = "10.213.7.1", "10.213.7.2"

    def __init__(self) -> None:
        self.namespace, self.device = f"samara{os.getpid()}", f"sam{os.getpid() % 100000}"

    @classmethod
    def made_or_skipped(cls) -> Link:
        link = cls()
        try:
            link.make()
        except (subprocess.CalledProcessError, FileNotFoundError) as error:
            link.remove()
            pytest.skip(f"SKIPPED LOUDLY: network namespaces need root and iproute2: {error}")
        return link

    def make(self) -> None:
        name, device = self.namespace, self.device
        run("ip", "netns", "add", name)
        run("ip", "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "addr", "add", f"{self.address}/30", "dev", device)
        run("ip", "link", "set", device, "up")
        run("ip", "-n", name, "addr", "add", f"{self.far}/30", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up")

    def remove(self) -> None:
        subprocess.run(["ip", "link", "del", self.device], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", self.namespace], capture_output=True, check=False)

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    @property
    def prefix(self) -> tuple[str, ...]:
        """In front of a command that is to run at the far end."""
        return ("ip", "netns", "exec", self.namespace)

    def down(self) -> None:
        run("ip", "link", "set", self.device, "down")

    def up(self) -> None:
        run("ip", "link", "set", self.device, "up")

    def swallow(self) -> None:
        nobody = ("lladdr", "02:00:00:00:00:99", "nud", "permanent")
        run("ip", "neigh", "replace", self.far, *nobody, "dev", self.device)
        run("ip", "-n", self.namespace, "neigh", "replace", self.address, *nobody, "dev", "eth0")

    def deliver(self) -> None:
        run("ip", "neigh", "del", self.far, "dev", self.device)
        run("ip", "-n", self.namespace, "neigh", "del", self.address, "dev", "eth0")
