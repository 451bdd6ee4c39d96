"""One GET to a real server on a free port, however it behaves."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.certificate import in_one_file

from prefillwatch.engine.errors import FetchError
from prefillwatch.engine.fetch import Answer, Fetcher

MIB = 1 << 20
KEY = "marker-secret-key"

Running = Callable[..., Any]
Answering = Callable[..., bytes]


@asynccontextmanager
async def fetching(upstream: str, **options: Any) -> AsyncIterator[Fetcher]:
    fetcher = Fetcher(upstream, **options)
    try:
        yield fetcher
    finally:
        await fetcher.close()


def get(running: Running, behaviour: Any, *, limit: int = MIB, timeout_s: float = 30.0, path: str = "/a") -> Answer:
    async def go() -> Answer:
        async with running({"/a": behaviour}) as upstream, fetching(upstream.url, timeout_s=timeout_s) as fetcher:
            return await fetcher.get(path, limit=limit)

    return asyncio.run(go())


def failure(running: Running, behaviour: Any, **options: Any) -> FetchError:
    with pytest.raises(FetchError) as caught:
        get(running, behaviour, **options)
    return caught.value


# --- Answers


def test_an_answer_of_any_status_is_an_answer(running: Running, answering: Answering) -> None:
    assert get(running, answering(b"page")) == Answer(200, b"page", framed=True)
    assert get(running, answering(b"oh no", "500 Internal Server Error")) == Answer(500, b"oh no", framed=True)
    assert get(running, b"", path="/nothing").status == 404


def test_chunked_is_framed(running: Running) -> None:
    behaviour = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    assert get(running, behaviour) == Answer(200, b"abc", framed=True)


def test_a_body_that_ends_with_the_connection_is_not_framed(running: Running) -> None:
    async def behaviour(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nabc")
        writer.close()

    assert get(running, behaviour) == Answer(200, b"abc", framed=False)


# --- Failures


def test_nobody_there() -> None:
    async def go() -> None:
        async with fetching("http://127.0.0.1:1") as fetcher:
            await fetcher.get("/a", limit=MIB)

    with pytest.raises(FetchError) as caught:
        asyncio.run(go())
    assert caught.value.reason == "connect"


def test_silence_ends_after_the_timeout(running: Running) -> None:
    async def silent(_: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    assert failure(running, silent, timeout_s=0.1).reason == "timeout"


def test_an_endless_trickle_ends_after_the_timeout(running: Running) -> None:
    async def trickle(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    assert failure(running, trickle, timeout_s=0.2).reason == "timeout"


def test_an_announced_size_above_the_limit_is_not_read(running: Running) -> None:
    error = failure(running, b"HTTP/1.1 200 OK\r\nContent-Length: 52428800\r\n\r\n")
    assert (error.reason, error.status) == ("too_big", 200)


def test_fifty_megabytes_without_announcement_end_at_the_limit(running: Running) -> None:
    sent = 0

    async def flood(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while sent < 50 * MIB:
            writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            sent += 65536
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    assert failure(running, flood).reason == "too_big"
    assert sent < 25 * MIB


@pytest.mark.parametrize(
    "behaviour",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nonly this",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ],
)
def test_an_answer_that_breaks_off(running: Running, behaviour: bytes) -> None:
    async def broken(writer: asyncio.StreamWriter) -> None:
        writer.write(behaviour)
        await writer.drain()
        writer.close()

    assert failure(running, broken).reason == "connect"


def test_compression_we_did_not_ask_for(running: Running, answering: Answering) -> None:
    assert failure(running, answering(b"\x1f\x8b", headers="Content-Encoding: gzip\r\n")).reason == "parse"


# --- Redirects


def test_redirects_within_the_server_are_followed(running: Running, answering: Answering) -> None:
    async def go() -> None:
        routes = {
            "/a": answering(b"", "307 Temporary Redirect", "Location: /a/\r\n"),
            "/a/": answering(b"page"),
        }
        async with running(routes) as upstream, fetching(upstream.url, api_key=KEY) as fetcher:
            assert (await fetcher.get("/a", limit=MIB)).body == b"page"
            assert upstream.seen("/a/")[0]["authorization"] == f"Bearer {KEY}"

    asyncio.run(go())


def test_redirects_to_elsewhere_are_not(running: Running, answering: Answering) -> None:
    async def go() -> None:
        async with running({"/a": answering(b"not yours")}) as other:
            to_other = answering(b"", "302 Found", f"Location: {other.url}/a\r\n")
            async with running({"/a": to_other}) as upstream, fetching(upstream.url, api_key=KEY) as fetcher:
                with pytest.raises(FetchError) as caught:
                    await fetcher.get("/a", limit=MIB)
            assert caught.value.reason == "http_status"
            assert other.requests == []

    asyncio.run(go())


def test_redirects_in_a_circle_end(running: Running, answering: Answering) -> None:
    circle = answering(b"", "302 Found", "Location: /a\r\n")
    assert failure(running, circle).reason == "http_status"


# --- Connections


def test_a_connection_is_reused_and_one_that_died_meanwhile_is_replaced(running: Running, answering: Answering) -> None:
    async def go() -> None:
        async def once(writer: asyncio.StreamWriter) -> None:
            """Answer as if the connection stayed open, and drop it at the next request."""
            if len(upstream.seen("/a")) == 3:
                writer.transport.abort()
            else:
                writer.write(answering(b"page"))

        async with running({"/a": once}) as upstream, fetching(upstream.url) as fetcher:
            for _ in range(2):
                await fetcher.get("/a", limit=MIB)
            assert upstream.connections == 1
            assert (await fetcher.get("/a", limit=MIB)).body == b"page"
            assert upstream.connections == 2

    asyncio.run(go())


def test_over_a_unix_socket(running: Running, answering: Answering, tmp_path: Path) -> None:
    path = tmp_path / "vllm.sock"

    async def go() -> None:
        async with running({"/a": answering(b"page")}, unix_path=path), fetching(f"unix:{path}") as fetcher:
            assert (await fetcher.get("/a", limit=MIB)).body == b"page"

    asyncio.run(go())


def test_over_tls_only_with_trust(running: Running, answering: Answering, tmp_path: Path) -> None:
    file = in_one_file(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(file)

    async def ask(**options: Any) -> bytes:
        server = running({"/a": answering(b"page")}, tls=tls)
        async with server as upstream, fetching(f"https://127.0.0.1:{upstream.port}", **options) as fetcher:
            return (await fetcher.get("/a", limit=MIB)).body

    assert asyncio.run(ask(ca_file=str(file))) == b"page"
    assert asyncio.run(ask(insecure=True)) == b"page"
    with pytest.raises(FetchError) as caught:
        asyncio.run(ask())
    assert caught.value.reason == "connect"
    assert "certificate" in str(caught.value).lower()


# --- Credentials


def test_credentials_go_only_where_they_are_wanted(running: Running, answering: Answering) -> None:
    async def go() -> None:
        async with running({"/a": answering(b"")}) as upstream, fetching(upstream.url, api_key=KEY) as fetcher:
            await fetcher.get("/a", limit=MIB)
            await fetcher.get("/a", limit=MIB, credentials=False)
            first, second = upstream.seen("/a")
            assert first["authorization"] == f"Bearer {KEY}"
            assert "authorization" not in second
            assert first["user-agent"].startswith("prefillwatch/")
            assert first["accept-encoding"] == "identity"

    asyncio.run(go())


def test_credentials_are_in_no_log_and_no_error(
    running: Running, answering: Answering, caplog: pytest.LogCaptureFixture
) -> None:
    async def go() -> list[str]:
        errors = []
        async with running({"/a": answering(b"", "302 Found", "Location: /a\r\n")}) as upstream:
            for url in (upstream.url, "http://127.0.0.1:1"):
                async with fetching(url, api_key=KEY) as fetcher:
                    with pytest.raises(FetchError) as caught:
                        await fetcher.get("/a", limit=MIB)
                    errors.append(repr(caught.value) + str(caught.value))
        return errors

    with caplog.at_level(logging.INFO):
        errors = asyncio.run(go())
    assert len(errors) == 2
    assert KEY not in "".join(errors) + caplog.text


def test_a_proxy_of_the_environment_is_not_used(
    running: Running, answering: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    assert get(running, answering(b"page")).body == b"page"
