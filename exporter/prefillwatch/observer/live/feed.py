"""What `/api/live` shows its viewers: who streams, every token of theirs, prompts being read, stalls, and figures.

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
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final

import msgspec

from prefillwatch import __version__
from prefillwatch.contract import limits
from prefillwatch.contract.causes import CAUSES
from prefillwatch.core.core import Core
from prefillwatch.core.view import StallNow, View
from prefillwatch.observer.live.lanes import MOST_LANES, Lane, Lanes
from prefillwatch.observer.live.prefills import Prefills
from prefillwatch.units import NS

#: Time between two frames, of the clock passed in.
FRAME_NS: Final = NS // 5
FIGURES_NS: Final = NS
INCIDENTS: Final = 30
#: A browser that lost us asks again after so many milliseconds.
RETRY_MS: Final = 1000

Figures = Callable[[], dict[str, Any]]
Incidents = Callable[[int], list[dict[str, Any]]]


class LiveFeed:
    """Turns what a core knows into server-sent events, from `open` to `close`; then the core is left alone."""

    def __init__(
        self,
        core: Core,
        clock: Callable[[], int],
        figures: Figures,
        incidents: Incidents,
        wall_offset: Callable[[], float],
    ) -> None:
        """``rate`` (of the clock against that on the wall) is 1 unless somebody plays a recording faster; ``recording``
        is "playing" or "ended" then, and else empty."""
        self.rate = 1.0
        self.recording = ""
        self._core = core
        self._clock = clock
        self._read_figures = figures
        self._read_incidents = incidents
        self._wall_offset = wall_offset
        self._instance = ""
        self._base_ns = 0
        self._shown: _Shown | None = None

    def _view(self) -> View:
        return self._core.view(self._clock())

    def open(self) -> None:
        """Somebody looks. Lanes, prefills and stalls are numbered anew."""
        view = self._view()
        self._instance = f"{time.time_ns():x}"
        self._base_ns = self._base_ns or view.known_ns
        self._shown = _Shown(self._core.owner, self._base_ns)
        self._core.watch(self._shown.lanes.take)
        self._shown.frame(view)
        self._shown.figures, self._shown.incidents = self._read_figures(), self._read_incidents(INCIDENTS)
        self._shown.figures_ns = view.known_ns

    def close(self) -> None:
        """Nobody looks any more."""
        self._core.watch(None)
        self._shown = None

    def hello(self) -> bytes:
        """How a viewer begins, or begins anew after it missed something. The feed must be open."""
        shown, settings = self._shown, self._core.settings
        assert shown is not None
        hello = {
            "instance": self._instance,
            "version": __version__,
            "recording": self.recording,
            "rate": self.rate,
            "unix": self._base_ns / NS + self._wall_offset(),
            "rule": [settings.stall.min_gap, settings.stall.factor, settings.stall.always],
            "target": settings.slo.itl,
            "most_lanes": MOST_LANES,
            "causes": {cause.name: cause.words for cause in CAUSES},
            "limits": {
                "kv_usage": limits.KV_USAGE,
                "interference": limits.INTERFERENCE_SEEN,
                "long_prompt": limits.LONG_TOKENS,
            },
            "figures": shown.figures,
            "incidents": shown.incidents,
            **shown.whole(self._view()),
        }
        return b"retry: %d\n" % RETRY_MS + event("hello", hello)

    def news(self, now_ns: int) -> list[bytes]:
        """Events that are due; call it every 50 to 100 ms, after a beat of the core."""
        shown = self._shown
        if shown is None or now_ns < shown.now_ns + round(FRAME_NS * self.rate):
            return []
        events = [event("frame", shown.frame(self._view()))]
        incidents = self._read_incidents(INCIDENTS)
        if now_ns >= shown.figures_ns + round(FIGURES_NS * self.rate):
            shown.figures_ns, shown.figures = now_ns, self._read_figures()
            events.append(event("figures", shown.figures))
        elif _names_of(incidents) == _names_of(shown.incidents):
            return events  # how long they have lasted is said once a second
        if incidents != shown.incidents:
            shown.incidents = incidents
            events.append(event("incidents", incidents))
        return events

    def end(self) -> list[bytes]:
        """The recording is over: what is new since the last frame, and that."""
        self.recording = "ended"
        shown = self._shown
        if shown is None:
            return []
        frame = shown.frame(self._view())
        shown.figures, shown.incidents = self._read_figures(), self._read_incidents(INCIDENTS)
        return [
            event("frame", frame),
            event("figures", shown.figures),
            event("incidents", shown.incidents),
            event("ended", {}),
        ]


class _Shown:
    """What viewers were shown."""

    def __init__(self, owner: Callable[[int], int | None], base_ns: int) -> None:
        self.lanes = Lanes(owner, base_ns)
        self._prefills = Prefills(self.lanes.ms)
        self._stalls: dict[Hashable, list[Any]] = {}
        self._count = 0
        self._now: list[int] = []
        self.now_ns = 0
        self.figures: dict[str, Any] = {}
        self.figures_ns = 0
        self.incidents: list[dict[str, Any]] = []

    def whole(self, view: View) -> dict[str, Any]:
        """Everything that the frames so far have shown."""
        return {
            "t": self.lanes.ms(self.now_ns),
            "now": self._now,
            "lanes": self._described(view, (lane for lane in self.lanes.all.values() if lane not in self.lanes.new)),
            "prefills": self._prefills.all(),
            "in_service": self._prefills.in_service,
            "stalls": list(self._stalls.values()),
        }

    def frame(self, view: View) -> dict[str, Any]:
        """What is new."""
        lanes = self.lanes
        self.now_ns = view.known_ns
        lanes.follow(view.owners)
        lanes.stalled(stall.slot for stall in view.stalls)
        begun, over, sized = self._prefills.now(view)
        changes: dict[str, Any] = {
            "lanes": self._described(view, lanes.drain_new()),
            "gone": lanes.drain_gone(),
            "bursts": lanes.drain_bursts(),
            "prefills": begun,
            "prefills_over": over,
            "sizes": sized,
            "stalls": self._changed(view),
        }
        load = view.load
        longest_s = max((each.longest_silence_s or 0.0 for each in load), default=0.0)
        self._now = [
            sum(each.decoding for each in load),
            self._prefills.count,
            sum(each.frozen for each in load),
            round(longest_s * 1000),
            round(view.clear_step_s * 1000),
        ]
        frame = {
            "t": lanes.ms(self.now_ns),
            "now": self._now,
            "ticks": lanes.drain_ticks(),
            "in_service": self._prefills.in_service,
        }
        return frame | {name: value for name, value in changes.items() if value}

    def _described(self, view: View, lanes: Iterable[Lane]) -> list[list[Any]]:
        """Some may have come and gone since the last frame; of hundreds, those that the core still knows."""
        lanes, described = list(lanes), []
        requests = view.those({lane.rid for lane in lanes})
        for lane in lanes:
            request = requests.get(lane.rid)
            if request is None:
                continue
            sequence = next((each for each in request.sequences if each.slot == lane.slot), None)
            span = (sequence.first_ns, sequence.last_ns) if sequence else (0, 0)
            first_ms, last_ms = (self.lanes.ms(at) if at else None for at in span)
            name, choice, model = request.request_id, sequence.choice if sequence else 0, request.model
            described.append([lane.number, name, choice, model, request.prompt_tokens, first_ms, last_ms])
        return described

    def _changed(self, view: View) -> list[list[Any]]:
        changed = []
        for stall in view.stalls:
            known = self._stalls.get(stall.key)
            now = self._describe_stall(stall, known)
            if now is not None and now != known:
                self._stalls[stall.key] = now
                changed.append(now)
        current = {stall.key for stall in view.stalls}
        for key in [each for each in self._stalls if each not in current]:
            before = self._stalls.pop(key)
            last = self._describe_stall(view.stall(key), before)
            if last is not None and not last[3]:  # it was no stall after all, or its stream was lost from sight
                last[3] = -1
            if last is not None and last != before:
                changed.append(last)
        return changed

    def _describe_stall(self, stall: StallNow, known: list[Any] | None) -> list[Any] | None:
        if known is not None:
            number, lane = known[:2]
        else:
            found = self.lanes.all.get(stall.slot)
            if found is None or found.rid != stall.rid:
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
