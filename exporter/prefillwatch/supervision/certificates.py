"""The certificates of our listeners: read at the start, and again when their files change or SIGHUP asks for it.

What was good last is kept here and served on, whatever becomes of the files: a renewal that went wrong costs no
connection, and a process that is started again does not depend on it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Final, Literal

from prefillwatch.errors import ConfigError
from prefillwatch.relay.certificate import context_of, shared_memory, write_shared
from prefillwatch.settings.declared import Settings
from prefillwatch.supervision.validity import expires_at

log = logging.getLogger(__name__)

Listener = Literal["data", "admin"]
_LOOK_S: Final = 2.0
#: Larger than any chain with its key.
_LARGEST_BYTES: Final = 2**20


class Certificate:
    """The certificate of one listener. ``context`` is what to serve now, ``fd`` memory that other processes may read it
    from."""

    def __init__(self, listener: Listener, key: str, certificate_file: Path, key_file: Path) -> None:
        """``key`` names the settings in messages: KEY_cert and KEY_key. Raises ConfigError."""
        self.listener: Listener = listener
        self._named = f"{key}_cert '{certificate_file}' and {key}_key '{key_file}'"
        self._files = (certificate_file, key_file)
        self._seen = _signature(self._files)
        #: What was wrong at the last look, and whether that was logged.
        self._trouble, self._said = "", False
        try:
            self._pem = _read(self._files)
            self.expires_at = expires_at(self._pem.decode("latin-1"))
            self.context = context_of(self._pem)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{self._named} are no pair of PEM files that belong together ({_reason(error)}); "
                "the key must have no passphrase"
            ) from None
        self.fd = shared_memory()
        write_shared(self.fd, self._pem)
        if self.expires_at < time.time():
            log.warning("%s: the certificate was good until %s; clients refuse it", self._named, _day(self.expires_at))

    def look(self, *, asked: bool = False) -> bool:
        """Read the files again if they changed, or if ``asked``. True: there is another certificate to serve.

        The two files may be written one after the other, so what does not fit is looked at once more before
        it is called wrong.
        """
        seen = _signature(self._files)
        if seen == self._seen and not self._trouble and not asked:
            return False
        if seen != self._seen:
            self._said = False
        self._seen = seen
        try:
            renewed = self._take()
        except (OSError, ValueError) as error:
            self._complain(_reason(error), at_once=asked)
            return False
        self._trouble, self._said = "", False
        return renewed

    def close(self) -> None:
        os.close(self.fd)

    def _take(self) -> bool:
        """Raises OSError and ValueError when what is there now cannot be served."""
        pem = _read(self._files)
        if pem == self._pem:
            return False
        until = expires_at(pem.decode("latin-1"))
        context = context_of(pem)
        if until < time.time() < self.expires_at:
            raise ValueError(f"the new certificate was good until {_day(until)}")
        self._pem, self.context, self.expires_at = pem, context, until
        write_shared(self.fd, pem)
        log.info("%s: a new certificate is served, good until %s", self._named, _day(until))
        return True

    def _complain(self, reason: str, *, at_once: bool) -> None:
        again, self._trouble = bool(self._trouble), reason
        if (again or at_once) and not self._said:
            self._said = True
            log.warning(
                "%s cannot be served (%s); the certificate from before is, and is good until %s",
                self._named,
                reason,
                _day(self.expires_at),
            )


class Certificates:
    """The certificates that the settings name: of the listener for clients (``data``) and of the admin listener."""

    def __init__(self, settings: Settings) -> None:
        """Raises ConfigError."""
        self.data = _certificate("data", "tls", settings.tls_cert, settings.tls_key)
        self.admin = _certificate("admin", "admin_tls", settings.admin_tls_cert, settings.admin_tls_key)
        self._all = [each for each in (self.data, self.admin) if each is not None]

    @property
    def expiry(self) -> dict[str, float]:
        """Unix time at which each one ends, by listener."""
        return {each.listener: each.expires_at for each in self._all}

    async def watch(self, renewed: Callable[[Certificate], None]) -> None:
        """Look every other second and pass on those that changed. Ends when cancelled."""
        while self._all:
            await asyncio.sleep(_LOOK_S)
            self.look(renewed)

    def look(self, renewed: Callable[[Certificate], None], *, asked: bool = False) -> None:
        for each in self._all:
            if each.look(asked=asked):
                renewed(each)

    def close(self) -> None:
        for each in self._all:
            each.close()


def check_certificates(settings: Settings) -> None:
    """Load all that the settings name. Raises ConfigError."""
    Certificates(settings).close()
    check_authority(settings)


def check_authority(settings: Settings) -> None:
    """Raises ConfigError where an https upstream could not be verified, however it answers."""
    if settings.upstream_ca:
        try:
            ssl.create_default_context(cafile=str(settings.upstream_ca))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"upstream_ca '{settings.upstream_ca}' holds no PEM certificate ({_reason(error)})"
            ) from None


def _certificate(
    listener: Listener, key: str, certificate_file: Path | None, key_file: Path | None
) -> Certificate | None:
    return Certificate(listener, key, certificate_file, key_file) if certificate_file and key_file else None


def _read(files: tuple[Path, Path]) -> bytes:
    """Certificate and key, one after the other. Raises OSError."""
    parts = []
    for path in files:
        with path.open("rb") as file:
            parts.append(file.read(_LARGEST_BYTES))
    return b"\n".join(parts)


def _signature(files: tuple[Path, Path]) -> tuple[object, ...]:
    """Changes when a file does, also when a link on the way to it leads elsewhere."""
    return tuple(_identity(path) for path in files)


def _identity(path: Path) -> object:
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def _reason(error: Exception) -> str:
    return (getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)).lower().replace("_", " ")
