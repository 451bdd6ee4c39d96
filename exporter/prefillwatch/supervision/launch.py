"""What the supervisor starts: the programs, and the settings that each of them gets on stdin."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from prefillwatch.own_process import python_module
from prefillwatch.settings.addresses import UNIX
from prefillwatch.settings.declared import Settings
from prefillwatch.settings.processes import RecordSettings
from prefillwatch.settings.views import observer_view, relay_view
from prefillwatch.supervision.held_port import HeldPort
from prefillwatch.supervision.upstream_command import UpstreamCommand

_RELAY: Final = python_module("prefillwatch.relay")
FORWARDED_ALLOW_IPS: Final = "FORWARDED_ALLOW_IPS"
_OBSERVER: Final = python_module("prefillwatch.observer")
#: Otherwise the libraries behind numpy start a thread for every core when they are imported, each with 32 MiB of
#: address space, to solve equations of three unknowns.
_ONE_THREAD: Final = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def _new_name() -> str:
    """The name of our relays in Via. No other sidecar has the same, so a request with it has been here before."""
    return f"prefillwatch-{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class Launch:
    """The plan of one life of prefillwatch. ``command`` is the server that ``run`` starts, ``held`` its port where we
    have chosen it, ``name`` is ours in Via."""

    settings: Settings
    upstream: str
    command: UpstreamCommand | None = None
    held: HeldPort | None = None
    record: RecordSettings | None = None
    relay_argv: Sequence[str] = _RELAY
    observer_argv: Sequence[str] = _OBSERVER
    name: str = field(default_factory=_new_name)
    #: Of the names of tenants, where the settings name none: so all our processes give a tenant the same name.
    tenant_key: str = field(default_factory=secrets.token_hex, repr=False)

    def environment(self) -> dict[str, str]:
        """Environment in which our own processes import nothing from the user's folder, and compute in one thread."""
        return {**os.environ, "PYTHONSAFEPATH": "1", **_ONE_THREAD}

    def command_environment(self) -> dict[str, str]:
        """What the server that ``run`` starts needs, so that uvicorn believes what we say of clients, and only us.

        It believes connections from these addresses. Those on a Unix socket have none, and are all ours.
        """
        if self.settings.forwarded != "replace" or FORWARDED_ALLOW_IPS in os.environ:
            return {}
        return {FORWARDED_ALLOW_IPS: "*" if self.upstream.startswith(UNIX) else "127.0.0.1,::1"}

    def relay_settings(
        self, index: int, listen_fds: Sequence[int], tap_fd: int, supervisor_fd: int = -1, tls_fd: int = -1
    ) -> bytes:
        """The JSON that relay ``index`` reads."""
        view = relay_view(
            self.settings,
            upstream=self.upstream,
            listen_fds=tuple(listen_fds),
            index=index,
            tap_fd=tap_fd,
            supervisor_fd=supervisor_fd,
            tls_fd=tls_fd,
            name=self.name,
        )
        if view.tenant_key is None:
            view = msgspec.structs.replace(view, tenant_key=self.tenant_key)
        return msgspec.json.encode(view)

    def observer_settings(
        self, tap_fds: Sequence[int], control_fd: int, admin_fd: int, engine_socket: str = ""
    ) -> bytes:
        """The JSON that the observer reads, in one line."""
        view = observer_view(
            self.settings,
            tap_fds=tuple(tap_fds),
            control_fd=control_fd,
            admin_fd=admin_fd,
            engine_socket=engine_socket,
            upstream=self.upstream,
            record=self.record,
        )
        if view.upstream_api_key is None and self.command is not None:
            view = msgspec.structs.replace(view, upstream_api_key=self.command.api_key)
        if view.tenant_key is None:
            view = msgspec.structs.replace(view, tenant_key=self.tenant_key)
        return msgspec.json.encode(view) + b"\n"
