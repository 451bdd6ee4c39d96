"""A look at the certificate files before anything starts: relays without them would only start over and over."""

from __future__ import annotations

import ssl
from pathlib import Path

from prefillwatch.config import Settings
from prefillwatch.errors import ConfigError


def check_certificates(settings: Settings) -> None:
    """Load what the settings name. Raises ConfigError."""
    _check_pair("tls", settings.tls_cert, settings.tls_key)
    _check_pair("admin_tls", settings.admin_tls_cert, settings.admin_tls_key)
    if settings.upstream_ca:
        try:
            ssl.create_default_context(cafile=str(settings.upstream_ca))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"upstream_ca '{settings.upstream_ca}' holds no PEM certificate ({_reason(error)})"
            ) from None


def _check_pair(name: str, cert: Path | None, key: Path | None) -> None:
    if not cert or not key:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, password=_no_passphrase)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{name}_cert '{cert}' and {name}_key '{key}' are no pair of PEM files that belong together "
            f"({_reason(error)}); the key must have no passphrase"
        ) from None


def _no_passphrase() -> str:
    """Without this OpenSSL would ask on the terminal."""
    return ""


def _reason(error: Exception) -> str:
    return (getattr(error, "reason", None) or str(error)).lower().replace("_", " ")
