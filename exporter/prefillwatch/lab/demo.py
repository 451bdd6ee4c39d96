"""The demo: a simulated vLLM, the sidecar in front of it and mixed traffic, all on this machine and without a GPU."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import click
import httpx

from prefillwatch.errors import ERROR_PREFIX, StartError
from prefillwatch.lab.child import Child
from prefillwatch.lab.load import CHAT, DOCUMENT, QUESTION, Kind, LoadSettings, run_load
from prefillwatch.lab.simulator.settings import SimSettings
from prefillwatch.lab.status import HEADING, clock, incident_line, newly_over, read_status, status_line
from prefillwatch.own_process import python_module
from prefillwatch.report import aligned
from prefillwatch.settings.addresses import ListenAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

START_LIMIT_SECONDS: Final = 30.0
STATUS_EVERY_SECONDS: Final = 2.0
_LINES_SHOWN: Final = 20
UNTIL_STOPPED_SECONDS: Final = 10.0 * 365 * 86400
EXPLANATION: Final = """\
{victims} readers have answers streaming all the time. Others chat, and about every ten seconds somebody pastes a
document: while the server reads that, everybody else waits. Open the live page in a browser to see them stand still.
Here, compare the gaps that a prefill overlapped with the clear ones, and with all of them together.
"""


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """An address of None is the usual port, or a free one where that is taken; a duration of None lasts until the demo
    is stopped."""

    preset: str = "article"
    enable_chunked_prefill: bool = True
    listen: ListenAddress | None = None
    admin: ListenAddress | None = None
    simulator: ListenAddress | None = None
    victims: int = 6
    duration_seconds: float | None = None
    seed: int = 1
    tenants: bool = False


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the parts run, and remarks for the user about how the ports were chosen."""

    simulator: ListenAddress
    listen: ListenAddress
    admin: ListenAddress
    remarks: list[str]


async def demo(settings: DemoSettings, say: Callable[[str], None] = click.echo) -> None:
    """Runs until the duration is over, or until SIGINT or SIGTERM. Raises StartError if a part does not come up."""
    stopped = asyncio.Event()
    with _signals_set(stopped):
        place = _choose_place(settings)
        chunked = "--enable-chunked-prefill" if settings.enable_chunked_prefill else "--no-enable-chunked-prefill"
        sim = ("sim", "--listen", str(place.simulator), "--preset", settings.preset, chunked)
        upstream, admin = f"http://{place.simulator}", str(place.admin)
        told_apart = ("--tenant-from", "user", "--tenant-names", "plain", "--priorities") if settings.tenants else ()
        serve = ("serve", "--upstream", upstream, "--listen", str(place.listen), "--admin", admin, *told_apart)
        async with AsyncExitStack() as stack:
            simulator = await stack.enter_async_context(Child(python_module("prefillwatch", *sim)))
            await _wait_until_ready("sim", simulator, f"{upstream}/health", stopped)
            sidecar = await stack.enter_async_context(Child(python_module("prefillwatch", *serve)))
            await _wait_until_ready("serve", sidecar, f"http://{admin}/readyz", stopped)
            if not stopped.is_set():
                _introduce(settings, place, say)
                await _play(settings, place, {"sim": simulator, "serve": sidecar}, stopped, say)
            say("stopping")


def _choose_place(settings: DemoSettings) -> _Place:
    remarks: list[str] = []
    return _Place(
        _address(settings.simulator, 8000, remarks),
        _address(settings.listen, 8080, remarks),
        _address(settings.admin, 9843, remarks),
        remarks,
    )


def _address(asked: ListenAddress | None, usual_port: int, remarks: list[str]) -> ListenAddress:
    if asked is not None:
        return asked if asked.port else replace(asked, port=_free_port(asked.host, 0) or 0)
    host = "127.0.0.1"
    port = _free_port(host, usual_port)
    if port is None:
        port = _free_port(host, 0)
        assert port is not None
        remarks.append(f"Port {usual_port} is taken by another program, so {port} is used instead.")
    return ListenAddress(host, port)


