"""The cost model and what is advised from it: gauges, and words for `/api/state`."""

from __future__ import annotations

from typing import Any

from prefillwatch.analysis.cost import Advice, Engine, advise
from prefillwatch.analysis.ledger import Ledger
from prefillwatch.analysis.model_books import ModelBooks
from prefillwatch.analysis.requests import ModelNames
from prefillwatch.export import table
from prefillwatch.export.registry import Labels, Registry


def publish_cost_models(registry: Registry, ledger: Ledger, names: ModelNames) -> None:
    """What is not learned yet is absent."""
    cost: dict[Labels, float | None] = {}
    fit: dict[Labels, float | None] = {}
    base: dict[Labels, float | None] = {}
    advised: dict[Labels, float | None] = {}
    for number, books in ledger.models.items():
        law = books.steps.law()
        if law is not None:
            labels = (names.labels[number],)
            cost[labels], fit[labels], base[labels] = law.token_s, law.fit, law.base_s
            advised[labels] = _advice(ledger, books).tokens
    registry.gauge(table.PREFILL_COST).replace(cost)
    registry.gauge(table.PREFILL_COST_FIT).replace(fit)
    registry.gauge(table.BASELINE_STEP).replace(base)
    registry.gauge(table.ADVISED_MAX_BATCHED_TOKENS).replace(advised)


def _advice(ledger: Ledger, books: ModelBooks) -> Advice:
    engine = ledger.timeline.engine
    now = Engine(engine.budget if engine.proven else 0, engine.chunked, ledger.heartbeat.decoding)
    longest = books.prompts.maximum(max(books.windows_s)) or 0.0
    return advise(books.steps.law(), ledger.settings.slo.itl, now, round(longest), books.steps.steps)


def advice_now(ledger: Ledger, names: ModelNames) -> dict[str, Any]:
    """By model: the learned law of step times, the advice in words, and the p99 that there would be without prefill."""
    found = {}
    for number, books in ledger.models.items():
        law, advice, window_s = books.steps.law(), _advice(ledger, books), max(books.windows_s)
        found[names.labels[number]] = {
            "words": advice.words,
            "advised_max_batched_tokens": advice.tokens,
            "chunked": ledger.timeline.engine.chunked,
            "target_gap_seconds": ledger.settings.slo.itl,
            "longest_prompt_tokens": advice.prompt_tokens or None,
            "ttft_now_seconds": advice.ttft_now_s,
            "ttft_then_seconds": advice.ttft_then_s,
            "baseline_step_seconds": law.base_s if law else None,
            "prefill_cost_seconds_per_token": law.token_s if law else None,
            "prefill_cost_fit_ratio": law.fit if law else None,
            "steps_learned_from": books.steps.steps,
            "p99_seconds": books.all_gaps.quantile(0.99, window_s),
            "p99_without_prefill_seconds": books.clear_gaps.quantile(0.99, window_s),
        }
    return found
