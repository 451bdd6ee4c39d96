"""The cost model and what is advised from it: gauges, and words for `/api/state`."""

from __future__ import annotations

from typing import Any

from prefillwatch.analysis.cost import Advice, Server
from prefillwatch.analysis.ledger import Ledger
from prefillwatch.analysis.model_books import ModelBooks
from prefillwatch.analysis.requests import ModelNames
from prefillwatch.export import table
from prefillwatch.export.registry import Labels, Registry
from prefillwatch.units import NS


def publish_cost_models(registry: Registry, ledger: Ledger, names: ModelNames) -> None:
    """What is not learned yet is absent."""
    cost: dict[Labels, float | None] = {}
    fit: dict[Labels, float | None] = {}
    base: dict[Labels, float | None] = {}
    advised: dict[Labels, float | None] = {}
    for number, books in ledger.models.items():
        law = ledger.costs.line(number)
        if law is not None:
            labels = (names.labels[number],)
            cost[labels], fit[labels], base[labels] = law.token_ns / NS, law.fit, law.base_ns / NS
            advised[labels] = _advice(ledger, number, books).tokens
    registry.gauge(table.PREFILL_COST).replace(cost)
    registry.gauge(table.PREFILL_COST_FIT).replace(fit)
    registry.gauge(table.BASELINE_STEP).replace(base)
    registry.gauge(table.ADVISED_MAX_BATCHED_TOKENS).replace(advised)


def _advice(ledger: Ledger, number: int, books: ModelBooks) -> Advice:
    engine = ledger.timeline.engine
    now = Server(engine.budget if engine.proven else 0, engine.chunked, ledger.heartbeat.decoding)
    longest = books.prompts.maximum(max(books.windows_s)) or 0.0
    return ledger.costs.advised(number, ledger.settings.slo.itl, now, round(longest))


def advice_now(ledger: Ledger, names: ModelNames) -> dict[str, Any]:
    """By model: the learned law of step times, the advice in words, and the p99 that there would be without prefill."""
    found = {}
    for number, books in ledger.models.items():
        law, advice, window_s = ledger.costs.line(number), _advice(ledger, number, books), max(books.windows_s)
        found[names.labels[number]] = {
            "words": advice.words,
            "advised_max_batched_tokens": advice.tokens,
            "chunked": ledger.timeline.engine.chunked,
            "target_gap_seconds": ledger.settings.slo.itl,
            "longest_prompt_tokens": advice.prompt_tokens or None,
            "ttft_now_seconds": advice.ttft_now_s,
            "ttft_then_seconds": advice.ttft_then_s,
            "baseline_step_seconds": law.base_ns / NS if law else None,
            "prefill_cost_seconds_per_token": law.token_ns / NS if law else None,
            "prefill_cost_fit_ratio": law.fit if law else None,
            "steps_learned_from": ledger.costs.steps_seen(number),
            "p99_seconds": books.all_gaps.quantile(0.99, window_s),
            "p99_without_prefill_seconds": books.clear_gaps.quantile(0.99, window_s),
        }
    return found
