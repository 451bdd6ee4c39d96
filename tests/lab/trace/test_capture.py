"""The profiler armed around a prompt: what is sent, how long, and what is said when it cannot be."""

from __future__ import annotations

import asyncio
import math
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.lab.trace.profiled_server import ProfiledServer, profiled_server

from prefillwatch.errors import ConfigError
from prefillwatch.lab.target import Target, TargetError, reach
from prefillwatch.lab.trace import capture as capture_module
from prefillwatch.lab.trace.capture import CaptureSettings, capture, check_profiler
from prefillwatch.lab.trace.errors import CaptureInterrupted, TraceError
from prefillwatch.lab.trace.findings import ClientSide
from prefillwatch.lab.trace.trace_files import TraceFolder

SETTINGS = CaptureSettings(
    victims=3, prompt_tokens=900, tokens_before=4, tokens_after=5, victim_tokens=600, max_seconds=30
)


def captured(server: ProfiledServer, settings: CaptureSettings = SETTINGS, *, stopped: bool = False) -> ClientSide:
    async def run() -> ClientSide:
        stop = asyncio.Event()
        if stopped:
            loop = asyncio.get_running_loop()
            server.on_start = lambda: (loop.call_soon_threadsafe(stop.set), None)[1]
        return await capture(await reach(server.url), settings, lambda text: None, stop)

    return asyncio.run(run())


def test_the_profiler_is_armed_around_the_prompt_and_disarmed(tmp_path: Path) -> None:
    with profiled_server(tmp_path) as server:
        seen = captured(server)
    assert [path for path, _ in server.told] == ["/start_profile", "/stop_profile"]
    wishes = server.told[0][1]
    assert wishes["profile_prefix"].startswith("prefillwatch-")
    assert wishes["max_iterations"] > 0
    assert not server.running
    assert seen.problem == ""
    assert (seen.victims, seen.prompt_tokens) == (3, 900)
    assert seen.ttft_seconds is not None
    assert None not in (seen.gap_before_seconds, seen.gap_during_seconds, seen.gap_after_seconds)


def test_a_prompt_of_that_size_goes_before_to_warm_up(tmp_path: Path) -> None:
    counts = []
    for warm in (True, False):
        with profiled_server(tmp_path) as server:
            captured(server, replace(SETTINGS, warm=warm))
            counts.append(server.chats)
    assert counts[0] - counts[1] == 1


def test_without_a_profiler_the_flag_is_named_and_no_prompt_sent(tmp_path: Path) -> None:
    with profiled_server(tmp_path, start_status=404) as server:
        with pytest.raises(TargetError, match=r"has no profiler .* --profiler-config '{\"profiler\": \"torch\""):
            captured(server)
        assert server.chats == 0


def test_a_server_that_went_away_is_named(tmp_path: Path) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"  # bound, but nobody listens
        with pytest.raises(TargetError, match=f"no answer from {url}"):
            asyncio.run(check_profiler(Target(url, "any")))


def test_a_profiler_that_does_not_start_is_told_in_its_words(tmp_path: Path) -> None:
    with (
        profiled_server(tmp_path, start_status=500) as server,
        pytest.raises(TargetError, match=r"could not be started \(HTTP 500: it is broken\)"),
    ):
        captured(server)
    assert [path for path, _ in server.told] == ["/start_profile"]


def test_a_profiler_that_does_not_stop_is_told(tmp_path: Path) -> None:
    with (
        profiled_server(tmp_path, stop_status=500) as server,
        pytest.raises(TraceError, match=r"could not be stopped .* stop it by hand"),
    ):
        captured(server)


def test_interrupted_it_disarms_the_profiler_and_tells_what_was_seen(tmp_path: Path) -> None:
    with profiled_server(tmp_path) as server:
        seen = captured(server, stopped=True)
    assert [path for path, _ in server.told] == ["/start_profile", "/stop_profile"]
    assert (seen.problem, seen.interrupted) == ("interrupted", True)
    assert seen.gap_during_seconds is None


