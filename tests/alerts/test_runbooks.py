"""Every alert has a page that says what to do, with queries that can be asked and links that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import promql_parser as promql
import pytest
from alerts.rulebook.rule import share
from tests.alerts.promql_labels import selectors
from tests.alerts.shipped import ALERTS, ROOT, SOURCE, alerts, world

from prefillwatch.contract import limits

PAGES = sorted(path for path in (ALERTS / "runbooks").glob("*.md") if path.name != "README.md")
SECTIONS = ["What users feel", "How to confirm", "What to change", "How to see that it helped"]
WORLD = world()
_BLOCK = re.compile(r"^ *(?:- )?```promql\n(.*?)```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#]+)\)")
_METRIC = re.compile(r"\b(?:(?:instance|job)\w*:)?(?:prefillwatch|vllm)_\w+(?::\w+)?")


def names() -> set[str]:
    return {rule["alert"] for rule in alerts()}


def page_name(path: Path) -> str:
    return path.stem


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    assert {path.stem for path in PAGES} == names()


def test_the_index_links_every_page_and_the_rules_point_at_them() -> None:
    index = (ALERTS / "runbooks/README.md").read_text()
    assert set(_LINK.findall(index)) == {path.name for path in PAGES}
    for rule in alerts():
        assert rule["annotations"]["runbook_url"] == SOURCE.runbook(rule["alert"])


@pytest.mark.parametrize("path", PAGES, ids=page_name)
def test_a_page_answers_the_same_questions_as_the_others(path: Path) -> None:
    text = path.read_text()
    assert text.startswith(f"# {path.stem}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    assert all(len(part.strip()) > 20 for part in text.split("\n## ")[1:])


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:g} ms"


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("StreamFreeze", f"silent for more than {limits.OPEN_GAP:g} s"),
        ("ITLBudgetBurn", f"longer than promised ({_milliseconds(limits.ITL_PROMISE)})"),
        ("ITLBudgetBurn", f"({share(round(1 - limits.ITL_OBJECTIVE, 9))})"),
        ("PrefillInterference", f"more than {share(limits.STALL_SHARE)} of their decoding time"),
        (
            "PrefillInterference",
            f"is above {limits.COST_FIT_GOOD:g}. The alert keeps it to itself below {limits.COST_FIT:g}",
        ),
        ("NotPrefillPreemption", f"more than {share(limits.STALL_SHARE)} of their decoding time"),
        ("NotPrefillFrontend", f"more than {share(limits.STALL_SHARE)} of their decoding time"),
        ("QueueSaturation", f"more than {limits.WAITING_REQUESTS} requests"),
    ],
)
def test_its_numbers_are_those_of_the_rules(page: str, words: str) -> None:
    assert words in " ".join((ALERTS / f"runbooks/{page}.md").read_text().split())


@pytest.mark.parametrize("path", PAGES, ids=page_name)
def test_its_queries_ask_for_what_exists(path: Path) -> None:
    blocks = _BLOCK.findall(path.read_text())
    assert blocks
    for block in blocks:
        for selector in selectors(promql.parse(block)):
            assert selector.name in WORLD.labels(), block
            for matcher in selector.matchers.matchers:
                assert matcher.name in WORLD.labels()[selector.name], block


@pytest.mark.parametrize("path", PAGES, ids=page_name)
def test_the_metrics_it_mentions_exist(path: Path) -> None:
    known = WORLD.labels().keys() | WORLD.specs.keys()
    assert [name for name in _METRIC.findall(path.read_text()) if name not in known] == []


@pytest.mark.parametrize("path", [*PAGES, ALERTS / "README.md", ROOT / "deploy/prometheus/README.md"], ids=page_name)
def test_links_lead_somewhere(path: Path) -> None:
    targets = [link for link in _LINK.findall(path.read_text()) if not link.startswith("http")]
    assert [link for link in targets if not (path.parent / link).exists()] == []
