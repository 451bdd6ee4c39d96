"""The prefill timeline, read as timelines. Times in milliseconds; clear steps take 10 ms, a prompt token 0.1 ms."""

import random
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prefillwatch.analysis.steps.heartbeat import Step
from prefillwatch.analysis.steps.timeline import PrefillTimeline, Split, StepFacts
from prefillwatch.analysis.tuning import DEFAULT
from prefillwatch.units import MS

#: By so many milliseconds later everything about a step is known.
LATER = 200


class Wire:
    """Plays steps and requests to a timeline, as they would be seen with six streams decoding."""

    def __init__(self, **rules: int) -> None:
        self.timeline = PrefillTimeline(replace(DEFAULT, timeline=replace(DEFAULT.timeline, **rules)))
        self.now = 0.0
        self.steps: list[StepFacts] = []
        self.splits: dict[object, Split] = {}
        self.clear(40)

    def step(self, duration: float, *finished: str, streams: int = 6) -> None:
        """A step, and the first tokens it made, which come 2 ms after it."""
        start, self.now = self.now, self.now + duration
        for rid in finished:
            self.timeline.first_token(rid, round((self.now + 2) * MS))
        self.timeline.steps([Step(round(start * MS), round(self.now * MS), streams)])

    def clear(self, count: int = 20) -> None:
        for _ in range(count):
            self.step(10)
            self.settle()

    def sent(self, rid: str, tokens: int, **more: object) -> None:
        self.timeline.sent(rid, round(self.now * MS), tokens, **more)  # type: ignore[arg-type]

    def gone(self, rid: str) -> None:
        self.timeline.gone(rid, round(self.now * MS))

    def settle(self, later: float = 0) -> None:
        self.timeline.settle(round((self.now + later) * MS))
        self.steps += self.timeline.drain_final()
        self.splits |= {split.rid: split for split in self.timeline.drain_splits()}

    def members(self) -> list[dict[object, int]]:
        """Prompts in the long steps, in order."""
        return [dict(step.members) for step in self.steps if step.end_ns - step.start_ns > 20 * MS]

    def split(self, rid: str) -> tuple[float, float]:
        return self.splits[rid].queue_ns / MS, self.splits[rid].prefill_ns / MS

    def largest(self, start: float, end: float) -> tuple[int, bool]:
        overlap = self.timeline.in_service(np.array([round(start * MS)]), np.array([round(end * MS)]))
        return int(overlap.tokens[0]), bool(overlap.provisional[0])

    def learn_budget(self) -> None:
        """A queue of long prompts shows that 2,048 tokens fit into a step."""
        self.serve({f"learn{number}": 5000 for number in range(4)})
        self.clear()
        self.steps.clear()
        assert self.timeline.engine.budget == 2048
        assert self.timeline.engine.proven

    def serve(self, prompts: dict[str, int], budget: int = 2042) -> None:
        """Prompts that arrive together, served by a scheduler with chunked prefill."""
        for rid, tokens in prompts.items():
            self.sent(rid, tokens)
        rest = dict(prompts)
        while rest:
            room, done = budget, []
            for rid, left in list(rest.items()):
                tokens = min(left, room)
                room -= tokens
                rest[rid] -= tokens
                if not rest[rid]:
                    del rest[rid]
                    done.append(rid)
            self.step(10 + 0.1 * (budget - room), *done)
            self.settle()


def test_a_prompt_in_one_step() -> None:
    wire = Wire()
    wire.sent("a", 300)
    wire.step(40, "a")
    wire.clear()
    assert wire.members() == [{"a": 300}]
    assert wire.split("a") == (0, 42)


def test_clear_steps_are_final_without_a_prompt() -> None:
    wire = Wire()
    assert len(wire.steps) >= 25
    assert all(step.members == () and step.prefill_tokens == 0 and step.decoders == 6 for step in wire.steps)
    assert [step.start_ns for step in wire.steps[1:]] == [step.end_ns for step in wire.steps[:-1]]


def test_chunks_of_a_long_prompt() -> None:
    wire = Wire()
    wire.learn_budget()
    wire.serve({"a": 5000})
    wire.clear()
    assert wire.members() == [{"a": 2042}, {"a": 2042}, {"a": 916}]