def test_interrupted_while_it_is_armed_it_is_disarmed(tmp_path: Path) -> None:
    """By a second Ctrl-C, say: nobody knows yet whether the profiler runs."""

    async def run(url: str) -> None:
        loop, armed = asyncio.get_running_loop(), asyncio.Event()
        server.on_start = lambda: (loop.call_soon_threadsafe(armed.set), never.wait(10), None)[2]
        capturing = asyncio.ensure_future(capture(await reach(url), SETTINGS, lambda text: None, asyncio.Event()))
        await armed.wait()
        capturing.cancel()
        never.set()
        with pytest.raises(asyncio.CancelledError):
            await capturing

    never = threading.Event()
    with profiled_server(tmp_path) as server:
        asyncio.run(run(server.url))
    assert [path for path, _ in server.told] == ["/start_profile", "/stop_profile"]


def test_interrupted_before_there_is_no_trace_to_wait_for(tmp_path: Path) -> None:
    async def run(url: str) -> None:
        stop = asyncio.Event()
        stop.set()
        await capture(await reach(url), SETTINGS, lambda text: None, stop)

    with (
        profiled_server(tmp_path) as server,
        pytest.raises(CaptureInterrupted, match="nothing was captured: interrupted"),
    ):
        asyncio.run(run(server.url))
    assert server.told == []
    assert server.chats == 0, "not even to get to know the server"


def test_out_of_time_it_disarms_the_profiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with profiled_server(tmp_path) as server:
        server.on_start = lambda: monkeypatch.setattr(capture_module, "_now", lambda: math.inf)
        seen = captured(server)
    assert [path for path, _ in server.told] == ["/start_profile", "/stop_profile"]
    assert seen.problem == "not done within 30 s (--max-time)"


def test_streams_that_end_too_early_end_it(tmp_path: Path) -> None:
    with profiled_server(tmp_path) as server:
        settings = replace(SETTINGS, victim_tokens=128)
        object.__setattr__(settings, "tokens_before", 500)  # as if the server generated less than it was asked for
        seen = captured(server, settings)
    assert seen.problem == "all streams ended before (--victim-tokens)"
    assert not server.running


def test_a_prompt_that_does_not_fit_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with profiled_server(tmp_path) as server:
        with pytest.raises(ConfigError, match="does not fit"):
            captured(server, replace(SETTINGS, prompt_tokens=1_000_000))
        assert server.chats == 0


def test_answers_must_outlast_the_trace() -> None:
    with pytest.raises(ConfigError, match="--victim-tokens"):
        CaptureSettings(tokens_before=100, tokens_after=100, victim_tokens=200)


def test_what_is_sent_at_most_is_known_before() -> None:
    most = CaptureSettings(victims=4, prompt_tokens=6000, victim_tokens=2048).most_tokens
    assert 2 * 6000 + 4 * 2048 < most < 30_000


def test_check_says_nothing_where_there_is_a_profiler(tmp_path: Path) -> None:
    async def check(url: str) -> None:
        await check_profiler(await reach(url))

    with profiled_server(tmp_path) as server:
        asyncio.run(check(server.url))
    assert server.told == []


def test_the_new_trace_of_the_first_rank_is_found(tmp_path: Path) -> None:
    (tmp_path / "old_rank0.1.pt.trace.json.gz").write_bytes(b"old")

    async def look() -> list[Path]:
        folder = TraceFolder(tmp_path)
        for name in ("x_rank1.3.pt.trace.json.gz", "x_rank0.2.pt.trace.json.gz", "x_h_1.async_llm.2.pt.trace.json.gz"):
            (tmp_path / name).write_bytes(b"new")
        (tmp_path / "x_rank0.profiler_out.txt").write_bytes(b"table")
        return await folder.new_traces(5.0)

    names = [path.name for path in asyncio.run(look())]
    assert names == ["x_rank0.2.pt.trace.json.gz", "x_rank1.3.pt.trace.json.gz"]


def test_a_trace_that_still_grows_is_waited_for(tmp_path: Path) -> None:
    trace = tmp_path / "x_rank0.2.pt.trace.json"

    async def grow() -> None:
        for size in range(1, 6):
            trace.write_bytes(b"x" * size)
            await asyncio.sleep(0.2)

    async def look() -> int:
        folder = TraceFolder(tmp_path)
        growing = asyncio.ensure_future(grow())
        (found,) = await folder.new_traces(10.0)
        size = found.stat().st_size
        await growing
        return size

    assert asyncio.run(look()) == 5


def test_a_trace_that_does_not_come_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"no new trace of a worker came into .* is it the torch_profiler_dir"):
        asyncio.run(TraceFolder(tmp_path).new_traces(0.3))


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        TraceFolder(tmp_path / "none")
