"""What the processes are told: every setting reaches one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from prefillwatch.relay.settings import RelaySettings
from prefillwatch.relay.settings import decode_settings as decode_relay_settings
from prefillwatch.settings.declared import Settings, load
from prefillwatch.settings.observer import ObserverSettings, decode_settings
from prefillwatch.supervision.launch import Launch
from prefillwatch.supervision.upstream_command import UpstreamCommand

HERE = str(Path(__file__))
ONE_LINE = str(Path(__file__).parents[1] / "data/login")
FLIGHT = {"flight_recorder_dir": str(Path(__file__).parent)}
OTHER_VALUES: dict[str, dict[str, Any]] = {
    "admin_bearer_token_file": {"admin_bearer_token_file": ONE_LINE},
    "admin_basic_auth_file": {"admin_basic_auth_file": ONE_LINE},
    "upstream_ca": {"upstream_ca": HERE},
    "upstream_insecure": {"upstream_insecure": True},
    "upstream_api_key": {"upstream_api_key": "key"},
    "upstream_api_key_file": {"upstream_api_key_file": ONE_LINE},
    "preserve_host": {"preserve_host": False},
    "usage": {"usage": "inject"},
    "request_timeout": {"request_timeout": "7s"},
    "max_body": {"max_body": "7MiB"},
    "max_bodies": {"max_bodies": "70MiB"},
    "max_clients": {"max_clients": "7"},
    "max_clients_per_address": {"max_clients_per_address": "7"},
    "client_write_timeout": {"client_write_timeout": "7s"},
    "forwarded": {"forwarded": "append"},
    "connect_timeout": {"connect_timeout": "7s"},
    "upstream_keepalive": {"upstream_keepalive": "7s"},
    "client_idle_timeout": {"client_idle_timeout": "7s"},
    "idle_limit": {"idle_limit": "7s"},
    "drain_timeout": {"drain_timeout": "7s"},
    "scrape_interval": {"scrape_interval": "7s"},
    "scrape_idle": {"scrape_idle": False},
    "upstream_metrics_url": {"upstream_metrics_url": "/prometheus/metrics"},
    "prompt_buckets": {"prompt_buckets": "7"},
    "windows": {"windows": "7s"},
    "stall_min_gap": {"stall_min_gap": "70ms"},
    "stall_factor": {"stall_factor": "7"},
    "stall_always": {"stall_always": "7s"},
    "wait_min": {"wait_min": "7s"},
    "wait_factor": {"wait_factor": "7"},
    "slo_ttft": {"slo_ttft": "7s"},
    "slo_tpot": {"slo_tpot": "7s"},
    "slo_itl": {"slo_itl": "7s"},
    "max_models": {"max_models": "7"},
    "flight_recorder_dir": FLIGHT,
    "flight_recorder_window": FLIGHT | {"flight_recorder_window": "17s"},
    "flight_recorder_memory": FLIGHT | {"flight_recorder_memory": "7MiB"},
    "flight_recorder_disk": FLIGHT | {"flight_recorder_disk": "7MiB"},
    "gpu": {"gpu": "off"},
    "log_level": {"log_level": "debug"},
    "log_format": {"log_format": "json"},
}
#: What the supervisor itself acts on.
SUPERVISORS = {
    "upstream", "listen", "admin", "tls_cert", "tls_key", "admin_tls_cert", "admin_tls_key", "admin_hosts", "relays",
    "stop_timeout", "health_misses", "mute_limit", "engine_socket",
}  # fmt: skip


def told(launch: Launch) -> tuple[RelaySettings, ObserverSettings]:
    relay = decode_relay_settings(launch.relay_settings(1, [3, 4], 5))
    assert relay.name == launch.name
    return msgspec.structs.replace(relay, name=""), decode_settings(launch.observer_settings([6, 7], 8, 9))


def launch_with(flags: dict[str, Any], **more: Any) -> Launch:
    return Launch(load(flags, {}), "http://127.0.0.1:8000", **more)


def test_sockets_and_upstream_are_told() -> None:
    relay, observer = told(launch_with({}))
    assert (relay.index, relay.listen_fds, relay.tap_fd) == (1, (3, 4), 5)
    assert (observer.tap_fds, observer.control_fd, observer.admin_fd) == ((6, 7), 8, 9)
    assert relay.upstream == observer.upstream == "http://127.0.0.1:8000"


def test_the_defaults_are_the_same_everywhere() -> None:
    relay, observer = told(launch_with({}))
    upstream = "http://127.0.0.1:8000"
    assert relay == RelaySettings(upstream=upstream, listen_fds=(3, 4), index=1, tap_fd=5)
    assert observer == ObserverSettings(tap_fds=(6, 7), control_fd=8, admin_fd=9, upstream=upstream)


@pytest.mark.parametrize("key", sorted(set(Settings.model_fields) - SUPERVISORS))
def test_every_setting_reaches_a_process(key: str) -> None:
    assert told(launch_with(OTHER_VALUES[key])) != told(launch_with({}))


def test_the_key_of_the_command_serves_our_scrapes_unless_one_is_set() -> None:
    command = UpstreamCommand(("vllm",), "http://127.0.0.1:8000", api_key="its-own")
    assert told(launch_with({}, command=command))[1].upstream_api_key == "its-own"
    assert told(launch_with({"upstream_api_key": "set"}, command=command))[1].upstream_api_key == "set"


def test_the_mode_is_told() -> None:
    command = UpstreamCommand(("vllm",), "http://127.0.0.1:8000")
    assert told(launch_with({}))[1].mode == "serve"
    assert told(launch_with({}, command=command))[1].mode == "run"


def test_our_processes_compute_in_one_thread_whatever_the_user_set_for_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "64")
    assert Launch(load({"upstream": "http://u"}, {}), "http://u").environment()["OPENBLAS_NUM_THREADS"] == "1"


def test_every_sidecar_has_a_name_of_its_own_for_all_its_relays() -> None:
    launch = launch_with({})
    names = {decode_relay_settings(launch.relay_settings(index, [], 5)).name for index in range(3)}
    assert len(names) == 1
    assert launch_with({}).name not in names


@pytest.mark.parametrize(
    ("flags", "upstream", "believed"),
    [
        ({}, "http://127.0.0.1:8000", "127.0.0.1,::1"),
        ({}, "unix:/run/vllm.sock", "*"),
        ({"forwarded": "append"}, "unix:/run/vllm.sock", None),
        ({"forwarded": "pass"}, "http://127.0.0.1:8000", None),
    ],
)
def test_the_command_is_told_whom_to_believe(
    flags: dict[str, Any], upstream: str, believed: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FORWARDED_ALLOW_IPS", raising=False)
    environment = Launch(load(flags, {}), upstream).command_environment()
    assert environment.get("FORWARDED_ALLOW_IPS") == believed


def test_what_the_user_decided_about_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "10.0.0.1")
    assert launch_with({}).command_environment() == {}
