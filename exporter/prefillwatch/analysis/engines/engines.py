"""The engines behind one door, each with its heartbeat and its prefill timeline.

Mostly there is one, and everything goes to it at once. When the server's page tells of several, a new stream is young
at first: where its first token and its next reads fall shows which engine it is on (`co_movement`), within half a
second as a rule. Until then its prompt waits in the timelines of all engines, and none of them settles beyond its
first token. Then it is placed: the first token goes to the timeline of its engine, and the prompt was never in the
others. Engines that step together, as the ranks of a mixture of experts do, are one heartbeat and count as one.

What a clear step takes, what a prompt token costs and how steps are filled is learned from all of them together: they
are of one kind.

Example: two engines behind one door, three streams on each, and a document that is sent at 0. At 310 ms three streams
that were silent read, and the document's first token comes within a millisecond of them; the other three have read
every 20 ms all the time. By 600 ms the document's answer has moved with the first three for 14 steps: it is placed
there, its prompt leaves the timeline of the other engine, and the long step becomes the document's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from prefillwatch.analysis.arrays import BoolArray, IntArray
from prefillwatch.analysis.engines.co_movement import CoMovement
from prefillwatch.analysis.requests import NOWHERE, Place
from prefillwatch.analysis.steps import Heartbeat, Overlap, PrefillTimeline, Step, StepFacts
from prefillwatch.analysis.tuning import DEFAULT, Tuning

#: A page may say what it wants; more engines than this are not told apart.
_MOST_ENGINES: Final = 64


@dataclass(slots=True, eq=False)
class _Engine:
    timeline: PrefillTimeline
    heartbeat: Heartbeat
    changed_ns: int = 0  # when a stream was last found to be on another engine than was thought


class _Young(NamedTuple):
    """A stream whose engine is not known yet. ``rid``: its request, if this is the first of its choices."""

    place: Place
    rid: int | None
    since_ns: int
    seen: bool


class Engines:
    """Everything that the wire shows goes through here to the engine it is of."""

    def __init__(self, tuning: Tuning = DEFAULT) -> None:
        self.timeline = PrefillTimeline(tuning)
        """Of the first; what it has learned is of all."""
        self.heartbeat = Heartbeat(self.timeline.clear, tuning.clock)
        self._tuning = tuning
        self._rules = tuning.engines
        self._all = [_Engine(self.timeline, self.heartbeat)]
        self._told = 1
        self._moves = CoMovement(self._rules)
        self._on: IntArray = np.full(64, NOWHERE, np.int64)
        self._places: dict[int, Place] = {}
        self._young: dict[int, _Young] = {}
        self._fed_ns = 0  # the latest read

    # --- How many there are ---

    @property
    def several(self) -> bool:
        """Whether the server told of more than one."""
        return self._told > 1

    def __len__(self) -> int:
        """How many are told apart by how their streams move."""
        return len(self._all)

    def told(self, engines: int, now_ns: int) -> None:
        """The server's page tells of so many."""
        if self._told == 1 < engines:
            self._told = min(engines, _MOST_ENGINES)
            for slot, place in self._places.items():
                self._take_out(slot, place)
                self._young[slot] = _Young(place, None, now_ns, seen=False)
                self._moves.begin(slot)
        self._told = max(self._told, min(engines, _MOST_ENGINES))

    def _take_out(self, slot: int, place: Place) -> None:
        heartbeat = self._all[place.engine].heartbeat
        heartbeat.leaves()
        heartbeat.left(slot)
        place.engine = self._on[slot] = NOWHERE

    # --- Streams ---

    def joined(self, slot: int, time_ns: int, rid: int | None = None, *, seen: bool = True) -> Place:
        """A stream got its first token, which is the first of the request ``rid`` if that is given."""
        while slot >= len(self._on):
            self._on = np.concatenate((self._on, np.full(len(self._on), NOWHERE, np.int64)))
        place = self._places[slot] = Place()
        if self.several:
            self._moves.begin(slot)
            self._moves.reads(np.array([slot]), np.array([time_ns]))
            self._young[slot] = _Young(place, rid, time_ns, seen)
        else:
            self._join(slot, place, 0, time_ns, seen=seen)
            if rid is not None:
                self.timeline.first_token(rid, time_ns)
        return place

    def _join(self, slot: int, place: Place, engine: int, time_ns: int, *, seen: bool) -> None:
        place.engine = self._on[slot] = engine
        self._all[engine].heartbeat.joined(slot, time_ns, seen=seen)

    def leaves(self, slot: int) -> None:
        """See `Heartbeat.leaves`."""
        if slot not in self._young:
            self._all[self._on[slot]].heartbeat.leaves()

    def stays(self, slot: int) -> None:
        if slot not in self._young:
            self._all[self._on[slot]].heartbeat.stays()

    def left(self, slot: int) -> None:
        """A stream is over, and all its reads were fed."""
        young = self._young.pop(slot, None)
        place = self._places.pop(slot)
        if young is not None:
            self._moves.weigh(self._fed_ns, self._on, len(self._all))
            self._settle_down(slot, young, self._likeliest(slot), over=True)
        else:
            if self.several:
                place.sure = self._sure(slot, place.engine)
            self._all[place.engine].heartbeat.left(slot)
        self._on[slot] = NOWHERE

    def feed(self, slots: npt.NDArray[np.integer], times_ns: IntArray) -> Iterator[tuple[int, list[Step]]]:
        """Reads of streams in order of time, first tokens left out. The steps that closed, by engine."""
        if not self.several:
            yield 0, self.heartbeat.feed(slots, times_ns)
            return
        self._moves.reads(slots, times_ns)
        self._fed_ns = max(self._fed_ns, int(times_ns[-1])) if len(times_ns) else self._fed_ns
        on = self._on[slots]
        for number, engine in enumerate(self._all):
            own = on == number
            if own.any():
                yield number, engine.heartbeat.feed(slots[own], times_ns[own])

    def flush(self, now_ns: int) -> Iterator[tuple[int, list[Step]]]:
        """Close the steps that have gone quiet."""
        for number, engine in enumerate(self._all):
            yield number, engine.heartbeat.flush(now_ns)

    def steps(self, engine: int, steps: list[Step]) -> None:
        """Steps that closed, into the timeline of their engine."""
        self._all[engine].timeline.steps(steps)

    def hole(self) -> None:
        for engine in self._all:
            engine.heartbeat.hole()

    # --- Which stream is on which engine ---

    def place(self, now_ns: int) -> None:
        """Assign young streams, and those that turn out to be on another engine than was thought."""
        if not self.several:
            return
        self._moves.weigh(now_ns - self._tuning.clock.widest_spread_ns, self._on, len(self._all))
        self._move()
        for slot, young in list(self._young.items()):
            engine = self._decided(slot, late=now_ns - young.since_ns > self._rules.patience_ns)
            if engine is not None:
                self._settle_down(slot, young, engine)
                del self._young[slot]

    def _live(self) -> list[int]:
        """Engines with streams."""
        counts = Counter(self._on[self._on >= 0].tolist())
        return sorted(counts)

    def _idle(self, live: list[int]) -> int | None:
        """One without streams, if there may be one."""
        if len(live) < min(len(self._all), self._told):
            return min(set(range(len(self._all))) - set(live))
        return len(self._all) if len(self._all) < self._told else None

    def _decided(self, slot: int, *, late: bool) -> int | None:
        """The engine of a young stream; None while that is not known."""
        live = self._live()
        idle = self._idle(live)
        if not live:
            return idle
        scores = self._moves.scores(slot)
        best, *others = sorted(live, key=lambda each: -scores[each])
        clear = not others or scores[best] - scores[others[0]] >= self._rules.enough
        if clear and (idle is None or scores[best] >= self._rules.enough):
            return best
        if idle is not None and scores[best] <= -self._rules.enough:
            return idle
        return self._likeliest(slot) if late else None

    def _likeliest(self, slot: int) -> int:
        live = self._live()
        idle = self._idle(live)
        scores = self._moves.scores(slot)
        best = max(live, key=lambda each: scores[each], default=None)
        if best is None or (idle is not None and scores[best] < 0):
            return 0 if idle is None else idle
        return best

    def _settle_down(self, slot: int, young: _Young, engine: int, *, over: bool = False) -> None:
        """A young stream is on this engine, and so was its prompt."""
        while engine >= len(self._all):
            timeline = PrefillTimeline(self._tuning, beside=self.timeline)
            self._all.append(_Engine(timeline, Heartbeat(timeline.clear, self._tuning.clock)))
        young.place.sure = self._sure(slot, engine)
        if over:
            young.place.engine = engine
        else:
            self._join(slot, young.place, engine, young.since_ns, seen=young.seen)
        if young.rid is not None:
            for number, each in enumerate(self._all):
                if number == engine:
                    each.timeline.first_token(young.rid, young.since_ns)
                else:
                    each.timeline.elsewhere(young.rid)

    def _sure(self, slot: int, engine: int) -> float:
        """How likely it is that a stream is on this engine, and on none of the others. Alone on one, it only has to be
        on none of the others."""
        live = self._live()
        scores = self._moves.scores(slot)
        odds = {each: math.exp(scores[each]) for each in live if each != engine}
        if np.any(np.delete(self._on, slot) == engine):
            own = math.exp(scores[engine])
            alone = 1.0 if self._idle(live) is not None else 0.0
        else:
            own, alone = 1.0, 0.0
        return own / (own + alone + sum(odds.values()))

    def _move(self) -> None:
        """Streams that move with another engine's, or with none: of one engine to one other at a time, as who goes
        changes what the others are held against."""
        live = self._live()
        idle = self._idle(live)
        wishes: dict[tuple[int, int], list[tuple[float, int]]] = {}
        for slot in np.flatnonzero(self._on >= 0).tolist():
            scores, own = self._moves.scores(slot), int(self._on[slot])
            best = max(live, key=lambda each: (scores[each], -each))
            if scores[best] - scores[own] >= 2 * self._rules.enough and scores[best] >= self._rules.enough:
                wishes.setdefault((own, best), []).append((scores[best] - scores[own], slot))
            elif idle is not None and scores[own] <= -2 * self._rules.enough:
                wishes.setdefault((own, idle), []).append((-scores[own], slot))
        if not wishes:
            return
        (old, new), leaving = max(wishes.items(), key=lambda wish: max(wish[1]))
        if new not in live:
            leaving = [max(leaving)]  # those who are left may be of one engine after all
        for _, slot in leaving:
            place = self._places[slot]
            self._take_out(slot, place)
            self._settle_down(slot, _Young(place, None, self._moves.weighed_ns, seen=False), new)
            self._moves.begin(slot)
        for number in (old, new):
            self._all[number].changed_ns = self._moves.weighed_ns

    # --- Whose delay was on which engine ---

    def sure_of(self, slot: int, place: Place | None, start_ns: int) -> float:
        """How sure it is that a stream is on its engine, and that this engine's steps since a moment are its own."""
        if not self.several:
            return 1.0
        if place is None or place.engine == NOWHERE:
            return 0.0
        if self._all[place.engine].changed_ns >= start_ns:
            return 0.0
        return self._sure(slot, place.engine) if self._places.get(slot) is place else place.sure

    def is_placed(self, slot: int, place: Place | None, start_ns: int) -> bool:
        """Whether that is sure enough to judge what a stream waited for since a moment by one engine alone."""
        return self.sure_of(slot, place, start_ns) >= self._rules.named_from

    @property
    def decoding(self) -> int:
        """Streams between their first token and their end."""
        return sum(each.heartbeat.decoding for each in self._all) + len(self._young)

    @property
    def clear_step_ns(self) -> int:
        """Of the slowest engine."""
        return max(each.heartbeat.clear_step_ns for each in self._all)

    @property
    def pace_ns(self) -> int:
        """What a token of one stream takes as far as steps tell: of the slowest engine."""
        return max(each.heartbeat.pace_ns for each in self._all)

    @property
    def closed_ns(self) -> int:
        """Every read up to this moment belongs to a step that is closed."""
        return min(each.heartbeat.closed_ns for each in self._all)

    @property
    def settled_ns(self) -> int:
        """Everything that ended before this moment is final, on each engine."""
        return min(each.timeline.settled_ns for each in self._all)

    def timeline_of(self, place: Place | None) -> PrefillTimeline:
        """Of the engine of a stream; the first while that is not known."""
        return self._all[max(place.engine, 0) if place is not None else 0].timeline

    def place_of(self, slot: int) -> Place | None:
        return self._places.get(slot)

    # --- Prompts: see `PrefillTimeline` ---

    @property
    def _timelines(self) -> Iterable[PrefillTimeline]:
        return (each.timeline for each in self._all)

    def sent(self, rid: Hashable, time_ns: int, tokens: int, uncached: int, *, streamed: bool) -> None:
        for each in self._timelines:
            each.sent(rid, time_ns, tokens, uncached, streamed)

    def sent_several(self, rid: int, time_ns: int, prompts: int, tokens: int, uncached: int) -> None:
        for each in self._timelines:
            each.sent_several(rid, time_ns, prompts, tokens, uncached)

    def sized(self, rid: Hashable, tokens: int, uncached: int, *, sure: bool) -> None:
        for each in self._timelines:
            each.sized(rid, tokens, uncached, sure=sure)

    def sized_several(self, rid: int, prompts: int, tokens: int, uncached: int, *, sure: bool) -> None:
        for each in self._timelines:
            each.sized_several(rid, prompts, tokens, uncached, sure=sure)

    def decodes_unseen(self, rid: Hashable, time_ns: int) -> None:
        """The first token of a prompt was made, and not shown."""
        self.timeline.shows(rid)
        self.timeline.first_token(rid, time_ns)

    def streams(self, rid: Hashable) -> None:
        for each in self._timelines:
            each.streams(rid)

    def gone(self, rid: Hashable, time_ns: int, *, reads_on: bool = False) -> None:
        for each in self._timelines:
            each.gone(rid, time_ns, reads_on=reads_on)

    def nobody_reads_on(self, time_ns: int) -> None:
        for each in self._timelines:
            each.nobody_reads_on(time_ns)

    def records_lost(self, now_ns: int) -> None:
        for each in self._timelines:
            each.hole(now_ns)

    def engine_prefill(self, rid: Hashable, prefill_ns: int) -> None:
        for each in self._timelines:
            each.engine_prefill(rid, prefill_ns)

    def settle(self, now_ns: int) -> None:
        """First tokens whose engine is not known yet hold all of them."""
        waits = (each.since_ns for each in self._young.values() if each.rid is not None)
        until_ns = min(waits, default=now_ns)
        for each in self._timelines:
            each.settle(min(now_ns, until_ns))

    def drain_final(self) -> Iterator[tuple[int, list[StepFacts]]]:
        """Steps that became final since the last call, by engine."""
        for number, each in enumerate(self._all):
            yield number, each.timeline.drain_final()

    def drain_splits(self) -> Iterator[tuple[Hashable, int, int]]:
        for each in self._timelines:
            for split in each.drain_splits():
                yield split.rid, split.queue_ns, split.prefill_ns

    def in_service_now(self) -> list[tuple[Hashable, int]]:
        """Requests whose prompts are probably being read now, on any engine."""
        return [each for timeline in self._timelines for each in timeline.in_service_now()]

    def in_service(self, slots: IntArray, starts_ns: IntArray, ends_ns: IntArray) -> Overlap:
        """The largest prompt in service on its engine during each gap of these streams."""
        if not self.several:
            return self.timeline.in_service(starts_ns, ends_ns)
        on = self._on[slots]
        tokens, provisional = np.zeros(len(slots), np.int64), np.zeros(len(slots), np.bool_)
        for number, each in enumerate(self._timelines):
            own: BoolArray = (on == number) | (on < 0)  # of whom it is not known: any
            if own.any():
                found = each.in_service(starts_ns[own], ends_ns[own])
                tokens[own] = np.maximum(tokens[own], found.tokens)
                provisional[own] |= found.provisional
        return Overlap(tokens, provisional)
