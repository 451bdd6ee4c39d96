"""A section for the public collection of alert rules (awesome-prometheus-alerts), whose rules stand alone.

There a rule is one query without recorded series, of any job. So each recorded series in an alert is replaced by what
it is recorded from, and selectors lose the name of the job. `tests/alerts/test_collection.py` has promtool play the
unit tests of these alerts on the rules so written.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml
from alerts.rulebook.groups import all_alerts, all_groups
from alerts.rulebook.rule import Alert, Recording
from alerts.rulebook.source import Source

#: Alerts that anybody wants who has a sidecar, and what they are called there; the others are about the sidecar itself,
#: or need an owner for their limits.
CHOSEN: Final = {
    "StreamFreeze": "Streams frozen",
    "PrefillInterference": "Prefill interference",
    "NotPrefillPreemption": "Streams stalled by preemption",
    "PrefillHeadOfLine": "Short prompts behind long ones",
    "FirstTokenStuck": "First token stuck",
    "KVCacheNearlyFull": "KV cache nearly full",
    "PreemptionStorm": "Preemption storm",
    "QueueSaturation": "Queue saturation",
    "UpstreamDown": "LLM server down",
}
_SELECTOR: Final = re.compile(r"prefillwatch_\w+\{")
_JOB: Final = re.compile(r'\{job="[^"]*"(?:, )?|, job="[^"]*"')


def section(source: Source) -> str:
    """As it goes into that collection's file of rules, below one of its groups."""
    rules = [_entry(source, alert) for alert in chosen_alerts(source)]
    exporter = {"name": "prefillwatch", "slug": "prefillwatch", "doc_url": "ADDRESS"}
    service = {"name": "vLLM, SGLang, llama.cpp and other LLM servers", "exporters": [{**exporter, "rules": rules}]}
    return yaml.safe_dump({"services": [service]}, sort_keys=False, allow_unicode=True, width=10_000)


def chosen_alerts(source: Source) -> list[Alert]:
    return [alert for alert in all_alerts(source) if alert.name in CHOSEN]


def _entry(source: Source, alert: Alert) -> dict[str, Any]:
    return {
        "name": CHOSEN[alert.name],
        "description": alert.summary,
        "query": standalone(source, alert.expr),
        "severity": alert.severity,
        "for": str(alert.hold),
    }


def standalone(source: Source, expr: str) -> str:
    """An expression over the exporter's own series alone, in one line."""
    recorded = {
        rule.record: rule.expr for group in all_groups(source) for rule in group.rules if isinstance(rule, Recording)
    }
    found = re.compile(rf"({'|'.join(sorted(map(re.escape, recorded), key=len, reverse=True))})(\{{[^}}]*\}})?(\[\w+)?")

    def replaced(match: re.Match[str]) -> str:
        inner = found.sub(replaced, recorded[match[1]]).strip()
        if match[2]:
            # Where a recorded series is a ratio, the labels that it is asked for are those of its first part.
            inner = _SELECTOR.sub(lambda selector: f"{selector[0]}{match[2][1:-1]}, ", inner, count=1)
        return f"({inner})" + (f"{match[3]}:" if match[3] else "")

    text = " ".join(found.sub(replaced, expr).split())
    return _JOB.sub(lambda found: "{" if found[0].startswith("{") else "", text).replace("{}", "")
