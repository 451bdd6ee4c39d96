"""The certificate and key that relays serve: put down by the supervisor in memory that all of them share.

So all relays serve the same, whatever has become of the files since; one that is started again serves what was good
last. The supervisor has made sure that certificate and key belong together before it writes them.
"""

from __future__ import annotations

import hashlib
import os
import ssl
from typing import Final

_LENGTH_BYTES: Final = 8
_HEAD_BYTES: Final = _LENGTH_BYTES + hashlib.sha256().digest_size


def shared_memory() -> int:
    """A descriptor for `write_shared` and `read_shared`, which child processes may inherit."""
    return os.memfd_create("certificate", os.MFD_CLOEXEC)


def write_shared(fd: int, pem: bytes) -> None:
    """Put down a chain of certificates and their key."""
    os.pwrite(fd, len(pem).to_bytes(_LENGTH_BYTES, "big") + hashlib.sha256(pem).digest() + pem, 0)


def read_shared(fd: int) -> bytes | None:
    """What was put down; None while it is being replaced."""
    data = os.pread(fd, os.fstat(fd).st_size, 0)
    length = int.from_bytes(data[:_LENGTH_BYTES], "big")
    pem = data[_HEAD_BYTES : _HEAD_BYTES + length]
    return pem if hashlib.sha256(pem).digest() == data[_LENGTH_BYTES:_HEAD_BYTES] else None


def context_of(pem: bytes) -> ssl.SSLContext:
    """For connections of clients. Raises OSError (ssl.SSLError is one) for what is no certificate with its key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # OpenSSL is given a name by Python, and memory has one, too.
    fd = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.write(fd, pem)
        context.load_cert_chain(f"/proc/self/fd/{fd}", password=_no_passphrase)
    finally:
        os.close(fd)
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def _no_passphrase() -> str:
    """Without this OpenSSL would ask on the terminal."""
    return ""
