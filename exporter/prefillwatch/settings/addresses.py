"""Addresses: where we listen and where the upstream server is. Parsing and writing only, no sockets."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import urlsplit

#: What an address of a unix socket begins with.
UNIX: Final = "unix:"
_ANY_HOSTS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (a table of what people write, nothing is bound)
_LOOPBACK_HOSTS: Final = {"localhost", *_ANY_HOSTS.values()}
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """A TCP address to listen on; port 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"

    @property
    def reachable(self) -> ListenAddress:
        """The address a client on this machine can use: loopback where we listen on every interface."""
        return ListenAddress(_ANY_HOSTS.get(self.host, self.host), self.port)

    def overlaps(self, other: ListenAddress) -> bool:
        """Whether both cannot be listened on: one port of one host, or one of them on every interface."""
        anywhere = self.host in _ANY_HOSTS or other.host in _ANY_HOSTS
        return self.port == other.port != 0 and (self.host == other.host or anywhere)


def parse_listen(text: str) -> ListenAddress:
    """Read ``HOST:PORT``, ``[IPV6]:PORT`` or ``:PORT`` (every IPv4 interface). Raises ValueError."""
    stripped = text.strip()
    host, colon, port_text = stripped.rpartition(":")
    if not colon or not port_text.isascii() or not port_text.isdigit():
        raise ValueError(_not_listenable(text, "127.0.0.1:8080 or [::1]:8080"))
    port = int(port_text)
    if port > 65535:
        raise ValueError(f"port {port} in {text!r} is out of range; use 1 to 65535, or 0 for any free port")
    if host.startswith("[") and host.endswith("]"):
        return ListenAddress(_ipv6(host[1:-1], text), port)
    if _is_ipv6(host):
        raise ValueError(_not_listenable(text, f"[{host}]:{port} (an IPv6 address goes in brackets)"))
    if any(character in "/:" or character.isspace() for character in host):
        raise ValueError(_not_listenable(text, "127.0.0.1:8080 or [::1]:8080"))
    return ListenAddress(host or "0.0.0.0", port)  # noqa: S104 (only when the user wrote ":PORT")


def parse_upstream(text: str) -> str:
    """The upstream in its normal form: ``http[s]://HOST[:PORT]`` or ``unix:/PATH``. Raises ValueError.

    A path, a query or credentials in the address are refused: requests go upstream with the path the client used.
    """
    stripped = text.strip()
    if stripped.startswith(UNIX):
        return _unix_upstream(stripped)
    try:
        parts = urlsplit(stripped if "://" in stripped else f"//{stripped}")
    except ValueError:
        raise ValueError(_no_upstream(text, "http://HOST:PORT or https://HOST:PORT")) from None
    if "@" in parts.netloc:
        raise ValueError("credentials in the address are refused; clients send their own, upstream_api_key is for ours")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(_no_upstream(text, _meant(stripped)))
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"{text!r} has a path; write only {parts.scheme}://{parts.netloc} (clients bring the path)")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError(f"{text!r} has a bad port; use 1 to 65535")
    return f"{parts.scheme}://{_bracketed(parts.hostname)}" + (f":{port}" if port is not None else "")


def parse_page_address(text: str) -> str:
    """Where a page lies: ``http[s]://HOST[:PORT]/PATH``, or ``/PATH`` at the upstream itself. Raises ValueError."""
    stripped = text.strip()
    if not stripped.isascii() or not stripped.isprintable() or " " in stripped or "#" in stripped:
        raise ValueError(_no_page(text))
    if stripped.startswith("/") and not stripped.startswith("//"):
        return stripped
    scheme, separator, rest = stripped.partition("://")
    if not separator or scheme not in ("http", "https"):
        raise ValueError(_no_page(text))
    netloc = re.split("[/?]", rest, maxsplit=1)[0]
    path = rest[len(netloc) :]
    if path in ("", "/"):
        raise ValueError(f"{text!r} has no path; write the whole address, for example {scheme}://{netloc}/metrics")
    return parse_upstream(f"{scheme}://{netloc}") + (path if path.startswith("/") else f"/{path}")


def parse_collector(text: str) -> str:
    """Where OTLP is taken: ``http[s]://HOST[:PORT][/PATH]``, to which `/v1/metrics` or `/v1/traces` is added. Raises
    ValueError."""
    stripped = text.strip()
    scheme, separator, rest = stripped.partition("://")
    if not separator or scheme not in ("http", "https") or not re.fullmatch(r"[!-~]+", rest) or re.search("[?#]", rest):
        raise ValueError(f"{text!r} is not where OTLP is taken over HTTP; write for example http://collector:4318")
    netloc, slash, path = rest.partition("/")
    path = f"{slash}{path}".rstrip("/")
    if path.endswith(("/v1/metrics", "/v1/traces")):
        raise ValueError(f"{text!r} ends in the path of one signal; leave /v1/… out, it is added")
    return parse_upstream(f"{scheme}://{netloc}") + path


def page_place(upstream: str, address: str | None) -> tuple[str, str]:
    """At which server (as from `parse_upstream`) and by which path the upstream's metrics page lies; ``address`` is as
    from `parse_page_address`, or None."""
    if not address or address.startswith("/"):
        return upstream, address or "/metrics"
    parts = urlsplit(address)
    origin = f"{parts.scheme}://{parts.netloc}"
    return origin, address[len(origin) :]


def is_same_place(upstream: str, address: ListenAddress) -> bool:
    """Whether an upstream (as from `parse_upstream`) is where we listen ourselves, as far as names show."""
    parts = urlsplit(upstream)
    if parts.scheme not in _DEFAULT_PORTS or address.port != (parts.port or _DEFAULT_PORTS[parts.scheme]):
        return False
    ours = address.reachable.host
    return parts.hostname == ours or {parts.hostname, ours} <= _LOOPBACK_HOSTS


def _meant(text: str) -> str:
    if not text or "://" in text:
        return "http://HOST:PORT or https://HOST:PORT"
    port = text.removeprefix(":")
    return f"http://127.0.0.1:{port}" if port.isdigit() else f"http://{text}"


def _no_upstream(text: str, remedy: str) -> str:
    return f"{text!r} is not a server's address; write {remedy}, or unix:/PATH for a socket"


def _no_page(text: str) -> str:
    return f"{text!r} is not where a page lies; write http://HOST:PORT/PATH, or /PATH for one at the upstream itself"


def _unix_upstream(text: str) -> str:
    path = text.removeprefix(UNIX).removeprefix("//")
    if not PurePosixPath(path).is_absolute():
        raise ValueError(f"{text!r} has no absolute path; write for example unix:/run/vllm.sock")
    return UNIX + path


def _ipv6(host: str, text: str) -> str:
    try:
        return str(ipaddress.IPv6Address(host))
    except ValueError:
        raise ValueError(_not_listenable(text, "127.0.0.1:8080 or [::1]:8080")) from None


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _not_listenable(text: str, remedy: str) -> str:
    return f"{text!r} is not an address to listen on; write HOST:PORT, for example {remedy}"
