"""TLS behind the two calls that the data path knows: ``recv`` and ``send`` of a non-blocking socket."""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Any

from prefillwatch.relay.certificate import context_of, read_shared
from prefillwatch.relay.settings import RelaySettings, Upstream


class TlsSocket:
    """Looks like a plain non-blocking socket to those who read and write.

    Differences that they must know: an edge of the descriptor may bring several reads' worth of data, so reading goes
    on until BlockingIOError; a handshake comes first.
    """

    __slots__ = ("_tls",)

    def __init__(self, context: ssl.SSLContext, opened: socket.socket, server_name: str | None) -> None:
        """Takes over ``opened``; ``server_name`` None makes us the server. Raises OSError."""
        self._tls = context.wrap_socket(
            opened,
            server_side=server_name is None,
            server_hostname=server_name,
            do_handshake_on_connect=False,
            suppress_ragged_eofs=False,  # an end without close_notify may be an attacker's
        )

    @property
    def socket(self) -> ssl.SSLSocket:
        """What to close."""
        return self._tls

    def handshake(self) -> bool:
        """Go on with the handshake; True when it is done. Raises OSError."""
        try:
            self._tls.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        return True

    def recv(self, size: int) -> bytes:
        try:
            return self._tls.recv(size)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLZeroReturnError:
            return b""

    def send(self, data: Any) -> int:
        try:
            return self._tls.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def end(self) -> None:
        """Say that nothing more comes (close_notify)."""
        with contextlib.suppress(OSError, ValueError):
            self._tls.unwrap()


class ListenerTls:
    """How clients are spoken to: by the certificate that the supervisor put down last, if it can be used."""

    __slots__ = ("_fd", "_pem", "context")

    def __init__(self, fd: int) -> None:
        """``fd`` is the memory that the certificate is in. Raises OSError."""
        self._fd = fd
        self._pem = read_shared(fd) or b""
        self.context = context_of(self._pem)

    def renew(self) -> None:
        """New connections get the certificate that is there now; those that are open keep theirs.

        What is being written just now is left: the supervisor says so when it is done.
        """
        pem = read_shared(self._fd)
        if pem and pem != self._pem:
            with contextlib.suppress(OSError):  # the supervisor has tried it
                self._pem, self.context = pem, context_of(pem)


def upstream_context(settings: RelaySettings, upstream: Upstream) -> ssl.SSLContext | None:
    """The context for upstream; None: it speaks plainly. Raises OSError."""
    if not upstream.tls:
        return None
    context = ssl.create_default_context(cafile=settings.upstream_ca)
    context.set_alpn_protocols(["http/1.1"])
    if settings.upstream_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
