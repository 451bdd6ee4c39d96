"""The ledger: brings what the wire told of all requests together and writes facts to a sink.

Reads of tokens are collected and worked through a few dozen times a second (`advance`), all streams and relays
together and in order of time, since what froze whom shows only in the whole picture. Per batch:

    reads -> token books -> gaps -> heartbeat (engine steps) -> prefill timeline -> population and bucket of each gap

Pure: times come in as monotonic nanoseconds, facts go out to a `Sink`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, cast

import numpy as np

from prefillwatch.analysis.arrays import BoolArray, IntArray
from prefillwatch.analysis.cost import Costs, StepSample
from prefillwatch.analysis.deadlines import Promises
from prefillwatch.analysis.facts import Sink
from prefillwatch.analysis.model_books import ModelBooks
from prefillwatch.analysis.requests import LOST, NONE, PrefixMemory, PromptBuckets, Request, TokenRatio
from prefillwatch.analysis.settings import AnalysisSettings
from prefillwatch.analysis.steps import Heartbeat, PrefillTimeline, Step
from prefillwatch.analysis.tokens import GapBatch, GapBook, Gaps, PendingGaps
from prefillwatch.analysis.tuning import DEFAULT, Tuning
from prefillwatch.analysis.verdicts import EnginePage, Return, Silence, StallTracker, StallWatch
from prefillwatch.units import NS
from prefillwatch.wire.fingerprint import BLOCK_CHARS, BLOCK_TOKENS

#: A gap whose steps are not final so long after its end is judged by what is known: its step has closed by then, and
#: first tokens that trail it have come.
_PATIENCE_NS: Final = NS // 4
#: A read so near to the end of a time in which a relay did not run is late by its fault.
_LATE_NS: Final = NS // 50
#: Tokens per block of the KV cache until upstream tells; what is cached is cached in whole blocks.
_BLOCK_SIZE: Final = 16
#: A first token waits so long for the exact size of its prompt, while nothing is learned about this model's texts.
_SIZE_PATIENCE_NS: Final = 10 * NS
#: From so many token events on it is known how long the text of one usually is.
_ENOUGH_EVENTS: Final = 5
#: A text of so many characters is more than one token, so it may tell of tokens that were held back.
LONG_TEXT: Final = 48
#: Gaps that wait for a final verdict; beyond this the oldest get the provisional one.
_MOST_PENDING: Final = 1 << 18


class Ledger:
    """Books of all requests in flight, and windows per model. `now_ns` never falls."""

    def __init__(self, settings: AnalysisSettings, sink: Sink, tuning: Tuning = DEFAULT) -> None:
        self.settings = settings
        self.buckets = PromptBuckets(settings.prompt_buckets)
        self.ratio = TokenRatio()
        self.prefixes = PrefixMemory()
        self._block_size = _BLOCK_SIZE
        self._prefix_caching = True
        self.requests: dict[int, Request] = {}
        self.models: dict[int, ModelBooks] = {}
        self.book = GapBook()
        self.timeline = PrefillTimeline(tuning)
        self.heartbeat = Heartbeat(self.timeline.clear, tuning.clock)
        self.costs = Costs(self.timeline.clear, lambda: self.timeline.engine.cost, self.buckets.edges[0], tuning)
        watch = StallWatch(settings.stall, self.book)
        self.causes = StallTracker(
            watch, self.heartbeat, self.timeline, self.buckets, sink, settings.wait, self.costs, tuning
        )
        self.shortest_stall_ns = watch.shortest_ns
        #: Sees each batch of reads (slots, times, events) while somebody watches; it must not keep the lists.
        self.onlooker: Callable[[list[int], list[int], list[int]], None] | None = None
        self._sink = sink
        self._promises = Promises(settings.slo, self.book, sink)
        self._reads: tuple[list[int], list[int], list[int]] = ([], [], [])
        slots, times, counts = self._reads
        #: For a read of a slot that is known: calling all three, with slot, time and events, notes it. The books of the
        #: request are the caller's to keep then.
        self.add_read = (slots.append, times.append, counts.append)
        self._add_reads = (slots.extend, times.extend, counts.extend)
        self._ended: list[tuple[Request, int, str]] = []
        self._over: list[tuple[Request, int]] = []
        self._untold: dict[int, Request] = {}  # had a first token, but the size of the prompt is not sure yet
        self._decoding: dict[int, int] = {}
        self._overcounted: dict[int, int] = {}
        self._unjudged = PendingGaps(_MOST_PENDING)
        self._unsettled = PendingGaps(_MOST_PENDING)

    def books(self, model: int) -> ModelBooks:
        books = self.models.get(model)
        if books is None:
            books = self.models[model] = ModelBooks(self.settings.windows, len(self.buckets))
        return books

    def forget_model(self, model: int) -> None:
        """The number goes to another model: nothing of the old one stays."""
        self.models.pop(model, None)
        self.book.forget_model(model)
        self.costs.forget_model(model)
        self.ratio.forget(model)
        self.prefixes.forget(model)
        self._overcounted.pop(model, None)

    # --- What the wire tells ---

    def received(self, request: Request) -> None:
        """A request is complete. Its prompt gets a size: its own count, or an estimate from its text."""
        self.requests[request.rid] = request
        self._size(request)

    def read_again(self, request: Request) -> None:
        """More is known of the prompt of a request that was received."""
        self._size(request)
        self.timeline.sized(request.rid, request.prompt_tokens, request.uncached_tokens, sure=False)

    def streams(self, request: Request) -> None:
        """The answer is a stream, whatever was read in the request."""
        if not request.streaming:
            request.streaming = True
            self.timeline.streams(request.rid)

    def _size(self, request: Request) -> None:
        if not request.prompt_exact:
            request.prompt_tokens = self.ratio.estimate(request.model, request.prompt_chars)
        request.likely_cached = self._likely_cached(request)

    def _likely_cached(self, request: Request) -> int:
        """Tokens of the prompt that an earlier one began with, in whole blocks of the KV cache."""
        shared = self.prefixes.shared(request.model, request.prefix) if self._prefix_caching else 0
        if not shared:
            return 0
        if request.prompt_chars:
            tokens = shared * BLOCK_CHARS * request.prompt_tokens // request.prompt_chars
        else:
            tokens = shared * BLOCK_TOKENS
        # The last token is worked on anyway: the first new one is made from it.
        return min(tokens, request.prompt_tokens - 1) // self._block_size * self._block_size

    def sent(self, request: Request, time_ns: int) -> None:
        again = bool(request.sent_ns)
        request.sent_ns = time_ns
        if request.generating and not again:
            self.timeline.sent(
                request.rid, time_ns, request.prompt_tokens, request.uncached_tokens, streamed=request.streaming
            )
            self.causes.evidence.requests.sent(request)

    def sized(self, request: Request, prompt_tokens: int, cached_tokens: int | None) -> None:
        """Usage told the size of the prompt."""
        cached = cached_tokens or 0
        if cached_tokens is not None:
            self.prefixes.reported(request.model, request.likely_cached, cached)
            request.likely_cached = 0
        if request.prompt_exact and prompt_tokens == request.prompt_tokens and cached == request.cached_tokens:
            return
        if request.text_only and not request.prompt_exact:
            self.ratio.learn(request.model, request.prompt_chars, prompt_tokens)
        request.prompt_tokens, request.cached_tokens, request.prompt_exact = prompt_tokens, cached, True
        self.timeline.sized(request.rid, prompt_tokens, request.uncached_tokens)
        if request.first_ns:
            self._tell_prompt(request, request.last_ns)

    def token(self, request: Request, choice: int, time_ns: int, events: int, chars: int = 0, tokens: int = 0) -> None:
        """A read completed so many token events of this choice; ``chars`` long is their text, and they carried so many
        tokens, where that is known."""
        slot = request.slots.get(choice)
        if slot is None:
            slot = self._open(request, choice, time_ns)
        elif choice in request.over:
            self._goes_on(request, choice, time_ns)
        elif time_ns - request.last_ns >= self.shortest_stall_ns or chars >= LONG_TEXT:
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

    def returned(self, request: Request, slot: int, time_ns: int, events: int, chars: int, tokens: int = 0) -> None:
        """Before a read after a long silence, or one with a long text, is noted: what more is known of it."""
        usual = request.reported_tokens / request.reported_events if tokens and request.reported_events else 1.0
        self.causes.watch.returned(
            slot,
            time_ns,
            Return(
                tokens=max(tokens / usual, events) if tokens else events,
                chars=chars,
                usual_chars=request.chars / request.events if request.events >= _ENOUGH_EVENTS else 0.0,
                first_burst=request.events if request.last_ns == request.first_ns else 0,
            ),
        )

    def tokens_in_read(self, request: Request, tokens: int, events: int) -> None:
        """Usage in the stream told how many tokens the events of a read carried."""
        request.reported_tokens += tokens
        request.reported_events += events
        self._sink.tokens_per_event(request.model, tokens / events, events)

    def choice_over(self, request: Request, choice: int) -> None:
        """A choice said that it is done: what follows is no silence of it. Its books follow with the next `advance`,
        behind the reads that came before."""
        if choice in request.slots and choice not in request.over:
            request.over.add(choice)
            self._over.append((request, choice))

    def hole(self, request: Request) -> None:
        """Bytes of this request were lost: no gap is measured across."""
        self._work_through_reads()
        request.blocked_since_ns = 0  # its end may be among what was lost, and the next read shows that it is over
        request.doubtful = not request.first_ns
        for slot in request.slots.values():
            self.book.hole(slot)
            self.causes.interrupted(slot)

    def begun_unseen(self, request: Request, time_ns: int) -> None:
        """Bytes of a streamed answer passed unseen, its first token among them as far as anybody can tell: it decodes.
        Nothing is measured from that moment, and no token is counted."""
        request.doubtful = False
        if request.first_ns or not request.sent_ns:
            return
        request.received_ns = 0  # no TTFT
        slot = self._open(request, 0, time_ns, seen=False)
        self.book.hole(slot)

    def told_read(self, request: Request, read_ns: int) -> None:
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
        self.heartbeat.hole()
        self.timeline.hole(now_ns)
        self.causes.evidence.holes.add(now_ns, now_ns, 1.0)

    def page(self, page: EnginePage) -> None:
        """Upstream's metrics were read."""
        given = [each for each in self.requests.values() if 0 < each.sent_ns < page.at_ns - NS and each.generating]
        awaiting = sum(1 for each in given if each.in_prefill)
        self.causes.evidence.pages.add(replace(page, in_flight=len(given), awaiting=awaiting))

    def told_cache(self, block_size: int | None, *, in_use: bool | None) -> None:
        """What upstream's metrics say of its prefix cache; None: nothing."""
        self._block_size = block_size or self._block_size
        self._prefix_caching = in_use is not False

    def lagged(self, start_ns: int, end_ns: int) -> None:
        """Somewhere between these moments a relay did not run for so long, and reads are late by as much."""
        self.causes.evidence.own_lag.add(start_ns, end_ns, (end_ns - start_ns) / NS)

    def ended(self, request: Request, time_ns: int, outcome: str) -> None:
        """The exchange is over; its books close with the next `advance`, behind the reads that came before. With the
        outcome `LOST` nobody knows how it ended: it counts as no request, and no promise is judged by it."""
        request.prefix = ()
        self._ended.append((request, time_ns, outcome))

    def _open(self, request: Request, choice: int, time_ns: int, *, seen: bool = True) -> int:
        """Books for a choice whose first token came."""
        slot = request.slots[choice] = self.book.open(request.model)
        self._promises.begin(slot)
        self.causes.watch.begin(slot, request)
        self.heartbeat.joined(slot, time_ns, seen=seen)
        self._change_decoding(request.model, 1, time_ns)
        if not request.first_ns:
            request.first_ns = time_ns
            self._first_token(request, time_ns)
        return slot

    def _first_token(self, request: Request, time_ns: int) -> None:
        request.doubtful = False
        self.timeline.first_token(request.rid, time_ns)
        self.prefixes.remember(request.model, request.prefix)
        request.prefix = ()  # the request is remembered for long, and this is the largest part of it
        self.causes.first_token(request, time_ns)
        if request.prompt_exact or self.ratio.learned(request.model):
            self._tell_prompt(request, time_ns)
        else:
            self._untold[request.rid] = request

    def _tell_prompt(self, request: Request, now_ns: int) -> None:
        """Once per request, when the size of its prompt is as sure as it will be."""
        self._untold.pop(request.rid, None)
        if request.prompt_counted:
            return
        request.prompt_counted = True
        books, bucket = self.books(request.model), self.buckets.bucket(request.prompt_tokens)
        books.prompts.add(float(request.prompt_tokens), now_ns)
        if request.first_ns and request.received_ns:
            seconds = (request.first_ns - request.received_ns) / NS
            books.first_token(bucket, seconds, now_ns)
            self._sink.first_token(request.model, bucket, seconds)

    def _tell_late_prompts(self, now_ns: int) -> None:
        for request in [late for late in self._untold.values() if now_ns - late.first_ns > _SIZE_PATIENCE_NS]:
            self._tell_prompt(request, now_ns)

    # --- Working through ---

    def advance(self, now_ns: int) -> None:
        """Work through everything told so far. Call every 50 to 200 ms."""
        self._work_through_reads()
        self._note_steps(self.heartbeat.flush(now_ns))
        self._end_choices(now_ns)
        self.timeline.settle(now_ns)
        self._judge(now_ns)
        self._settle()
        self._tell_steps()
        self._tell_splits()
        self._tell_late_prompts(now_ns)
        self._close_ended()
        self.causes.advance(now_ns)
        for books in self.models.values():
            books.advance(now_ns)

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
        self._note_steps(self.heartbeat.feed(batch.slot[order], batch.end_ns[order]))
        self._count_tokens(batch)
        gaps = Gaps(batch.slot, batch.model, batch.start_ns, batch.end_ns, batch.events)
        self.causes.gaps(gaps)
        self._unjudged.add(gaps)
        for model, own in _each(gaps.model):
            its = gaps.pick(own)
            self.books(model).all_gaps.add_many((its.end_ns - its.start_ns) / NS, int(its.end_ns.max()))
            self._promises.gaps(model, its)

    def _note_steps(self, steps: list[Step]) -> None:
        self.timeline.steps(steps)
        self.causes.evidence.steps.add(steps)

    def _count_tokens(self, batch: GapBatch) -> None:
        generated: dict[int, int] = dict(batch.coalesced)
        for slot, _ in batch.firsts:
            model = self.book.model(slot)
            generated[model] = generated.get(model, 0) + 1
        if len(batch.slot):
            per_model = np.bincount(batch.model)
            for model in np.flatnonzero(per_model).tolist():
                generated[model] = generated.get(model, 0) + int(per_model[model])
        for model, events in generated.items():
            self._sink.tokens(model, self._less_overcount(model, events), batch.coalesced.get(model, 0))
            self.books(model).concurrency.tokens(events)

    def _less_overcount(self, model: int, events: int) -> int:
        """Where usage told of fewer tokens than there were events, later events make up for it: counters never fall."""
        over = self._overcounted.get(model, 0)
        if not over:
            return events
        self._overcounted[model] = max(over - events, 0)
        return max(events - over, 0)

    def _judge(self, now_ns: int) -> None:
        """Population of each gap, as soon as it is known or cannot wait."""
        gaps = self._unjudged.due(max(self.timeline.settled_ns, now_ns - _PATIENCE_NS))
        if gaps is None:
            return
        overlap = self.timeline.in_service(gaps.start_ns, gaps.end_ns)
        late = self.causes.evidence.own_lag.touching(gaps.end_ns, _LATE_NS)
        seconds = (gaps.end_ns - gaps.start_ns) / NS
        clear = overlap.tokens == 0
        self._note_clear(gaps if clear.all() else gaps.pick(clear))
        for model, own in _each(gaps.model):
            books = self.books(model)
            self._sink.lagged(model, int(late[own].sum()))
            books.judged(seconds[own], overlap.tokens[own], now_ns)
            books.correlation.add(now_ns // NS, float(seconds[own].max()), int(overlap.tokens[own].max()))
        final = ~overlap.provisional
        if final.all():
            self._tell_gaps(gaps, overlap.tokens)
        else:
            self._unsettled.add(gaps.pick(overlap.provisional))
            self._tell_gaps(gaps.pick(final), overlap.tokens[final])

    def _note_clear(self, gaps: Gaps) -> None:
        seconds = (gaps.end_ns - gaps.start_ns) / NS
        self.book.note_clear(gaps.slot, seconds / gaps.events, gaps.model, gaps.start_ns)

    def _settle(self) -> None:
        """Bucket of each gap that waited until the timeline was final."""
        gaps = self._unsettled.due(self.timeline.settled_ns)
        if gaps is not None:
            self._tell_gaps(gaps, self.timeline.in_service(gaps.start_ns, gaps.end_ns).tokens)

    def _tell_gaps(self, gaps: Gaps, in_service: IntArray) -> None:
        bucket = np.full(len(gaps), NONE)
        if in_service.any():
            bucket = np.where(in_service > 0, self.buckets.bucket_many(in_service), bucket)
        seconds = (gaps.end_ns - gaps.start_ns) / NS
        for model, own in _each(gaps.model):
            for number, same in _each(bucket[own]):
                self._sink.gaps(model, number, seconds[own][same])

    def _tell_steps(self) -> None:
        # Where nobody decodes, a step is made up from first tokens and its length is not measured.
        facts = self.timeline.drain_final()
        self.causes.facts(facts)
        steps = [step for step in facts if step.observed]
        if steps:
            samples = [
                StepSample(step.end_ns, step.end_ns - step.start_ns, step.excess_ns, step.prefill_tokens, step.largest)
                for step in steps
            ]
            model = self._busiest_model()
            self.costs.add(model, samples)
            tokens = np.array([step.tokens for step in samples], np.int64)
            seconds = np.array([step.took_ns for step in samples], np.float64) / NS
            self._sink.steps(model, tokens, seconds)

    def _tell_splits(self) -> None:
        for split in self.timeline.drain_splits():
            request = self.causes.evidence.requests.find(cast("int", split.rid))
            if request is not None:
                bucket = self.buckets.bucket(request.prompt_tokens)
                self._sink.split(request.model, bucket, split.queue_ns / NS, split.prefill_ns / NS)

    def _busiest_model(self) -> int:
        """An engine step serves all models of the server together; it is booked under the one most streams are of."""
        return max(self._decoding, key=self._decoding.__getitem__, default=0)

    # --- The end of a request ---

    def _end_choices(self, now_ns: int) -> None:
        over, self._over = self._over, []
        for request, choice in over:
            if choice in request.over and request.rid in self.requests:  # it may have gone on, or be over already
                slot = request.slots[choice]
                self.book.finish(slot)
                self.heartbeat.left(slot)
                self.causes.interrupted(slot)
                self._change_decoding(request.model, -1, now_ns)

    def _goes_on(self, request: Request, choice: int, time_ns: int) -> None:
        """It said that it was done, and was not."""
        request.over.discard(choice)
        if (request, choice) in self._over:
            self._over.remove((request, choice))
            return
        slot = request.slots[choice]
        self.book.finish(slot, done=False)
        self.heartbeat.joined(slot, time_ns)
        self._change_decoding(request.model, 1, time_ns)

    def silences(self, now_ns: int) -> list[Silence]:
        """What is silent now, and which of it is frozen: the one answer for metrics, API, page and alerts."""
        return self.causes.watch.silences(now_ns, self.heartbeat.clear_step_ns)

    def _close_ended(self) -> None:
        ended, self._ended = self._ended, []
        for request, time_ns, outcome in ended:
            self._close(request, time_ns, outcome)

    def _close(self, request: Request, time_ns: int, outcome: str) -> None:
        if not request.first_ns:
            self.timeline.gone(request.rid, time_ns)
        self.causes.left(request, time_ns, outcome)
        if request.generating and request.sent_ns:
            self._tell_prompt(request, time_ns)
            self._sink.prompt(request.model, request.prompt_tokens, request.cached_tokens)
        self._correct_tokens(request)
        if outcome != LOST:
            self._keep_promises(request, time_ns, outcome)
            self.books(request.model).concurrency.finished()
            self._sink.finished(request.model, request.endpoint, outcome)
        for choice, slot in request.slots.items():
            self.book.close(slot)
            if choice not in request.over:
                self.heartbeat.left(slot)
        self._change_decoding(request.model, -request.decoding, time_ns)
        self.requests.pop(request.rid, None)

    def _keep_promises(self, request: Request, time_ns: int, outcome: str) -> None:
        """Whether it got what users were promised."""
        if not request.first_ns:
            if outcome == "ok" and not request.streaming:
                self._promises.whole(request, time_ns)
        elif outcome == "ok":
            self._promises.finished(request)
        elif outcome == "client_closed":
            self._promises.left(request, time_ns)
        else:
            self._promises.broken(request, time_ns)

    def _correct_tokens(self, request: Request) -> None:
        """Usage is the truth about generated tokens; until it came, one per token event was counted."""
        if request.generated is None:
            return
        missing = request.generated - request.events
        if missing > 0:
            self._sink.tokens(request.model, missing, 0)
        elif missing < 0:
            self._overcounted[request.model] = self._overcounted.get(request.model, 0) - missing
        if request.events and not request.events_reported:
            self._sink.tokens_per_event(request.model, request.generated / request.events, request.events)

    def _change_decoding(self, model: int, by: int, time_ns: int) -> None:
        self._decoding[model] = self._decoding.get(model, 0) + by
        self.books(model).concurrency.change(time_ns, self._decoding[model])


def _each(values: IntArray) -> Iterator[tuple[int, slice | BoolArray]]:
    """Each value there is, and which entries have it. Most often all have the same."""
    if not len(values):
        return
    if (values == values[0]).all():
        yield int(values[0]), slice(None)
        return
    for value in np.unique(values).tolist():
        yield value, values == value
