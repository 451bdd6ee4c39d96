"""Everything that can be set, and where it comes from: flags, then ``PREFILLWATCH_*``, then a YAML file.

A key has one name in all three places: ``max_body`` in YAML, ``PREFILLWATCH_MAX_BODY``, ``--max-body``. The sources are
merged here rather than by a library, so that an error can say which of them brought the bad value.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from prefillwatch.engine.step_report import SOCKET_ENV
from prefillwatch.errors import ConfigError
from prefillwatch.relay.hops import Forwarded
from prefillwatch.settings.addresses import ListenAddress, is_same_place, page_place
from prefillwatch.settings.values import (
    FILE,
    FOLDER,
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
    kind_in_yaml,
)

ENV_PREFIX: Final = "PREFILLWATCH_"
CONFIG_ENV: Final = "PREFILLWATCH_CONFIG"
#: Read by the experiments, which have no settings: it may be in the environment of the sidecar as well.
KEY_ENV: Final = "PREFILLWATCH_API_KEY"
#: More than any configuration; what is larger is another file, and would only be read for long.
_LARGEST_FILE: Final = 2**20
# Kubernetes sets these for a Service called "prefillwatch…"; they are not meant for us.
_SERVICE_LINK: Final = re.compile(
    r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$"
)


class Settings(BaseModel):
    """The settings of ``serve``, ``run`` and ``check``. Durations are seconds, sizes bytes, prompt sizes tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, arbitrary_types_allowed=True)

    upstream: Annotated[str | None, UPSTREAM] = Field(
        None, description="the server to watch: http://HOST:PORT, https://…, unix:/PATH"
    )
    listen: Annotated[ListenAddress, LISTEN] = Field(
        ListenAddress("127.0.0.1", 8080), description="where clients connect"
    )
    admin: Annotated[ListenAddress, LISTEN] = Field(
        ListenAddress("127.0.0.1", 9843), description="where /metrics, the page and the API are"
    )
    admin_tls_cert: Annotated[Path | None, FILE] = Field(
        None, description="serve the admin address over TLS with this certificate chain (PEM)"
    )
    admin_tls_key: Annotated[Path | None, FILE] = Field(None, description="the private key of admin_tls_cert (PEM)")
    admin_bearer_token_file: Annotated[SecretStr | None, SECRET_FILE] = Field(
        None, description="ask for the token in this file, except at /healthz and /readyz"
    )
    admin_basic_auth_file: Annotated[SecretStr | None, LOGIN_FILE] = Field(
        None, description="ask for the USER:PASSWORD in this file; with a token as well, either will do"
    )
    admin_hosts: Annotated[tuple[str, ...], NAMES] = Field(
        (),
        description="names that the admin address is asked by, beside IP addresses and localhost; .example.org: all "
        "below, *: any. With credentials no name is refused",
    )
    relays: Annotated[int, count(1, 64)] = Field(
        1, description="relay processes that share the port; one does for most servers"
    )
    tls_cert: Annotated[Path | None, FILE] = Field(
        None, description="serve clients over TLS with this certificate chain (PEM)"
    )
    tls_key: Annotated[Path | None, FILE] = Field(None, description="the private key of tls_cert (PEM)")
    upstream_ca: Annotated[Path | None, FILE] = Field(
        None, description="trust this authority for an https upstream (PEM)"
    )
    upstream_insecure: Annotated[bool, SWITCH] = Field(
        False, description="do not verify the certificate of an https upstream"
    )
    upstream_api_key: Annotated[SecretStr | None, SECRET] = Field(
        None, description="key for our own requests to /metrics and /v1/models; clients' keys pass through untouched"
    )
    upstream_api_key_file: Annotated[SecretStr | None, SECRET_FILE] = Field(
        None, description="the same key in a file, so that neither a process list nor an environment shows it"
    )
    preserve_host: Annotated[bool | None, SWITCH] = Field(
        None, description="send the client's Host header upstream; unset: yes, but not to an https upstream"
    )
    forwarded: Annotated[Forwarded, choice("pass", "append", "replace", "drop")] = Field(
        "replace",
        description="X-Forwarded-For, -Proto, -Host and Forwarded of clients: replace them by the address that we see, "
        "append it to them (behind a proxy that you trust), pass them on as they are, or drop them",
    )
    usage: Annotated[Literal["off", "inject"], choice("off", "inject")] = Field(
        "off",
        description="with inject, ask upstream for token counts where the client did not, and strip them again; "
        "rests where upstream refuses it",
    )
    request_timeout: Annotated[float, duration(0.1)] = Field(
        60.0, description="limit for receiving a whole request; answering has none"
    )
    max_body: Annotated[int, SIZE] = Field(64 * 2**20, description="largest request body")
    max_bodies: Annotated[int, SIZE] = Field(
        256 * 2**20,
        description="request bodies that all relays together may hold; beyond it large ones wait, then 503",
    )
    max_clients: Annotated[int, count(0, 10**6)] = Field(
        0, description="client connections of all relays together; 0: as many as descriptors (ulimit -n) allow"
    )
    max_clients_per_address: Annotated[int, count(0, 10**6)] = Field(
        0,
        description="client connections that one address (of IPv6 a /64) may have to a relay; 0: no limit, which a "
        "balancer needs: all come from it",
    )
    connect_timeout: Annotated[float, duration(0.01)] = Field(10.0, description="limit for connecting to upstream")
    upstream_keepalive: Annotated[float, duration(0.0)] = Field(
        4.0, description="keep an idle upstream connection this long; stay below the server's own limit (vLLM: 5s)"
    )
    client_idle_timeout: Annotated[float, duration(0.1)] = Field(
        75.0, description="keep an idle client connection this long"
    )
    client_write_timeout: Annotated[float, duration(0.1)] = Field(
        60.0, description="leave a client that takes no byte of its answer for this long, and stop upstream"
    )
    idle_limit: Annotated[float, duration(0.0)] = Field(
        0.0, description="cut an answer after this long without a byte from upstream; 0: never"
    )
    drain_timeout: Annotated[float, duration(0.0)] = Field(
        25.0, description="after SIGTERM, let running answers finish for this long"
    )
    stop_timeout: Annotated[float, duration(0.1)] = Field(
        60.0, description="let the command of run end for this long after it got the signal, then kill it"
    )
    scrape_interval: Annotated[float, duration(0.1)] = Field(
        1.0, description="how often to read upstream's /health and /metrics"
    )
    scrape_idle: Annotated[bool, SWITCH] = Field(
        True,
        description="read upstream's metrics while no request is in flight, too; false where being asked keeps a model "
        "awake or loads it",
    )
    upstream_metrics_url: Annotated[str | None, PAGE] = Field(
        None,
        description="where upstream's metrics are, if not at /metrics: /PATH there, or http://HOST:PORT/PATH, which "
        "does not get upstream_api_key",
    )
    health_misses: Annotated[int, count(1, 1000)] = Field(
        3, description="health checks of upstream in a row that may be late or lost before it counts as down"
    )
    mute_limit: Annotated[float, duration(0.0)] = Field(
        10.0, description="kill a relay that shows no sign of life for this long, and start another; 0: never"
    )
    engine_socket: Annotated[Path | None, SOCKET] = Field(
        None, description="listen here for our plugin inside vLLM, which gets the same path as PREFILLWATCH_SOCKET"
    )
    prompt_buckets: Annotated[tuple[int, ...], TOKEN_EDGES] = Field(
        (512, 2048, 8192, 32768, 131072), description="edges of the prompt sizes in labels, in tokens"
    )
    windows: Annotated[tuple[int, ...], durations(1, 3600)] = Field(
        (10, 60, 300), description="lengths of the sliding windows, whole seconds"
    )
    stall_min_gap: Annotated[float, duration(0.001)] = Field(0.1, description="a gap shorter than this is no stall")
    stall_factor: Annotated[float, factor(1.0)] = Field(
        4.0, description="a gap below this many times the stream's usual gap is no stall either"
    )
    stall_always: Annotated[float, duration(0.001)] = Field(1.0, description="a gap as long as this always is a stall")
    wait_min: Annotated[float, duration(0.001)] = Field(
        2.0, description="a first token that comes sooner is never late"
    )
    wait_factor: Annotated[float, factor(1.0)] = Field(
        4.0, description="one within this many times of what its prompt should take is not late either"
    )
    slo_ttft: Annotated[float, duration(0.001)] = Field(2.0, description="promised time to first token")
    slo_tpot: Annotated[float, duration(0.001)] = Field(
        0.1, description="promised time per output token, mean of a request"
    )
    slo_itl: Annotated[float, duration(0.001)] = Field(
        0.2, description="promised gap between two tokens; token deadlines and advice are made from it"
    )
    max_models: Annotated[int, count(1, 1000)] = Field(
        32, description="model names with series of their own; further ones count as other"
    )
    flight_recorder_dir: Annotated[Path | None, FOLDER] = Field(
        None, description="after an incident, write what was seen last to a file here, without texts; play it by replay"
    )
    flight_recorder_window: Annotated[float, duration(10.0)] = Field(
        180.0, description="how much of the past such a file holds"
    )
    flight_recorder_memory: Annotated[int, SIZE] = Field(
        32 * 2**20, description="memory for it; with more traffic than fits, it holds less of the past"
    )
    flight_recorder_disk: Annotated[int, SIZE] = Field(
        256 * 2**20, description="all such files together; the oldest are deleted"
    )
    gpu: Annotated[Literal["auto", "off"], choice("auto", "off")] = Field(
        "auto", description="read GPU memory through NVML where there is a GPU (extra: prefillwatch[gpu])"
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], choice("debug", "info", "warning", "error")] = (
        Field("info", description="least severe message to log")
    )
    log_format: Annotated[Literal["text", "json"], choice("text", "json")] = Field(
        "text", description="form of log lines on stderr"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Settings:
        _both_or_none(tls_cert=self.tls_cert, tls_key=self.tls_key)
        _both_or_none(admin_tls_cert=self.admin_tls_cert, admin_tls_key=self.admin_tls_key)
        if self.upstream_api_key and self.upstream_api_key_file:
            raise ValueError("upstream_api_key and upstream_api_key_file are both set; keep the file")
        if self.stall_always < self.stall_min_gap:
            raise ValueError("stall_always is below stall_min_gap; every stall of the first kind would be one already")
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

    def refuse_own_address(self, upstream: str) -> None:
        """Raises ValueError for an upstream where we listen ourselves: requests would come back to us without end."""
        for key, address in (("listen", self.listen), ("admin", self.admin)):
            if is_same_place(upstream, address):
                raise ValueError(
                    f"upstream {upstream} is where prefillwatch itself would answer (--{key} {address}); "
                    f"choose another address with --{key}"
                )

    @property
    def own_key(self) -> str:
        """What our own requests show upstream; empty: nothing."""
        secret = self.upstream_api_key or self.upstream_api_key_file
        return secret.get_secret_value() if secret else ""

    def required_upstream(self) -> str:
        """The upstream address. Raises ConfigError where none was given."""
        if self.upstream is None:
            raise ConfigError(
                "upstream is not set; name the server to watch, for example --upstream http://127.0.0.1:8000"
            )
        return self.upstream


def _both_or_none(**files: Path | None) -> None:
    missing = [key for key, path in files.items() if path is None]
    if len(missing) == 1:
        (given,) = files.keys() - missing
        raise ValueError(f"{given} is set without {missing[0]}; TLS needs both")


@dataclass(frozen=True, slots=True)
class _Given:
    """A value as it was given, and where, in the words of its source."""

    value: Any
    origin: str


def load(flags: Mapping[str, Any], environ: Mapping[str, str], config_file: Path | None = None) -> Settings:
    """Merge the sources and validate them. ``flags`` holds only what was given on the command line.

    Raises ConfigError; its message has one line per problem, each naming key, source, input and remedy.
    """
    path = config_file or (Path(environ[CONFIG_ENV]) if environ.get(CONFIG_ENV) else None)
    given = _from_file(path) if path else {}
    given |= _from_environment(environ)
    given |= {key: _Given(value, flag_name(key)) for key, value in flags.items()}
    try:
        return Settings.model_validate({key: item.value for key, item in given.items()})
    except ValidationError as error:
        raise ConfigError("\n".join(_lines(error, given))) from None


def kind_of(key: str) -> Kind:
    """How the setting's value is read and written."""
    (kind,) = (item for item in Settings.model_fields[key].metadata if isinstance(item, Kind))
    return kind


def shown_default(key: str) -> str:
    """The setting's default as one would write it; empty where there is none."""
    default = Settings.model_fields[key].default
    return "" if default is None else kind_of(key).show(default)


def flag_name(key: str) -> str:
    return "--" + key.replace("_", "-")


def _from_environment(environ: Mapping[str, str]) -> dict[str, _Given]:
    given = {}
    for name, value in environ.items():
        if not name.startswith(ENV_PREFIX) or name in (CONFIG_ENV, KEY_ENV) or _SERVICE_LINK.search(name):
            continue
        key = "engine_socket" if name == SOCKET_ENV else name.removeprefix(ENV_PREFIX).lower()
        if key not in Settings.model_fields:
            raise ConfigError(f"{name} is no setting of prefillwatch{_nearest(key, lambda k: ENV_PREFIX + k.upper())}")
        given[key] = _Given(value, name)
    return given


def _from_file(path: Path) -> dict[str, _Given]:
    content = _yaml(path)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold 'key: value' lines, not {kind_in_yaml(content)}")
    for key in content:
        if key not in Settings.model_fields:
            raise ConfigError(f"{path}: {key!r} is no setting of prefillwatch{_nearest(str(key), str)}")
    return {key: _Given(value, str(path)) for key, value in content.items()}


def _yaml(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_FILE + 1)
        if len(text) > _LARGEST_FILE:
            raise ConfigError(f"{path} has more than {_LARGEST_FILE} bytes; is it a configuration file?")
        return yaml.load(text.decode(), Loader=_UniqueKeyLoader)  # noqa: S506 (a SafeLoader)
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path} is not valid YAML{where}: {error.problem or error.context}") from None
    # Values that only look like a date or a number raise a plain ValueError.
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(f"{path} is not valid YAML: it is nested too deeply") from None


def _nearest(key: str, spelled: Any) -> str:
    nearest = difflib.get_close_matches(key.lower().replace("-", "_"), Settings.model_fields, n=1, cutoff=0.5)
    return f"; did you mean {spelled(nearest[0])}?" if nearest else "; see 'prefillwatch serve --help' for all of them"


def _lines(error: ValidationError, given: Mapping[str, _Given]) -> list[str]:
    lines = []
    for problem in error.errors(include_url=False, include_input=False):
        message = problem["msg"].removeprefix("Value error, ")
        key = str(problem["loc"][0]) if problem["loc"] else ""
        lines.append(f"{key} ({given[key].origin}): {message}" if key in given else message)
    return lines


_MERGE: Final = "tag:yaml.org,2002:merge"


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a mapping that names a key twice, where YAML would quietly keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == _MERGE:
                continue  # it tells by itself what may not be a key, and what a merge brings may be set anew
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} is set twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)
