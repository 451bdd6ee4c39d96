"""What the processes get at their start, and the command beside them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from prefillwatch.relay.settings import RelaySettings, decode_settings
from prefillwatch.settings.processes import ObserverSettings
from prefillwatch.settings.sources import load
from prefillwatch.supervision.launch import Launch
from prefillwatch.supervision.upstream_command import UpstreamCommand


def told(launch: Launch) -> tuple[RelaySettings, ObserverSettings]:
    relay, observer = launch.relay_settings(1, [3, 4], 5), launch.observer_settings([6, 7], 8, 9)
    return decode_settings(relay), msgspec.json.decode(observer, type=ObserverSettings)


def launch_with(flags: dict[str, Any], **more: Any) -> Launch:
    return Launch(load(flags, {}), "http://127.0.0.1:8000", **more)


def test_sockets_and_upstream_are_told() -> None:
    relay, observer = told(launch_with({}))
    assert (relay.index, relay.listen_fds, relay.tap_fd) == (1, (3, 4), 5)
    assert (observer.tap_fds, observer.control_fd, observer.admin_fd) == ((6, 7), 8, 9)
    assert relay.upstream == observer.upstream == "http://127.0.0.1:8000"


def test_the_key_of_the_command_serves_our_scrapes_unless_one_is_set() -> None:
    command = UpstreamCommand(("vllm",), "http://127.0.0.1:8000", api_key="its-own")
    assert told(launch_with({}, command=command))[1].upstream_api_key == "its-own"
    assert told(launch_with({"upstream_api_key": "set"}, command=command))[1].upstream_api_key == "set"


def test_our_processes_compute_in_one_thread_whatever_the_user_set_for_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "64")
    assert Launch(load({"upstream": "http://u"}, {}), "http://u").environment()["OPENBLAS_NUM_THREADS"] == "1"


def test_every_sidecar_has_a_name_of_its_own_for_all_its_relays() -> None:
    launch = launch_with({})
    names = {decode_settings(launch.relay_settings(index, [], 5)).name for index in range(3)}
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
