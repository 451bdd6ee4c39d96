"""What is advised from the learned law of step times, for `/api/state` and the live page."""

from __future__ import annotations

from typing import Any

from prefillwatch.core.view import View


def advice_now(view: View) -> dict[str, Any]:
    """By model: the learned law of step times, the advice in words, and the p99 that there would be without prefill."""
    target_s = view.settings.slo.itl
    return {
        each.model: {
            "words": each.words,
            "advised_max_batched_tokens": each.max_batched_tokens,
            "advised_max_queued_tokens": each.max_queued_tokens,
            "chunked": each.chunked,
            "target_gap_seconds": target_s,
            "longest_prompt_tokens": each.longest_prompt,
            "ttft_now_seconds": each.ttft_now_s,
            "ttft_then_seconds": each.ttft_then_s,
            "baseline_step_seconds": each.baseline_step_s,
            "prefill_cost_seconds_per_token": each.token_cost_s,
            "prefill_cost_fit_ratio": each.fit,
            "steps_learned_from": each.steps_learned_from,
            "p99_seconds": each.p99_s,
            "p99_without_prefill_seconds": each.p99_without_prefill_s,
        }
        for each in view.advice
    }
