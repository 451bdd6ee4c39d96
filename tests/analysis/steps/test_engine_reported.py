"""Members of steps of which the engine reported only totals. Times in milliseconds."""

from __future__ import annotations

from prefillwatch.analysis.steps.engine_reported import shares_of_totals
from prefillwatch.analysis.steps.packing import Prompt
from prefillwatch.units import MS


def prompt(rid: str, sent: float, uncached: int, first: float | None = None, **more: object) -> Prompt:
    first_ns = None if first is None else round(first * MS)
    return Prompt(rid, round(sent * MS), uncached, uncached, first_ns=first_ns, **more)  # type: ignore[arg-type]


def members(start: float, end: float, tokens: int, requests: int, *prompts: Prompt) -> dict[object, int]:
    """Tokens by request; how far each has come is remembered."""
    found = dict(shares_of_totals(round(start * MS), round(end * MS), tokens, requests, prompts))
    for each in prompts:
        each.reported += found.get(each.rid, 0)
    return found


def test_one_prompt_in_chunks() -> None:
    alone = prompt("a", 0, 5000, first=301)
    steps = [(0, 100, 2048), (100, 200, 2048), (200, 300, 904)]
    assert [members(start, end, tokens, 1, alone) for start, end, tokens in steps] == [
        {"a": 2048},
        {"a": 2048},
        {"a": 904},
    ]


def test_the_next_prompt_begins_in_the_last_chunk_of_the_one_before() -> None:
    first, second = prompt("a", 0, 3000, first=201), prompt("b", 1, 3000)
    assert members(0, 100, 2048, 1, first, second) == {"a": 2048}
    assert members(100, 200, 2048, 2, first, second) == {"a": 952, "b": 1096}
    assert members(200, 300, 1904, 1, first, second) == {"b": 1904}


def test_of_prompts_that_came_together_first_tokens_tell_who_was_served_first() -> None:
    document, chat = prompt("document", 0, 4000, first=301), prompt("chat", 0.5, 30, first=101)
    assert members(0, 100, 2048, 2, document, chat) == {"chat": 30, "document": 2018}


def test_a_first_token_of_a_step_comes_within_twenty_milliseconds_of_its_end() -> None:
    for first, is_its in ((119, True), (121, False)):
        document, chat = prompt("document", 0, 4000, first=301), prompt("chat", 0.5, 30, first=first)
        assert (members(0, 100, 2048, 2, document, chat)["chat"] == 30) is is_its


def test_and_no_more_than_five_before_it() -> None:
    assert members(0, 100, 50, 1, prompt("a", 0, 50, first=96)) == {"a": 50}
    assert members(0, 100, 50, 1, prompt("a", 0, 50, first=94)) == {}


def test_a_prompt_that_was_begun_goes_before_one_that_came_earlier() -> None:
    held_up, begun = prompt("late", 0, 3000), prompt("begun", 10, 3000)
    begun.reported = 2048
    assert members(100, 200, 500, 1, held_up, begun) == {"begun": 500}


def test_the_totals_are_kept_where_sizes_are_wrong() -> None:
    assert members(0, 100, 2048, 1, prompt("a", 0, 100)) == {"a": 2048}
    assert members(0, 100, 50, 1, prompt("a", 0, 100, first=101)) == {"a": 50}  # the rest was cached
    assert members(0, 100, 600, 2, prompt("a", 0, 5000, first=101), prompt("b", 0, 9, first=101)) == {"a": 599, "b": 1}


def test_who_has_had_a_first_token_or_was_not_there_yet_or_has_left_is_no_member() -> None:
    done = prompt("done", 0, 100, first=50)
    later = prompt("later", 200, 100)
    left = prompt("left", 0, 100, gone_ns=90 * MS)
    assert members(100, 200, 100, 1, done, later, left) == {}


def test_a_whole_answer_shows_no_first_token_but_its_tokens_run_out() -> None:
    whole, streamed = prompt("whole", 0, 1000, streamed=False), prompt("streamed", 5, 1000)
    assert members(0, 100, 1000, 1, whole, streamed) == {"whole": 1000}
    assert members(100, 200, 400, 1, whole, streamed) == {"streamed": 400}


def test_an_estimated_size_that_was_too_small_does_not_end_a_prompt() -> None:
    guessed, sure = prompt("guessed", 0, 1000), prompt("other", 5, 1000)
    guessed.reported = 1000
    assert members(100, 200, 400, 1, guessed, sure) == {"guessed": 400}
    guessed.sure = True
    assert members(200, 300, 400, 1, guessed, sure) == {"other": 400}


def test_a_step_without_prompts_has_no_members() -> None:
    assert members(0, 100, 0, 0, prompt("a", 0, 100)) == {}
