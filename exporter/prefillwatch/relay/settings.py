"""What a relay process is told at its start: one JSON document on stdin, and where its upstream is."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import msgspec

from prefillwatch.relay.hops import Forwarded


class RelaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one relay process. Durations are seconds, sizes bytes."""

    upstream: str  # http://HOST[:PORT], https://HOST[:PORT], unix:/PATH or http+unix://PERCENT-ENCODED-PATH
    listen_fds: tuple[int, ...]  # bound, listening stream sockets that were inherited
    index: int = 0
    tap_fd: int = -1  # our end of a SOCK_SEQPACKET pair; -1: nobody observes
    supervisor_fd: int = -1  # our end of another one, for signs of life; -1: nobody listens
    max_body_bytes: int = 64 * 2**20
    max_bodies_bytes: int = 256 * 2**20  # of all relays together
    max_clients: int = 0  # of all relays together; 0: as descriptors allow
    max_clients_per_address: int = 0  # of this relay; 0: no limit
    relays: int = 1  # that share these two
    request_timeout_s: float = 60.0  # from the first byte of a request to its last; answering has no limit
    connect_timeout_s: float = 10.0
    upstream_keepalive_s: float = 4.0
    client_idle_s: float = 75.0
    client_write_s: float = 60.0  # without one byte of an answer taken
    idle_limit_s: float = 0.0  # longest silence of an answer; 0: none
    drain_s: float = 25.0
    tls_fd: int = -1  # memory with certificate and key for clients, see certificate.py; -1: they speak plainly
    upstream_ca: str = ""
    upstream_insecure: bool = False
    preserve_host: bool | None = None  # None: kept, but for https upstreams, which route and verify by their own name
    forwarded: Forwarded = "replace"
    name: str = ""  # in Via, where it tells a request that comes back to us; the same for all relays. Empty: no Via
    inject_usage: bool = False


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
