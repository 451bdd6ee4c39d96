"""The dashboard of one deployment: is anybody frozen, how badly, by whom, and what to change."""

from __future__ import annotations

from grafana.generator.board import Board, target_variables
from grafana.generator.capacity import kv_cache, traffic
from grafana.generator.causes import causes, cost_model, first_tokens
from grafana.generator.metric import increase
from grafana.generator.symptoms import dose_and_response, frozen_now, gaps
from grafana.generator.tenants import tenants
from grafana.generator.trust import trust

UID = "prefillwatch-interference"


def interference() -> Board:
    sections = (
        frozen_now(),
        gaps(),
        dose_and_response(),
        causes(),
        cost_model(),
        first_tokens(),
        kv_cache(),
        traffic(),
        trust(),
        tenants(),
    )
    return Board(
        UID,
        "Prefill interference",
        "Which long prompts freeze whose answers on one vLLM deployment, and what to change.",
        sections,
        target_variables(),
        freezes=f"sum by (cause) ({increase('freezes_total')}) > 0",
        time="15m",
    )
