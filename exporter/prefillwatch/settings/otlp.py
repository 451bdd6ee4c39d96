"""What OTLP needs beside addresses: headers, and whether what sends it is installed."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Final
from urllib.parse import unquote

#: A token of RFC 9110, and a value that no line can be smuggled in with.
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\x20-\x7e]*")
_EXPORTER: Final = "opentelemetry.exporter.otlp.proto.http"


def parse_headers(text: str) -> dict[str, str]:
    """``NAME=VALUE,NAME=VALUE`` with values percent-decoded, as OTEL_EXPORTER_OTLP_HEADERS has them. Raises ValueError,
    which does not repeat what may be a secret."""
    headers = {}
    for number, entry in enumerate(filter(None, map(str.strip, text.split(","))), 1):
        name, separator, value = entry.partition("=")
        name, value = name.strip().lower(), unquote(value.strip())
        if not separator or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ValueError(f"entry {number} is no header; write NAME=VALUE, with %2C for a comma in the value")
        headers[name] = value
    if not headers:
        raise ValueError("holds no header; write for example authorization=Bearer%20…")
    return headers


def exporter_is_installed() -> bool:
    try:
        return find_spec(_EXPORTER) is not None
    except ModuleNotFoundError:  # of a package above it
        return False