def _free_port(host: str, port: int) -> int | None:
    """The port if it can be listened on now (any free one for 0), else None."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError:
            return None
        chosen: int = probe.getsockname()[1]
        return chosen


def check(name: str, child: Child) -> None:
    """Raises StartError, with the last lines it wrote, if `prefillwatch <name>` has ended."""
    if child.code is not None:
        # Its error is quoted in ours, so the prefix is needed once.
        said = (
            "\n".join(line.removeprefix(ERROR_PREFIX) for line in [*child.lines][-_LINES_SHOWN:]) or "it said nothing"
        )
        raise StartError(f"prefillwatch {name} ended with exit code {child.code}:\n{said}")


async def _wait_until_ready(name: str, child: Child, url: str, stopped: asyncio.Event) -> None:
    deadline = time.monotonic() + START_LIMIT_SECONDS
    async with httpx.AsyncClient(trust_env=False) as client:
        while not stopped.is_set():
            check(name, child)
            with contextlib.suppress(httpx.HTTPError):
                if (await client.get(url, timeout=1.0)).status_code == 200:
                    return
            if time.monotonic() > deadline:
                raise StartError(f"prefillwatch {name} was not ready within {START_LIMIT_SECONDS:g} s")
            await asyncio.sleep(0.1)


def _introduce(settings: DemoSettings, place: _Place, say: Callable[[str], None]) -> None:
    model = SimSettings(preset=settings.preset).model
    say(EXPLANATION.format(victims=settings.victims))
    for remark in place.remarks:
        say(remark)
    rows = [
        ("live page", f"http://{place.admin}/"),
        ("metrics", f"http://{place.admin}/metrics"),
        ("state", f"http://{place.admin}/api/state"),
        ("in words", f"prefillwatch doctor {place.admin}"),
        ("chat here", f"http://{place.listen}/v1/chat/completions (model {model!r})"),
        ("simulated vLLM", f"http://{place.simulator}/metrics"),
    ]
    for line in aligned(rows):
        say(line)
    until = "Ctrl-C ends it." if settings.duration_seconds is None else f"It ends in {settings.duration_seconds:g} s."
    say(f"\n{until}\n\n{HEADING}")


async def _play(
    settings: DemoSettings,
    place: _Place,
    children: dict[str, Child],
    stopped: asyncio.Event,
    say: Callable[[str], None],
) -> None:
    """Sends traffic and tells how it goes until time is up, a signal comes, or a part breaks."""
    began = time.monotonic()

    def tell_of_document(kind: Kind, prompt_tokens: int) -> None:
        if kind.name == DOCUMENT.name:
            say(f"{clock(time.monotonic() - began):>5}  >> somebody pastes a document of {prompt_tokens:,} tokens")

    parts = [
        asyncio.ensure_future(run_load(_load_settings(settings, place), tell_of_document)),
        asyncio.ensure_future(_tell_status(place, began, say)),
        asyncio.ensure_future(stopped.wait()),
        *(asyncio.ensure_future(child.ended()) for child in children.values()),
    ]
    try:
        done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for part in parts:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)
    for part in done:
        part.result()
    for name, child in children.items():
        check(name, child)


def _load_settings(settings: DemoSettings, place: _Place) -> LoadSettings:
    simulated = SimSettings(preset=settings.preset)
    longest = simulated.engine_config().max_model_len
    document = replace(DOCUMENT, prompt_tokens=(longest * 6 // 10, longest * 85 // 100))
    return LoadSettings(
        url=f"http://{place.listen}",
        model=simulated.model,
        duration_seconds=settings.duration_seconds or UNTIL_STOPPED_SECONDS,
        victims=settings.victims,
        kinds=(CHAT, QUESTION, document),
        seed=settings.seed,
        named=settings.tenants,
    )


async def _tell_status(place: _Place, began: float, say: Callable[[str], None]) -> None:
    """A line every two seconds with figures from the public admin endpoints, and one for each incident that is over."""
    told: set[str] = set()
    async with httpx.AsyncClient(trust_env=False, timeout=5.0, base_url=f"http://{place.admin}") as client:
        while True:
            await asyncio.sleep(STATUS_EVERY_SECONDS)
            now = f"{clock(time.monotonic() - began):>5}"
            try:
                page = (await client.get("/metrics")).raise_for_status().text
                incidents = (await client.get("/api/incidents")).raise_for_status().json()
            except httpx.HTTPError as error:
                say(f"{now}  no metrics: {error or type(error).__name__}")
                continue
            for incident in newly_over(incidents, told):
                say(f"{now}  << {incident_line(incident)}")
            say(f"{now} {status_line(read_status(page))}")


@contextlib.contextmanager
def _signals_set(event: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, event.set)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
