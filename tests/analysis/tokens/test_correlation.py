"""One pair per second: worst gap and largest prompt in service."""

import pytest

from prefillwatch.analysis.tokens.correlation import GapPromptCorrelation


def fill(pairs: list[tuple[float, int]]) -> GapPromptCorrelation:
    books = GapPromptCorrelation(300)
    for second, (gap, tokens) in enumerate(pairs):
        books.add(second, gap, tokens)
    return books


def test_gaps_that_grow_with_the_prompt_correlate_fully_whatever_the_law() -> None:
    assert fill([(0.02 * 1.5**i, 100 * i * i) for i in range(20)]).ratio(19, 60) == pytest.approx(1.0)


def test_the_opposite_order_is_minus_one() -> None:
    assert fill([(1.0 - i * 0.01, i) for i in range(20)]).ratio(19, 60) == pytest.approx(-1.0)


def test_too_few_seconds_say_nothing() -> None:
    assert fill([(0.1 * i, i) for i in range(9)]).ratio(8, 60) is None


def test_without_any_prompt_there_is_no_figure() -> None:
    assert fill([(0.1 * i, 0) for i in range(30)]).ratio(29, 60) is None


def test_only_the_window_counts() -> None:
    books = fill([(0.1 * i, i) for i in range(20)] + [(2.0 - 0.1 * i, i) for i in range(20)])
    assert books.ratio(39, 20) == pytest.approx(-1.0)
    assert abs(books.ratio(39, 60) or 1.0) < 0.2


def test_one_second_told_in_pieces_keeps_its_worst() -> None:
    pieces, whole = GapPromptCorrelation(60), GapPromptCorrelation(60)
    for second in range(12):
        pieces.add(second, 0.01, second * 10)
        pieces.add(second, 0.1 + (second % 5), 0)
        whole.add(second, 0.1 + (second % 5), second * 10)
    assert pieces.ratio(11, 60) == whole.ratio(11, 60)


def test_old_seconds_are_forgotten() -> None:
    books = GapPromptCorrelation(60)
    for second in range(10_000):
        books.add(second, 0.1, 1)
    assert len(books._pairs) <= 60
