"""The ledger: from the reads of all streams to facts. It holds the order of the stages; each stage keeps its own books.
The map of the stages is in the package's docstring.

Reads of tokens are collected and worked through several times a second (`advance`), all streams and relays together and
in order of time, since what froze which stream shows only in the whole picture. Facts go out to a `Sink`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from prefillwatch.analysis.arrays import by_value
from prefillwatch.analysis.cost import Costs
from prefillwatch.analysis.deadlines import Promises
from prefillwatch.analysis.engines import Engines
from prefillwatch.analysis.facts import Sink
from prefillwatch.analysis.figures import Figures
from prefillwatch.analysis.model_books import Models
from prefillwatch.analysis.populations import GapPopulations
from prefillwatch.analysis.pressure import Pressures
from prefillwatch.analysis.requests import CLIENT_CLOSED, LOST, PromptBuckets, PromptSizing, Request
from prefillwatch.analysis.settings import AnalysisSettings
from prefillwatch.analysis.steps import Step
from prefillwatch.analysis.tenants import Senders
from prefillwatch.analysis.tokens import Flow, GapBook, Gaps, ReadLog
from prefillwatch.analysis.tuning import DEFAULT, Tuning
from prefillwatch.analysis.verdicts import EnginePage, Silence, StallTracker, StallWatch
from prefillwatch.units import NS


class Ledger:
    """Books of all requests in flight, and windows per model. `now_ns` never falls."""

    def __init__(self, settings: AnalysisSettings, sink: Sink, tuning: Tuning = DEFAULT) -> None:
        self.settings = settings
        #: A read with a text of so many characters may hold tokens that were held back: `returned` is to know of it.
        self.long_text = tuning.gaps.long_text
        self.buckets = PromptBuckets(settings.prompt_buckets)
        self.sizing = PromptSizing()
        self.requests: dict[int, Request] = {}
        self.models = Models(settings.windows, len(self.buckets))
        self.book = GapBook(tuning.baselines)
        #: What the stories of incidents are made from.
        self.reads = ReadLog()
        self._flow = Flow(tuning.flow)
        self.engines = Engines(tuning)
        #: Of the first engine; what it has learned is of all.
        self.timeline = self.engines.timeline
        self.costs = Costs(
            self.timeline.clear,
            lambda: self.timeline.engine.cost,
            self.timeline.law_apart,
            self.buckets.edges[0],
            tuning,
        )
        watch = StallWatch(settings.stall, self.book, tuning.verdicts, tuning.gaps)
        self.causes = StallTracker(watch, self.engines, self.buckets, sink, settings.wait, self.costs, tuning)
        self.shortest_stall_ns = watch.shortest_ns
        #: To be called before a read after that long, or with a long text, is noted.
        self.returned = watch.returned
        #: Sees each batch of reads (slots, times, events) while one is looked at; it must not keep the lists.
        self.onlooker: Callable[[list[int], list[int], list[int]], None] | None = None
        self._figures = Figures(self.models, self.costs, self.buckets, sink, tuning.gaps)
        self._populations = GapPopulations(
            self.engines,
            self.book,
            self.buckets,
            self._figures,
            self.causes.lagged_at,
            watch.owner,
            watch.shortest_ns,
            tuning,
        )
        self.pressures = Pressures(settings.slo, self.costs, self.engines, sink, tuning)
        self._promises = Promises(settings.slo, self.book, sink)
        #: Books by tenant and priority; None: nobody asked for them.
        self.senders: Senders | None = None
        if settings.max_tenants or settings.priorities:
            self.senders = Senders(settings.windows, settings.max_tenants, priorities=settings.priorities)
            self.causes.heard = self.senders.stall
        self._reads: tuple[list[int], list[int], list[int]] = ([], [], [])
        slots, times, counts = self._reads
        #: For a read of a slot that is known: calling all three, with slot, time and events, notes it. The books of the
        #: request are the caller's to keep then.
        self.add_read = (slots.append, times.append, counts.append)
        self._add_reads = (slots.extend, times.extend, counts.extend)
        self._reads_on = False  # upstream reads a prompt to its end although its client left
        self._ended: list[tuple[Request, int, str]] = []
        self._over: list[tuple[Request, int, int]] = []

    def forget_model(self, model: int) -> None:
        """The number goes to another model: nothing of the old one stays."""
        self._figures.forget_model(model)
        self.pressures.forget_model(model)
        self.book.forget_model(model)
        self.causes.forget_model(model)
        self.sizing.forget_model(model)

    # --- What the wire shows ---

    def received(self, request: Request) -> None:
        """A request is complete. Its prompt gets a size: its own count, or an estimate from its text."""
        self.requests[request.rid] = request
        self.sizing.estimate(request)
        if self.senders is not None:
            self.senders.received(request)

    def read_again(self, request: Request) -> None:
        """More is known of the prompt of a request that was received."""
        self.sizing.estimate(request)
        self._size(request, sure=False)

    def streams(self, request: Request) -> None:
        """The answer is a stream, whatever was read in the request."""
        if not request.streaming:
            request.streaming = True
            if request.shows_first:
                self.engines.streams(request.rid)

    def sent(self, request: Request, time_ns: int) -> None:
        again = bool(request.sent_ns)
        request.sent_ns = time_ns
        if request.generating and not again:
            tokens, uncached = request.prompt_tokens, request.uncached_tokens
            if request.prompts > 1 and request.streaming:
                self.engines.sent_several(request.rid, time_ns, request.prompts, tokens, uncached)
            else:
                self.engines.sent(request.rid, time_ns, tokens, uncached, streamed=request.shows_first)
            self.causes.sent(request)
            self.pressures.sent(request, time_ns)
        elif request.works and not again:
            self.timeline.unread.begin(request.rid, time_ns)
        elif request.control and not again:
            self.causes.control_sent(request, time_ns)

    def sized(self, request: Request, prompt_tokens: int, cached_tokens: int | None) -> None:
        """Usage reported the size of the prompt."""
        if self.sizing.reported(request, prompt_tokens, cached_tokens):
            self._size(request)
            if request.first_ns:
                self._figures.prompt(request, request.last_ns)

    def _size(self, request: Request, *, sure: bool = True) -> None:
        tokens, uncached = request.prompt_tokens, request.uncached_tokens
        if request.prompts > 1 and request.streaming:
            self.engines.sized_several(request.rid, request.prompts, tokens, uncached, sure=sure)
        else:
            self.engines.sized(request.rid, tokens, uncached, sure=sure)

    def token(self, request: Request, choice: int, time_ns: int, events: int, chars: int = 0, tokens: int = 0) -> None:
        """A read completed so many token events of this choice; ``chars`` long is their text, and they carried so many
        tokens, where that is known."""
        slot = request.slots.get(choice)
        if slot is None:
            slot = self._open(request, choice, time_ns)
        elif choice in request.over:
            self._goes_on(request, choice, time_ns)
        elif time_ns - request.last_ns >= self.shortest_stall_ns or chars >= self.long_text:
            self.returned(request, slot, time_ns, events, chars, tokens)
        slots, times, counts = self._reads
        slots.append(slot)
        times.append(time_ns)
        counts.append(events)
        request.events += events
        request.chars += chars
        request.last_ns = time_ns

    def single_tokens(self, slots: list[int], times_ns: Sequence[int]) -> None:
        """Reads of slots that are known, each with one token event. As with `add_read`, the books are the caller's."""
        add_slots, add_times, add_counts = self._add_reads
        add_slots(slots)
        add_times(times_ns)
        add_counts([1] * len(slots))

    def decodes_unseen(self, request: Request, time_ns: int) -> None:
        """Usage counts tokens, and none was shown: its prompt has been read."""
        if request.sent_ns and not request.served_ns and not self.engines.several:
            request.begun_ns = time_ns
            self.engines.decodes_unseen(request.rid, time_ns)
            self.causes.first_token(request, time_ns)
            self.pressures.first_token(request, time_ns)

    def tokens_in_read(self, request: Request, tokens: int, events: int) -> None:
        """Usage in the stream reported how many tokens the events of a read carried."""
        request.reported_tokens += tokens
        request.reported_events += events
        self._figures.tokens_per_event(request.model, tokens / events, events)

    def choice_over(self, request: Request, choice: int, time_ns: int) -> None:
        """A choice said that it is done: what follows is no silence of it. Its books follow with the next `advance`,
        behind the reads that came before."""
        if choice in request.slots and choice not in request.over:
            request.over.add(choice)
            self._over.append((request, choice, time_ns))
            self.engines.leaves(request.slots[choice])

    def hole(self, request: Request) -> None:
        """Bytes of this request were lost: no gap is measured across."""
        self._work_through_reads()
        request.blocked_since_ns = 0  # its end may be among what was lost, and the next read shows that it is over
        request.doubtful = not request.first_ns
        for slot in request.slots.values():
            self.book.hole(slot)
            self.causes.interrupted(slot)

    def begun_unseen(self, request: Request, time_ns: int) -> None:
        """Bytes of a streamed answer passed unseen, its first token probably among them: it decodes. Nothing
        is measured from that moment, and no token is counted."""
        request.doubtful = False
        if request.first_ns or not request.sent_ns:
            return
        request.received_ns = 0  # no TTFT
        slot = self._open(request, 0, time_ns, seen=False)
        self.book.hole(slot)

    def last_read(self, request: Request, read_ns: int) -> None:
        """After a loss: when the relay last read bytes of the streamed answer; 0: never yet."""
        if request.doubtful and read_ns:
            self.begun_unseen(request, read_ns)
        request.doubtful = False
        if read_ns and request.slots:
            self._work_through_reads()
            for slot in request.slots.values():
                self.book.silent_since(slot, read_ns)

    def hole_in_all(self, now_ns: int) -> None:
        """A packet of a tap was lost: reads of any stream of its relay may be missing from the engine's steps."""
        self._work_through_reads()
        self.engines.hole()
        self.engines.records_lost(now_ns)
        self.causes.hole(now_ns)

    def page(self, page: EnginePage) -> None:
        """Upstream's metrics were read."""
        given = [each for each in self.requests.values() if 0 < each.sent_ns < page.at_ns - NS and each.generating]
        awaiting = sum(1 for each in given if each.in_prefill)
        ours = sum(each.sequences for each in self.requests.values() if each.sent_ns and each.generating)
        self.engines.told(page.engines, page.at_ns)
        self.causes.page(replace(page, in_flight=len(given), awaiting=awaiting, ours_at_most=ours))
        self._reads_on = page.reads_on
        decoding = sum(request.decoding for request in self.requests.values())
        if page.running is not None and page.running + (page.waiting or 0) <= decoding:
            self.engines.nobody_reads_on(page.at_ns)

    def cache_reported(self, block_size: int | None, *, in_use: bool | None) -> None:
        """What upstream's metrics say of its prefix cache; None: nothing."""
        self.sizing.cache_reported(block_size, in_use=in_use)

    def lagged(self, start_ns: int, end_ns: int) -> None:
        """Somewhere between these moments a relay did not run for so long, and reads are late by as much."""
        self.causes.lagged(start_ns, end_ns)

    def ended(self, request: Request, time_ns: int, outcome: str) -> None:
        """The exchange is over; its books close with the next `advance`, behind the reads that came before. With the
        outcome `LOST` its end is not known: it counts as no request, and no promise is judged by it."""
        request.prefix = ()
        for choice, slot in request.slots.items():
            if choice not in request.over:
                self.engines.leaves(slot)
        self._ended.append((request, time_ns, outcome))

    def _open(self, request: Request, choice: int, time_ns: int, *, seen: bool = True) -> int:
        """Books for a choice whose first token came."""
        slot = request.slots[choice] = self.book.open(request.model)
        self._flow.begin(slot, time_ns, time_ns - request.sent_ns if request.sent_ns and seen else 0)
        self._promises.begin(slot)
        self.causes.watch.begin(slot, request, time_ns)
        first = not request.first_ns
        place = self.engines.joined(slot, time_ns, request.rid if first else None, seen=seen)
        request.place = request.place or place
        self._figures.decoding(request.model, 1, time_ns)
        if self.senders is not None:
            self.senders.stream(slot, request)
        if request.prompts > 1 and len(request.slots) == request.sequences:
            self.engines.gone(-request.rid, time_ns)  # all of its prompts have been read
        if first:
            request.first_ns = time_ns
            request.doubtful = False
            self.causes.first_token(request, time_ns)
            if seen and not request.begun_ns:
                self.pressures.first_token(request, time_ns)
            elif not seen:
                self.pressures.gone(request)
            self.sizing.worked_on(request)
            self._figures.first_token(request, time_ns, sure=self.sizing.is_sure(request))
            if self.senders is not None:
                self.senders.first_token(request, time_ns)
        return slot

    # --- Working through ---

    def advance(self, now_ns: int) -> None:
        """Work through everything reported so far. Call every 50 to 200 ms."""
        self._work_through_reads()
        self._steps(self.engines.flush(now_ns))
        self.engines.place(now_ns)
        self._end_choices()
        self.engines.settle(now_ns)
        self._populations.advance(now_ns)
        for engine, facts in self.engines.drain_final():
            self.causes.facts(engine, facts)
            self._figures.steps(facts)
            self.pressures.steps(self._figures.busiest, facts)
        for rid, queue_ns, prefill_ns in self.engines.drain_splits():
            request = self.causes.request(cast("int", rid))
            if request is not None:
                self._figures.split(request, queue_ns, prefill_ns)
                self.pressures.split(request, queue_ns, prefill_ns)
        self._end_requests()
        self.pressures.advance(now_ns)
        self.causes.advance(now_ns)
        self._figures.advance(now_ns)
        if self.senders is not None:
            self.senders.advance(now_ns, self.requests.values())

    def _work_through_reads(self) -> None:
        slots, times, counts = self._reads
        if not slots:
            return
        if self.onlooker is not None:
            self.onlooker(slots, times, counts)
        batch = self.book.tokens(slots, times, counts)
        for column in self._reads:
            column.clear()
        order = np.argsort(batch.end_ns, kind="stable")
        self._steps(self.engines.feed(batch.slot[order], batch.end_ns[order]))
        self._figures.tokens(self.book.generated(batch), batch.coalesced)
        for model, own in by_value(batch.read_model):
            self._figures.token_times(model, batch.read_ns[own], batch.read_events[own])
        teaches = self._flow.teaches(batch.slot, batch.start_ns, batch.end_ns)
        gaps = Gaps(batch.slot, batch.model, batch.start_ns, batch.end_ns, batch.events, teaches)
        self.reads.add(batch.slot, batch.end_ns)
        self.causes.gaps(gaps)
        self._populations.add(gaps)
        if self.senders is not None:
            self.senders.gaps(gaps)
        for model, own in by_value(gaps.model):
            its = gaps.pick(own)
            self._figures.gaps_ended(model, its)
            self._promises.gaps(model, its)

    def _steps(self, found: Iterable[tuple[int, list[Step]]]) -> None:
        for engine, steps in found:
            self.engines.steps(engine, steps)
            self.causes.steps(engine, steps)

    def silences(self, now_ns: int) -> list[Silence]:
        """What is silent now, and which of it is frozen: the one answer for metrics, API, page and alerts."""
        return self.causes.watch.silences(now_ns, self.engines.pace_ns)

    def _end_requests(self) -> None:
        ended, self._ended = self._ended, []
        for request, time_ns, outcome in ended:
            if request.prompts > 1:
                self.engines.gone(-request.rid, time_ns)
            if not request.first_ns:
                self.pressures.gone(request)
                self.engines.gone(request.rid, time_ns, reads_on=self._reads_on and outcome == CLIENT_CLOSED)
            self.timeline.unread.end(request.rid, time_ns)
            if request.control:
                self.causes.control_over(request, time_ns, outcome)
            self.causes.left(request, time_ns, outcome)
            if outcome != LOST:
                self._promises.ended(request, time_ns, outcome)
            self._figures.ended(request, time_ns, outcome)
            if self.senders is not None:
                self.senders.ended(request, time_ns, outcome)
            for choice, slot in request.slots.items():
                self.book.close(slot)
                if choice not in request.over:
                    self.engines.left(slot)
            self._figures.decoding(request.model, -request.decoding, time_ns)
            self.requests.pop(request.rid, None)

    def _end_choices(self) -> None:
        over, self._over = self._over, []
        for request, choice, time_ns in over:
            if choice in request.over and request.rid in self.requests:  # it may have gone on, or be over already
                slot = request.slots[choice]
                self.book.finish(slot)
                self.engines.left(slot)
                self.causes.interrupted(slot)
                self._figures.decoding(request.model, -1, time_ns)

    def _goes_on(self, request: Request, choice: int, time_ns: int) -> None:
        """It said that it was done, and was not."""
        request.over.discard(choice)
        waiting = [over for over in self._over if over[:2] != (request, choice)]
        if len(waiting) < len(self._over):
            self._over = waiting
            self.engines.stays(request.slots[choice])
            return
        slot = request.slots[choice]
        self.book.finish(slot, done=False)
        self.engines.joined(slot, time_ns)
        self._figures.decoding(request.model, 1, time_ns)
