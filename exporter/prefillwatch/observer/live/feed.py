"""What `/api/live` tells its viewers: who streams, every token of theirs, prompts being read, stalls, and figures.

A viewer begins with one ``hello``, everything as of the last frame. ``frame`` events follow, a few a second, each
only with what is new; once a second ``figures``, and ``incidents`` whenever they changed. The bytes are the same for
all viewers. Times are whole milliseconds since ``unix`` of the hello. While nobody watches, nothing of this exists.

    hello      instance, version, recording, rate, t, unix, rule, target, most_lanes, causes, limits, now, lanes,
               prefills, in_service, stalls, figures, incidents
    frame      t, now, ticks, in_service, and what is not empty of: lanes, gone, bursts, prefills, prefills_over, sizes,
               stalls
    lanes      [lane, request id, choice, model, prompt tokens, first token, last token]
    ticks      [lane, moment, milliseconds to the next, to the next …]
    bursts     [lane, moment, token events that came in one read]
    prefills   [number, request id, model, prompt tokens, exact, since, streaming]
    prefills_over  [number, until, had a first token]
    sizes      [number of a prefill that is over, prompt tokens]
    stalls     [number, lane, since, until (0: lasts, -1: was none after all), cause]
    ended      nothing: the recording that is played is over, and time stands
    causes     in words, by name
    now        [decoding streams, requests in prefill, frozen streams, longest silence, clear step]
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from prefillwatch import __version__
from prefillwatch.analysis.delays import FREEZE, Stall
from prefillwatch.analysis.ledger import Ledger
from prefillwatch.analysis.requests import ModelNames
from prefillwatch.contract import limits
from prefillwatch.contract.causes import CAUSES
from prefillwatch.observer.live.lanes import MOST_LANES, Lane, Lanes
from prefillwatch.observer.live.prefills import Prefills
from prefillwatch.units import MS, NS

#: Time between two frames, of the clock passed in.
FRAME_NS: Final = NS // 5
FIGURES_NS: Final = NS
INCIDENTS: Final = 30
#: A browser that lost us asks again after so many milliseconds.
RETRY_MS: Final = 1000

Figures = Callable[[], dict[str, Any]]
Incidents = Callable[[int], list[dict[str, Any]]]


class LiveFeed:
    """Turns the ledger into server-sent events, from `open` to `close`; then the books are left alone."""

    def __init__(
        self,
        ledger: Ledger,
        names: ModelNames,
        clock: Callable[[], int],
        figures: Figures,
        incidents: Incidents,
        wall_offset: Callable[[], float],
    ) -> None:
        """``rate`` (of the clock against that on the wall) is 1 unless somebody plays a recording faster; ``recording``
        is "playing" or "ended" then, and else empty."""
        self.rate = 1.0
        self.recording = ""
        self._ledger = ledger
        self._names = names
        self._clock = clock
        self._read_figures = figures
        self._read_incidents = incidents
        self._wall_offset = wall_offset
        self._instance = ""
        self._base_ns = 0
        self._view: _View | None = None

    def open(self) -> None:
        """Somebody looks. Lanes, prefills and stalls are numbered anew."""
        now_ns = self._clock()
        self._instance = f"{time.time_ns():x}"
        self._base_ns = self._base_ns or now_ns
        self._view = _View(self._ledger, self._names, self._base_ns)
        self._ledger.onlooker = self._view.lanes.take
        self._view.frame(now_ns)
        self._view.figures, self._view.incidents = self._read_figures(), self._read_incidents(INCIDENTS)
        self._view.figures_ns = now_ns

    def close(self) -> None:
        """Nobody looks any more."""
        self._ledger.onlooker = None
        self._view = None

    def hello(self) -> bytes:
        """How a viewer begins, or begins anew after it missed something. The feed must be open."""
        view, rule = self._view, self._ledger.settings.stall
        assert view is not None
        hello = {
            "instance": self._instance,
            "version": __version__,
            "recording": self.recording,
            "rate": self.rate,
            "unix": self._base_ns / NS + self._wall_offset(),
            "rule": [rule.min_gap, rule.factor, rule.always],
            "target": self._ledger.settings.slo.itl,
            "most_lanes": MOST_LANES,
            "causes": {cause.name: cause.words for cause in CAUSES},
            "limits": {
                "kv_usage": limits.KV_USAGE,
                "interference": limits.INTERFERENCE_SEEN,
                "long_prompt": limits.LONG_TOKENS,
            },
            "figures": view.figures,
            "incidents": view.incidents,
            **view.whole(),
        }
        return b"retry: %d\n" % RETRY_MS + event("hello", hello)

    def news(self, now_ns: int) -> list[bytes]:
        """Events that are due; call it every 50 to 100 ms, after the ledger has advanced."""
        view = self._view
        if view is None or now_ns < view.now_ns + round(FRAME_NS * self.rate):
            return []
        events = [event("frame", view.frame(now_ns))]
        incidents = self._read_incidents(INCIDENTS)
        if now_ns >= view.figures_ns + round(FIGURES_NS * self.rate):
            view.figures_ns, view.figures = now_ns, self._read_figures()
            events.append(event("figures", view.figures))
        elif _names_of(incidents) == _names_of(view.incidents):
            return events  # how long they have lasted is told once a second
        if incidents != view.incidents:
            view.incidents = incidents
            events.append(event("incidents", incidents))
        return events

    def end(self, now_ns: int) -> list[bytes]:
        """The recording is over: what was not told yet, and that."""
        self.recording = "ended"
        view = self._view
        if view is None:
            return []
        view.figures, view.incidents = self._read_figures(), self._read_incidents(INCIDENTS)
        return [
            event("frame", view.frame(now_ns)),
            event("figures", view.figures),
            event("incidents", view.incidents),
            event("ended", {}),
        ]


class _View:
    """What viewers have been told."""

    def __init__(self, ledger: Ledger, names: ModelNames, base_ns: int) -> None:
        self._ledger = ledger
        self._names = names
        self.lanes = Lanes(ledger, base_ns)
        self._prefills = Prefills(self.lanes.ms, names)
        self._stalls: dict[Stall, list[Any]] = {}
        self._count = 0
        self._now: list[int] = []
        self.now_ns = 0
        self.figures: dict[str, Any] = {}
        self.figures_ns = 0
        self.incidents: list[dict[str, Any]] = []

    def whole(self) -> dict[str, Any]:
        """Everything as of the last frame."""
        return {
            "t": self.lanes.ms(self.now_ns),
            "now": self._now,
            "lanes": [self._describe(lane) for lane in self.lanes.all.values() if lane not in self.lanes.new],
            "prefills": self._prefills.all(),
            "in_service": self._prefills.in_service,
            "stalls": list(self._stalls.values()),
        }

    def frame(self, now_ns: int) -> dict[str, Any]:
        """What is new."""
        ledger, lanes = self._ledger, self.lanes
        self.now_ns = now_ns
        requests = [each for each in ledger.requests.values() if each.generating]
        lanes.follow(requests)
        stalls = self._stalls_now()
        lanes.stalled(stall.slot for stall in stalls)
        in_service = {rid for rid, _ in ledger.timeline.in_service_now()}
        begun, over, sized = self._prefills.now(requests, in_service, now_ns)
        told: dict[str, Any] = {
            "lanes": [self._describe(lane) for lane in lanes.drain_new()],
            "gone": lanes.drain_gone(),
            "bursts": lanes.drain_bursts(),
            "prefills": begun,
            "prefills_over": over,
            "sizes": sized,
            "stalls": self._changed(stalls),
        }
        self._now = self._count_now(sum(each.decoding for each in requests))
        frame = {
            "t": lanes.ms(now_ns),
            "now": self._now,
            "ticks": lanes.drain_ticks(),
            "in_service": self._prefills.in_service,
        }
        return frame | {name: value for name, value in told.items() if value}

    def _count_now(self, decoding: int) -> list[int]:
        ledger = self._ledger
        silent = ledger.silences(self.now_ns)
        longest_ms = round(max((each.seconds for each in silent), default=0.0) * 1000)
        clear_ms = round(ledger.heartbeat.clear_step_ns / MS)
        return [decoding, self._prefills.count, sum(each.frozen for each in silent), longest_ms, clear_ms]

    def _describe(self, lane: Lane) -> list[Any]:
        request, totals = lane.request, self._ledger.book.totals(lane.slot)
        first_ms, last_ms = (None if at is None else self.lanes.ms(at) for at in (totals.first_ns, totals.last_ns))
        name, model = request.request_id, self._names.labels[request.model]
        return [lane.number, name, lane.choice, model, request.prompt_tokens, first_ms, last_ms]

    def _stalls_now(self) -> list[Stall]:
        """Those that last, and those that ended a moment ago, whose verdict may change yet."""
        causes = self._ledger.causes
        stalls = set(causes.watch.open.values())
        for incident in causes.incidents.open:
            if incident.kind == FREEZE:
                stalls.update(each for each in incident.live if isinstance(each, Stall))
        return sorted(stalls, key=lambda each: each.started_ns)

    def _changed(self, stalls: list[Stall]) -> list[list[Any]]:
        changed = []
        for stall in stalls:
            known = self._stalls.get(stall)
            told = self._describe_stall(stall, known)
            if told is not None and told != known:
                self._stalls[stall] = told
                changed.append(told)
        current = set(stalls)
        for stall in [each for each in self._stalls if each not in current]:
            before = self._stalls.pop(stall)
            last = self._describe_stall(stall, before)
            if last is not None and not last[3]:  # it was no stall after all, or its stream was lost from sight
                last[3] = -1
            if last is not None and last != before:
                changed.append(last)
        return changed

    def _describe_stall(self, stall: Stall, known: list[Any] | None) -> list[Any] | None:
        if known is not None:
            number, lane = known[:2]
        else:
            found = self.lanes.all.get(stall.slot)
            if found is None or found.request is not stall.request:
                return None
            self._count += 1
            number, lane = self._count, found.number
        ms = self.lanes.ms
        return [number, lane, ms(stall.started_ns), ms(stall.ended_ns) if stall.ended_ns else 0, stall.cause]


def _names_of(incidents: list[dict[str, Any]]) -> list[Any]:
    return [(each["id"], each["ongoing"], each["cause"], each["victims"]) for each in incidents]


def event(name: str, document: Any) -> bytes:
    """One server-sent event with JSON in it."""
    try:
        data = msgspec.json.encode(document)
    except UnicodeEncodeError:  # half a surrogate pair in somebody's request id has no UTF-8, but an escape in JSON
        data = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)
