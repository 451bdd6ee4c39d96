"""Http11Probe: its requests, its verdicts. What we do not pass is listed, with the reason."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.foreign.http import data
from tests.foreign.http.newer_probes import NEWER
from tests.foreign.http.stage import Outcome, Stage, stage

#: What is not a pass, by the suite's own judgement, and why it stays so. Also in docs/foreign-suites.md.
DEVIATIONS = {
    "COMP-ABSOLUTE-FORM": ("Warn", "RFC 9112 §3.2.2: a server MUST accept the absolute form"),
    "COMP-METHOD-CASE": ("Warn", "methods are upstream's to know: `get` is a method, if not one of GET's kind"),
    "COMP-UPGRADE-INVALID-VER": (
        "Fail",
        "no WebSocket version is spoken here, so naming one (426) would be untrue: 501",
    ),
    "MAL-LONG-METHOD": ("Fail", "within 64 KiB no blank came, so what is too long is the head: 431"),
}
NEWER_DEVIATIONS = {
    "COMP-UNKNOWN-METHOD": ("Warn", "methods are upstream's to know"),
    "COMP-DUPLICATE-CT": ("Warn", "what a content type means is upstream's to judge; the lines pass as they came"),
}


@pytest.fixture(scope="module")
def plain() -> Iterator[Stage]:
    with stage() as opened:
        yield opened


def status_of(outcome: Outcome) -> int | None:
    return int(outcome.answers[9:12]) if outcome.answers.startswith(b"HTTP/1.1 ") else None


def verdict(case: data.ProbeCase, outcome: Outcome) -> str:
    """As the suite judged the same answer of others; where nobody gave it, as its words say."""
    status = status_of(outcome)
    for key in ((status, outcome.ended), (status, not outcome.ended)):
        if key in case.verdicts:
            return case.verdicts[key]
    return "Pass" if by_words(case.expected, status, ended=outcome.ended) else "Fail"


def by_words(expected: str, status: int | None, *, ended: bool) -> bool:
    if expected.startswith("!"):
        return status != int(expected[1:])
    if status is None:
        return "close" in expected if ended else "timeout" in expected
    return any(
        word == str(status) or (word[1:] == "xx" and word[0] == str(status)[0])
        for word in re.split(r"[^0-9x]+", expected)
    )


def test_the_published_cases(plain: Stage) -> None:
    scored = [case for case in data.http11probe() if case.scored]
    verdicts = {case.name: verdict(case, plain.run(case.request)) for case in scored}
    counts = Counter(verdicts.values())
    print(f"Http11Probe, {len(scored)} scored: {dict(counts)}")
    assert len(scored) == 125
    assert {name: got for name, got in verdicts.items() if got != "Pass"} == {
        name: got for name, (got, _) in DEVIATIONS.items()
    }
    assert counts["Pass"] >= 120
    assert counts["Fail"] <= 3


def test_no_case_crashes_or_smuggles(plain: Stage) -> None:
    """The unscored ones as well: whatever the verdict, what reaches upstream is what h11 finds."""
    for case in data.http11probe():
        outcome = plain.run(case.request)
        assert not outcome.refused, case.name
        assert not outcome.rest, case.name


@pytest.mark.parametrize("name", NEWER)
def test_the_newer_cases(plain: Stage, name: str) -> None:
    steps, wanted = NEWER[name]
    outcome = plain.run(b"".join(steps))
    answers = outcome.answers.count(b"HTTP/1.1 ")
    if wanted == "refused":
        assert status_of(outcome) == 400
        assert answers == 1
        assert outcome.ended
        assert outcome.requests == []
    elif name not in NEWER_DEVIATIONS:
        assert status_of(outcome) == 200
        assert isinstance(wanted, bytes)
        assert wanted in outcome.answers
