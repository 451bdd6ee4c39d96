"""Figures by tenant and by priority, as metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from prefillwatch.core.view import SenderFigures, View
from prefillwatch.export import table
from prefillwatch.export.registry import Labels, Registry
from prefillwatch.export.spec import Spec, window_name


class Specs(NamedTuple):
    """The metrics of one way to tell senders apart."""

    requests: Spec
    within_slo: Spec
    prompt_tokens: Spec
    generated_tokens: Spec
    caused: Spec
    suffered: Spec
    gap_p99: Spec
    first_token_p99: Spec


_BY_TENANT: Final = Specs(
    table.TENANT_REQUESTS,
    table.TENANT_REQUESTS_WITHIN_SLO,
    table.TENANT_PROMPT_TOKENS,
    table.TENANT_GENERATED_TOKENS,
    table.TENANT_STALL_CAUSED,
    table.TENANT_STALL_SUFFERED,
    table.TENANT_INTER_TOKEN_LATENCY_P99,
    table.TENANT_TIME_TO_FIRST_TOKEN_P99,
)
_BY_PRIORITY: Final = Specs(
    table.PRIORITY_REQUESTS,
    table.PRIORITY_REQUESTS_WITHIN_SLO,
    table.PRIORITY_PROMPT_TOKENS,
    table.PRIORITY_GENERATED_TOKENS,
    table.PRIORITY_STALL_CAUSED,
    table.PRIORITY_STALL_SUFFERED,
    table.PRIORITY_INTER_TOKEN_LATENCY_P99,
    table.PRIORITY_TIME_TO_FIRST_TOKEN_P99,
)


def publish_senders(registry: Registry, view: View) -> None:
    """A tenant that lost its place has no series any more; one that comes back goes on where it was."""
    for specs, figures in ((_BY_TENANT, view.senders.tenants), (_BY_PRIORITY, view.senders.priorities)):
        _publish(registry, specs, figures)


def _publish(registry: Registry, specs: Specs, figures: Sequence[SenderFigures]) -> None:
    totals: dict[Spec, dict[Labels, float]] = {
        specs.requests: {(each.name,): each.requests for each in figures},
        specs.within_slo: {(each.name,): each.within_slo for each in figures},
        specs.prompt_tokens: {(each.name,): each.prompt_tokens for each in figures},
        specs.generated_tokens: {(each.name,): each.generated_tokens for each in figures},
        specs.caused: {
            (each.name, to): seconds
            for each in figures
            for to, seconds in zip(table.VICTIM.values, (each.caused_s, each.itself_s), strict=True)
        },
        specs.suffered: {
            (each.name, by): seconds
            for each in figures
            for by, seconds in zip(table.CULPRIT.values, (each.suffered_s, each.itself_s, each.nobody_s), strict=True)
        },
    }
    for spec, values in totals.items():
        registry.counter(spec).replace_totals(values)
    windows = (
        (specs.gap_p99, [(each.name, each.gap_p99_s) for each in figures]),
        (specs.first_token_p99, [(each.name, each.first_token_p99_s) for each in figures]),
    )
    for spec, by_name in windows:
        p99: dict[Labels, float | None] = {
            (name, window_name(seconds)): value for name, given in by_name for seconds, value in given.items()
        }
        registry.gauge(spec).replace(p99)
