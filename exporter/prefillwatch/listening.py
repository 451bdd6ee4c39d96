"""Listening sockets on an address as it was set, and what a client on this machine connects to."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Iterable
from typing import Final

from prefillwatch.errors import AddressInUseError, ListenError
from prefillwatch.settings.addresses import ListenAddress

log = logging.getLogger(__name__)

_BACKLOG: Final = 4096


def bind_listeners(address: ListenAddress, groups: int, key: str) -> list[list[socket.socket]]:
    """Listening sockets on one port: ``groups`` lists, each with one socket for every IP the host has a name for.

    Several groups share the port by SO_REUSEPORT, and the kernel spreads connections over them. Port 0 is resolved once
    and shared. ``key`` names the setting in the error. Raises ListenError.
    """
    targets = _resolve(address, key)
    opened: list[list[socket.socket]] = []
    try:
        if groups > 1:
            # A shared port would not show that another process has it: ask for it alone first.
            probe = _bind(targets, address.port, shared=False)
            address = ListenAddress(address.host, port_of(probe))
            _close_all([probe])
        for _ in range(groups):
            opened.append(_bind(targets, address.port, shared=groups > 1))
            address = ListenAddress(address.host, port_of(opened[0]))
    except OSError as error:
        _close_all(opened)
        kind = AddressInUseError if error.errno == errno.EADDRINUSE else ListenError
        raise kind(_explain(error, address, key)) from None
    return opened


def port_of(sockets: list[socket.socket]) -> int:
    port: int = sockets[0].getsockname()[1]
    return port


def reachable_here(address: ListenAddress) -> ListenAddress:
    """What a client on this machine can connect to, for an address as it was set."""
    if address.host == "::" and not _has_ipv6("::1"):
        return ListenAddress("127.0.0.1", address.port)  # [::] takes IPv4 as well, and so does its stand-in
    return address.reachable


def close_all(sockets: Iterable[socket.socket]) -> None:
    for opened in sockets:
        opened.close()


def _resolve(address: ListenAddress, key: str) -> list[tuple[socket.AddressFamily, str]]:
    try:
        infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "no valid name"
        raise ListenError(f"the host of {address} is not known here ({reason}); choose another with --{key}") from None
    targets: list[tuple[socket.AddressFamily, str]] = [(family, str(target[0])) for family, _, _, _, target in infos]
    targets = list(dict.fromkeys(targets))
    return _without_missing_ipv6(targets, address)


def _without_missing_ipv6(
    targets: list[tuple[socket.AddressFamily, str]], address: ListenAddress
) -> list[tuple[socket.AddressFamily, str]]:
    """Names and "every interface" mean what this machine has. An IPv6 address that was asked for alone stays."""
    present = [(family, host) for family, host in targets if family != socket.AF_INET6 or _has_ipv6(host)]
    if not present and address.host == "::":
        log.warning("there is no IPv6 here: %s is every IPv4 interface", address)
        return [(socket.AF_INET, "0.0.0.0")]  # noqa: S104 (which is what was asked for)
    return present or targets


def _has_ipv6(host: str) -> bool:
    """Whether the kernel has IPv6 at all, and this address of it."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
    except OSError as error:
        return error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
    return True


def _bind(targets: list[tuple[socket.AddressFamily, str]], port: int, *, shared: bool) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    try:
        for family, host in targets:
            opened = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(opened)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:  # alone, [::] takes IPv4 too
                opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(len(targets) > 1))
            opened.bind((host, port))
            opened.listen(_BACKLOG)
            opened.setblocking(False)
            port = port or port_of(sockets)
    except OSError:
        _close_all([sockets])
        raise
    return sockets


def _close_all(groups: list[list[socket.socket]]) -> None:
    close_all(opened for sockets in groups for opened in sockets)


def _explain(error: OSError, address: ListenAddress, key: str) -> str:
    flag = f"--{key}"
    if error.errno == errno.EADDRINUSE:
        return f"{address} is in use by another process; stop that one or choose another address with {flag}"
    if error.errno == errno.EACCES:
        return f"no permission to listen on {address}; choose a port from 1024 up with {flag}"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{address} is no address of this machine; choose one with {flag}, 0.0.0.0:{address.port} for all"
    return f"cannot listen on {address}: {error.strerror}; choose another address with {flag}"
