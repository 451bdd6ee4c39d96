"""A look at the certificate files before anything starts: relays without them would only start over and over."""

from __future__ import annotations

import ssl

from prefillwatch.config import Settings
from prefillwatch.errors import ConfigError


def check_certificates(settings: Settings) -> None:
    """Load what the settings name. Raises ConfigError."""
    if settings.tls_cert and settings.tls_key:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(settings.tls_cert, settings.tls_key, password=_no_passphrase)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"tls_cert '{settings.tls_cert}' and tls_key '{settings.tls_key}' are no pair of PEM files that belong "
                f"together ({_reason(error)}); the key must have no passphrase"
            ) from None
    if settings.upstream_ca:
        try:
            ssl.create_default_context(cafile=str(settings.upstream_ca))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"upstream_ca '{settings.upstream_ca}' holds no PEM certificate ({_reason(error)})"
            ) from None


def _no_passphrase() -> str:
    """Without this OpenSSL would ask on the terminal."""
    return ""


def _reason(error: Exception) -> str:
    return (getattr(error, "reason", None) or str(error)).lower().replace("_", " ")
