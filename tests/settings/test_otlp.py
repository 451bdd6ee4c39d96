"""Headers for OTLP, which are secrets, and what is said where its exporters are not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefillwatch.errors import ConfigError
from prefillwatch.settings import declared, otlp
from prefillwatch.settings.otlp import exporter_is_installed, parse_headers
from prefillwatch.settings.processes import OBSERVER
from prefillwatch.settings.sources import load
from prefillwatch.settings.views import observer_view

ENDPOINT = {"otlp_endpoint": "http://collector:4318"}


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ("authorization=Bearer%20abc", {"authorization": "Bearer abc"}),
        ("Authorization=Bearer abc==", {"authorization": "Bearer abc=="}),
        ("a=1, b=x%2Cy ,", {"a": "1", "b": "x,y"}),
        ("a=", {"a": ""}),
    ],
)
def test_headers_are_read_as_opentelemetry_writes_them(text: str, headers: dict[str, str]) -> None:
    assert parse_headers(text) == headers


@pytest.mark.parametrize(
    "text", ["", ",", "marker-secret", "a b=c", "=marker-secret", "a=marker-secret%0d%0ab: c", "a=ü"]
)
def test_a_mistake_in_headers_is_told_without_them(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load({**ENDPOINT, "otlp_headers": text}, {})
    assert "otlp_headers (--otlp-headers): " in str(caught.value)
    assert "marker-secret" not in str(caught.value)


def test_headers_may_be_in_a_file_and_are_shown_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("authorization=marker-secret\n")
    settings = load({**ENDPOINT, "otlp_headers_file": str(file)}, {})
    assert settings.of(OBSERVER)["otlp_headers"] == "authorization=marker-secret"
    assert "marker-secret" not in repr(settings)
    with pytest.raises(ConfigError, match="otlp_headers and otlp_headers_file are both set; keep the file"):
        load({"otlp_headers_file": str(file), "otlp_headers": "a=b"}, {})


@pytest.mark.parametrize(
    ("traces", "where"),
    [(None, "http://collector:4318"), ("off", None), (False, None), ("http://tempo:4318/", "http://tempo:4318")],
)
def test_traces_go_where_metrics_go_or_elsewhere_or_nowhere(traces: object, where: str | None) -> None:
    given = ENDPOINT if traces is None else {**ENDPOINT, "otlp_traces_endpoint": traces}
    view = observer_view(load(given, {}), tap_fds=(), control_fd=-1, upstream="http://a")
    assert (view.otlp.endpoint, view.otlp.traces) == ("http://collector:4318", where)


def test_nothing_is_sent_unless_it_is_said_where() -> None:
    view = observer_view(load({}, {}), tap_fds=(), control_fd=-1, upstream="http://a")
    assert (view.otlp.endpoint, view.otlp.traces) == (None, None)


@pytest.mark.parametrize("key", ["otlp_endpoint", "otlp_traces_endpoint"])
def test_where_the_exporters_are_missing_the_extra_is_named(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared, "exporter_is_installed", lambda: False)
    with pytest.raises(ConfigError, match=r"pip install 'prefillwatch\[otlp\]'"):
        load({key: "http://collector:4318"}, {})
    load({}, {})


def test_they_are_found_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert exporter_is_installed()
    for missing in ("opentelemetry.exporter.nowhere", "no_such_package.exporter"):
        monkeypatch.setattr(otlp, "_EXPORTER", missing)
        assert not exporter_is_installed()
