"""Which step made a first token. Times in milliseconds."""

from prefillwatch.analysis.cost import ClearStep, StepLaw
from prefillwatch.analysis.steps.open_steps import OpenSteps
from prefillwatch.analysis.steps.packing import Engine, Packing, Prompt
from prefillwatch.units import MS

PACKING = Packing(Engine(budget=2048, proven=True, cost=StepLaw(0.1 * MS)))


def clear_of_ten_ms() -> ClearStep:
    clear = ClearStep()
    for _ in range(20):
        clear.observe(10 * MS, 6, waiting=False)
    return clear


def steps(*ends_ms: float, decoders: int = 6, start_ms: float = 0) -> OpenSteps:
    found = OpenSteps(clear_of_ten_ms())
    for end_ms in ends_ms:
        found.append(found.make(round(start_ms * MS), round(end_ms * MS), decoders))
        start_ms = end_ms
    return found


def maker(found: OpenSteps, first_ms: float, sent_ms: float = 0, tokens: int = 300) -> float:
    """End of the step that is taken for the maker of a first token."""
    prompt = Prompt("a", round(sent_ms * MS), tokens, tokens, first_ns=round(first_ms * MS))
    found.note_finished(prompt, PACKING, prompt.sent_ns)
    made = next(step for step in found.all if prompt in step.finished)
    return made.end_ns / MS


def test_long_is_what_takes_more_than_decoding() -> None:
    assert [step.long for step in steps(10, 20, 70, 80).all] == [False, False, True, False]
    assert [step.excess_ns // MS for step in steps(10, 70).all] == [0, 50]


def test_a_first_token_trails_its_step() -> None:
    assert maker(steps(10, 60, 70, 80), first_ms=63) == 60


def test_also_past_the_end_of_the_next_clear_step() -> None:
    assert maker(steps(10, 60, 70, 80), first_ms=72) == 60


def test_a_first_token_may_come_a_little_before_the_first_read_of_its_step() -> None:
    assert maker(steps(10, 60, 70), first_ms=55) == 60


def test_but_no_more_than_ten_milliseconds() -> None:
    assert maker(steps(10, 20, 60, 110), first_ms=51) == 60
    assert maker(steps(10, 20, 60, 110), first_ms=49) != 60


def test_its_step_took_half_of_what_the_prompt_should_cost() -> None:
    """300 tokens should cost 30 ms beyond a clear step of 10 ms."""
    assert maker(steps(10, 20, 46, 56, 66), first_ms=58) == 46
    assert maker(steps(10, 20, 44, 54, 64), first_ms=56) != 44


def test_a_splinter_of_a_step_is_not_clear() -> None:
    assert [step.is_clear for step in steps(10, 16.5, 22).all] == [True, True, False]


def test_a_small_prompt_was_in_the_last_step_before_its_first_token() -> None:
    assert maker(steps(10, 20, 30, 40), first_ms=32, tokens=5) == 30


def test_not_in_a_step_that_began_before_it_was_sent() -> None:
    assert maker(steps(10, 60, 110, 120), first_ms=113, sent_ms=58) == 110
    assert maker(steps(10, 60, 70, 80), first_ms=72, sent_ms=58, tokens=20) == 70


def test_with_nobody_decoding_first_tokens_make_steps() -> None:
    found = steps(10, 20)
    assert maker(found, first_ms=900, sent_ms=800) == 900
    made = found.all[-1]
    assert (made.start_ns // MS, made.decoders, made.observed, made.long) == (800, 0, False, True)


def test_first_tokens_close_together_share_a_step() -> None:
    found = steps(10, 20)
    assert maker(found, first_ms=900, sent_ms=800) == 900
    assert maker(found, first_ms=905, sent_ms=800) == 900
    assert maker(found, first_ms=1000, sent_ms=800) == 1000
    assert found.all[-1].start_ns == 900 * MS


def test_a_step_that_began_with_a_first_token_did_not_make_it() -> None:
    found = steps()
    found.append(found.make(900 * MS, 908 * MS, 1))
    assert maker(found, first_ms=900, sent_ms=800) == 900
    assert [step.start_ns // MS for step in found.all] == [800, 900]


def test_a_first_token_in_the_midst_of_a_step_splits_it() -> None:
    found = steps(10, 500)
    assert maker(found, first_ms=200) == 200
    assert [(step.start_ns // MS, step.end_ns // MS) for step in found.all] == [(0, 10), (10, 200), (200, 500)]


def test_a_made_up_step_is_split_into_as_many_as_the_prompt_needs() -> None:
    found = steps(10)
    maker(found, first_ms=650, sent_ms=20, tokens=5120)
    found.split(found.all[-1], 5120, False, PACKING)
    assert [(step.start_ns // MS, step.end_ns // MS) for step in found.all[1:]] == [(20, 272), (272, 524), (524, 650)]


def test_but_not_into_more_than_there_was_time_for() -> None:
    found = steps(10)
    maker(found, first_ms=260, sent_ms=20, tokens=5120)
    found.split(found.all[-1], 5120, False, PACKING)
    assert len(found.all) == 2


def test_steps_of_the_heartbeat_give_way_to_the_engines_own() -> None:
    found = steps(10, 20, 30)
    found.take_back(15 * MS)
    assert [step.end_ns // MS for step in found.all] == [10]


def test_dropping_keeps_count_of_what_was_scanned() -> None:
    found = steps(10, 20, 30)
    found.scanned = 2
    found.drop(1)
    assert (found.scanned, len(found)) == (1, 2)
    assert found.next_until(29 * MS) is None
    assert found.next_until(30 * MS) is found.all[1]
