"""An account as a sidecar gathers it, with what a test wants to be different."""

from __future__ import annotations

from typing import Any

from prefillwatch.story import Account, Engine, Prompt, Reading, Step, Stop, Stream

EVIDENCE = {
    "delays": 4,
    "gap_seconds": 0.3,
    "common_silence_seconds": 0.299,
    "engine_steps_inside": 0,
    "tokens_withheld": 14.0,
    "tokens_caught_up": 0.0,
    "prefill_tokens_in_service": 2000,
    "prefill_possible_seconds": 0.56,
    "prefill_cost_known": True,
    "prefill_guessed": False,
    "engine_gauges_known": True,
    "preemptions": 0.0,
    "kv_cache_usage_ratio": 0.3,
}
WAITED = {
    "delays": 1,
    "waited_seconds": 8.0,
    "expected_seconds": 0.1,
    "overtaken_by": 0,
    "engine_silent_seconds": 0.2,
    "prompt_tokens_ahead": 40_000,
    "long_prompt_tokens_ahead": 0,
    "server_just_started": False,
    "engine_gauges_known": True,
    "pages_with_waiting_requests": 5,
    "requests_unknown_to_engine": 0,
}


def incident(**different: Any) -> dict[str, Any]:
    return {
        "id": "abc-7",
        "kind": "freeze",
        "cause": "prefill",
        "model": "m",
        "started_at": 1_764_590_400.25,
        "duration_seconds": 0.6,
        "ongoing": False,
        "victims": 2,
        "decoding": 2,
        "stall_seconds": 1.1,
        "worst_gap_seconds": 0.3,
        "baseline_gap_seconds": 0.02,
        "culprits": [{"request_id": "document", "share": 1.0}],
        "culprit_count": 1,
        "culprit_tokens": 4000,
        "evidence": EVIDENCE,
    } | different


def account(**different: Any) -> Account:
    told = different.pop("incident", None) or incident()
    given: dict[str, Any] = {
        "incident": told,
        "streams": (stream("one"), stream("two")),
        "stream_count": 2,
        "prompts": (Prompt(request_id="document", tokens=4000, uncached=4000, sent=-0.01, first=0.61, share=1.0),),
        "steps": tuple(
            Step(start=at, end=at + 0.3, streams=2, tokens=2000, clear=0.02, parts=((0, 2000),)) for at in (0.0, 0.3)
        ),
        "step_count": 9,
        "engine": Engine(budget=2002, base=0.02, token=0.00014, fit=0.99),
        "target": 0.1,
        "advice": "max_num_batched_tokens=560 keeps gaps under 100 ms",
        "subject": 0,
        "now": Reading(budget=2002, steps=2, longest=0.3, first=0.6),
        "then": Reading(budget=560, steps=8, longest=0.098, first=0.72),
    }
    return Account(**given | different)


def stream(name: str, *stops: Stop) -> Stream:
    stops = stops or (Stop(0.0, 0.3, 0.28), Stop(0.3, 0.6, 0.27))
    lost = sum(stop.lost for stop in stops)
    return Stream(request_id=name, lost=lost, stops=stops, reads=(-0.04, -0.02, 0.0, 0.3, 0.6, 0.62))
