"""The admin server: in memory where it is about answers, over sockets where it is about HTTP."""

from __future__ import annotations

import asyncio
import gzip
import logging
import signal
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.story.facts import account, incident

from prefillwatch.export import admin, table
from prefillwatch.export.admin import accepts_gzip, create_app
from prefillwatch.export.admin_server import serve_admin
from prefillwatch.export.exposition import render
from prefillwatch.export.flight_request import FlightError, FlightFile, NoFlightRecorderError, TooSoonError
from prefillwatch.export.page_files import live_page
from prefillwatch.export.prediction_request import UnknownModelError
from prefillwatch.export.registry import Registry, Snapshot
from prefillwatch.export.viewers import Viewers
from prefillwatch.story import Account


class View:
    """A view with a little in it."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.registry.gauge(table.UP).set((), 1)
        self.not_ready = ""
        self.no_flight: FlightError | None = None
        self.flights_asked = 0
        self.told: list[Account] = []
        self.asked: list[int] = []
        self.watched: list[str] = []
        self.viewers = Viewers(
            lambda: self.watched.append("begin"), lambda: self.watched.append("end"), lambda: b"event: hello\n\n"
        )

    def snapshot(self) -> Snapshot:
        return self.registry.snapshot()

    def state(self) -> dict[str, Any]:
        return {"streams": [], "processes": [{"role": "observer", "pid": 7}], "gap": float("nan")}

    def incidents(self, limit: int) -> list[dict[str, Any]]:
        self.asked.append(limit)
        return [{"id": str(number), "kind": "freeze"} for number in range(3)][:limit]

    def predict(self, prompt_tokens: int, cached_tokens: int, model: str | None) -> dict[str, Any]:
        if model == "strange":
            raise UnknownModelError(model)
        return {"prompt_tokens": prompt_tokens, "cached_tokens": cached_tokens, "model": model}

    def tenants(self) -> dict[str, Any]:
        return {"tenants": []}

    def accounts(self) -> list[Account]:
        return self.told

    def ready(self) -> tuple[bool, str]:
        return not self.not_ready, self.not_ready

    async def write_flight_now(self) -> FlightFile:
        self.flights_asked += 1
        if self.no_flight is not None:
            raise self.no_flight
        return FlightFile("/flights/flight-asked.pfw", 4096)

    def page(self) -> bytes:
        return live_page(self.snapshot(), *self.ready())


def ask(view: View, path: str, method: str = "GET", **headers: str) -> httpx.Response:
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(view), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
            return await client.request(method, path, headers={"Accept-Encoding": "identity", **headers})

    return asyncio.run(go())


# --- The story of an incident


def test_an_account_as_json_and_as_a_page() -> None:
    view = View()
    view.told = [account(incident=incident(id="x-2")), account()]
    assert ask(view, "/api/explain?id=abc-7").json()["incident"]["id"] == "abc-7"
    assert ask(view, "/api/explain").json()["incident"]["id"] == "x-2"
    page = ask(view, "/explain?id=document")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "<svg " in page.text


@pytest.mark.parametrize("path", ["/explain?id=y-9", "/api/explain?id=y-9"])
def test_an_unknown_incident_names_those_that_there_are(path: str) -> None:
    view = View()
    view.told = [account()]
    answer = ask(view, path)
    assert answer.status_code == 404
    assert "there is abc-7 (Freeze by prefill, 600 ms)" in answer.json()["error"]


# --- Metrics


def test_a_slash_at_the_end_is_the_same_page() -> None:
    assert ask(View(), "/metrics/").content == ask(View(), "/metrics").content
    assert ask(View(), "/metrics/").status_code == 200


def test_metrics_in_the_format_of_prometheus() -> None:
    answer = ask(View(), "/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert families["prefillwatch_up"].samples[0].value == 1.0


def test_metrics_as_openmetrics_when_asked() -> None:
    answer = ask(View(), "/metrics", Accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    assert "Accept" in answer.headers["vary"]


def test_metrics_compressed_when_asked() -> None:
    answer = ask(View(), "/metrics", **{"Accept-Encoding": "deflate, gzip;q=0.5"})
    assert answer.headers["content-encoding"] == "gzip"
    assert "prefillwatch_up 1.0" in answer.text
    assert "content-encoding" not in ask(View(), "/metrics").headers


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("br, gzip;q=0.1", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("gzip;q=x", False),
        ("identity", False),
        ("", False),
        ("xgzip", False),
    ],
)
def test_compression_is_negotiated(header: str, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted


def test_a_page_is_written_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def watched(snapshot: Snapshot, accept: str) -> tuple[bytes, str]:
        threads.append(threading.get_ident())
        return render(snapshot, accept)

    monkeypatch.setattr(admin, "render", watched)
    ask(View(), "/metrics")
    assert threads
    assert threading.get_ident() not in threads


# --- Health


def test_health_tells_of_the_process_only() -> None:
    view = View()
    view.not_ready = "upstream does not answer"
    assert ask(view, "/healthz").json() == {"status": "ok"}


def test_readiness_gives_the_reason() -> None:
    view = View()
    assert ask(view, "/readyz").json() == {"ready": True}
    view.not_ready = "draining"
    answer = ask(view, "/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"ready": False, "reason": "draining"}


# --- API


def test_state_is_json_without_nan() -> None:
    answer = ask(View(), "/api/state")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["processes"] == [{"role": "observer", "pid": 7}]
    assert answer.json()["gap"] is None


def test_incidents_take_a_limit() -> None:
    view = View()
    assert [incident["id"] for incident in ask(view, "/api/incidents?limit=2").json()] == ["0", "1"]
    assert len(ask(view, "/api/incidents").json()) == 3
    assert view.asked == [2, 100]


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "ten", "", "1.5", "٣", "9" * 5000, "1e2", " 1"])
def test_a_bad_limit_is_refused_by_name(limit: str) -> None:
    view = View()
    answer = ask(view, str(httpx.URL("/api/incidents", params={"limit": limit})))
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("limit must be a whole number from 1 to 1000, not ")
    assert len(answer.content) < 200
    assert view.asked == []


def test_a_prediction_takes_a_prompt_and_what_of_it_is_cached() -> None:
    view = View()
    assert ask(view, "/api/predict?prompt_tokens=6000&cached=2048&model=llama").json() == {
        "prompt_tokens": 6000,
        "cached_tokens": 2048,
        "model": "llama",
    }
    assert ask(view, "/api/predict?prompt_tokens=1").json()["cached_tokens"] == 0


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({}, "prompt_tokens is missing: a whole number from 1 to 100000000"),
        ({"prompt_tokens": "0"}, "prompt_tokens must be a whole number from 1 to 100000000, not '0'"),
        ({"prompt_tokens": "many"}, "prompt_tokens must be a whole number from 1 to 100000000, not 'many'"),
        ({"prompt_tokens": "9" * 5000}, "prompt_tokens must be a whole number from 1 to 100000000, not '99"),
        ({"prompt_tokens": "6000", "cached": "6001"}, "cached must be a whole number from 0 to 6000, not '6001'"),
        ({"prompt_tokens": "6000", "cached": "-1"}, "cached must be a whole number from 0 to 6000, not '-1'"),
        ({"prompt_tokens": "6000", "model": "strange"}, "model names none that is served: 'strange'"),
    ],
)
def test_a_bad_prediction_is_refused_by_name(query: dict[str, str], message: str) -> None:
    answer = ask(View(), str(httpx.URL("/api/predict", params=query)))
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(message)
    assert len(answer.content) < 200


def test_a_flight_recording_is_written_for_whoever_posts() -> None:
    view = View()
    answer = ask(view, "/api/flight", "POST")
    assert (answer.status_code, view.flights_asked) == (201, 1)
    assert answer.json() == {"file": "/flights/flight-asked.pfw", "bytes": 4096}


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (NoFlightRecorderError(), 409, "set flight_recorder_dir"),
        (FlightError("cannot write /flights/x.pfw: No space left on device"), 503, "No space left on device"),
    ],
)
def test_why_there_is_no_flight_recording_is_said(error: FlightError, status: int, words: str) -> None:
    view = View()
    view.no_flight = error
    answer = ask(view, "/api/flight", "POST")
    assert answer.status_code == status
    assert words in answer.json()["error"]


def test_who_asks_for_flight_recordings_too_often_is_told_when_to_ask_again() -> None:
    view = View()
    view.no_flight = TooSoonError(7)
    answer = ask(view, "/api/flight", "POST")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
    assert "ask again in 7 s" in answer.json()["error"]


def test_neither_a_look_nor_a_page_of_another_site_writes_anything() -> None:
    view = View()
    for method in ("GET", "HEAD", "PUT", "OPTIONS"):
        answer = ask(view, "/api/flight", method)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    for origin in ("http://evil.example", "null", "http://admin"):
        assert ask(view, "/api/flight", "POST", Origin=origin).status_code == 403
    assert view.flights_asked == 0


# --- Everything else


def test_the_page_is_html() -> None:
    answer = ask(View(), "/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "<h1>prefillwatch</h1>" in answer.text


@pytest.mark.parametrize(("name", "kind"), [("page.css", "text/css"), ("page.js", "text/javascript")])
def test_the_files_of_the_page_are_served_with_their_types(name: str, kind: str) -> None:
    answer = ask(View(), f"/page/{name}")
    assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
    assert len(answer.content) > 500


def test_the_page_may_use_files_of_its_own_host_and_nothing_else() -> None:
    policy = ask(View(), "/").headers["content-security-policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert {rules[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    "path", ["/nothing", "/page", "/page/index.html", "/page/..%2fadmin.py", "/metrics/x", "/api", "/..%2fetc/passwd"]
)
def test_unknown_paths_are_404_in_json(path: str) -> None:
    answer = ask(View(), path)
    assert answer.status_code == 404
    assert answer.json()["error"].startswith("nothing is served at /")


def test_other_methods_are_refused() -> None:
    answer = ask(View(), "/metrics", "POST")
    assert answer.status_code == 405
    assert "GET" in answer.headers["allow"]


def test_a_fault_of_ours_tells_nothing_about_itself() -> None:
    class Faulty(View):
        def state(self) -> dict[str, Any]:
            raise RuntimeError("something secret")

    answer = ask(Faulty(), "/api/state")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/", "/page/page.js", "/metrics", "/api/state", "/nothing"])
def test_every_answer_is_guarded_and_none_invites_other_sites(path: str) -> None:
    headers = ask(View(), path, Origin="http://evil.example").headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert headers["cache-control"] == "no-store"
    assert not [name for name in headers if name.startswith("access-control-")]


# --- Over sockets


def serving(client: Callable[[int, asyncio.Event], Coroutine[Any, Any, None]], view: View | None = None) -> None:
    """Run the admin server on a free port and a client beside it, in one event loop."""

    async def go() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        stop = asyncio.Event()
        server = asyncio.create_task(serve_admin(create_app(view or View()), [listener], stop))
        try:
            await client(listener.getsockname()[1], stop)
        finally:
            stop.set()
            await asyncio.wait_for(server, 10)

    asyncio.run(go())


async def raw(port: int, request: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.replace("\n", "\r\n").encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.apart
def test_head_has_the_headers_and_no_body() -> None:
    async def client(port: int, stop: asyncio.Event) -> None:
        for path in ("/metrics", "/", "/healthz"):
            answer = await raw(port, f"HEAD {path} HTTP/1.1\nHost: a\nConnection: close\n\n")
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            assert b"content-length: 0" not in head.lower()
            assert body == b""

    serving(client)


@pytest.mark.apart
def test_compressed_metrics_over_a_socket() -> None:
    async def client(port: int, stop: asyncio.Event) -> None:
        answer = await raw(port, "GET /metrics HTTP/1.1\nHost: a\nAccept-Encoding: gzip\nConnection: close\n\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"content-encoding: gzip" in head.lower()
        assert b"prefillwatch_up 1.0\n" in gzip.decompress(body)
        assert b"server:" not in head.lower()

    serving(client)


@pytest.mark.apart
def test_many_scrapes_at_once_are_all_answered() -> None:
    async def client(port: int, stop: asyncio.Event) -> None:
        request = "GET /metrics HTTP/1.1\nHost: a\nConnection: close\n\n"
        answers = await asyncio.gather(*(raw(port, request) for _ in range(20)))
        assert all(answer.startswith(b"HTTP/1.1 200 ") for answer in answers)

    serving(client)


@pytest.mark.apart
def test_garbage_is_answered_with_400_and_the_server_lives_on() -> None:
    async def client(port: int, stop: asyncio.Event) -> None:
        assert b" 400 " in await raw(port, "THIS IS NOT HTTP\n\n")
        assert b" 200 " in await raw(port, "GET /healthz HTTP/1.1\nHost: a\nConnection: close\n\n")

    serving(client)


@pytest.mark.apart
def test_serving_leaves_signals_alone_and_logs_no_requests(caplog: pytest.LogCaptureFixture) -> None:
    async def client(port: int, stop: asyncio.Event) -> None:
        before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        await raw(port, "GET /metrics?key=marker HTTP/1.1\nHost: a\nConnection: close\n\n")
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before

    with caplog.at_level(logging.INFO, "uvicorn.access"):
        serving(client)
    assert "marker" not in caplog.text


@pytest.mark.apart
def test_an_open_idle_connection_does_not_hold_up_the_end() -> None:
    async def client(port: int, stop: asyncio.Event) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        stop.set()
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
        await writer.wait_closed()

    serving(client)


@pytest.mark.apart
def test_cancelling_ends_it_and_closes_the_sockets() -> None:
    async def go() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        task = asyncio.create_task(serve_admin(create_app(View()), [listener]))
        await raw(port, "GET /healthz HTTP/1.1\nHost: a\nConnection: close\n\n")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)

    asyncio.run(go())
