"""A prompt is put into the steps that led to its first token. Steps are given by their durations in milliseconds."""

import pytest

from prefillwatch.analysis.cost import StepLaw
from prefillwatch.analysis.steps.packing import UNLIMITED, Engine, OpenStep, Packing, Prompt
from prefillwatch.analysis.tuning import DEFAULT
from prefillwatch.units import MS

CLEAR = 20
COST = StepLaw(token_ns=0.1 * MS, trusted=True)
CHUNKED = Packing(Engine(budget=2048, proven=True, cost=COST))
WHOLE = Packing(Engine(budget=8192, chunked=False, proven=True, cost=COST))


def steps(*durations_ms: int, decoders: int = 8) -> list[OpenStep]:
    found, start_ns = [], 1000 * MS
    for duration in durations_ms:
        end_ns = start_ns + duration * MS
        found.append(OpenStep(start_ns, end_ns, decoders, CLEAR * MS, duration > 1.5 * CLEAR))
        start_ns = end_ns
    return found


def prompt(name: str, tokens: int, sent_ms: int = 900, uncached: int | None = None) -> Prompt:
    return Prompt(name, sent_ms * MS, tokens, tokens if uncached is None else uncached, first_ns=0)


def shares(found: list[OpenStep]) -> list[dict[str, int]]:
    return [{str(each.rid): tokens for each, tokens in step.shares} for step in found]


def test_a_small_prompt_is_in_the_step_that_made_its_first_token() -> None:
    found = steps(20, 50, 20)
    assert CHUNKED.pack_back(found, 1, prompt("a", 300)) == 1
    assert shares(found) == [{}, {"a": 300}, {}]


def test_a_long_prompt_fills_steps_and_the_last_takes_the_rest() -> None:
    found = steps(20, 224, 224, 212, 20)
    assert CHUNKED.pack_back(found, 3, prompt("a", 6000)) == 1
    assert shares(found) == [{}, {"a": 2040}, {"a": 2040}, {"a": 1920}, {}]


def test_the_next_prompt_starts_inside_the_last_chunk_of_the_one_before() -> None:
    found = steps(224, 224, 124)
    CHUNKED.pack_back(found, 1, prompt("a", 2500))
    assert CHUNKED.pack_back(found, 2, prompt("b", 2600)) == 1
    assert shares(found) == [{"a": 2040}, {"a": 460, "b": 1580}, {"b": 1020}]


def test_a_prompt_that_would_have_finished_in_a_step_was_not_in_it() -> None:
    found = steps(224, 224, 50)
    assert CHUNKED.pack_back(found, 2, prompt("a", 300)) == 2
    assert shares(found) == [{}, {}, {"a": 300}]


def test_a_prompt_is_in_no_step_that_began_before_it_was_sent() -> None:
    found = steps(224, 224, 224)
    assert CHUNKED.pack_back(found, 2, prompt("a", 6000, sent_ms=1100)) == 1


def test_a_clear_step_ends_the_way_back() -> None:
    found = steps(224, 20, 224, 212)
    assert CHUNKED.pack_back(found, 3, prompt("a", 6000)) == 2


def test_a_step_too_short_for_what_it_had_room_for_is_left_out() -> None:
    found = steps(60, 224, 160)
    assert CHUNKED.pack_back(found, 2, prompt("a", 3400)) == 1


def test_decoders_take_their_tokens_from_the_budget() -> None:
    found = steps(224, 224, decoders=1000)
    CHUNKED.pack_back(found, 1, prompt("a", 2000))
    assert shares(found) == [{"a": 1048}, {"a": 952}]


def test_without_chunked_prefill_a_prompt_is_in_one_step() -> None:
    found = steps(270, 620, 20)
    assert WHOLE.pack_back(found, 1, prompt("a", 6000)) == 1
    assert shares(found) == [{}, {"a": 6000}, {}]


def test_a_cap_on_chunks_leaves_room_for_others() -> None:
    capped = Packing(Engine(budget=2048, cap=512, proven=True, cost=COST))
    found = steps(124, 124, 124, 124)
    assert capped.pack_back(found, 3, prompt("a", 2000)) == 0
    assert capped.pack_back(found, 3, prompt("b", 1600)) == 0
    assert shares(found) == [{"a": 512, "b": 512}] * 3 + [{"a": 464, "b": 64}]


def test_tokens_the_step_had_no_time_for_were_cached() -> None:
    found = steps(20, 80, 20)
    CHUNKED.pack_back(found, 1, prompt("a", 5000))
    assert shares(found) == [{}, {"a": 600}, {}]


def test_unless_usage_has_told_the_size() -> None:
    found = steps(20, 80, 20)
    sure = prompt("a", 1800)
    sure.sure = True
    CHUNKED.pack_back(found, 1, sure)
    assert shares(found) == [{}, {"a": 1800}, {}]


def test_a_prompt_that_was_all_cached_is_still_in_its_step() -> None:
    found = steps(20, 20, 20)
    assert CHUNKED.pack_back(found, 1, prompt("a", 5000, uncached=1)) == 1
    assert shares(found) == [{}, {"a": 1}, {}]


def test_while_nothing_is_learned_tokens_go_by_the_time_of_the_steps() -> None:
    found = steps(20, 220, 220, 120)
    assert Packing(Engine()).pack_back(found, 3, prompt("a", 5000)) == 1
    assert shares(found) == [{}, {"a": 2000}, {"a": 2000}, {"a": 1000}]


def test_a_prompt_whose_client_left_gets_what_others_left_over() -> None:
    found = steps(224, 224, 224, 20)
    CHUNKED.pack_back(found, 2, prompt("a", 2500))
    left = prompt("b", 6000)
    left.first_ns, left.gone_ns = None, 1300 * MS
    CHUNKED.pack_gone(found, left)
    assert shares(found) == [{"b": 2040}, {"a": 2040}, {"a": 460}, {}]


def test_a_full_step_explains_itself_and_so_does_one_without_time_left() -> None:
    full, short, empty = steps(224, 120, 224)
    CHUNKED.pack_back([full], 0, prompt("a", 2040))
    CHUNKED.pack_back([short], 0, prompt("b", 900))
    assert CHUNKED.fills(full)
    assert not CHUNKED.fills(short)
    assert CHUNKED.explains(short)
    assert not CHUNKED.explains(empty)
    assert Packing(Engine()).room(empty) == UNLIMITED


@pytest.mark.parametrize(("placed", "right"), [(910, True), (890, False), (1090, True), (1110, False)])
def test_up_to_a_tenth_off_its_true_size_a_prompt_was_placed_right(placed: int, right: bool) -> None:
    prompt = Prompt("p", 0, 1000, 1000, sure=True, placed_size=placed)
    assert prompt.was_right(DEFAULT.packing.size_error) is right


def test_a_prompt_without_a_first_token_is_in_no_step_that_was_far_too_short_for_it() -> None:
    """A step a little longer than a clear one has not read two thousand tokens, trusted law or not."""
    short, long = steps(32, 224)
    learning = Packing(Engine(budget=2048, cost=StepLaw(token_ns=0.1 * MS)))
    silent = Prompt("a", 900 * MS, 3000, 3000, streamed=False)
    assert learning.fill_rest(short, silent, 3000) == 3000
    assert learning.fill_rest(long, silent, 3000) == 960
