"""Which names the admin listener answers to, so that no page of another site reads it through a name of its own.

A browser takes a page of ``evil.example`` for one of ours when that name leads to our address (DNS rebinding). It
still sends the name: so names that are not ours are refused. An address is not a name that a page could have, and
``localhost`` always leads here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable


class Hosts:
    """Names that are ours beside every IP address and ``localhost``. ``*`` among them: whatever is asked for."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        """A name that begins with a dot stands for all names that end so."""
        self._names = {_plain(name) for name in names} | {"localhost"}
        self._ends = tuple(name for name in self._names if name.startswith("."))
        self._any = "*" in self._names

    def admit(self, host: str) -> bool:
        """Whether the value of a Host header, with or without a port, is one of ours. An empty one names no host."""
        name = _plain(_without_port(host))
        return self._any or not name or _is_address(name) or name in self._names or name.endswith(self._ends or ("\0",))


def _plain(name: str) -> str:
    return name.strip().lower().removesuffix(".")


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
