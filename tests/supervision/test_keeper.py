"""How the end of a kept process is told."""

from __future__ import annotations

import signal

import pytest

from prefillwatch.own_process import how_it_ended


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "ended with code 0"),
        (3, "ended with code 3"),
        (-signal.SIGKILL, "was killed by SIGKILL"),
        (-signal.SIGRTMIN - 1, "was killed by signal 35"),
    ],
)
def test_an_end_in_words(code: int, words: str) -> None:
    assert how_it_ended(code) == words


def test_a_filter_of_system_calls_is_named_with_its_remedy() -> None:
    said = how_it_ended(-signal.SIGSYS)
    assert said.startswith("was killed by SIGSYS (")
    assert "SystemCallErrorNumber=EPERM" in said
