"""Is upstream ourselves? By the addresses that names stand for, where the settings only compare the names.

``127.1``, the machine's own name or ``0.0.0.0`` lead to a listener on loopback as well as ``127.0.0.1`` does, and then
one health check goes round until no descriptor is left. A loop that is made later, by a name that moves, the relays
find.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from typing import Final
from urllib.parse import urlsplit

from prefillwatch.errors import ConfigError
from prefillwatch.settings.addresses import ListenAddress
from prefillwatch.settings.declared import Settings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
#: A silent name server must not keep us from starting; the relays will find a loop as well.
_LOOKUP_LIMIT_S: Final = 2.0
#: Connecting to "every address" leads to loopback.
_EVERY: Final[dict[Address, Address]] = {
    ipaddress.IPv4Address(0): ipaddress.IPv4Address("127.0.0.1"),
    ipaddress.IPv6Address(0): ipaddress.IPv6Address(1),
}


def refuse_own_address(settings: Settings, upstream: str) -> None:
    """Raises ConfigError where any of upstream's addresses is one that we listen on ourselves."""
    parts = urlsplit(upstream)
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    if not parts.hostname or port is None:
        return
    for key, listen in (("listen", settings.listen), ("admin", settings.admin)):
        if listen.port != port:
            continue
        for address in addresses_of(parts.hostname):
            if _answers_at(listen, address):
                raise ConfigError(
                    f"upstream {upstream} is {address}:{port}, where prefillwatch itself would answer "
                    f"(--{key} {listen}): requests would come back without end; name the server behind it, or choose "
                    f"another address with --{key}"
                )


def addresses_of(host: str) -> list[Address]:
    """The addresses of a host; none where they are not known in time."""
    found: list[Address] = []

    def look_up() -> None:
        try:
            infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return
        found.extend(_unmapped(ipaddress.ip_address(str(target[0]).partition("%")[0])) for *_, target in infos)

    thread = threading.Thread(target=look_up, name="lookup", daemon=True)
    thread.start()
    thread.join(_LOOKUP_LIMIT_S)
    return list(dict.fromkeys(found))


def _answers_at(listen: ListenAddress, address: Address) -> bool:
    """Whether a connection to the address reaches this listener."""
    target = _EVERY.get(address, address)
    for ours in addresses_of(listen.host):
        if ours == target:
            return True
        everywhere = ours in _EVERY and (ours.version == target.version or ours.version == 6)
        if everywhere and _is_of_this_machine(target):
            return True
    return False


def _is_of_this_machine(address: Address) -> bool:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def _unmapped(address: Address) -> Address:
    """An IPv4 address in IPv6 notation leads where the IPv4 address does."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