def test_a_queue_is_served_in_order_and_each_waits_for_those_before() -> None:
    wire = Wire()
    wire.learn_budget()
    wire.serve({"a": 2500, "b": 2500, "c": 300})
    wire.clear()
    assert wire.members() == [{"a": 2042}, {"a": 458, "b": 1584}, {"b": 916, "c": 300}]
    # Two full steps of 214.2 ms and one of 131.6 ms; first tokens are read 2 ms after.
    assert wire.split("a") == (0, 430.4)
    assert [round(part, 3) for part in wire.split("b")] == [214.2, 347.8]
    assert [round(part, 3) for part in wire.split("c")] == [428.4, 133.6]


def test_first_tokens_that_coincide_keep_the_cost_right() -> None:
    wire = Wire()
    for number in range(8):
        wire.serve({f"{number}{rid}": 500 for rid in "abc"})
        wire.clear(5)
    assert round(wire.timeline.engine.cost.token_ns / MS, 3) == 0.1


def test_the_cause_is_known_before_the_first_token() -> None:
    wire = Wire()
    wire.learn_budget()
    wire.sent("a", 5000)
    begun = wire.now
    wire.step(214)
    assert wire.largest(begun, wire.now + 1) == (5000, True)
    assert wire.timeline.in_service_now() == [("a", 5000)]
    wire.step(214)
    wire.step(102, "a")
    wire.clear()
    assert wire.largest(begun + 1, begun + 215) == (5000, False)


def test_no_prompt_is_in_service_before_or_after() -> None:
    wire = Wire()
    before = wire.now
    wire.sent("a", 300)
    wire.step(40, "a")
    wire.clear()
    assert wire.largest(before - 9, before + 1) == (0, False)
    assert wire.largest(before + 1, before + 41) == (300, False)
    assert wire.largest(before + 41, before + 51) == (0, False)


def test_a_waiting_request_is_not_to_blame_for_long_steps_followed_by_clear_ones() -> None:
    """Preempted requests are recomputed while others queue: nobody's first token comes of it."""
    wire = Wire()
    wire.sent("queued", 300)
    wire.clear()
    wire.step(120)
    assert wire.largest(wire.now - 120, wire.now + 1)[0] == 0
    wire.clear()
    wire.step(40, "queued")
    wire.clear()
    assert wire.members() == [{}, {"queued": 300}]


def test_a_large_prompt_that_was_passed_over_may_have_been_begun() -> None:
    wire = Wire()
    wire.learn_budget()
    wire.sent("queued", 9000)
    wire.clear()
    wire.step(214)
    assert wire.largest(wire.now - 214, wire.now + 1) == (9000, True)


@pytest.mark.apart
def test_a_request_that_waits_for_ten_minutes_holds_nothing_up() -> None:
    wire = Wire()
    wire.sent("stuck", 300)
    for number in range(600):
        wire.sent(f"r{number}", 500)
        wire.step(60, f"r{number}")
        wire.clear(94)
        assert wire.now * MS - wire.timeline.settled_ns < LATER * MS
    assert all(members.keys() == {f"r{number}"} for number, members in enumerate(wire.members()))
    assert list(wire.timeline._queue.waiting) == ["stuck"]
    assert len(wire.timeline._queue._known) < 200
    assert len(wire.timeline._history) <= 13_000


def test_steps_older_than_the_horizon_become_final_by_guess() -> None:
    wire = Wire(horizon_ns=2000 * MS)
    wire.sent("endless", 10**6)
    for _ in range(100):
        wire.step(200)
        wire.settle()
    assert wire.now * MS - wire.timeline.settled_ns < 2500 * MS
    assert all(members.keys() == {"endless"} for members in wire.members())


def test_at_most_so_many_steps_are_kept_open() -> None:
    wire = Wire(most_steps=50)
    wire.sent("endless", 10**6)
    for _ in range(500):
        wire.step(100)
        wire.settle()
    assert len(wire.timeline._steps) <= 51
    assert len(wire.timeline._run) <= 501


def test_a_client_that_leaves_while_its_prompt_is_read() -> None:
    wire = Wire()
    wire.learn_budget()
    wire.sent("left", 6000)
    wire.sent("a", 2500)
    wire.step(214)
    wire.step(214)
    wire.gone("left")
    wire.step(214)
    wire.step(56, "a")
    wire.clear()
    assert [set(members) for members in wire.members()] == [{"left"}, {"left"}, {"a"}, {"a"}]
    assert "left" not in wire.splits


