"""A network namespace with one link to here, on which there is only one version of IP."""

from __future__ import annotations

import os
import subprocess
from urllib.parse import urlsplit

_OURS, _THEIRS = f"pw{os.getpid() % 100000}a", f"pw{os.getpid() % 100000}b"
_NAME = f"prefillwatch-{os.getpid()}"


class Network:
    """``address`` is theirs, as it stands in a URL; ``path`` is what a process enters the namespace by."""

    path = f"/run/netns/{_NAME}"

    def __init__(self, *, ipv6: bool) -> None:
        self._ipv6 = ipv6
        ours, theirs = ("fd00:7077::1/64", "fd00:7077::2/64") if ipv6 else ("198.18.77.1/30", "198.18.77.2/30")
        self.address = f"[{theirs.partition('/')[0]}]" if ipv6 else theirs.partition("/")[0]
        _ip("netns", "add", _NAME)
        _ip("link", "add", _OURS, "type", "veth", "peer", "name", _THEIRS, "netns", _NAME)
        if not ipv6:
            self._inside("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
        for device in ("lo", _THEIRS):
            _ip("-n", _NAME, "link", "set", device, "up")
        if ipv6:
            _ip("-n", _NAME, "address", "del", "127.0.0.1/8", "dev", "lo")
        _ip("link", "set", _OURS, "up")
        at_once = ("nodad",) if ipv6 else ()
        _ip("address", "add", ours, "dev", _OURS, *at_once)
        _ip("-n", _NAME, "address", "add", theirs, "dev", _THEIRS, *at_once)

    def from_here(self, url: str) -> str:
        """The same place, seen from outside; there it is on every interface."""
        parts = urlsplit(url)
        return f"{parts.scheme}://{self.address}:{parts.port}"

    def close(self) -> None:
        _ip("link", "del", _OURS)
        _ip("netns", "del", _NAME)

    def _inside(self, *command: str) -> None:
        _ip("netns", "exec", _NAME, *command)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
