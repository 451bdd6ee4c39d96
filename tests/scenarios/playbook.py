"""Scenes for the observer: who sent what when, when tokens came, what upstream's metrics said; and what it makes of it.

Times are milliseconds from the start of the scene. Everything goes through the tap, as a relay would tell it.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.core.script import DONE, Observed, Relay, chunk, ns, usage

from prefillwatch.analysis.settings import AnalysisSettings
from prefillwatch.analysis.verdicts.evidence import EnginePage
from prefillwatch.export import table
from prefillwatch.export.spec import Spec
from prefillwatch.wire.tap import Finish, Kind

PACKET_MS = 20.0
#: Long enough for every verdict to become final.
AFTER_MS = 35_000.0
CHARS_PER_TOKEN = 4


def beat(every: float, until: float, *freezes: tuple[float, float], start: float = 100.0) -> list[float]:
    """Times of tokens: one ``every`` so often, but for freezes (from when on, how long the gap is)."""
    times, at, left = [], start, sorted(freezes)
    while at <= until:
        times.append(at)
        if left and at + every > left[0][0]:
            at += left.pop(0)[1]
        else:
            at += every
    return times


def slow(since: float, until: float, *gaps: float) -> list[tuple[float, float]]:
    """Freezes one after another, as long as these in turn, until about a moment."""
    lengths, freezes, at = itertools.cycle(gaps), [], since
    while at < until:
        freezes.append((at, next(lengths)))
        at += freezes[-1][1]
    return freezes


def text_of(name: str, chars: int) -> str:
    """A text that begins like no other."""
    return (f"{name} " * (chars // (len(name) + 1) + 1))[:chars]


@dataclass
class Prompt:
    """A request of the scene."""

    scene: Scene
    sent: float
    tokens: int
    generated: int = 0
    stream: int = 0  # known once it is sent

    def answers(self, times: Iterable[float], events: int = 1, text: str = " word") -> Prompt:
        """Reads of so many token events each, or of one long event."""
        for at in times:
            self.read(at, events, text)
        return self

    def read(self, at: float, events: int = 1, text: str = " word", **more: Any) -> None:
        if not self.generated:
            self.scene.at(at - 0.01, lambda relay: relay.response(at - 0.01, self.stream))
        self.generated += events
        self.scene.at(at, lambda relay: relay.data(at, self.stream, chunk(text, **more) * events))

    def ends(self, at: float, cached: int = 0, completion: int | None = None) -> Prompt:
        told = usage(self.tokens, self.generated if completion is None else completion, cached)

        def end(relay: Relay) -> None:
            relay.data(at, self.stream, told + DONE)
            relay.end(at, self.stream)

        self.scene.at(at, end)
        return self

    def answers_in_json(self, at: float) -> Prompt:
        """The whole answer at once, without a word on its size."""

        def answer(relay: Relay) -> None:
            relay.response(at, self.stream, content_type="application/json")
            relay.end(at + 1, self.stream)

        self.scene.at(at, answer)
        return self

    def client_leaves(self, at: float) -> Prompt:
        self.scene.at(at, lambda relay: relay.end(at, self.stream, Finish.CLIENT_CLOSED))
        return self

    def breaks_off(self, at: float) -> Prompt:
        self.scene.at(at, lambda relay: relay.end(at, self.stream, Finish.UPSTREAM_TRUNCATED))
        return self

    def blocked(self, since: float, until: float) -> Prompt:
        self.scene.at(since, lambda relay: relay.add(since, self.stream, Kind.BLOCKED))
        self.scene.at(until, lambda relay: relay.add(until, self.stream, Kind.UNBLOCKED))
        return self


@dataclass
class Scene:
    """Collects what happens, then plays it in order of time."""

    settings: AnalysisSettings = field(default_factory=AnalysisSettings)
    #: Histograms are kept with exponential buckets, too.
    exponential: bool = False

    def __post_init__(self) -> None:
        self.observed = Observed(self.settings, exponential=self.exponential)
        self._relay = Relay(self.observed)
        self._plan: list[tuple[float, int, Callable[[Relay], Any]]] = []
        self._order = itertools.count()
        self._names = itertools.count()

    # --- What happens ---

    def at(self, at: float, what: Callable[[Relay], Any]) -> None:
        heapq.heappush(self._plan, (at, next(self._order), what))

    def prompt(
        self,
        at: float,
        tokens: int,
        name: str = "",
        media: bool = False,
        traceparent: str = "",
        tenant: str = "",
        **body: Any,
    ) -> Prompt:
        """A request is sent; its size is known from its text until usage tells it."""
        prompt = Prompt(self, at, tokens)
        name = name or f"request-{next(self._names)}"
        content: Any = text_of(name, CHARS_PER_TOKEN * tokens)
        if media:
            picture = {"type": "image_url", "image_url": {"url": "http://pictures/1.png"}}
            content = [{"type": "text", "text": content}, picture]
        message = {"messages": [{"role": "user", "content": content}], **body}

        def send(relay: Relay) -> None:
            head = {"request_id": name, "traceparent": traceparent, "tenant": tenant}
            prompt.stream = relay.request(at, message, **head)

        self.at(at, send)
        return prompt

    def victims(
        self,
        count: int,
        times: list[float],
        events: int = 1,
        text: str = " word",
        ends: bool = True,
        traceparents: Sequence[str] = (),
        **prompt: Any,
    ) -> list[Prompt]:
        """Streams that get their tokens from the same engine steps; the first have traces."""
        found = []
        for number in range(count):
            mine = [at + 0.2 * number for at in times]
            traceparent = traceparents[number] if number < len(traceparents) else ""
            name = f"victim-{next(self._names)}"
            victim = self.prompt(times[0] - 90 + number, 16, name, traceparent=traceparent, **prompt)
            victim.answers(mine, events, text)
            found.append(victim.ends(mine[-1] + 2) if ends else victim)
        return found

    def gauges(self, at: float, **what: Any) -> None:
        """A page of upstream's metrics was read."""
        self.at(at, lambda _: self.observed.ledger.page(EnginePage(ns(at), **what)))

    def healthy(self, since: float, until: float, running: int, every: float = 1000, **what: Any) -> None:
        """Pages at regular times that say nothing is wrong."""
        at = since
        while at <= until:
            self.gauges(at, **({"running": running, "waiting": 0, "kv_usage": 0.3, "preemptions": 0.0} | what))
            at += every

    def relay_lags(self, at: float, seconds: float) -> None:
        """The relay did not run for so long, and tells it when it runs again."""
        late = round(seconds * 1e9).to_bytes(8, "little")
        self.at(at, lambda relay: relay.add(at, 0, Kind.LATE, late))

    def lose(self, since: float, until: float) -> None:
        """A packet with these moments in it does not get through."""
        self._relay.flush()
        self._relay.add(since, 0, Kind.HELLO, b"")
        self._relay.flush(lose=True)
        self.observed.advance(until)

    # --- What the observer makes of it ---

    def play(self, until: float | None = None) -> Scene:
        """Play up to a moment, or all of it and wait until every verdict is final."""
        packet_due = self.observed.now_ms + PACKET_MS
        while self._plan and (until is None or self._plan[0][0] <= until):
            at, _, what = heapq.heappop(self._plan)
            if at > packet_due:
                self._relay.flush()
                self.observed.advance(at)
                packet_due = at + PACKET_MS
            what(self._relay)
        self._relay.flush()
        self.observed.advance(until if until is not None else self.observed.now_ms + AFTER_MS)
        return self

    def incidents(self, kind: str = "freeze") -> list[dict[str, Any]]:
        """As the API shows them, the oldest first."""
        found = self.observed.observation.incidents(1000)
        for each in found:
            assert each["kind"] != "freeze" or each["victims"] <= each["decoding"], each
        return [each for each in found[::-1] if each["kind"] == kind]

    def incident(self, kind: str = "freeze") -> dict[str, Any]:
        found = self.incidents(kind)
        assert len(found) == 1, [(each["cause"], each["duration_seconds"]) for each in found]
        return found[0]

    def causes(self, kind: str = "freeze") -> list[str]:
        return [each["cause"] for each in self.incidents(kind)]

    def stalls(self) -> dict[str, int]:
        """Final stalls by cause."""
        return {cause: round(count) for cause, count in self.counted(table.STALLS).items()}

    def waits(self) -> dict[str, int]:
        return {cause: round(count) for cause, count in self.counted(table.WAITS).items()}

    def counted(self, spec: Spec) -> dict[str, float]:
        """Values by their last label, those of nothing left out."""
        return {labels[-1]: value for labels, value in self.observed.values(spec).items() if value}
