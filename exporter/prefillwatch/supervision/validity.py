"""Until when a certificate is good. Pure: the standard library reads that only from a live connection."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Final

_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"
_VERSION: Final = 0xA0  # the only field that may be left out before the validity
_UTC_TIME: Final = 0x17
#: Of the fields of a certificate: serial number, algorithm, issuer, validity.
_VALIDITY: Final = 3


def expires_at(pem: str) -> float:
    """Unix time at which the first certificate of a chain ends. Raises ValueError for what is none."""
    _, begin, rest = pem.partition(_BEGIN)
    body, end, _ = rest.partition(_END)
    if not end:
        raise ValueError("it holds no certificate")
    try:
        (_, certificate), *_ = _values(ssl.PEM_cert_to_DER_cert(begin + body + end))
        (_, signed), *_ = _values(certificate)
        fields = [content for tag, content in _values(signed) if tag != _VERSION]
        _, (tag, moment) = _values(fields[_VALIDITY])
        return _moment(tag, moment.decode("ascii")).timestamp()
    except (IndexError, ValueError):
        raise ValueError("its certificate cannot be read") from None


def _values(der: bytes) -> Iterator[tuple[int, bytes]]:
    """(tag, content) of each value in a run of them, as X.690 writes them."""
    at = 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length & 0x80:  # the length takes so many bytes of its own
            size = length & 0x7F
            length, at = int.from_bytes(der[at : at + size], "big"), at + size
        yield tag, der[at : at + length]
        at += length


def _moment(tag: int, text: str) -> datetime:
    if tag == _UTC_TIME:
        text = ("19" if text >= "50" else "20") + text  # RFC 5280, 4.1.2.5.1
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc)