def test_an_answer_that_is_not_streamed_takes_what_nobody_else_explains() -> None:
    wire = Wire()
    wire.learn_budget()
    wire.sent("json", 3000, streamed=False)
    wire.step(214)
    wire.step(106)
    wire.clear()
    wire.gone("json")
    wire.clear()
    assert wire.members() == [{"json": 2042}, {"json": 958}]


def test_a_cached_prefix_known_when_the_request_is_sent() -> None:
    wire = Wire()
    wire.sent("a", 5000, uncached=400)
    wire.step(50, "a")
    wire.clear()
    assert wire.members() == [{"a": 400}]
    assert wire.largest(wire.steps[-22].start_ns / MS, wire.now) == (5000, True)


def test_a_size_told_with_the_first_token_counts() -> None:
    wire = Wire()
    wire.sent("a", 900)
    wire.step(40, "a")
    wire.timeline.sized("a", 300, 280)
    wire.clear()
    assert wire.members() == [{"a": 280}]


def test_with_nobody_decoding_first_tokens_make_the_steps() -> None:
    wire = Wire()
    wire.now += 5000
    wire.sent("a", 300)
    wire.timeline.first_token("a", round((wire.now + 40) * MS))
    wire.now += 1000
    wire.settle()
    assert wire.split("a") == (0, 40)
    made = wire.steps[-1]
    assert (made.observed, made.decoders, made.members) == (False, 0, (("a", 300),))
    assert (made.end_ns - made.start_ns) / MS == 40


def test_two_prompts_to_an_idle_engine_one_after_the_other() -> None:
    wire = Wire()
    wire.now += 5000
    wire.sent("a", 300)
    wire.sent("b", 500)
    wire.timeline.first_token("a", round((wire.now + 40) * MS))
    wire.timeline.first_token("b", round((wire.now + 100) * MS))
    wire.now += 1000
    wire.settle()
    assert (wire.split("a"), wire.split("b")) == ((0, 40), (40, 60))


def test_settled_moves_on_while_nothing_happens() -> None:
    wire = Wire()
    wire.now += 10_000
    wire.settle()
    assert wire.now * MS - wire.timeline.settled_ns < LATER * MS


def test_after_a_hole_those_who_waited_get_no_split() -> None:
    wire = Wire()
    wire.sent("a", 300)
    wire.timeline.hole(round((wire.now + 500) * MS))
    wire.now += 600
    wire.step(40, "a")
    wire.clear()
    assert "a" not in wire.splits
    wire.sent("b", 300)
    wire.step(40, "b")
    wire.clear()
    assert wire.split("b") == (0, 42)


def test_what_the_engine_tells_replaces_the_heartbeat() -> None:
    wire = Wire()
    wire.sent("a", 3000)
    begun = wire.now
    for at, end, members in ((20, 240, [("a", 2000)]), (240, 350, [("a", 1000)]), (350, 360, [])):
        wire.timeline.engine_step(round((begun + at) * MS), round((begun + end) * MS), 6, members)
    wire.step(360, "a")
    wire.clear()
    told = [dict(step.members) for step in wire.steps if step.start_ns >= (begun + 15) * MS]
    assert told == [{"a": 2000}, {"a": 1000}, {}]
    assert wire.split("a") == (20, 342)


def test_when_the_engine_falls_silent_the_heartbeat_takes_over() -> None:
    wire = Wire()
    wire.timeline.engine_step(round(wire.now * MS), round((wire.now + 10) * MS), 6, [])
    wire.now += 6000
    wire.sent("a", 300)
    wire.step(40, "a")
    wire.clear()
    assert wire.members()[-1] == {"a": 300}


def test_the_engines_prefill_time_overrules_ours_and_queue_is_the_rest() -> None:
    wire = Wire()
    wire.sent("a", 300)
    wire.step(40, "a")
    wire.timeline.engine_prefill("a", 30 * MS)
    wire.clear()
    assert wire.split("a") == (12, 30)


def test_unknown_requests_do_no_harm() -> None:
    wire = Wire()
    wire.timeline.first_token("ghost", round(wire.now * MS))
    wire.timeline.sized("ghost", 10)
    wire.timeline.gone("ghost", round(wire.now * MS))
    wire.timeline.engine_prefill("ghost", 5)
    wire.clear()
    assert wire.splits == {}


