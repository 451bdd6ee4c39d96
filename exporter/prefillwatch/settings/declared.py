"""Everything that can be set: each setting once, with its name, its kind, who gets it, its default and what it means.

The kind reads and writes it, and says its unit. `sources` knows where values come from, `views` hands them on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, get_args

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from prefillwatch.contract import limits
from prefillwatch.contract.buckets import PROMPT_EDGES, WINDOWS_S
from prefillwatch.errors import ConfigError
from prefillwatch.relay.hops import Forwarded
from prefillwatch.relay.settings import Usage
from prefillwatch.settings.addresses import ListenAddress, is_same_place, page_place
from prefillwatch.settings.kinds import (
    COLLECTOR,
    COLLECTOR_OR_OFF,
    FILE,
    FOLDER,
    HEADER,
    HEADERS,
    HEADERS_FILE,
    LISTEN,
    LOGIN_FILE,
    NAMES,
    PAGE,
    SECRET,
    SECRET_FILE,
    SIZE,
    SOCKET,
    SWITCH,
    TOKEN_EDGES,
    UPSTREAM,
    Kind,
    choice,
    count,
    duration,
    durations,
    factor,
)
from prefillwatch.settings.otlp import exporter_is_installed
from prefillwatch.settings.processes import ANALYSIS, OBSERVER, RELAY, SUPERVISOR, Gpu, LogFormat, LogLevel, Process
from prefillwatch.wire.sender import SECRET_HEADERS, TenantFrom, TenantNames


class Settings(BaseModel):
    """The settings of ``serve``, ``run`` and ``check``. Durations are seconds, sizes bytes, prompt sizes tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, arbitrary_types_allowed=True)

    upstream: Annotated[str | None, UPSTREAM, SUPERVISOR] = Field(
        None, description="the server to watch: http://HOST:PORT, https://…, unix:/PATH"
    )
    listen: Annotated[ListenAddress, LISTEN, SUPERVISOR] = Field(
        ListenAddress("127.0.0.1", 8080), description="where clients connect"
    )
    admin: Annotated[ListenAddress, LISTEN, SUPERVISOR] = Field(
        ListenAddress("127.0.0.1", 9843), description="where /metrics, the page and the API are"
    )
    admin_tls_cert: Annotated[Path | None, FILE, SUPERVISOR] = Field(
        None, description="serve the admin address over TLS with this certificate chain (PEM)"
    )
    admin_tls_key: Annotated[Path | None, FILE, SUPERVISOR] = Field(
        None, description="the private key of admin_tls_cert (PEM)"
    )
    admin_bearer_token_file: Annotated[SecretStr | None, SECRET_FILE, OBSERVER, SUPERVISOR] = Field(
        None, description="ask for the token in this file, except at /healthz and /readyz"
    )
    admin_basic_auth_file: Annotated[SecretStr | None, LOGIN_FILE, OBSERVER, SUPERVISOR] = Field(
        None, description="ask for the USER:PASSWORD in this file; with a token as well, either will do"
    )
    admin_hosts: Annotated[tuple[str, ...], NAMES, SUPERVISOR] = Field(
        (),
        description="names that the admin address is asked by, beside IP addresses and localhost; .example.org: all "
        "below, *: any. With credentials no name is refused",
    )
    relays: Annotated[int, count(1, 64), RELAY, SUPERVISOR] = Field(
        1, description="relay processes that share the port; one does for most servers"
    )
    tls_cert: Annotated[Path | None, FILE, SUPERVISOR] = Field(
        None, description="serve clients over TLS with this certificate chain (PEM)"
    )
    tls_key: Annotated[Path | None, FILE, SUPERVISOR] = Field(None, description="the private key of tls_cert (PEM)")
    upstream_ca: Annotated[Path | None, FILE, RELAY, OBSERVER, SUPERVISOR] = Field(
        None, description="trust this authority for an https upstream (PEM)"
    )
    upstream_insecure: Annotated[bool, SWITCH, RELAY, OBSERVER, SUPERVISOR] = Field(
        False, description="do not verify the certificate of an https upstream"
    )
    upstream_api_key: Annotated[SecretStr | None, SECRET, OBSERVER] = Field(
        None, description="key for our own requests to /metrics and /v1/models; clients' keys pass through untouched"
    )
    upstream_api_key_file: Annotated[SecretStr | None, SECRET_FILE, OBSERVER] = Field(
        None, description="the same key in a file, so that neither a process list nor an environment shows it"
    )
    preserve_host: Annotated[bool | None, SWITCH, RELAY] = Field(
        None, description="send the client's Host header upstream; unset: yes, but not to an https upstream"
    )
    forwarded: Annotated[Forwarded, choice(*get_args(Forwarded)), RELAY, SUPERVISOR] = Field(
        "replace",
        description="X-Forwarded-For, -Proto, -Host and Forwarded of clients: replace them by the address that we see, "
        "append it to them (behind a proxy that you trust), pass them on as they are, or drop them",
    )
    usage: Annotated[Usage, choice(*get_args(Usage)), RELAY] = Field(
        "off",
        description="with inject, ask upstream for token counts where the client did not, and strip them again; "
        "rests where upstream refuses it",
    )
    request_timeout: Annotated[float, duration(0.1), RELAY] = Field(
        60.0, description="limit for receiving a whole request; answering has none"
    )
    max_body: Annotated[int, SIZE, RELAY] = Field(64 * 2**20, description="largest request body")
    max_bodies: Annotated[int, SIZE, RELAY] = Field(
        256 * 2**20,
        description="request bodies that all relays together may hold; beyond it large ones wait, then 503",
    )
    max_clients: Annotated[int, count(0, 10**6), RELAY] = Field(
        0, description="client connections of all relays together; 0: as many as descriptors (ulimit -n) allow"
    )
    max_clients_per_address: Annotated[int, count(0, 10**6), RELAY] = Field(
        0,
        description="client connections that one address (of IPv6 a /64) may have to a relay; 0: no limit, which a "
        "balancer needs: all come from it",
    )
    connect_timeout: Annotated[float, duration(0.01), RELAY] = Field(
        10.0, description="limit for connecting to upstream"
    )
    upstream_keepalive: Annotated[float, duration(0.0), RELAY] = Field(
        4.0,
        description="keep an idle upstream connection this long; stay below the server's own limit (vLLM: 5s); a "
        "server that closes after each answer is noticed, and nothing is kept then",
    )
    client_idle_timeout: Annotated[float, duration(0.1), RELAY] = Field(
        75.0, description="keep an idle client connection this long"
    )
    client_write_timeout: Annotated[float, duration(0.1), RELAY] = Field(
        60.0, description="leave a client that takes no byte of its answer for this long, and stop upstream"
    )
    idle_limit: Annotated[float, duration(0.0), RELAY] = Field(
        0.0, description="cut an answer after this long without a byte from upstream; 0: never"
    )
    drain_timeout: Annotated[float, duration(0.0), RELAY, SUPERVISOR] = Field(
        25.0, description="after SIGTERM, let running answers finish for this long"
    )
    stop_timeout: Annotated[float, duration(0.1), SUPERVISOR] = Field(
        60.0, description="let the command of run end for this long after it got the signal, then kill it"
    )
    scrape_interval: Annotated[float, duration(0.1), OBSERVER, SUPERVISOR] = Field(
        1.0, description="how often to read upstream's /health and /metrics"
    )
    scrape_idle: Annotated[bool, SWITCH, OBSERVER] = Field(
        True,
        description="read upstream's metrics while no request is in flight, too; false where being asked keeps a model "
        "awake or loads it",
    )
    upstream_metrics_url: Annotated[str | None, PAGE, OBSERVER] = Field(
        None,
        description="where upstream's metrics are, if not at /metrics: /PATH there, or http://HOST:PORT/PATH, which "
        "does not get upstream_api_key",
    )
    health_misses: Annotated[int, count(1, 1000), SUPERVISOR] = Field(
        3, description="health checks of upstream in a row that may be late or lost before it counts as down"
    )
    mute_limit: Annotated[float, duration(0.0), SUPERVISOR] = Field(
        10.0, description="kill a relay that shows no sign of life for this long, and start another; 0: never"
    )
    engine_socket: Annotated[Path | None, SOCKET, SUPERVISOR] = Field(
        None, description="listen here for our plugin inside vLLM, which gets the same path as PREFILLWATCH_SOCKET"
    )
    prompt_buckets: Annotated[tuple[int, ...], TOKEN_EDGES, ANALYSIS] = Field(
        PROMPT_EDGES, description="edges of the prompt sizes in labels, in tokens"
    )
    windows: Annotated[tuple[int, ...], durations(1, 3600), ANALYSIS] = Field(
        WINDOWS_S, description="lengths of the sliding windows, whole seconds"
    )
    stall_min_gap: Annotated[float, duration(0.001), ANALYSIS] = Field(
        limits.STALL_MIN_GAP, description="a gap shorter than this is no stall"
    )
    stall_factor: Annotated[float, factor(1.0), ANALYSIS] = Field(
        limits.STALL_FACTOR, description="a gap below this many times the stream's usual gap is no stall either"
    )
    stall_always: Annotated[float, duration(0.001), ANALYSIS] = Field(
        limits.STALL_ALWAYS, description="a gap as long as this always is a stall"
    )
    wait_min: Annotated[float, duration(0.001), ANALYSIS] = Field(
        limits.WAIT_MIN, description="a first token that comes sooner is never late"
    )
    wait_factor: Annotated[float, factor(1.0), ANALYSIS] = Field(
        limits.WAIT_FACTOR, description="one within this many times of what its prompt should take is not late either"
    )
    slo_ttft: Annotated[float, duration(0.001), ANALYSIS] = Field(
        limits.FIRST_TOKEN_PROMISE, description="promised time to first token"
    )
    slo_tpot: Annotated[float, duration(0.001), ANALYSIS] = Field(
        limits.PER_TOKEN_PROMISE, description="promised time per output token, mean of a request"
    )
    slo_itl: Annotated[float, duration(0.001), ANALYSIS] = Field(
        limits.ITL_PROMISE, description="promised gap between two tokens; token deadlines and advice are made from it"
    )
    max_models: Annotated[int, count(1, 1000), ANALYSIS] = Field(
        limits.MAX_MODELS, description="model names with series of their own; further ones count as other"
    )
    otlp_endpoint: Annotated[str | None, COLLECTOR, OBSERVER] = Field(
        None,
        description="send metrics and traces of incidents there by OTLP over HTTP (extra: prefillwatch[otlp]); the "
        "address without /v1/…",
    )
    otlp_traces_endpoint: Annotated[str | None, COLLECTOR_OR_OFF, OBSERVER] = Field(
        None, description="send traces there instead; off: nowhere, for a receiver that takes metrics only"
    )
    otlp_headers: Annotated[SecretStr | None, HEADERS, OBSERVER] = Field(
        None, description="headers to send with it, as NAME=VALUE,…; values are percent-decoded"
    )
    otlp_headers_file: Annotated[SecretStr | None, HEADERS_FILE, OBSERVER] = Field(
        None, description="the same headers in a file, so that neither a process list nor an environment shows them"
    )
    otlp_interval: Annotated[float, duration(1.0), OBSERVER] = Field(
        15.0, description="how often metrics are sent; traces go when an incident is over"
    )
    tenant_header: Annotated[str | None, HEADER, RELAY] = Field(
        None,
        description="tell tenants apart by this request header, which your gateway has to set: stall seconds caused "
        "and suffered, tokens, promises kept",
    )
    tenant_from: Annotated[TenantFrom | None, choice(*get_args(TenantFrom)), RELAY, OBSERVER] = Field(
        None,
        description="tell tenants apart by their credential (Authorization, X-Api-Key, Api-Key) or by the body's user; "
        "unset: by tenant_header, or not at all",
    )
    tenant_names: Annotated[TenantNames, choice(*get_args(TenantNames)), RELAY, OBSERVER] = Field(
        "hashed",
        description="how tenants are called in labels and files: by a keyed hash, or in plain as tenant_header or the "
        "user says; credentials are hashed always",
    )
    tenant_key_file: Annotated[SecretStr | None, SECRET_FILE, RELAY, OBSERVER] = Field(
        None,
        description="the key of that hash in a file, so that a tenant has one name on all replicas and over restarts; "
        "unset: a new one at each start",
    )
    max_tenants: Annotated[int, count(1, 200), ANALYSIS] = Field(
        limits.MAX_TENANTS,
        description="tenants with series of their own, the largest by tokens in the last hour; the rest is other",
    )
    priorities: Annotated[bool, SWITCH, RELAY, ANALYSIS] = Field(
        False,
        description="figures by priority (X-Vllm-Priority, or the body's priority), in the classes <-1, -1, 0, 1, >1",
    )
    flight_recorder_tenants: Annotated[bool, SWITCH, OBSERVER] = Field(
        False, description="keep the names of tenants and the priorities in flight recordings"
    )
    flight_recorder_dir: Annotated[Path | None, FOLDER, OBSERVER] = Field(
        None, description="after an incident, write what was seen last to a file here, without texts; play it by replay"
    )
    flight_recorder_window: Annotated[float, duration(10.0), OBSERVER] = Field(
        180.0, description="how much of the past such a file holds"
    )
    flight_recorder_memory: Annotated[int, SIZE, OBSERVER] = Field(
        32 * 2**20, description="memory for it; with more traffic than fits, it holds less of the past"
    )
    flight_recorder_disk: Annotated[int, SIZE, OBSERVER] = Field(
        256 * 2**20, description="all such files together; the oldest are deleted"
    )
    exemplars: Annotated[bool, SWITCH, OBSERVER] = Field(
        True,
        description="name on /metrics the request and the trace of slow gaps and first tokens, as exemplars, where the "
        "scraper takes OpenMetrics",
    )
    gpu: Annotated[Gpu, choice(*get_args(Gpu)), OBSERVER] = Field(
        "auto", description="read GPU memory through NVML where there is a GPU (extra: prefillwatch[gpu])"
    )
    log_level: Annotated[LogLevel, choice(*get_args(LogLevel)), OBSERVER, SUPERVISOR] = Field(
        "info", description="least severe message to log"
    )
    log_format: Annotated[LogFormat, choice(*get_args(LogFormat)), OBSERVER, SUPERVISOR] = Field(
        "text", description="form of log lines on stderr"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Settings:
        _both_or_none(tls_cert=self.tls_cert, tls_key=self.tls_key)
        _both_or_none(admin_tls_cert=self.admin_tls_cert, admin_tls_key=self.admin_tls_key)
        if self.upstream_api_key and self.upstream_api_key_file:
            raise ValueError("upstream_api_key and upstream_api_key_file are both set; keep the file")
        if self.otlp_headers and self.otlp_headers_file:
            raise ValueError("otlp_headers and otlp_headers_file are both set; keep the file")
        if (self.otlp_endpoint or self.otlp_traces_endpoint) and not exporter_is_installed():
            raise ValueError("otlp_endpoint needs the exporters of OpenTelemetry: pip install 'prefillwatch[otlp]'")
        if self.stall_always < self.stall_min_gap:
            raise ValueError("stall_always is below stall_min_gap; every stall of the first kind would be one already")
        self._tenants_fit_together()
        if self.listen.overlaps(self.admin):
            both = f"both {self.listen}" if self.listen == self.admin else f"{self.listen} and {self.admin}"
            raise ValueError(f"listen and admin are {both}; give the admin listener a port of its own")
        if self.upstream:
            self.refuse_own_address(self.upstream)
        if self.upstream_metrics_url:
            server, _ = page_place("", self.upstream_metrics_url)
            if server and any(is_same_place(server, each) for each in (self.listen, self.admin)):
                raise ValueError(
                    f"upstream_metrics_url {self.upstream_metrics_url} is where prefillwatch itself would answer; name "
                    "the page of the server behind it"
                )
        return self

    def _tenants_fit_together(self) -> None:
        if self.tenant_header and self.tenant_from:
            raise ValueError(
                f"tenant_header and tenant_from: {self.tenant_from} are both set; keep the one that says who sent a "
                "request"
            )
        secret = (self.tenant_header or "").encode() in SECRET_HEADERS or self.tenant_from == "api_key_id"
        if secret and self.tenant_names == "plain":
            raise ValueError("tenant_names: plain would show credentials; leave it at hashed")

    def refuse_own_address(self, upstream: str) -> None:
        """Raises ValueError for an upstream where we listen ourselves: requests would come back to us without end."""
        for key, address in (("listen", self.listen), ("admin", self.admin)):
            if is_same_place(upstream, address):
                raise ValueError(
                    f"upstream {upstream} is where prefillwatch itself would answer (--{key} {address}); "
                    f"choose another address with --{key}"
                )

    def of(self, process: Process) -> dict[str, Any]:
        """The settings that name this process, in plain values: paths and secrets as text.

        Of a secret in a file, the secret is handed on and so goes by its own name: ``admin_bearer_token_file`` gives
        ``admin_bearer_token``.
        """
        values: dict[str, Any] = {}
        for key, declared in type(self).model_fields.items():
            if process in declared.metadata:
                value = _plain(getattr(self, key))
                name = key.removesuffix("_file")
                values[name] = value if values.get(name) is None else values[name]
        return values

    def required_upstream(self) -> str:
        """The upstream address. Raises ConfigError where none was given."""
        if self.upstream is None:
            raise ConfigError(
                "upstream is not set; name the server to watch, for example --upstream http://127.0.0.1:8000"
            )
        return self.upstream


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value) if isinstance(value, Path) else value


def _both_or_none(**files: Path | None) -> None:
    missing = [key for key, path in files.items() if path is None]
    if len(missing) == 1:
        (given,) = files.keys() - missing
        raise ValueError(f"{given} is set without {missing[0]}; TLS needs both")


def kind_of(key: str) -> Kind:
    """How the setting's value is read and written."""
    (kind,) = (item for item in Settings.model_fields[key].metadata if isinstance(item, Kind))
    return kind


def shown_default(key: str) -> str:
    """The setting's default as one would write it; empty where there is none."""
    default = Settings.model_fields[key].default
    return "" if default is None else kind_of(key).show(default)


#: Where nothing is set.
DEFAULTS: Final = Settings.model_validate({})
