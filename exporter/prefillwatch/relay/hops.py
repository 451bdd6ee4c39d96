"""What the next hop is told about the one before us: X-Forwarded-For and its kin, and Via.

A server behind a proxy sees the proxy's address. What it believes instead is a line that any client can write. uvicorn,
and so vLLM, believes it from 127.0.0.1, which is where we are. So by default the client's lines are replaced by what
we know ourselves: then upstream sees what it would see without us.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from prefillwatch.relay.http_head import Request

#: What is done with the lines that a client brought: passed on, added to, replaced by ours, or taken away.
Forwarded = Literal["pass", "append", "replace", "drop"]

_FOR: Final = b"x-forwarded-for"
_PROTO: Final = b"x-forwarded-proto"
_HOST: Final = b"x-forwarded-host"
_STANDARD: Final = b"forwarded"
_CLAIMS: Final = frozenset((_FOR, _PROTO, _HOST, _STANDARD, b"x-forwarded-port", b"x-real-ip"))
_NOTHING: Final[frozenset[bytes]] = frozenset()
#: What each way takes away of the client's lines.
_DROPPED: Final[dict[Forwarded, frozenset[bytes]]] = {
    "pass": _NOTHING,
    "append": frozenset((_FOR,)),  # written anew, with one more address
    "replace": _CLAIMS,
    "drop": _CLAIMS,
}


class Hop(NamedTuple):
    """How a request came to us. ``name`` is what we are called in Via, the same for all relays of one sidecar."""

    forwarded: Forwarded = "pass"
    peer: bytes = b""  # the address of who is connected to us; empty where it has none
    tls: bool = False
    name: bytes = b""  # empty: no Via

    @property
    def dropped(self) -> frozenset[bytes]:
        """Names of the client's lines that do not go on."""
        return _DROPPED[self.forwarded]

    def lines(self, request: Request, *, keep_host: bool) -> list[bytes]:
        """The lines that are added."""
        lines = []
        if self.forwarded in ("append", "replace"):
            lines += self._about_client(request, keep_host=keep_host)
        if self.name:
            lines.append(b"Via: 1.%d %b" % (request.minor, self.name))
        return lines

    def _about_client(self, request: Request, *, keep_host: bool) -> list[bytes]:
        appends = self.forwarded == "append"
        before = _values(request, _FOR) if appends else []
        proto = b"https" if self.tls else b"http"
        lines = []
        if addresses := [*before, *([self.peer] if self.peer else [])]:
            lines.append(b"X-Forwarded-For: " + b", ".join(addresses))
        if not (appends and _values(request, _PROTO)):
            lines.append(b"X-Forwarded-Proto: " + proto)
        if not keep_host and not (appends and _values(request, _HOST)) and (host := request.header(b"host")):
            lines.append(b"X-Forwarded-Host: " + host)
        if appends and _values(request, _STANDARD):
            peer = b'"[%b]"' % self.peer if b":" in self.peer else self.peer or b"unknown"  # as RFC 7239 writes it
            lines.append(b"Forwarded: for=%b;proto=%b" % (peer, proto))
        return lines

    def was_here(self, request: Request) -> bool:
        """Whether the request passed through us before: upstream is ourselves, or leads back to us."""
        if not self.name:
            return False
        for _, name, value in request.headers:  # noqa: SIM110 - half of what any() costs, and every request comes by
            if name == b"via" and self.name in value:
                return True
        return False


def peer_of(address: object) -> bytes:
    """Of a socket's address what X-Forwarded-For says: an IPv4 address that came in by IPv6 as what it is."""
    host = address[0] if isinstance(address, tuple) and address and isinstance(address[0], str) else ""
    return host.partition("%")[0].removeprefix("::ffff:" if "." in host else "").encode()


def _values(request: Request, name: bytes) -> list[bytes]:
    return [header.value for header in request.headers if header.name == name and header.value]
