"""`/api/tenants`: figures by tenant and by priority, and who did it to whom in the last hour."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from prefillwatch.core.view import BlameNow, SenderFigures, View
from prefillwatch.export.spec import window_name

#: Rows and columns of a matrix.
MOST_IN_MATRIX: Final = 20
#: Tenants on the live page.
MOST_SHOWN: Final = 6


def tenants_now(view: View, most: int = MOST_IN_MATRIX) -> dict[str, Any]:
    """Seconds, and totals since the start. Lists are empty where the settings do not ask for them."""
    senders = view.senders
    return {
        "tenants": [
            {"tenant": each.name, "tokens_last_hour": each.tokens_last_hour, **_figures(each)}
            for each in senders.tenants
        ],
        "priorities": [{"priority": each.name, **_figures(each)} for each in senders.priorities],
        "tenant_matrix": _matrix(senders.by_tenant, most),
        "priority_matrix": _matrix(senders.by_priority, most),
    }


def tenants_shown(view: View) -> dict[str, Any] | None:
    """The few of them that the live page has room for; None where tenants are not told apart."""
    senders = view.senders
    if not senders.tenants:
        return None
    longest = max(view.settings.windows)
    return {
        "tenants": [
            {
                "tenant": each.name,
                **_figures(each),
                "gap_p99": each.gap_p99_s.get(longest),
                "first_token_p99": each.first_token_p99_s.get(longest),
            }
            for each in senders.tenants[:MOST_SHOWN]
        ],
        "tenant_matrix": _matrix(senders.by_tenant, MOST_SHOWN),
    }


def _figures(each: SenderFigures) -> dict[str, Any]:
    return {
        "requests": each.requests,
        "requests_within_slo": each.within_slo,
        "prompt_tokens": each.prompt_tokens,
        "generated_tokens": each.generated_tokens,
        "stall_seconds_caused": each.caused_s,
        "stall_seconds_suffered": each.suffered_s,
        "stall_seconds_by_itself": each.itself_s,
        "stall_seconds_by_nobody": each.nobody_s,
        "inter_token_latency_p99_seconds": {window_name(key): value for key, value in each.gap_p99_s.items()},
        "time_to_first_token_p99_seconds": {window_name(key): value for key, value in each.first_token_p99_s.items()},
    }


def _matrix(blame: Sequence[BlameNow], most: int) -> dict[str, Any]:
    """Stall seconds of the last hour: a row for each culprit, a column for each victim, the largest first. What one
    caused to itself is on the same name in both, and what is in no row or column is the rest."""
    culprits = _largest(blame, lambda each: each.culprit, most)
    victims = _largest(blame, lambda each: each.victim, most)
    rows = [[0.0] * len(victims) for _ in culprits]
    rest = 0.0
    for each in blame:
        if each.culprit in culprits and each.victim in victims:
            rows[culprits.index(each.culprit)][victims.index(each.victim)] += each.seconds
        else:
            rest += each.seconds
    return {"culprits": culprits, "victims": victims, "stall_seconds": rows, "rest_seconds": rest}


def _largest(blame: Iterable[BlameNow], name: Callable[[BlameNow], str], most: int) -> list[str]:
    sums: dict[str, float] = {}
    for each in blame:
        sums[name(each)] = sums.get(name(each), 0.0) + each.seconds
    return sorted(sums, key=lambda its: -sums[its])[:most]
