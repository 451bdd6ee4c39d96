"""Each process gets the settings that name it, and reads every one of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import prefillwatch
from prefillwatch.analysis.settings import AnalysisSettings, Slo, StallRule, WaitRule
from prefillwatch.relay.settings import RelaySettings
from prefillwatch.settings.declared import DEFAULTS, Settings
from prefillwatch.settings.processes import FlightSettings, ObserverSettings, Process
from prefillwatch.settings.sources import load
from prefillwatch.settings.views import analysis_view, observer_view, relay_view

ROOT = Path(prefillwatch.__file__).parent
#: Where each process reads its settings, and what it calls them and their sections there.
READERS: dict[Process, tuple[tuple[str, ...], set[str]]] = {
    Process.RELAY: (("relay",), {"settings"}),
    Process.OBSERVER: (("observer", "recorder"), {"settings", "_settings", "flight"}),
    Process.ANALYSIS: (("analysis", "observer"), {"settings", "analysis", "rule", "_rule", "slo", "_slo"}),
    Process.SUPERVISOR: (("supervision", "commands/serve.py"), {"settings"}),
}


def attributes_read(process: Process) -> set[str]:
    """Names that the code of a process reads of what it calls settings."""
    places, called = READERS[process]
    return {
        node.attr
        for place in places
        for path in _files(ROOT / place)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and _called(node.value) in called
    }


def _files(place: Path) -> Iterator[Path]:
    return place.rglob("*.py") if place.is_dir() else iter((place,))


def _called(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


@pytest.mark.parametrize(
    ("process", "kinds"),
    [
        (Process.RELAY, [RelaySettings]),
        (Process.OBSERVER, [ObserverSettings, FlightSettings]),
        (Process.ANALYSIS, [AnalysisSettings, StallRule, WaitRule, Slo]),
    ],
)
def test_a_process_reads_every_setting_that_it_gets(process: Process, kinds: list[type[msgspec.Struct]]) -> None:
    fields = {name for kind in kinds for name in kind.__struct_fields__}
    assert fields
    assert not fields - attributes_read(process)


def test_the_supervisor_reads_what_names_it_and_nothing_else() -> None:
    marked = {key for key, declared in Settings.model_fields.items() if Process.SUPERVISOR in declared.metadata}
    assert attributes_read(Process.SUPERVISOR) & Settings.model_fields.keys() == marked


@pytest.mark.parametrize("key", Settings.model_fields)
def test_every_setting_goes_somewhere(key: str) -> None:
    assert [mark for mark in Settings.model_fields[key].metadata if isinstance(mark, Process)]


def test_a_relay_gets_what_names_it_under_its_own_name() -> None:
    view = relay_view(DEFAULTS, upstream="http://u", listen_fds=())
    of_supervisor = {"upstream", "listen_fds", "index", "tap_fd", "supervisor_fd", "tls_fd", "name"}
    assert set(RelaySettings.__struct_fields__) - of_supervisor == DEFAULTS.of(Process.RELAY).keys()
    assert {key: getattr(view, key) for key in DEFAULTS.of(Process.RELAY)} == DEFAULTS.of(Process.RELAY)


def test_a_name_on_one_side_alone_is_an_error() -> None:
    with pytest.raises(TypeError, match="upstream"):
        relay_view(DEFAULTS, listen_fds=())
    with pytest.raises(TypeError, match="surprise"):
        relay_view(DEFAULTS, upstream="http://u", listen_fds=(), surprise=1)


def test_sections_go_by_what_follows_their_prefix() -> None:
    flags = {"stall_min_gap": "70ms", "wait_factor": "7", "slo_itl": "500ms", "windows": "7s", "prompt_buckets": "7"}
    view = analysis_view(load(flags, {}))
    assert (view.stall.min_gap, view.wait.factor, view.slo.itl) == (0.07, 7.0, 0.5)
    assert (view.windows, view.prompt_buckets) == ((7,), (7,))


@pytest.fixture
def login(tmp_path: Path) -> str:
    file = tmp_path / "login"
    file.write_text("user:marker-secret\n")
    return str(file)


def observed(flags: dict[str, Any]) -> ObserverSettings:
    return observer_view(load(flags, {}), tap_fds=(), control_fd=8, upstream="http://u")


def test_a_secret_in_a_file_goes_by_the_name_of_the_secret(login: str) -> None:
    view = observed({"admin_basic_auth_file": login, "admin_bearer_token_file": login, "upstream_api_key_file": login})
    assert {view.admin_basic_auth, view.admin_bearer_token, view.upstream_api_key} == {"user:marker-secret"}
    assert observed({"upstream_api_key": "key"}).upstream_api_key == "key"
    assert observed({}).upstream_api_key is None


def test_the_flight_recorder_is_on_where_it_has_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flight = observed({"flight_recorder_dir": ".", "flight_recorder_disk": "7MiB"}).flight
    assert flight == FlightSettings(dir=str(tmp_path), window=180.0, memory=32 * 2**20, disk=7 * 2**20)
    assert observed({"flight_recorder_disk": "7MiB"}).flight is None


def test_views_travel_as_json() -> None:
    view = observed({"forwarded": "append"})
    assert msgspec.json.decode(msgspec.json.encode(view), type=ObserverSettings) == view
