"""TLS as a stranger speaks it."""

from __future__ import annotations

import ssl


def anybody() -> ssl.SSLContext:
    """Checks no certificate: an attacker does not mind."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
