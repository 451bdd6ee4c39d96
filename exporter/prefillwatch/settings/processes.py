"""Which processes there are, and the settings of the observer. Nothing heavy is imported: the observer reads this.

The settings of a process are those of `declared.Settings` that name it, under the same names and in the same units
(durations in seconds, sizes in bytes), and what the supervisor adds at the start. `views` makes them; they travel as
one JSON document on stdin. Those of a relay are in `relay.settings`, those of the analysis in `analysis.settings`.
"""

from __future__ import annotations

import enum
from typing import Final, Literal

import msgspec

from prefillwatch.analysis.settings import AnalysisSettings
from prefillwatch.wire.sender import TenantFrom, TenantNames

Gpu = Literal["auto", "off"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]


#: In place of an address: nowhere.
OTLP_OFF: Final = "off"


class Process(enum.Enum):
    """Who gets a setting. The analysis is a part of the observer, and of the recorder's replay."""

    RELAY = enum.auto()
    OBSERVER = enum.auto()
    ANALYSIS = enum.auto()
    SUPERVISOR = enum.auto()


RELAY: Final = Process.RELAY
OBSERVER: Final = Process.OBSERVER
ANALYSIS: Final = Process.ANALYSIS
SUPERVISOR: Final = Process.SUPERVISOR


class RecordSettings(msgspec.Struct, frozen=True):
    """What is seen goes to a file, from beginning to end."""

    path: str
    texts: bool = False
    tenants: bool = False


class FlightSettings(msgspec.Struct, frozen=True):
    """What was seen last goes to a file when an incident is over: the settings ``flight_recorder_…``."""

    dir: str
    window: float
    memory: int
    disk: int
    tenants: bool = False


class OtlpSettings(msgspec.Struct, frozen=True):
    """What is sent where by OTLP: the settings ``otlp_…``."""

    endpoint: str | None  # None: no metrics
    traces_endpoint: str | None  # None: as the other, ``off``: no traces
    headers: str | None
    interval: float

    @property
    def traces(self) -> str | None:
        """Where traces go."""
        return None if self.traces_endpoint == OTLP_OFF else self.traces_endpoint or self.endpoint


class ObserverSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Of the one observer process. The first part is the supervisor's."""

    tap_fds: tuple[int, ...]  # our end of each relay's SOCK_SEQPACKET pair, by relay index
    control_fd: int  # a stream socket, see `control`
    admin_fd: int = -1  # where the door passes on connections to the admin listener; -1: there are none
    engine_socket: str = ""  # where the plugin inside vLLM finds us; empty: nowhere
    upstream: str  # http[s]://HOST[:PORT] or unix:/PATH
    analysis: AnalysisSettings
    record: RecordSettings | None = None
    flight: FlightSettings | None
    otlp: OtlpSettings

    admin_bearer_token: str | None  # None: none is asked for
    admin_basic_auth: str | None  # USER:PASSWORD
    upstream_ca: str | None  # a PEM file; None: the system's
    upstream_insecure: bool
    upstream_api_key: str | None
    upstream_metrics_url: str | None  # http[s]://HOST[:PORT]/PATH, or /PATH at upstream; None: /metrics
    scrape_interval: float
    scrape_idle: bool
    exemplars: bool
    gpu: Gpu
    tenant_from: TenantFrom | None  # `user`: names of tenants are made here, of request bodies
    tenant_names: TenantNames
    tenant_key: str | None  # of the hash that makes names; None: one of this process's own
    log_level: LogLevel
    log_format: LogFormat
