"""One request in the books: what is known of it from the wire, from its last byte received to its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from prefillwatch.wire.trace_context import TraceParent

_SPANS_KEPT: Final = 32
#: In place of an engine's number.
NOWHERE: Final = -1


@dataclass(slots=True, eq=False)
class Place:
    """Which engine of those behind one door a stream is on, once that is known, and how sure that was at its end."""

    engine: int = NOWHERE
    sure: float = 1.0


@dataclass(slots=True, eq=False)
class Request:
    """Times are monotonic nanoseconds; 0 means not yet. Token counts of the prompt are of all its prompts together."""

    rid: int
    endpoint: str
    received_ns: int  # last byte of the request; TTFT starts here
    model: int
    generating: bool = True  # an endpoint that makes tokens; others are only counted
    works: bool = False  # an endpoint on which the engine works, and of which nothing is read
    control: str = ""  # it stops the engine, or lets it go on: which such request it is
    request_id: str = ""
    trace: TraceParent | None = None  # that it belongs to, by its sender
    streaming: bool = True  # a JSON answer shows no first token
    sequences: int = 1  # of tokens that it asked for: prompts times choices
    prompts: int = 1
    sent_ns: int = 0
    first_ns: int = 0
    begun_ns: int = 0  # usage counted its first tokens, which were not shown
    hides_thought: bool = False  # its first tokens may not be shown
    over_ns: int = 0  # ended without a first token
    abandoned: bool = False  # its client left before that
    last_ns: int = 0
    prompt_chars: int = 0
    text_only: bool = True  # no images or audio, whose size in tokens is not in the text
    prompt_tokens: int = 0
    prompt_exact: bool = False
    cached_tokens: int = 0
    prefix: tuple[int, ...] = ()  # keyed digests of the prompt's beginnings
    likely_cached: int = 0  # what the server probably had in its cache, by what earlier prompts began with
    ttft_target_ns: int = 0  # the request's own; 0: the configured one
    tpot_target_ns: int = 0
    tenant: str = ""  # a name that may be shown; empty: it does not say, or nobody wants to know
    priority: int = 0  # clipped to five classes
    within_slo: bool = False  # it is over, and kept its promises
    events: int = 0  # token events seen
    generated: int | None = None  # tokens by usage
    runs_unseen: bool = False  # the engine says that it runs it, while no token shows and others are served
    doubtful: bool = False  # records were lost: its first token may have passed, so whether it waits is not known
    prompt_counted: bool = False  # prompt length and TTFT are in the histograms
    events_reported: bool = False  # usage in the stream reported the tokens of each event, and they are counted
    slots: dict[int, int] = field(default_factory=dict)  # choice -> slot in the token books
    place: Place | None = None  # of its first choice
    over: set[int] = field(default_factory=set)  # choices that said that they are done
    blocked_since_ns: int = 0  # our write to the client is blocked from here
    blocked_spans: list[tuple[int, int]] = field(default_factory=list)  # (from, until), the latest of them
    chars: int = 0  # of generated text of choice 0, as far as it was seen
    reported_tokens: int = 0  # tokens that usage reported for single reads
    reported_events: int = 0  # token events in these reads

    @property
    def in_prefill(self) -> bool:
        """Sent upstream and no token event yet: from outside, waiting and reading the prompt look alike."""
        return bool(self.sent_ns) and not self.served_ns

    @property
    def served_ns(self) -> int:
        """When its first token was made, shown or not, as far as is known."""
        return self.begun_ns or self.first_ns

    @property
    def shows_first(self) -> bool:
        """Whether the first token of the engine is one that is seen."""
        return self.streaming and not self.hides_thought

    @property
    def decoding(self) -> int:
        """Choices that have begun and still owe tokens."""
        return len(self.slots) - len(self.over)

    def waited_until(self, time_ns: int) -> bool:
        """Whether it had neither a first token nor an end before this moment."""
        served_ns = self.served_ns or self.over_ns
        return not served_ns or served_ns >= time_ns

    @property
    def uncached_tokens(self) -> int:
        """Prompt tokens that the server has to work on: by usage, else by what earlier prompts began with."""
        return max(self.prompt_tokens - (self.cached_tokens or self.likely_cached), 0)

    @property
    def most_uncached_tokens(self) -> int:
        """As many as that may have been computed: what is only probably cached bounds nothing."""
        return max(self.prompt_tokens - self.cached_tokens, 0)

    @property
    def size_known(self) -> bool:
        """Whether the size of the prompt is more than a lower bound: that of a text is, that of an image is not."""
        return self.prompt_exact or self.text_only

    @property
    def tokens(self) -> int:
        """Generated tokens as well as they are known: by usage, else one per token event."""
        return self.events if self.generated is None else self.generated

    def block(self, time_ns: int, *, blocked: bool) -> None:
        """Our write to the client is held up from here, or goes on."""
        if self.blocked_since_ns:
            self.blocked_spans = [*self.blocked_spans[1 - _SPANS_KEPT :], (self.blocked_since_ns, time_ns)]
        self.blocked_since_ns = time_ns if blocked else 0

    def blocked_within(self, start_ns: int, end_ns: int) -> int:
        """For how long our write to the client was held up between these moments."""
        spans = self.blocked_spans
        if self.blocked_since_ns:
            spans = [*spans, (self.blocked_since_ns, end_ns)]
        return sum(max(0, min(end_ns, until) - max(start_ns, since)) for since, until in spans)
