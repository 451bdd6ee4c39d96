"""What the supervisor starts: the programs, and the settings that each of them gets on stdin."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from pydantic import SecretStr

from prefillwatch.analysis.settings import AnalysisSettings, Slo, StallRule, WaitRule
from prefillwatch.own_process import python_module
from prefillwatch.relay.settings import RelaySettings
from prefillwatch.settings.declared import Settings
from prefillwatch.settings.observer import FlightSettings, ObserverSettings, RecordSettings, encode
from prefillwatch.supervision.held_port import HeldPort
from prefillwatch.supervision.upstream_command import UpstreamCommand

_RELAY: Final = python_module("prefillwatch.relay")
FORWARDED_ALLOW_IPS: Final = "FORWARDED_ALLOW_IPS"
_OBSERVER: Final = python_module("prefillwatch.observer")
#: Else the libraries behind numpy start a thread for every core as soon as they are imported, each with 32 MiB of
#: addresses, to solve equations of three unknowns.
_ONE_THREAD: Final = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def _new_name() -> str:
    """What our relays call themselves in Via: no other sidecar has the same, so a request that names us was here."""
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

    def environment(self) -> dict[str, str]:
        """Our own processes import nothing that happens to lie in the user's folder, and compute in one thread each."""
        return {**os.environ, "PYTHONSAFEPATH": "1", **_ONE_THREAD}

    def command_environment(self) -> dict[str, str]:
        """What the server that ``run`` starts needs, so that uvicorn believes what we say of clients, and nobody else.

        It believes whoever connects from these addresses. On a Unix socket there are none, and nobody but us.
        """
        if self.settings.forwarded != "replace" or FORWARDED_ALLOW_IPS in os.environ:
            return {}
        return {FORWARDED_ALLOW_IPS: "*" if self.upstream.startswith("unix:") else "127.0.0.1,::1"}

    def relay_settings(
        self, index: int, listen_fds: Sequence[int], tap_fd: int, supervisor_fd: int = -1, tls_fd: int = -1
    ) -> bytes:
        """The JSON that relay ``index`` reads."""
        settings = self.settings
        return msgspec.json.encode(
            RelaySettings(
                index=index,
                listen_fds=tuple(listen_fds),
                tap_fd=tap_fd,
                supervisor_fd=supervisor_fd,
                upstream=self.upstream,
                max_body_bytes=settings.max_body,
                max_bodies_bytes=settings.max_bodies,
                max_clients=settings.max_clients,
                max_clients_per_address=settings.max_clients_per_address,
                relays=settings.relays,
                request_timeout_s=settings.request_timeout,
                connect_timeout_s=settings.connect_timeout,
                upstream_keepalive_s=settings.upstream_keepalive,
                client_idle_s=settings.client_idle_timeout,
                client_write_s=settings.client_write_timeout,
                idle_limit_s=settings.idle_limit,
                drain_s=settings.drain_timeout,
                tls_fd=tls_fd,
                upstream_ca=str(settings.upstream_ca or ""),
                upstream_insecure=settings.upstream_insecure,
                preserve_host=settings.preserve_host,
                forwarded=settings.forwarded,
                name=self.name,
                inject_usage=settings.usage == "inject",
            )
        )

    def observer_settings(
        self, tap_fds: Sequence[int], control_fd: int, admin_fd: int, engine_socket: str = ""
    ) -> bytes:
        """The JSON that the observer reads."""
        settings = self.settings
        return encode(
            ObserverSettings(
                tap_fds=tuple(tap_fds),
                control_fd=control_fd,
                admin_fd=admin_fd,
                admin_bearer_token=_revealed(settings.admin_bearer_token_file),
                admin_basic_auth=_revealed(settings.admin_basic_auth_file),
                upstream=self.upstream,
                upstream_ca=str(settings.upstream_ca or ""),
                upstream_insecure=settings.upstream_insecure,
                upstream_api_key=settings.own_key or (self.command.api_key if self.command else None) or "",
                scrape_interval_s=settings.scrape_interval,
                scrape_idle=settings.scrape_idle,
                upstream_metrics_url=settings.upstream_metrics_url or "",
                engine_socket=engine_socket,
                analysis=analysis_settings(settings),
                gpu=settings.gpu == "auto",
                usage_injected=settings.usage == "inject",
                record=self.record,
                flight=flight_settings(settings),
                mode="run" if self.command else "serve",
                log_level=settings.log_level,
                log_format=settings.log_format,
            )
        )


def _revealed(secret: SecretStr | None) -> str:
    return secret.get_secret_value() if secret else ""


def flight_settings(settings: Settings) -> FlightSettings | None:
    if settings.flight_recorder_dir is None:
        return None
    return FlightSettings(
        folder=str(settings.flight_recorder_dir.absolute()),
        window_s=settings.flight_recorder_window,
        memory_bytes=settings.flight_recorder_memory,
        disk_bytes=settings.flight_recorder_disk,
    )


def analysis_settings(settings: Settings) -> AnalysisSettings:
    """The part of the settings that the analysis knows."""
    return AnalysisSettings(
        prompt_edges=settings.prompt_buckets,
        windows_s=settings.windows,
        stall=StallRule(settings.stall_min_gap, settings.stall_factor, settings.stall_always),
        wait=WaitRule(settings.wait_min, settings.wait_factor),
        slo=Slo(settings.slo_ttft, settings.slo_tpot, settings.slo_itl),
        max_models=settings.max_models,
    )
