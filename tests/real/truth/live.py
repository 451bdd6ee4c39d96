"""One scenario against a real vLLM through a real sidecar: what the sidecar said, and a recording of what was true."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.real.client import ask
from tests.real.engine import MODEL_NAME
from tests.real.record_workload import Session, write_recording
from tests.real.served import CHAT, Sent, Server
from tests.real.sidecar import Metrics, Sidecar
from tests.real.truth.cores import CoreWatch, main_threads
from tests.real.truth.hop import BufferingHop
from tests.real.truth.slow_reader import CHOICES, read_slowly

#: Decoding alone at the beginning of a scenario; the last stall of the one before is closed by then.
LEAD_SECONDS = 2.5
#: Verdicts are final within this: half a minute for a timeline that does not settle, and the chain of an incident.
VERDICT_LIMIT_SECONDS = 34.0
SCRAPE_SECONDS = 2.0


class Live(Session):
    """A recording session whose requests go through a sidecar, under ids that no other scenario has."""

    def __init__(self, engine: Server, sidecar: Sidecar, hop: BufferingHop | None, name: str) -> None:
        super().__init__(engine, seed=len(name))
        self.sidecar, self.hop, self.name = sidecar, hop, name
        self.scrapes: list[dict[str, Any]] = []

    def send(self, name: str, role: str, text: str, max_tokens: int, *more: Any, **extra: Any) -> asyncio.Task[None]:
        return super().send(f"{self.name}-{name}", role, text, max_tokens, *more, **extra)

    async def _exchange(self, sent: Sent) -> None:
        headers = {"X-Request-Id": sent.id}
        port = self.engine.port if sent.past_sidecar else self.sidecar.port
        leave = self.over
        if sent.leaves_after:
            leave = asyncio.Event()
            asyncio.get_running_loop().call_later(sent.leaves_after, leave.set)
        sent.answer = await ask(port, sent.path, sent.body, headers, leave=leave, limit_seconds=900)

    async def slow_reader(self, first: float, pause: float, tokens: int) -> None:
        """Somebody who asks for a lot and takes nothing for a while; not part of the recording, but for the fault."""
        messages = [{"role": "user", "content": self.text(24)}]
        body = {"model": MODEL_NAME, "messages": messages, "max_tokens": tokens, "ignore_eos": True, "stream": True}
        body["n"] = CHOICES
        headers = {"X-Request-Id": f"{self.name}-slow"}
        said = await read_slowly(
            self.sidecar.port,
            CHAT,
            json.dumps(body).encode(),
            headers,
            first=first,
            pause=pause,
            limit=20,
        )
        self.events.append({"kind": "fault", "at": said.at_ns, "until": said.until_ns, "what": "client_slow"})

    async def buffering(self, seconds: float, *, hold_seconds: float = 0.0, hold_bytes: int = 0) -> None:
        assert self.hop is not None
        at_ns = time.monotonic_ns()
        self.hop.hold_seconds, self.hop.hold_bytes = hold_seconds, hold_bytes
        try:
            await asyncio.sleep(seconds)
        finally:
            self.hop.hold_seconds, self.hop.hold_bytes = 0.0, 0
        # What was held is let go after the end, and the gap that it ends is the hop's too.
        until_ns = time.monotonic_ns() + 50_000_000
        self.events.append({"kind": "fault", "at": at_ns, "until": until_ns, "what": "hop_buffered"})

    async def scrape(self) -> dict[str, Any]:
        """Our metrics page as text; it is read later, when no token's time is taken."""
        answer = await ask(self.sidecar.admin_port, "/metrics", limit_seconds=60)
        return {"at": answer.ended_ns, "text": answer.body.decode()}

    async def keep_scraping(self) -> None:
        """As Prometheus does it; the windows of latency are held against the engine's at these times."""
        while True:
            await asyncio.sleep(SCRAPE_SECONDS)
            self.scrapes.append(await self.scrape())

    async def incidents(self) -> list[dict[str, Any]]:
        answer = await ask(self.sidecar.admin_port, "/api/incidents?limit=1000", limit_seconds=60)
        found: Any = answer.json()
        return list(found if isinstance(found, list) else found["incidents"])

    async def settled(self) -> None:
        """Wait until nothing is provisional: every first token has its prefill time, and no incident is open."""
        deadline = time.monotonic() + VERDICT_LIMIT_SECONDS
        await asyncio.sleep(3.0)
        while time.monotonic() < deadline:
            page = Metrics.parse((await self.scrape())["text"])
            split = page.total("prefillwatch_prefill_seconds_count")
            if split == page.total("prefillwatch_time_to_first_token_seconds_count") and not any(
                each["ongoing"] for each in await self.incidents()
            ):
                return
            await asyncio.sleep(0.5)


@dataclass(frozen=True, slots=True)
class Scenario:
    """What happens while victims decode. `cause` is the true cause of the stalls that it makes on purpose.

    `victim_tokens`: they end by themselves after so many; otherwise they are cut when the scenario is over.
    """

    name: str
    about: str
    cause: str
    drive: Callable[[Live], Awaitable[None]]
    flags: tuple[str, ...] = ()
    through_hop: bool = False
    victim_tokens: int = 0


@dataclass(slots=True)
class Take:
    """A scenario that was played. The files of it are enough to judge it again later."""

    scenario: str
    recording: Path
    said: dict[str, Any] = field(default_factory=dict)

    @property
    def said_path(self) -> Path:
        return said_path(self.recording)


def said_path(recording: Path) -> Path:
    return recording.with_name(recording.name.removesuffix(".jsonl.gz") + ".said.json")


def play(scenario: Scenario, engine: Server, sidecar: Sidecar, hop: BufferingHop | None, out: Path) -> Take:
    started_unix = time.time()
    live = Live(engine, sidecar, hop, scenario.name)
    with CoreWatch(main_threads(engine, sidecar)) as cores:
        live.started_ns = time.monotonic_ns()
        said = asyncio.run(_play(scenario, live))
    live.events += cores.lines()
    header = {
        "kind": "header",
        "format": 1,
        "workload": scenario.name,
        "about": scenario.about,
        "engine": engine.facts(),
        "started_unix": started_unix,
        "started_monotonic_ns": live.started_ns,
        "sidecar": str(sidecar.log_path),
    }
    take = Take(scenario.name, out / f"{scenario.name}.jsonl.gz", said)
    write_recording(take.recording, scenario.name, live, header)
    take.said_path.write_text(json.dumps(said))
    return take


async def _play(scenario: Scenario, live: Live) -> dict[str, Any]:
    before = await live.scrape()
    watchers = [asyncio.create_task(watch) for watch in (live.keep_scraping(), live.watch_ourselves())]
    victims = live.victims(scenario.victim_tokens or 14_000)
    await asyncio.sleep(LEAD_SECONDS)
    await scenario.drive(live)
    prompts = [task for task in live.tasks if task not in victims]
    if awaited := prompts + (victims if scenario.victim_tokens else []):
        await asyncio.wait(awaited, timeout=60)
    await asyncio.sleep(1.0)
    for watcher in watchers:
        watcher.cancel()
    live.over.set()
    await asyncio.gather(*live.tasks)
    await live.settled()
    after = await live.scrape()
    return {
        "wall_offset": time.time() - time.monotonic(),
        "before": before,
        "scrapes": live.scrapes,
        "after": after,
        "incidents": await live.incidents(),
    }
