"""From a freeze in an engine to a message in somebody's pocket, through a real Prometheus and a real Alertmanager."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.e2e.processes import Sidecar, Sim
from tests.e2e.prometheus_stack import NEWEST, OLDEST, PATIENCE_S, ROOT, Programs, Stack, fetch, stack
from tests.e2e.traffic import paste_document, readers
from tests.kit.eventually import eventually

#: Scrapes every second instead of every 15.
SCALE = 1 / 15
SUITES = (OLDEST, NEWEST)
#: In one piece this takes the simulated engine eleven seconds.
DOCUMENT_TOKENS = 36_000
#: That the document is sent in.
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
WHOLE_PROMPTS = ("--no-enable-chunked-prefill", "--max-model-len", "65536")

Start = Callable[..., Any]


@pytest.fixture(scope="module", params=SUITES)
def programs(request: pytest.FixtureRequest) -> Programs:
    return fetch(request.param)


def test_the_shipped_files_are_valid_to_this_release(programs: Programs) -> None:
    programs.run("promtool", "check", "config", ROOT / "deploy/prometheus/prometheus.yml")
    programs.run("promtool", "check", "rules", *sorted((ROOT / "alerts/rules").glob("*.yml")))
    programs.run("amtool", "check-config", ROOT / "alerts/alertmanager/alertmanager.yml")


def test_the_two_releases_are_an_old_and_a_new_one() -> None:
    versions = [fetch(suite).run("prometheus", "--version").split()[2] for suite in SUITES]
    assert [version.split(".")[0] for version in versions] == ["2", "3"]


def test_a_freeze_is_paged_while_it_lasts_and_explained_and_resolved(
    programs: Programs, start: Start, tmp_path: Path
) -> None:
    sim: Sim = start(Sim, *WHOLE_PROMPTS)
    sidecar: Sidecar = start(Sidecar, "serve", "--upstream", sim.url)
    instance = sidecar.admin.removeprefix("http://")
    targets = {"prefillwatch": [instance], "vllm": [sidecar.url.removeprefix("http://")]}
    with stack(programs, tmp_path, targets, SCALE) as watch, readers(sidecar.url, 4):
        _wait_for_rates(watch)
        sent = time.time()
        answer = paste_document(sidecar.url, DOCUMENT_TOKENS, traceparent=f"00-{TRACE}-00f067aa0ba902b7-01")
        assert answer.complete, answer.error
        ended = time.time()
        _wait_for_page(watch, "StreamFreeze", "firing")
        _page_tells_who_is_frozen(watch, instance)
        _page_came_in_time(watch, sent, ended)
        _wait_for_page(watch, "PrefillInterference", "firing")
        _ticket_names_culprit_and_remedy(watch, instance)
        _slow_buckets_lead_to_a_trace_and_to_requests(watch)
        _wait_for_page(watch, "StreamFreeze", "resolved")
        if programs.is_newest:  # the window has to run empty first; once is enough
            _wait_for_page(watch, "PrefillInterference", "resolved")
        _pending_came_before_firing(watch)
        assert {"StreamFreeze", "PrefillInterference"} <= watch.webhook.names()
        assert not any(name.startswith("NotPrefill") for name in watch.webhook.names())
        _every_rule_was_evaluated(watch)
        watch.programs.run("promtool", "check", "config", watch.config)
        watch.programs.run("amtool", "check-config", watch.manager_config)


def _slow_buckets_lead_to_a_trace_and_to_requests(watch: Stack) -> None:
    first = "prefillwatch_time_to_first_token_seconds_bucket"
    late = eventually(lambda: watch.exemplars(first, 600), watch.log)
    assert TRACE in {exemplar["labels"].get("trace_id") for exemplar in late}
    frozen = eventually(lambda: watch.exemplars("prefillwatch_inter_token_latency_seconds_bucket", 600), watch.log)
    assert all(exemplar["labels"]["request_id"] for exemplar in frozen)
    assert max(float(exemplar["value"]) for exemplar in frozen) > 1.0


def _wait_for_rates(watch: Stack) -> None:
    """Until the readers' gaps have a rate, as they have in a sidecar that did not start a moment ago."""
    gaps = 'count(instance_model:prefillwatch_inter_token_latency_seconds:sum_rate5m{model="sim-4b"} > 1)'
    eventually(lambda: watch.value(gaps), watch.log)


