"""What a relay process is given at its start: one JSON document on stdin, and where its upstream is."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit

import msgspec

from prefillwatch.relay.hops import Forwarded
from prefillwatch.wire.sender import TenantFrom, TenantNames

Usage = Literal["off", "inject"]


class RelaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one relay process. Durations are seconds, sizes bytes.

    The first part is the supervisor's, the rest what users set, under the names of ``settings/declared.py``.
    """

    upstream: str  # http://HOST[:PORT], https://HOST[:PORT], unix:/PATH or http+unix://PERCENT-ENCODED-PATH
    listen_fds: tuple[int, ...]  # bound, listening stream sockets that were inherited
    index: int = 0
    tap_fd: int = -1  # our end of a SOCK_SEQPACKET pair; -1: there is no observer
    supervisor_fd: int = -1  # our end of another one, for signs of life; -1: there is no supervisor
    tls_fd: int = -1  # memory with certificate and key for clients, see certificate.py; -1: they speak plainly
    name: str = ""  # in Via, where it tells a request that comes back to us; the same for all relays. Empty: no Via

    max_body: int
    max_bodies: int  # of all relays together
    max_clients: int  # of all relays together; 0: as descriptors allow
    max_clients_per_address: int  # of this relay; 0: no limit
    relays: int  # that share max_bodies and max_clients
    request_timeout: float  # from the first byte of a request to its last; answering has no limit
    connect_timeout: float
    upstream_keepalive: float
    client_idle_timeout: float
    client_write_timeout: float  # without one byte of an answer taken
    idle_limit: float  # longest silence of an answer; 0: none
    drain_timeout: float
    upstream_ca: str | None  # a PEM file; None: the system's
    upstream_insecure: bool
    preserve_host: bool | None  # None: kept, but for https upstreams, which route and verify by their own name
    forwarded: Forwarded
    usage: Usage
    tenant_header: str | None
    tenant_from: TenantFrom | None
    tenant_names: TenantNames
    tenant_key: str | None  # of the hash that makes names; None: one of this process's own
    priorities: bool


def decode_settings(document: bytes) -> RelaySettings:
    """The settings in a JSON document. Raises ValueError (msgspec.ValidationError is one) that names the bad field."""
    settings = msgspec.json.decode(document, type=RelaySettings)
    parse_upstream(settings.upstream)
    return settings


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where requests go. ``host`` is a name or an IP address and empty for a unix socket."""

    host: str
    port: int
    unix_path: str = ""
    tls: bool = False

    @property
    def authority(self) -> str:
        """What a Host header for it says."""
        if self.unix_path:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def is_numeric(self) -> bool:
        """Whether connecting needs no name lookup."""
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            return bool(self.unix_path)
        return True


def parse_upstream(url: str) -> Upstream:
    """Read an upstream address. Raises ValueError."""
    if url.startswith("unix:"):
        return _unix(url.removeprefix("unix:").removeprefix("//"), url)
    parts = urlsplit(url)
    if parts.scheme == "http+unix":
        return _unix(unquote(parts.netloc) + unquote(parts.path), url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError(f"upstream {url!r} is not usable; write http://HOST:PORT, https://HOST:PORT or unix:/PATH")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"upstream {url!r} has a path; requests keep the path that clients use, so leave it out")
    tls = parts.scheme == "https"
    return Upstream(parts.hostname, parts.port or (443 if tls else 80), tls=tls)


def _unix(path: str, url: str) -> Upstream:
    if not path.startswith("/"):
        raise ValueError(f"upstream {url!r} has no absolute path; write for example unix:/run/vllm.sock")
    return Upstream("", 0, unix_path=path)
