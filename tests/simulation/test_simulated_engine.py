"""The judge has to be right before it judges: the engine's log, and the truth of stalls, on scenes checked by hand."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.simulation.delivery import deliver
from tests.simulation.engine import PLENTY, Job, Rank, Scheduling, Speed, Step, clear_step, run_in_step
from tests.simulation.faults import Hardships
from tests.simulation.shapes import SHAPES, Shape
from tests.simulation.truth import TrueStall, true_stalls

PACE = Speed(base=20.0, per_sequence=0.0, per_prompt_token=0.1, noise=0.0)
PLAIN = SHAPES[0]


def engine(scheduling: Scheduling, *prompts: Job, stops: list[tuple[float, float]] | None = None) -> Rank:
    """Two who chat, and these."""
    rank = Rank(scheduling, PACE, random.Random(1), stops or [])
    rank.run([Job("chat-0", 0, 20, 400), Job("chat-1", 0, 20, 400), *prompts], 16_000)
    return rank


def with_prompts(rank: Rank, since: float = 1000.0) -> list[Step]:
    return [step for step in rank.steps if step.prompts and step.start > since]


def stalls(rank: Rank, hardships: Hardships | None = None, shape: Shape = PLAIN) -> dict[str, list[TrueStall]]:
    hardships = hardships or Hardships()
    delivery = deliver(rank.tokens, shape, hardships, random.Random(1))
    return plain(true_stalls([rank], delivery, hardships, clear_step([rank]), shape.interval))


def plain(found: dict[str, list[TrueStall]]) -> dict[str, list[TrueStall]]:
    """Those that are long beyond doubt."""
    return {name: [each for each in own if each.plain] for name, own in found.items()}


def long_prompt(name: str = "long", at: float = 2000.0, tokens: int = 5000) -> Job:
    return Job(name, at, tokens, 10)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_step_is_as_long_as_its_parts_and_every_prompt_is_read_once(shape: Shape) -> None:
    prompts = [long_prompt("a"), long_prompt("b", 2001.0, 700), long_prompt("c", 2500.0, 90)]
    rank = engine(replace(shape.scheduling, cache_tokens=PLENTY, prefix_caching=False), *prompts)
    for step in rank.steps:
        assert step.end - step.start == pytest.approx(step.clear + step.prefill + step.recomputing + step.stopped)
    for prompt in prompts:
        assert sum(step.prompts.get(prompt.name, 0) for step in rank.steps) == prompt.prompt == prompt.uncached


def test_a_chunked_prompt_fills_steps_beside_the_streams() -> None:
    read = [step.prompts["long"] for step in with_prompts(engine(Scheduling(), long_prompt()))]
    assert read == [2046, 2046, 908]


def test_an_unchunked_prompt_is_read_in_one_step() -> None:
    rank = engine(Scheduling(chunked=False, budget=16_384), long_prompt())
    assert [step.prompts["long"] for step in with_prompts(rank)] == [5000]


def test_sliced_prompts_are_read_beside_each_other() -> None:
    rank = engine(Scheduling(slice=512), long_prompt("a", tokens=1024), long_prompt("b", tokens=1024))
    assert [step.prompts for step in with_prompts(rank)] == [{"a": 512, "b": 512}] * 2


def test_prompts_rest_while_streams_get_their_steps() -> None:
    read = [bool(step.prompts) for step in engine(Scheduling(rests=3), long_prompt()).steps if step.start > 2000.0]
    first = read.index(True)
    assert read[first : first + 9] == [True, False, False, False] * 2 + [True]


def test_a_prompt_that_others_may_come_to_waits_for_them() -> None:
    rank = engine(Scheduling(ahead=False, delay=5), Job("first", 2001.0, 500, 5), Job("second", 2070.0, 500, 5))
    assert [step.prompts for step in with_prompts(rank)] == [{"first": 500, "second": 500}]


def test_a_pipeline_serves_streams_in_turn_and_a_prompt_holds_up_all_of_them() -> None:
    """Whoever comes while a step is under way gets into another one, and stays with that."""
    rank = Rank(Scheduling(stages=4), PACE, random.Random(1))
    rank.run([Job("chat-0", 0, 20, 400), Job("chat-1", 47, 20, 400), long_prompt()], 16_000)
    steps = [step for step in rank.steps if 1000.0 < step.start < 1900.0]
    assert {len(step.members) for step in steps} == {1}
    found = stalls(rank)
    assert {each.cause for own in found.values() for each in own} == {"prefill"}
    assert {name for each in found["chat-0"] for name in each.culprits} == {"long"}
    assert sum(sum(each.culprits.values()) for each in found["chat-0"]) > 4000


def test_ranks_in_step_wait_for_a_prompt_of_any_of_them() -> None:
    ranks = [Rank(Scheduling(), PACE, random.Random(1)) for _ in range(2)]
    run_in_step(ranks, [Job("chat-0", 0, 20, 400), Job("long", 2000.0, 4500, 10, rank=1)], 12_000)
    assert [step.end for step in ranks[0].steps] == [step.end for step in ranks[1].steps]
    delivery = deliver(ranks[0].tokens, PLAIN, Hardships(), random.Random(1))
    found = plain(true_stalls(ranks, delivery, Hardships(), 20.0, 1))["chat-0"]
    assert [(each.cause, each.culprits) for each in found] == [("prefill", {"long": 2048})] * 2


def test_nobody_can_name_a_prompt_that_did_not_come_through_us() -> None:
    found = stalls(engine(Scheduling(), Job("long", 2000.0, 2000, 10, seen=False)))
    assert {(each.cause, len(each.culprits)) for each in found["chat-0"]} == {("prompt out of sight", 0)}


def test_right_guesses_come_with_the_token_they_follow() -> None:
    rank = Rank(Scheduling(drafts=((4, 3), (128, 1))), replace(PACE, accepted=1.0), random.Random(1))
    rank.run([Job("chat-0", 0, 20, 41)], 5_000)
    steps = [sum(token.step == index for token in rank.tokens) for index in range(len(rank.steps))]
    assert steps == [1, *[4] * 10]
    delivery = deliver(rank.tokens, PLAIN, Hardships(), random.Random(1))
    assert [len(event.tokens) for event in delivery.events["chat-0"]] == steps


def test_the_more_decode_the_fewer_guesses() -> None:
    rank = Rank(Scheduling(drafts=((1, 3), (128, 1))), replace(PACE, accepted=0.0), random.Random(1))
    rank.run([Job("chat-0", 0, 20, 400), Job("chat-1", 500.0, 20, 400)], 1_000)
    clear = [step.clear for step in rank.steps if not step.prefill]
    assert clear[0] - clear[-1] == pytest.approx(2 * PACE.per_draft)


def test_a_list_of_prompts_is_read_one_after_the_other() -> None:
    rank = engine(Scheduling(), Job("list", 2000.0, 500, 2, prompts=10))
    assert [step.prompts["list"] for step in with_prompts(rank)] == [2046, 2042, 912]


def test_a_context_from_elsewhere_costs_no_step_anything_and_comes_late() -> None:
    rank = engine(Scheduling(), Job("fetched", 2000.0, 5000, 5, fetched=800.0))
    begun = with_prompts(rank)
    assert [step.prompts["fetched"] <= Scheduling().block for step in begun] == [True]
    assert begun[0].start > 2800.0


def test_pictures_take_their_time_with_the_prompt() -> None:
    plain, pictures = (
        with_prompts(engine(Scheduling(), Job("long", 2000.0, 500, 5, encoded=encoded)))[0].prefill
        for encoded in (0.0, 300.0)
    )
    assert pictures - plain == pytest.approx(300.0)


def test_what_the_engine_compiles_for_a_prompt_is_a_pause() -> None:
    found = stalls(engine(Scheduling(), Job("first", 2000.0, 25, 5, compiles=900.0)))
    assert [each.cause for each in found["chat-0"]] == ["engine_pause"]


def test_thought_is_not_shown_and_a_tool_call_comes_whole() -> None:
    rank = engine(
        Scheduling(), Job("thinks", 2000.0, 100, 50, hidden=40), Job("calls", 2000.0, 100, 50, withheld=(10, 30))
    )
    delivery = deliver(rank.tokens, PLAIN, Hardships(), random.Random(1))
    assert sum(len(event.tokens) for event in delivery.events["thinks"]) == 10
    assert sorted(len(event.tokens) for event in delivery.events["calls"])[-2:] == [1, 20]
    assert "calls" not in {name for name, own in stalls(rank).items() if own}


def test_what_is_scheduled_ahead_lets_a_prompt_wait_for_a_step_more() -> None:
    begun = [
        with_prompts(engine(Scheduling(ahead=ahead), Job("long", 2010.0, 500, 5)))[0].start for ahead in (False, True)
    ]
    assert 0 < begun[0] - 2010.0 <= 20
    assert 20 < begun[1] - 2010.0 <= 40


def test_prompts_that_come_first_leave_no_room_for_streams() -> None:
    rank = engine(Scheduling(ahead=False, prefill_first=True), long_prompt())
    assert all({each.job.name for each in step.members} == {"long"} for step in with_prompts(rank))


def test_a_full_cache_takes_a_context_away_and_computes_it_again() -> None:
    rank = engine(Scheduling(cache_tokens=700), Job("third", 100.0, 20, 400))
    assert rank.preempted
    assert any(step.recomputing for step in rank.steps)
    assert max(state.usage for state in rank.states) <= 1.0


def test_a_server_that_aborts_reads_no_further_and_another_goes_on() -> None:
    left = [
        sum(step.prompts.get("long", 0) for step in rank.steps)
        for rank in (
            engine(Scheduling(aborts=aborts), Job("long", 2000.0, 5000, 10, leaves=2100.0)) for aborts in (True, False)
        )
    ]
    assert left[0] < 5000 == left[1]


def test_the_truth_of_a_prompts_stall_is_the_prompt() -> None:
    found = stalls(engine(Scheduling(), long_prompt(tokens=4500)))
    assert [len(found[name]) for name in ("chat-0", "chat-1")] == [2, 2]  # the last chunk of 408 is too short for one
    assert {each.cause for each in found["chat-0"]} == {"prefill"}
    assert [each.culprits for each in found["chat-0"]] == [{"long": 2046}] * 2
    assert [each.excess for each in found["chat-0"]] == pytest.approx([210, 220], abs=10)


def test_the_truth_of_a_stop_is_a_pause_though_a_short_prompt_was_there() -> None:
    found = stalls(engine(Scheduling(), Job("short", 1990.0, 50, 10), stops=[(2000.0, 3500.0)]))
    assert [each.cause for each in found["chat-0"]] == ["engine_pause"]


def test_the_truth_of_tokens_held_on_the_way_is_whoever_held_them() -> None:
    rank = engine(Scheduling())
    held = [(2000.0, 3500.0)]
    for hardships, cause in (
        (Hardships(api_server=held), "frontend"),
        (Hardships(relay=held), "ours"),
        (Hardships(hop_every=1500.0), "buffering"),
    ):
        assert {each.cause for each in stalls(rank, hardships)["chat-0"]} == {cause}
    read_by_one = stalls(rank, Hardships(readers=held))
    assert [each.cause for own in read_by_one.values() for each in own] == ["client"]


def test_who_waits_for_a_place_in_a_full_cache_was_preempted() -> None:
    found = stalls(engine(Scheduling(cache_tokens=700), Job("third", 100.0, 20, 400)))
    assert "preemption" in {each.cause for own in found.values() for each in own}
