"""The command: what is asked for, what comes back, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.doctor.conftest import recorded
from tests.kit.pages import Pages

from prefillwatch.cli import main
from prefillwatch.doctor.look import Look
from prefillwatch.doctor.watch import Access, DoctorError, Watcher, address_of

pytestmark = pytest.mark.apart


@pytest.fixture
def serving(server: Pages) -> Callable[[str, str], Pages]:
    """A server that shows the first and then the last page of a recording."""

    def serve(name: str, kind: str) -> Pages:
        told: dict[str, Any] = recorded(name)[kind]
        server.routes["/metrics"] = [told["pages"][0].encode(), told["pages"][-1].encode()]
        if kind == "sidecar":
            start = json.dumps({"time": told["since"]}).encode()
            server.routes["/api/state"] = [start, json.dumps(told["state"]).encode()]
            server.routes["/api/incidents?limit=1000"] = (200, json.dumps(told["incidents"]).encode())
        return server

    return serve


def doctor(*arguments: str) -> Result:
    # Wherever tests run, lines are as long as in a terminal of this width.
    return CliRunner(env={"COLUMNS": "100"}).invoke(main, ["doctor", *arguments], prog_name="prefillwatch")


def test_a_sidecar_in_trouble(serving: Callable[[str, str], Pages]) -> None:
    server = serving("unchunked", "sidecar")
    result = doctor(server.url, "--watch", "50ms")
    assert result.exit_code == 1
    assert "SEEN      Streams pause when a long prompt arrives" in result.output
    assert "To blame: 6 prompts" in result.output
    assert "\x1b" not in result.output


def test_the_last_page_counts_what_the_incidents_tell(serving: Callable[[str, str], Pages]) -> None:
    server = serving("unchunked", "sidecar")
    doctor(server.url, "--watch", "50ms")
    assert [path for path, _ in server.asked][-2:] == ["/api/incidents?limit=1000", "/metrics"]


def test_a_healthy_server(serving: Callable[[str, str], Pages]) -> None:
    server = serving("harmless", "server")
    result = doctor(server.url, "--watch", "50ms")
    assert result.exit_code == 0
    assert "no symptom seen" in result.output
    assert {path for path, _ in server.asked} == {"/metrics"}


def test_totals_since_the_start_need_one_look(serving: Callable[[str, str], Pages]) -> None:
    server = serving("unchunked", "server")
    result = doctor(server.url, "--watch", "0")
    assert "totals since its start" in result.output
    assert len(server.asked) == 1


def test_json_instead_of_text(serving: Callable[[str, str], Pages]) -> None:
    result = doctor(serving("unchunked", "sidecar").url, "--watch", "50ms", "--json", "-")
    document = json.loads(result.output)
    assert result.exit_code == document["exit_code"] == 1
    first = document["findings"][0]
    assert first["symptom"] == "streams_pause"
    assert first["numbers"]["stalls"] == 29
    assert first["runbook"] == "alerts/runbooks/PrefillInterference.md"
    assert len(document["measurements"]) == 6


def test_json_beside_the_text(serving: Callable[[str, str], Pages], tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    result = doctor(serving("queue", "server").url, "--watch", "50ms", "--json", str(file))
    assert "SEEN" in result.output
    assert json.loads(file.read_text())["server"] == "vllm"


def test_a_file_that_cannot_be_written_is_told_before_watching(server: Pages, tmp_path: Path) -> None:
    result = doctor(server.url, "--json", str(tmp_path / "no" / "report.json"))
    assert result.exit_code == 2
    assert "cannot be written" in result.output
    assert server.asked == []


def test_credentials_are_sent_and_not_shown(serving: Callable[[str, str], Pages], tmp_path: Path) -> None:
    server = serving("unchunked", "sidecar")
    secret = tmp_path / "token"
    secret.write_text("s3cret\n")
    assert "s3cret" not in doctor(server.url, "--watch", "0", "--bearer-token-file", str(secret)).output
    assert {sent for _, sent in server.asked} == {"Bearer s3cret"}


def test_a_login_from_a_file_or_in_the_address(serving: Callable[[str, str], Pages], tmp_path: Path) -> None:
    server = serving("unchunked", "sidecar")
    login = tmp_path / "login"
    login.write_text("me:p@ss/word")
    doctor(server.url, "--watch", "0", "--basic-auth-file", str(login))
    shown = doctor(server.url.replace("//", "//me:p%40ss%2Fword@"), "--watch", "0").output
    assert {sent for _, sent in server.asked} == {"Basic bWU6cEBzcy93b3Jk"}
    assert "p%40ss" not in shown


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((401, b"who are you"), "wants credentials (401); give --bearer-token-file or --basic-auth-file"),
        ((404, b"not found"), "answers 404; name prefillwatch's admin address"),
        ((501, b"no metrics"), "llama.cpp with --metrics"),
        ((200, b"<!doctype html><title>hello</title>"), "no metrics page (it begins with '<!doctype html><title>hello"),
        ((200, b""), "the metrics page is empty"),
        ((200, b"\x00\x01\x02 garbage"), "no metrics page"),
        ((200, b"# TYPE go_goroutines gauge\ngo_goroutines 8\n"), "none of prefillwatch, vLLM"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_exit_code_2(server: Pages, answer: tuple[int, bytes], words: str) -> None:
    server.routes["/metrics"] = answer
    result = doctor(server.url, "--watch", "0")
    assert result.exit_code == 2
    assert words in result.output
    assert len(result.output.splitlines()) == 1


def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        result = doctor(f"127.0.0.1:{unused.getsockname()[1]}")
    assert result.exit_code == 2
    assert "is the server up, and there?" in result.output


def test_a_server_that_never_answers(server: Pages) -> None:
    server.routes["/metrics"] = None
    result = doctor(server.url, "--timeout", "100ms")
    assert result.exit_code == 2
    assert "no whole answer to /metrics within 0.1 s" in result.output


def test_a_server_that_goes_away_leaves_what_was_seen(serving: Callable[[str, str], Pages]) -> None:
    server = serving("unchunked", "server")
    pages = server.routes["/metrics"]
    assert isinstance(pages, list)
    pages.append(b"<html>gone</html>")
    result = doctor(server.url, "--watch", "60s")
    assert result.exit_code == 1
    assert "FAULT     The server went away while it was watched" in result.output


def test_interrupting_ends_the_watch_and_tells_what_was_seen(serving: Callable[[str, str], Pages]) -> None:
    server = serving("unchunked", "server")
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    result = doctor(server.url, "--watch", "60s")
    timer.join()
    assert result.exit_code == 1
    assert "SEEN      Streams pause" in result.output


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("127.0.0.1:9843", "http://127.0.0.1:9843/metrics"),
        ("http://h:1/", "http://h:1/metrics"),
        ("https://h/vllm/metrics", "https://h/vllm/metrics"),
        ("http://me:word@h:1", "http://h:1/metrics"),
        ("http://[::1]:8000", "http://[::1]:8000/metrics"),
    ],
)
def test_addresses(url: str, shown: str) -> None:
    assert address_of(url).shown == shown


def test_the_api_is_beside_the_metrics() -> None:
    assert address_of("http://h:1").api == ""
    assert address_of("http://h:1/watch/metrics?x=1").api == "/watch"


def test_a_server_behind_a_socket(tmp_path: Path) -> None:
    body = recorded("harmless")["server"]["pages"][0].encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def watch() -> Look:
        async with await asyncio.start_unix_server(answer, tmp_path / "vllm.sock"):
            return await Watcher(address_of(f"unix:{tmp_path}/vllm.sock"), Access()).watch(0, asyncio.Event())

    asked: list[str] = []
    assert asyncio.run(watch()).last.namespace == "vllm"
    assert asked == ["GET /metrics HTTP/1.1"]
    with pytest.raises(DoctorError, match="has no absolute path; write for example unix:/run/"):
        address_of("unix:vllm.sock")


def test_findings_that_cannot_be_written_are_told_all_the_same(serving: Callable[[str, str], Pages]) -> None:
    result = doctor(serving("unchunked", "sidecar").url, "--watch", "0", "--json", "/dev/full")
    assert "SEEN      Streams pause when a long prompt arrives" in result.stdout
    assert result.stderr == "prefillwatch: error: /dev/full could not be written (No space left on device)\n"
    assert result.exit_code == 1


@pytest.mark.parametrize("url", ["ftp://h/metrics", "http://", "http://h:port", "://", "http://[::1", ""])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(DoctorError, match="is no address of a server"):
        address_of(url)


def test_credentials_are_in_no_traceback() -> None:
    assert "s3cret" not in repr(Access(bearer_token="s3cret"))


@pytest.mark.parametrize("watch", ["10", "-1s", "2h", "soon"])
def test_how_long_to_watch_is_checked(watch: str) -> None:
    result = doctor("127.0.0.1:1", "--watch", watch)
    assert result.exit_code == 2
    assert "--watch" in result.output
