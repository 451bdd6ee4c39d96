"""Limits and runbooks are those of the alert rules."""

from __future__ import annotations

import ast
from pathlib import Path

import yaml

from prefillwatch.doctor import thresholds
from prefillwatch.doctor.trust import WITHOUT_KV

ROOT = Path(__file__).parents[2]
SOURCE = yaml.safe_load((ROOT / "alerts" / "source.yml").read_text())
RUNBOOKS = {path.stem for path in (ROOT / "alerts" / "runbooks").glob("*.md")}


def test_limits_are_those_of_the_alert_rules() -> None:
    limits, promises = SOURCE["thresholds"], SOURCE["promises"]
    assert promises["itl"] == thresholds.ITL_PROMISE
    assert promises["ttft_p99"] == dict(thresholds.FIRST_TOKEN_PROMISES)
    assert tuple(limits["short_prompts"]) == thresholds.SHORT_PROMPTS
    assert tuple(limits["servers_without_kv"]) == WITHOUT_KV
    ours = {
        "open_gap": thresholds.OPEN_GAP,
        "short_queue_p90": thresholds.SHORT_QUEUE_P90,
        "long_work_share": thresholds.LONG_WORK_SHARE,
        "kv_usage": thresholds.KV_USAGE,
        "preemptions_per_request": thresholds.PREEMPTIONS_PER_REQUEST,
        "waiting_requests": thresholds.WAITING_REQUESTS,
        "first_token_wait": thresholds.FIRST_TOKEN_WAIT,
        "dropped_share": thresholds.DROPPED_SHARE,
        "loop_lag": thresholds.LOOP_LAG,
        "lagging_share": thresholds.LAGGING_SHARE,
    }
    assert {name: limits[name] for name in ours} == ours


def test_every_runbook_that_is_named_exists() -> None:
    folder = ROOT / "exporter" / "prefillwatch" / "doctor"
    texts = {
        node.value
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    named = {text for text in texts if text.isalpha() and text[0].isupper() and sum(map(str.isupper, text)) > 1}
    assert {"PrefillInterference", "MeasurementUnreliable", "KVCacheNearlyFull"} <= named
    assert {name for name in named if name not in ("TGI", "FAULT", "SEEN", "SYMPTOM", "NOTE", "SGLang")} <= RUNBOOKS
