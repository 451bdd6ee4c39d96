"""Polling an upstream server through its good and bad days."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from prefillwatch.contract.buckets import WINDOWS_S
from prefillwatch.engine import poller as poller_module
from prefillwatch.engine.errors import FetchError, FetchReason
from prefillwatch.engine.fetch import Answer, Fetcher
from prefillwatch.engine.kinds import PageSample
from prefillwatch.engine.poller import UpstreamPoller
from prefillwatch.engine.upstream import EngineState, Scrapes, UpstreamSnapshot, UpstreamState
from prefillwatch.units import NS

KEY = "marker-secret-key"

Running = Callable[..., Any]
Answering = Callable[..., bytes]
Pages = Callable[[str], bytes]


class Clock:
    """Monotonic nanoseconds that pass when told."""

    def __init__(self) -> None:
        self.now = 1000 * NS

    def __call__(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += int(seconds * NS)


class Notebook:
    """A listener that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.state = UpstreamState(WINDOWS_S)

    def on_page(self, page: PageSample, at_ns: int) -> None:
        self.told.append((page.server, at_ns // NS))
        self.state.page(page, at_ns)

    def on_models(self, names: tuple[str, ...]) -> None:
        self.told.append(names)
        self.state.models = names

    def on_scrapes(self, scrapes: Scrapes) -> None:
        self.state.scrapes = scrapes


class Story:
    """A poller, its upstream and its clock."""

    def __init__(self, upstream: Any, **options: Any) -> None:
        self.upstream = upstream
        self.clock = Clock()
        self.notebook = Notebook()
        self.fetcher = Fetcher(upstream.url, timeout_s=options.pop("timeout_s", 30.0), api_key=KEY)
        self.poller = UpstreamPoller(self.fetcher, clock=self.clock, listener=self.notebook, **options)

    async def scrape(self, page: Any) -> UpstreamSnapshot:
        self.upstream.routes["/metrics"] = page
        await self.poller.poll_metrics()
        return self.now

    @property
    def now(self) -> UpstreamSnapshot:
        return self.notebook.state.snapshot(self.clock())


def play(running: Running, scene: Callable[[Story], Any], **options: Any) -> None:
    @asynccontextmanager
    async def story() -> AsyncIterator[Story]:
        async with running() as upstream:
            told = Story(upstream, **options)
            try:
                yield told
            finally:
                await told.fetcher.close()

    async def go() -> None:
        async with story() as told:
            await scene(told)

    asyncio.run(go())


def only(snapshot: UpstreamSnapshot) -> EngineState:
    (engine,) = snapshot.engines
    return engine


def usage(snapshot: UpstreamSnapshot) -> list[float | None]:
    return [state.sample.kv_usage if state.sample else None for state in snapshot.engines]


# --- Good days


def test_before_the_first_poll_nothing_is_known(running: Running) -> None:
    async def scene(story: Story) -> None:
        assert story.now == UpstreamSnapshot()

    play(running, scene)


def test_a_page_makes_figures(running: Running, answering: Answering, pages: Pages) -> None:
    async def scene(story: Story) -> None:
        snapshot = await story.scrape(answering(pages("vllm_0_33_two_engines")))
        assert (snapshot.server, snapshot.scrape_success, snapshot.kv_signal_present) == ("vllm", True, True)
        assert usage(snapshot) == [0.1, 0.98]
        assert [state.preemptions_total for state in snapshot.engines] == [0, 12]
        assert [state.kv_peaks for state in snapshot.engines] == [
            {10: 0.1, 60: 0.1, 300: 0.1},
            {10: 0.98, 60: 0.98, 300: 0.98},
        ]
        assert snapshot.scrape_failures == {}
        assert (snapshot.scrape_age, snapshot.scrape_duration) == (0.0, 0.0)
        assert story.notebook.told == [("vllm", 1000)]
        assert story.upstream.seen("/metrics")[0]["authorization"] == f"Bearer {KEY}"

    play(running, scene)


def test_a_server_without_kv_signal_succeeds_and_says_so(running: Running, answering: Answering, pages: Pages) -> None:
    async def scene(story: Story) -> None:
        snapshot = await story.scrape(answering(pages("llamacpp")))
        assert (snapshot.server, snapshot.scrape_success, snapshot.kv_signal_present) == ("llamacpp", True, False)
        snapshot = await story.scrape(answering(pages("without_engine")))
        assert (snapshot.server, snapshot.scrape_success, snapshot.kv_signal_present) == ("unknown", True, False)

    play(running, scene)


# --- Bad days


async def silent(_: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def cut(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nvllm:kv_cache_usage_perc 0.")
    await writer.drain()
    writer.close()


def test_every_way_to_fail_is_counted_by_its_reason(running: Running, answering: Answering) -> None:
    async def scene(story: Story) -> None:
        for behaviour in (
            answering(b"multiprocess directory gone", "500 Internal Server Error"),
            answering(b"unauthorized", "401 Unauthorized"),
            answering(b""),
            answering(b"<html>Sign in</html>"),
            b"HTTP/1.1 200 OK\r\nContent-Length: 52428800\r\n\r\n",
            silent,
            cut,
        ):
            snapshot = await story.scrape(behaviour)
            assert snapshot.scrape_success is False
            assert (snapshot.scrape_age, snapshot.kv_signal_present) == (None, False)
        assert snapshot.scrape_failures == {
            "http_status": 2,
            "empty": 1,
            "parse": 1,
            "too_big": 1,
            "timeout": 1,
            "connect": 1,
        }
        assert story.notebook.told == []

    play(running, scene, timeout_s=0.3)


def test_a_figure_that_is_not_a_number_is_unknown(running: Running, answering: Answering, pages: Pages) -> None:
    async def scene(story: Story) -> None:
        snapshot = await story.scrape(answering(pages("broken_lines")))
        assert (snapshot.scrape_success, snapshot.kv_signal_present, usage(snapshot)) == (True, False, [None])

    play(running, scene)


def test_a_number_that_may_have_been_cut_is_unknown(running: Running, answering: Answering) -> None:
    page = b'vllm:num_requests_running{engine="0"} 3\nvllm:kv_cache_usage_perc{engine="0"} 0.9'

    async def scene(story: Story) -> None:
        async def until_closed(writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + page)
            await writer.drain()
            writer.close()

        assert usage(await story.scrape(until_closed)) == [None]
        assert usage(await story.scrape(answering(page))) == [0.9]  # HTTP says it is whole

    play(running, scene)


def test_a_redirect_to_the_page_is_followed(running: Running, answering: Answering, pages: Pages) -> None:
    async def scene(story: Story) -> None:
        story.upstream.routes["/metrics/"] = answering(pages("vllm_0_8"))
        snapshot = await story.scrape(answering(b"", "307 Temporary Redirect", "Location: /metrics/\r\n"))
        assert usage(snapshot) == [0.4375]

    play(running, scene)


def test_stale_figures_vanish_after_a_few_intervals(running: Running, answering: Answering, pages: Pages) -> None:
    async def scene(story: Story) -> None:
        await story.scrape(answering(pages("vllm_0_10")))
        story.clock.sleep(4)
        snapshot = await story.scrape(answering(b"", "503 Service Unavailable"))
        assert usage(snapshot) == [0.12]  # a hiccup
        assert (snapshot.scrape_success, snapshot.scrape_age) == (False, 4.0)
        story.clock.sleep(2)
        snapshot = story.now
        assert (usage(snapshot), snapshot.server, snapshot.kv_signal_present) == ([None], None, False)
        assert snapshot.scrape_age == 6.0
        assert only(snapshot).kv_peaks == {10: 0.12, 60: 0.12, 300: 0.12}  # true of the window nevertheless
        story.clock.sleep(20)
        assert only(story.now).kv_peaks == {10: None, 60: 0.12, 300: 0.12}
        assert usage(await story.scrape(answering(pages("vllm_0_10")))) == [0.12]

    play(running, scene)


def test_an_engine_that_is_gone_has_no_figures_but_keeps_its_count(
    running: Running, answering: Answering, pages: Pages
) -> None:
    async def scene(story: Story) -> None:
        await story.scrape(answering(pages("vllm_0_33_two_engines")))
        one = b'vllm:kv_cache_usage_perc{engine="0"} 0.3\n'
        snapshot = await story.scrape(answering(one))
        assert usage(snapshot) == [0.3, None]
        assert [state.preemptions_total for state in snapshot.engines] == [0, 12]

    play(running, scene)


def test_gone_and_back_with_a_new_process(running: Running, answering: Answering) -> None:
    def page(start: int, preemptions: int, kv: float) -> bytes:
        return (
            f"process_start_time_seconds {start}\n"
            f'vllm:num_preemptions_total{{engine="0"}} {preemptions}\nvllm:kv_cache_usage_perc{{engine="0"}} {kv}\n'
        ).encode()

    async def scene(story: Story) -> None:
        await story.scrape(answering(page(1000, 7, 0.97)))
        story.notebook.state.up = True
        await story.upstream.stop()

        story.clock.sleep(1)
        await story.poller.poll_metrics()
        story.notebook.state.up = False
        assert (story.now.up, story.now.scrape_success) == (False, False)
        assert story.now.scrape_failures == {"connect": 1}

        story.clock.sleep(10)
        await story.upstream.start()
        snapshot = await story.scrape(answering(page(1011, 0, 0.0)))
        assert (only(snapshot).preemptions_total, only(snapshot).restarts) == (7, 1)
        snapshot = await story.scrape(answering(page(1011, 2, 0.1)))
        assert only(snapshot).preemptions_total == 9
        assert only(snapshot).kv_peaks[60] == 0.97

    play(running, scene)


def test_a_large_page_is_read_by_a_thread_and_right(running: Running, answering: Answering, pages: Pages) -> None:
    filler = b'http_requests_total{handler="/v1/chat/completions",status="2xx"} 17.0\n' * 8000

    async def scene(story: Story) -> None:
        snapshot = await story.scrape(answering(filler + pages("vllm_0_10") + filler))
        assert usage(snapshot) == [0.12]

    play(running, scene)


def test_engines_with_ever_new_names_do_not_pile_up(running: Running, answering: Answering) -> None:
    async def scene(story: Story) -> None:
        for batch in range(3):
            page = "".join(f'vllm:kv_cache_usage_perc{{engine="{batch}-{number}"}} 0.5\n' for number in range(200))
            snapshot = await story.scrape(answering(page.encode()))
        assert len(snapshot.engines) == 256

    play(running, scene)


def test_the_log_tells_of_a_failure_once_and_never_of_the_key(
    running: Running, answering: Answering, pages: Pages, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(story: Story) -> None:
        for _ in range(5):
            await story.scrape(answering(KEY.encode(), "500 Internal Server Error"))
        await story.scrape(answering(pages("vllm_0_10")))

    with caplog.at_level(logging.DEBUG):
        play(running, scene)
    assert [record.message for record in caplog.records if record.name == "prefillwatch.engine.poller"] == [
        "upstream's metrics cannot be read (http_status): /metrics answered 500",
        "upstream's metrics can be read again",
    ]
    assert not [record for record in caplog.records if record.name.startswith("http")]
    assert KEY not in caplog.text


def test_a_page_with_more_series_than_are_read_is_told_of_once(
    running: Running, answering: Answering, caplog: pytest.LogCaptureFixture
) -> None:
    page = "".join(f'vllm:num_requests_running{{engine="0",pid="{number}"}} 1\n' for number in range(4100)).encode()

    async def scene(story: Story) -> None:
        for _ in range(3):
            await story.scrape(answering(page))

    play(running, scene)
    assert [record.message for record in caplog.records if record.name == "prefillwatch.engine.poller"] == [
        "upstream's metrics have 4 more series than are read; figures are incomplete"
    ]


def test_a_page_that_lies_elsewhere_is_read_there_and_the_key_stays_here(
    running: Running, answering: Answering, pages: Pages, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(story: Story) -> None:
        story.upstream.routes["/prometheus/metrics"] = answering(pages("vllm_ray_replicas"))
        await story.scrape(answering(b"[]", "200 OK", "Content-Type: application/json\r\n"))
        (message,) = caplog.messages
        assert message == (
            "upstream's metrics cannot be read (parse): the answer is no metrics page; "
            "if the page lies elsewhere, set upstream_metrics_url"
        )
        for server, keys in (("http://other:1", 0), (story.upstream.url, 1)):
            address = f"{story.upstream.url}/prometheus/metrics"
            fetcher, path = Fetcher.of_page(server, address, api_key=KEY, ca_file="", insecure=False)
            notebook = Notebook()
            poller = UpstreamPoller(story.fetcher, pages=fetcher, page_path=path, clock=story.clock, listener=notebook)
            await poller.poll_metrics()
            await fetcher.close()
            assert usage(notebook.state.snapshot(story.clock())) == [0.2, 0.98]
            asked = story.upstream.seen("/prometheus/metrics")[-1]
            assert ("authorization" in asked) == bool(keys)

    play(running, scene)


def test_nobody_is_asked_while_nothing_is_in_flight(running: Running, answering: Answering, pages: Pages) -> None:
    busy = [False]

    async def scene(story: Story) -> None:
        story.upstream.routes["/metrics"] = answering(pages("vllm_0_10"))

        async def seconds(count: int) -> UpstreamSnapshot:
            for _ in range(count):
                await story.poller.poll_metrics_unless_at_rest()
                story.clock.sleep(1)
            return story.now

        asleep = await seconds(20)
        assert (asleep.kv_signal_present, asleep.scrape_success) == (None, None)  # it was not asked
        assert story.upstream.seen("/metrics") == []
        busy[0] = True
        assert usage(await seconds(3)) == [0.12]
        busy[0] = False
        asleep = await seconds(20)
        assert len(story.upstream.seen("/metrics")) == 4  # one after the last request
        assert (usage(asleep), asleep.server, asleep.kv_signal_present) == ([None], "vllm", True)  # not lost
        busy[0] = True
        assert usage(await seconds(1)) == [0.12]

    play(running, scene, busy=lambda: busy[0])


# --- Models


MODELS = b"""{"object": "list", "data": [
    {"id": "tiny", "object": "model", "root": "/models/tiny", "parent": null, "max_model_len": 16384},
    {"id": "sql-lora", "object": "model", "root": "/adapters/sql", "parent": "tiny"}]}"""


def test_models_and_adapters_are_named(running: Running, answering: Answering) -> None:
    async def scene(story: Story) -> None:
        story.upstream.routes["/v1/models"] = answering(MODELS)
        for _ in range(2):
            await story.poller.poll_models()
        assert story.now.models == ("tiny", "sql-lora")
        assert story.notebook.told == [("tiny", "sql-lora")]  # told once, not at every look
        assert story.upstream.seen("/v1/models")[0]["authorization"] == f"Bearer {KEY}"
        story.upstream.routes["/v1/models"] = answering(b'{"data": [{"id": "tiny"}]}')
        await story.poller.poll_models()
        assert story.notebook.told[1:] == [("tiny",)]

    play(running, scene)


@pytest.mark.parametrize(
    "bad",
    [b"", b"<html>", b'{"data": 5}', b'{"data": [{"id": 7}]}', b'{"error": {"message": "no"}}', b'{"data": [{}]}'],
)
def test_a_failed_look_up_keeps_the_models_known(running: Running, answering: Answering, bad: bytes) -> None:
    async def scene(story: Story) -> None:
        story.upstream.routes["/v1/models"] = answering(MODELS)
        await story.poller.poll_models()
        story.upstream.routes["/v1/models"] = answering(bad)
        await story.poller.poll_models()
        story.upstream.routes["/v1/models"] = answering(b'{"data": [{"id": "error page"}]}', "500 Oh No")
        await story.poller.poll_models()
        assert story.now.models == ("tiny", "sql-lora")

    play(running, scene)


def test_model_names_are_bounded_in_number_and_length(running: Running, answering: Answering) -> None:
    names = ",".join(f'{{"id": "{"x" * (300 if number == 0 else 5)}{number}"}}' for number in range(2000))

    async def scene(story: Story) -> None:
        story.upstream.routes["/v1/models"] = answering(f'{{"data": [{names}]}}'.encode())
        await story.poller.poll_models()
        assert len(story.now.models) == 1023

    play(running, scene)


# --- Running


class FaultyFetcher:
    """Fails in a way nobody foresaw, then works."""

    def __init__(self) -> None:
        self.asked = 0
        self.enough = asyncio.Event()

    async def get(self, path: str, **_: Any) -> Answer:
        self.asked += 1
        if self.asked > 12:
            self.enough.set()
        if self.asked <= 3:
            raise RuntimeError("unforeseen")
        if path == "/metrics":
            return Answer(200, b'vllm:kv_cache_usage_perc{engine="0"} 0.5\n', framed=True)
        raise FetchError(FetchReason.CONNECT, "no")


def test_polling_goes_on_after_a_fault_of_ours_until_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        fetcher = FaultyFetcher()
        notebook = Notebook()
        poller = UpstreamPoller(fetcher, interval_s=0.001, models_interval_s=0.001, listener=notebook)  # type: ignore[arg-type]
        task = asyncio.create_task(poller.run())
        await asyncio.wait_for(fetcher.enough.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert usage(notebook.state.snapshot(time.monotonic_ns())) == [0.5]
        asked = fetcher.asked
        await asyncio.sleep(0.01)
        assert fetcher.asked == asked  # none of its loops is left behind

    asyncio.run(go())
    assert caplog.text.count("RuntimeError: unforeseen") == 3


def test_limits_are_as_documented() -> None:
    assert poller_module.LARGEST_PAGE == 16 * 1024 * 1024