def _wait_for_page(watch: Stack, name: str, status: str) -> None:
    eventually(
        lambda: watch.webhook.alerts(name, status),
        lambda: f"{watch.log()[-3000:]}\n{name} was not {status}: {sorted(watch.alert_states(120))}",
        patience_s=90,
    )


def _page_tells_who_is_frozen(watch: Stack, instance: str) -> None:
    (first, *_) = watch.webhook.alerts("StreamFreeze", "firing")
    assert first["path"] == "/pager"
    assert first["labels"] == {
        "alertname": "StreamFreeze",
        "severity": "critical",
        "job": "prefillwatch",
        "instance": instance,
        "model": "sim-4b",
    }
    _link_leads_to_its_runbook(first)
    description = first["annotations"]["description"]
    assert description.startswith(f"A reader of sim-4b on {instance} has seen no token for ")
    assert "4 of 4 streams are frozen now." in description
    # A document whose usage is not known yet is estimated.
    assert "1 requests with " in description


def _link_leads_to_its_runbook(alert: dict[str, Any]) -> None:
    page = httpx.get(alert["annotations"]["runbook_url"], timeout=PATIENCE_S)
    assert page.status_code == 200
    assert page.text.startswith(f"# {alert['labels']['alertname']}\n")


def _page_came_in_time(watch: Stack, sent: float, ended: float) -> None:
    """Two scrape intervals and `for` after the gap became too long; and long before a histogram would tell.

    The times are those of Prometheus, so that a slow machine delays only the delivery. Readers froze when the document
    was sent or a step later; one interval is allowed for that.
    """
    (first, *_) = watch.webhook.alerts("StreamFreeze", "firing")
    fired = datetime.datetime.fromisoformat(first["startsAt"]).timestamp()
    source = watch.source
    due = sent + source.threshold("open_gap") + 2 * source.scrape.seconds + source.hold("StreamFreeze").seconds
    assert fired <= due + source.scrape.seconds
    assert fired < ended


def _ticket_names_culprit_and_remedy(watch: Stack, instance: str) -> None:
    (first, *_) = watch.webhook.alerts("PrefillInterference", "firing")
    assert first["path"] == "/tickets"
    assert first["labels"] == {
        "alertname": "PrefillInterference",
        "severity": "warning",
        "job": "prefillwatch",
        "instance": instance,
        "model": "sim-4b",
        "cause": "prefill",
    }
    _link_leads_to_its_runbook(first)
    description = first["annotations"]["description"]
    assert "Stall seconds by size of the prompt to blame: 32k-128k tokens (" in description
    assert "Advice: " in description


def _pending_came_before_firing(watch: Stack) -> None:
    for name in ("StreamFreeze", "PrefillInterference"):
        began = {
            series["metric"]["alertstate"]: float(series["values"][0][0])
            for series in watch.samples(f'ALERTS{{alertname="{name}"}}', 240)
        }
        assert began["firing"] - began["pending"] >= watch.source.hold(name).seconds - 0.1


def _every_rule_was_evaluated(watch: Stack) -> None:
    groups = watch._ask("rules")["groups"]
    broken = {rule["name"]: rule["lastError"] for group in groups for rule in group["rules"] if rule["health"] != "ok"}
    assert broken == {}
    shipped = [
        rule.get("record") or rule["alert"]
        for path in watch.rules
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
    ]
    assert sorted(rule["name"] for group in groups for rule in group["rules"]) == sorted(shipped)
