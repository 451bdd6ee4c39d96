"""What the supervisor tells the observer process at its start: one JSON object on stdin.

Beside it goes the control channel (``control_fd``, a stream socket): the supervisor writes one JSON line with a
`Control` object at every change, and the first one at once. The observer writes the line ``ready`` when it reads the
taps, upon which the relays tell their running exchanges again. The end of the channel means that the supervisor is
gone: the observer must end too.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from prefillwatch.analysis.settings import AnalysisSettings

Role = Literal["supervisor", "relay", "observer", "upstream"]


class RecordSettings(msgspec.Struct, frozen=True):
    """What is seen goes to a file, from beginning to end."""

    path: str
    texts: bool = False


class FlightSettings(msgspec.Struct, frozen=True):
    """What was seen last goes to a file when an incident is over."""

    folder: str
    window_s: float
    memory_bytes: int
    disk_bytes: int


class ObserverSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in seconds."""

    tap_fds: tuple[int, ...]  # our end of each relay's SOCK_SEQPACKET pair, by relay index
    control_fd: int
    admin_fd: int = -1  # where the door passes on connections to the admin listener; -1: there are none
    admin_bearer_token: str = ""  # empty: none is asked for
    admin_basic_auth: str = ""  # USER:PASSWORD
    upstream: str  # http[s]://HOST[:PORT] or unix:/PATH
    upstream_ca: str = ""  # a PEM file; empty: the system's
    upstream_insecure: bool = False  # do not verify upstream's certificate
    upstream_api_key: str = ""  # for /metrics and /v1/models; empty: none
    scrape_interval_s: float = 1.0
    scrape_idle: bool = True  # read the metrics page while nothing is in flight, too
    upstream_metrics_url: str = ""  # http[s]://HOST[:PORT]/PATH, or /PATH at upstream; empty: /metrics
    engine_socket: str = ""  # where the plugin inside vLLM finds us; empty: nowhere
    analysis: AnalysisSettings = AnalysisSettings()
    gpu: bool = True  # look for a GPU through NVML
    usage_injected: bool = False
    record: RecordSettings | None = None
    flight: FlightSettings | None = None
    mode: Literal["serve", "run"] = "serve"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"


class Process(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One process of ours, for ``/api/state``."""

    role: Role
    pid: int
    index: int = -1  # which relay; -1: there is only one of this role


class Restarts(msgspec.Struct, frozen=True, kw_only=True):
    """How often a process was started again since the supervisor began."""

    relay: int = 0
    observer: int = 0


#: The state of a relay with which all is well.
SERVING = "serving"


class RelayNow(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a relay serves. ``state``: starting, serving, not accepting, mute, away."""

    index: int
    state: str


class UpstreamNow(msgspec.Struct, frozen=True, kw_only=True):
    """Upstream's health as of the last check. ``failures`` counts the checks that failed, by reason."""

    up: bool | None
    check_seconds: float
    failures: dict[str, int]


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """One line on the control channel: the whole truth now, not a change."""

    processes: tuple[Process, ...]
    draining: bool
    restarts: Restarts
    relays: tuple[RelayNow, ...] = ()
    upstream: UpstreamNow | None = None  # None: it was not asked yet
    ready: bool | None = None  # None: nobody but the observer itself knows
    reason: str = ""
    certificates: dict[str, float] = {}  # Unix time at which each one ends, by listener: data, admin


READY_LINE = b"ready\n"

_settings_decoder = msgspec.json.Decoder(ObserverSettings)
_control_decoder = msgspec.json.Decoder(Control)


def encode(message: ObserverSettings | Control) -> bytes:
    """One JSON line."""
    return msgspec.json.encode(message) + b"\n"


def decode_settings(data: bytes) -> ObserverSettings:
    """Raises msgspec.DecodeError when the bytes are no settings."""
    return _settings_decoder.decode(data)


def decode_control(line: bytes) -> Control:
    """Raises msgspec.DecodeError when the line is no control message."""
    return _control_decoder.decode(line)
