"""Figures from verdicts and truth."""

from __future__ import annotations

import pytest
from tests.simulation.goals import WELL_KNOWN
from tests.simulation.judge import Figures, Said, agreement
from tests.simulation.page import PAGE, shortfalls
from tests.simulation.rows import LONG_ROWS, ROWS, row_of
from tests.simulation.truth import TrueStall


def figures(**seconds: float) -> Figures:
    """``true__named``."""
    made = Figures()
    for pair, each in seconds.items():
        true, named = pair.replace("_stall", " stall").split("__")
        made.seconds[true, named] = each  # type: ignore[assignment]  # floats count as well
    return made


def test_recall_counts_what_nobody_noticed() -> None:
    assert figures(prefill__prefill=6, prefill__unattributed=2, prefill__no_stall=2).recall == pytest.approx(0.6)


def test_precision_counts_what_was_somebody_elses() -> None:
    assert figures(prefill__prefill=9, frontend__prefill=1).precision == pytest.approx(0.9)


def test_no_verdict_is_never_false_certainty() -> None:
    made = figures(prefill__frontend=1, client__client=4, client__unattributed=3, prefill__no_stall=2)
    assert made.falsely_certain == pytest.approx(0.1)
    assert made.unattributed == pytest.approx(0.3)


def test_what_we_caused_is_rightly_unattributed() -> None:
    assert figures(ours__unattributed=5).unattributed == 0


def test_names_agree_as_far_as_their_shares_do() -> None:
    true = TrueStall("chat", 0, 300, 280, {"prefill": 280}, {"a": 1500, "b": 500}, True)
    assert agreement(Said("chat", 0, 300, "prefill", {"a": 0.5, "c": 0.5}), true) == pytest.approx(0.5)
    assert agreement(Said("chat", 0, 300, "prefill", {"a": 0.75, "b": 0.25}), true) == pytest.approx(1.0)


def test_a_stall_of_many_small_reasons_has_no_cause() -> None:
    assert TrueStall("chat", 0, 300, 280, {"prefill": 60, "client": 50}, {}, True).cause == "none"


def test_seeds_go_round_all_rows() -> None:
    assert {row_of(seed) for seed in range(len(ROWS))} == set(ROWS)


def test_what_falls_short_is_said() -> None:
    made = figures(prefill__prefill=5, prefill__engine_pause=5)
    assert list(WELL_KNOWN.missed(made)) == [
        "recall 0.500 of 0.97",
        "falsely certain 50.0% where 1% are allowed",
    ]
    assert "5 s of prefill were engine_pause" in shortfalls({"vLLM, asynchronous": made})


def test_the_page_has_every_row() -> None:
    text = PAGE.read_text()
    assert [name for name in (*ROWS, *LONG_ROWS) if f"| {name} |" not in text] == []
