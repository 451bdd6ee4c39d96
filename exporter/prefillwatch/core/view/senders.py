"""Figures by tenant and by priority as of one moment, and who did it to whom."""

from __future__ import annotations

import msgspec

from prefillwatch.analysis.tenants import SenderBook, Senders
from prefillwatch.contract.buckets import PRIORITY_CLASSES
from prefillwatch.core.view.models import Window
from prefillwatch.wire.sender import OTHER


class SenderFigures(msgspec.Struct, frozen=True):
    """Of a tenant with a place, of all others together (`other`), or of a class of priority. Totals only rise, seconds
    are those that stalls lasted beyond the usual gap."""

    name: str
    requests: int
    within_slo: int
    prompt_tokens: int
    generated_tokens: int
    caused_s: float  # by its prompts, to streams of others
    suffered_s: float  # by its streams, because of prompts of others
    itself_s: float  # by its prompts, to its own streams
    nobody_s: float  # by its streams, and no prompt was to blame
    gap_p99_s: dict[Window, float | None]
    first_token_p99_s: dict[Window, float | None]
    tokens_last_hour: int | None = None  # that it was ranked by


class BlameNow(msgspec.Struct, frozen=True):
    """Stall seconds of the last hour."""

    culprit: str
    victim: str
    seconds: float


class SendersNow(msgspec.Struct, frozen=True):
    """Empty where the settings do not ask for it. The most stall seconds come first, tenants by tokens."""

    tenants: tuple[SenderFigures, ...] = ()
    priorities: tuple[SenderFigures, ...] = ()
    by_tenant: tuple[BlameNow, ...] = ()
    by_priority: tuple[BlameNow, ...] = ()


def senders_now(senders: Senders | None, now_ns: int) -> SendersNow:
    if senders is None:
        return SendersNow()
    names = {number: name for name, number in senders.places.numbers.items()}
    tenants = [
        _figures(names.get(number, OTHER), book, senders.places.tokens(names[number]) if number else None)
        for number, book in senders.tenants.books.items()
    ]
    return SendersNow(
        tuple(sorted(tenants, key=lambda each: -(each.tokens_last_hour or -1))),
        tuple(_figures(PRIORITY_CLASSES[number], book) for number, book in sorted(senders.priorities.books.items())),
        tuple(BlameNow(*pair, seconds) for pair, seconds in senders.tenants.matrix.pairs(now_ns).items()),
        tuple(BlameNow(*pair, seconds) for pair, seconds in senders.priorities.matrix.pairs(now_ns).items()),
    )


def _figures(name: str, book: SenderBook, tokens: int | None = None) -> SenderFigures:
    totals, windows_s = book.totals, book.gaps.windows_s
    return SenderFigures(
        name,
        totals.requests,
        totals.within_slo,
        totals.prompt_tokens,
        totals.generated_tokens,
        totals.caused,
        totals.suffered,
        totals.itself,
        totals.nobody,
        {seconds: book.gaps.quantile(0.99, seconds) for seconds in windows_s},
        {seconds: book.ttft.quantile(0.99, seconds) for seconds in windows_s},
        tokens,
    )