def shuffled(wire: Wire, rng: random.Random, waiting: list[str], number: int) -> None:
    """One arbitrary thing that can happen."""
    what = rng.choice(
        ["sent", "sent", "first", "first", "gone", "sized", "step", "step", "step", "hole", "idle", "engine"]
    )
    rid = rng.choice(waiting) if waiting else "ghost"
    if what == "sent":
        waiting.append(f"r{number}")
        uncached = rng.choice([None, 0, 10, 100_000])
        wire.sent(f"r{number}", rng.choice([0, 1, 300, 9000]), uncached=uncached, streamed=rng.random() < 0.8)
    elif what == "sized":
        wire.timeline.sized(rid, rng.choice([0, 500, 20_000]), rng.choice([None, 0, 400]))
    elif what == "step":
        wire.step(rng.choice([0.1, 10, 10, 12, 60, 400, 5000]), *([rid] if rng.random() < 0.3 else []))
    elif what == "idle":
        wire.now += rng.choice([5, 50, 3000])
    elif what == "engine" and rng.random() < 0.2:
        wire.timeline.engine_step(round(wire.now * MS), round((wire.now + 50) * MS), 6, [(rid, 300)])
        wire.now += 50
    elif what == "hole" and rng.random() < 0.2:
        wire.timeline.hole(round(wire.now * MS))
    elif what in ("first", "gone"):
        told = wire.timeline.first_token if what == "first" else wire.timeline.gone
        told(rid, round((wire.now + rng.uniform(-5, 15)) * MS))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
@example(51139)  # a step of the heartbeat that ended before one that the engine told of, and a first token after both
def test_whatever_happens_steps_come_out_in_order_and_splits_add_up(seed: int) -> None:
    rng = random.Random(seed)
    wire = Wire(horizon_ns=20_000 * MS, most_steps=200)
    waiting: list[str] = []
    settled_ns = 0
    for number in range(150):
        shuffled(wire, rng, waiting, number)
        if rng.random() < 0.5:
            wire.settle(rng.choice([0, 20, 500]))
            assert wire.timeline.settled_ns >= settled_ns
            settled_ns = wire.timeline.settled_ns
            wire.largest(wire.now - 300, wire.now)
    wire.settle(100_000)
    wire.settle(100_001)
    check(wire.steps, wire.splits.values())
    assert wire.timeline._steps.all == []


def check(steps: list[StepFacts], splits: Iterable[Split]) -> None:
    assert all(step.start_ns <= step.end_ns for step in steps)
    assert all(step.prefill_tokens == sum(tokens for _, tokens in step.members) for step in steps)
    assert all(tokens > 0 for step in steps for _, tokens in step.members)
    assert all(split.queue_ns >= 0 and split.prefill_ns >= 0 for split in splits)


def test_an_engine_that_reports_no_step_for_five_seconds_does_not_report_any_more() -> None:
    wire = Wire()
    start, wire.now = wire.now, wire.now + 10
    wire.timeline.engine_step(round(start * MS), round(wire.now * MS), 6, ())
    reported = wire.now
    while wire.now < reported + 6000:
        wire.step(10)
    wire.settle()
    seen = [step.end_ns / MS - reported for step in wire.steps if step.end_ns > reported * MS]
    assert 4990 <= min(seen) <= 5010


def test_twenty_thousand_steps_are_kept() -> None:
    timeline = PrefillTimeline()
    timeline.steps(Step(number * MS, (number + 1) * MS, 6) for number in range(30_000))
    timeline.settle(31_000 * MS)
    assert len(timeline.drain_final()) == 20_000


def busy(wire: Wire, steps: int) -> int:
    """Long steps with a first token each, while one more prompt always waits; how many of them are learned from
    together."""
    most = 0
    for number in range(steps):
        wire.sent(f"{number}", 500)
        if number:
            wire.step(60, f"{number - 1}")
            wire.settle(LATER)
        most = max(most, len(wire.timeline._run))
    return most


def test_while_nothing_is_certain_a_busy_time_is_learned_from_after_thirty_two_steps() -> None:
    assert busy(Wire(), 120) == 32


def test_later_after_two_hundred() -> None:
    wire = Wire()
    wire.learn_budget()
    assert wire.timeline.engine.proven
    assert busy(wire, 450) == 200
