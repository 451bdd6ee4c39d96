"""Who waits, in order of arrival. Times in seconds."""

from prefillwatch.analysis.steps.packing import Prompt
from prefillwatch.analysis.steps.queue import PromptQueue
from prefillwatch.units import NS


def room(**sent_s: float) -> PromptQueue:
    found = PromptQueue()
    for rid, at in sent_s.items():
        found.enter(prompt(rid, at))
    return found


def prompt(rid: str, sent_s: float, tokens: int = 300, streamed: bool = True) -> Prompt:
    return Prompt(rid, round(sent_s * NS), tokens, tokens, streamed=streamed)


def names(prompts: list[Prompt]) -> str:
    return "".join(str(each.rid) for each in prompts)


def test_first_tokens_come_out_in_order_of_time_and_once() -> None:
    waiting = room(a=1, b=1, c=1)
    for rid, at in (("b", 3), ("a", 2), ("c", 5)):
        waiting.first_token(rid, at * NS)
    assert names(waiting.take_firsts(3 * NS)) == "ab"
    assert names(waiting.take_firsts(9 * NS)) == "c"
    assert waiting.take_firsts(9 * NS) == []
    assert list(waiting.waiting) == []


def test_a_request_with_a_first_token_is_unplaced_until_placed() -> None:
    waiting = room(a=1, b=2)
    waiting.first_token("a", 3 * NS)
    oldest = waiting.oldest_unplaced()
    assert oldest is not None
    assert oldest.rid == "a"
    waiting.placed(oldest)
    assert names(list(waiting.unplaced.values())) == "b"


def test_the_oldest_besides_some() -> None:
    waiting = room(a=1, b=2)
    first = waiting["a"]
    assert first is not None
    other = waiting.oldest_unplaced(first)
    assert other is not None
    assert other.rid == "b"


def test_who_leaves_is_not_waited_for() -> None:
    waiting = room(a=1, b=2, c=3)
    waiting.leave("b", 4 * NS)
    waiting.leave("a", 5 * NS)
    assert list(waiting.unplaced) == ["c"]
    assert names(waiting.take_left(4 * NS, 9 * NS)) == ""  # "a" arrived first and is still there at 4
    assert names(waiting.take_left(9 * NS, 1 * NS)) == "a"
    assert names(waiting.take_left(9 * NS, 9 * NS)) == "b"


def test_a_first_token_counts_once_and_unknown_requests_do_not() -> None:
    waiting = room(a=1)
    waiting.first_token("a", 2 * NS)
    waiting.first_token("a", 3 * NS)
    waiting.first_token("ghost", 3 * NS)
    waiting.leave("a", 4 * NS)
    waiting.leave("ghost", 4 * NS)
    assert [each.over_ns for each in waiting.take_firsts(9 * NS)] == [2 * NS]
    assert waiting.left == []


def test_nobody_waits() -> None:
    waiting = room(a=2)
    assert waiting.none_waited(0, 1 * NS, -1)
    assert not waiting.none_waited(1 * NS, 3 * NS, -1)
    waiting.first_token("a", 4 * NS)
    assert not waiting.none_waited(3 * NS, 5 * NS, -1)
    assert waiting.none_waited(4 * NS, 5 * NS, -1)


def test_those_passed_over_may_be_left_out() -> None:
    waiting = room(a=1, b=5)
    assert not waiting.none_waited(6 * NS, 7 * NS, 3 * NS)
    assert waiting.none_waited(6 * NS, 7 * NS, 5 * NS)
    assert names(waiting.fresh(0, 9 * NS)) == "ab"
    assert names(waiting.fresh(1 * NS, 9 * NS)) == "b"
    assert names(waiting.fresh(0, 4 * NS)) == "a"


def test_an_answer_that_is_not_streamed_never_blocks_but_counts_as_waiting() -> None:
    waiting = PromptQueue()
    silent = prompt("a", 1, streamed=False)
    waiting.enter(silent)
    assert waiting.oldest_unplaced() is None
    assert not waiting.none_waited(2 * NS, 3 * NS, 0)
    waiting.leave("a", 4 * NS)
    assert waiting.none_waited(4 * NS, 5 * NS, 0)


def test_large_prompts_among_those_who_wait_longest() -> None:
    waiting = PromptQueue()
    for rid, tokens in (("a", 300), ("b", 9000), ("c", 5000)):
        waiting.enter(prompt(rid, 1, tokens))
    assert names(waiting.large(2048, 2 * NS)) == "bc"
    assert waiting.large(2048, 0) == []


def test_memory_is_bounded_also_while_one_request_waits_for_ever() -> None:
    waiting = room(stuck=0)
    for number in range(50_000):
        waiting.enter(prompt(f"r{number}", number, streamed=number % 3 > 0))
        if number % 2:
            waiting.first_token(f"r{number}", (number + 1) * NS)
        waiting.leave(f"r{number}", (number + 1) * NS)
        for each in waiting.take_firsts(number * NS):
            waiting.placed(each)
        waiting.forget((number - 100) * NS, 10_000)
    assert list(waiting.waiting) == ["stuck"]
    sizes = [len(waiting._known), len(waiting.silent), len(waiting._over), len(waiting.unplaced), len(waiting.left)]
    assert max(sizes) <= 10_001
    assert len(waiting._known) < 200


def test_at_most_so_many_are_remembered() -> None:
    waiting = PromptQueue()
    for number in range(500):
        waiting.enter(prompt(f"r{number}", number))
        waiting.leave(f"r{number}", number * NS + 1)
    waiting.forget(0, 20)
    assert (len(waiting._known), len(waiting.left)) == (20, 20)


def test_a_prompt_that_was_elsewhere_never_came() -> None:
    waiting = room(a=1, b=2)
    dropped = waiting.drop("a")
    assert dropped is not None
    assert dropped.rid == "a"
    assert waiting["a"] is None
    assert waiting.none_waited(round(0.5 * NS), round(1.5 * NS), 0)
    assert names(list(waiting.unplaced.values())) == "b"
    assert waiting.drop("a") is None


def test_another_engine_may_have_what_waits() -> None:
    waiting = room(a=1, b=2, c=3)
    waiting.enter(prompt("silent", 1.5, streamed=False))
    waiting.first_token("b", 4 * NS)
    other = waiting.without_a_first_token()
    assert list(other.waiting) == ["a", "c"]
    assert [each.rid for each in other.silent] == ["silent"]
    other.first_token("a", 5 * NS)
    assert "a" in waiting.waiting


def test_one_that_was_silent_shows_its_first_token_after_all() -> None:
    waiting = room(a=1, c=3)
    waiting.enter(prompt("b", 2, streamed=False))
    waiting.show("b")
    assert list(waiting.waiting) == list(waiting.unplaced) == ["a", "b", "c"]
    assert not waiting.silent
    waiting.first_token("b", 4 * NS)
    assert names(waiting.take_firsts(5 * NS)) == "b"
    waiting.show("b")  # it is over
    assert list(waiting.waiting) == ["a", "c"]
