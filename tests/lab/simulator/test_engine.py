"""The engine model: what rides in a step. Steps cost 1 ns per prompt token, so that lengths show in times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from prefillwatch.lab.simulator import CostModel, Engine, EngineConfig, SimRequest, StepRecord
from prefillwatch.lab.simulator.kv import hash_blocks

COST = CostModel(base=100.0, per_sequence=10.0, per_prefill_token=1.0)


def engine(**fields: Any) -> Engine:
    defaults = {"max_num_batched_tokens": 64, "max_num_seqs": 8, "max_model_len": 512, "num_gpu_blocks": 129}
    return Engine(EngineConfig(COST, **(defaults | fields)))


def request(name: str, prompt: int, tokens: int = 100, **fields: Any) -> SimRequest:
    return SimRequest(name, prompt, tokens, **fields)


def steps(engine: Engine, limit: int = 10_000) -> Iterator[StepRecord]:
    now = 0
    for _ in range(limit):
        record = engine.step(now)
        if record is None:
            return
        yield record
        now = record.end_ns
    raise AssertionError("the engine does not come to an end")


def run(engine: Engine, count: int) -> list[StepRecord]:
    return [record for _, record in zip(range(count), steps(engine), strict=False)]


def test_a_prompt_is_cut_into_chunks_of_the_budget_and_its_last_chunk_makes_the_first_token() -> None:
    e = engine()
    e.submit(request("a", 150))
    first, second, third, fourth = run(e, 4)
    assert [first.prefill, second.prefill, third.prefill] == [{"a": 64}, {"a": 64}, {"a": 22}]
    assert [first.produced, second.produced, third.produced] == [{}, {}, {"a": 1}]
    assert (fourth.prefill, fourth.decode) == ({}, ("a",))


def test_decodes_ride_first_and_the_prompt_gets_what_is_left_of_the_budget() -> None:
    e = engine()
    for name in "abc":
        e.submit(request(name, 4))
    run(e, 1)
    e.submit(request("long", 200))
    (record,) = run(e, 1)
    assert record.decode == ("a", "b", "c")
    assert record.prefill == {"long": 61}
    assert set(record.produced) == {"a", "b", "c"}


def test_the_next_prompt_starts_in_the_step_where_the_one_before_it_ends() -> None:
    e = engine()
    e.submit(request("a", 80))
    e.submit(request("b", 80))
    first, second = run(e, 2)
    assert first.prefill == {"a": 64}
    assert second.prefill == {"a": 16, "b": 48}


def test_no_step_exceeds_the_token_budget_or_the_number_of_sequences() -> None:
    e = engine(max_num_seqs=5)
    for number in range(40):
        e.submit(request(f"r{number}", 1 + number * 37 % 200, tokens=1 + number % 9))
    for record in steps(e):
        assert record.prefill_tokens + len(record.decode) <= 64
        assert len(record.prefill) + len(record.decode) <= 5
    assert e.blocks.usage == 0.0


def test_without_chunked_prefill_a_prompt_rides_whole_and_alone_where_two_do_not_fit() -> None:
    e = engine(enable_chunked_prefill=False, max_num_batched_tokens=512)
    e.submit(request("victim", 4))
    run(e, 1)
    e.submit(request("x", 300))
    e.submit(request("y", 300))
    first, second = run(e, 2)
    assert (first.prefill, first.decode) == ({"x": 300}, ("victim",))
    assert (second.prefill, second.decode) == ({"y": 300}, ("victim", "x"))
    assert first.end_ns - first.start_ns == 100 + 10 + 300


def test_long_prefill_threshold_lets_a_short_prompt_pass_within_the_step() -> None:
    e = engine(long_prefill_token_threshold=16)
    e.submit(request("long", 200))
    e.submit(request("short", 10))
    (record,) = run(e, 1)
    assert record.prefill == {"long": 16, "short": 10}


def test_long_prefill_threshold_does_not_hold_back_a_prompt_that_is_alone() -> None:
    e = engine(long_prefill_token_threshold=16)
    e.submit(request("long", 200))
    assert run(e, 1)[0].prefill == {"long": 64}


def test_sequences_beyond_the_limit_wait_for_one_to_end() -> None:
    e = engine(max_num_seqs=1)
    e.submit(request("a", 4, tokens=2))
    e.submit(request("b", 4, tokens=2))
    first, second, third = run(e, 3)
    assert (first.waiting, second.finished) == (1, {"a": "length"})
    assert third.prefill == {"b": 4}


def test_a_step_lasts_as_long_as_its_parts_cost() -> None:
    cost = CostModel(base=100, per_sequence=10, per_prefill_token=2, per_prefill_token_context=0.5, mixed_step=7)
    e = Engine(EngineConfig(cost, max_num_batched_tokens=64, max_num_seqs=8, max_model_len=512, num_gpu_blocks=129))
    e.submit(request("a", 80))
    first, second, third = run(e, 3)
    assert first.end_ns - first.start_ns == 100 + 7 + 64 * (2 + 0.5 * 32)
    assert second.end_ns - second.start_ns == 100 + 7 + 16 * (2 + 0.5 * (64 + 8))
    assert third.end_ns - third.start_ns == 100 + 10


def test_a_step_starts_when_the_one_before_it_has_ended() -> None:
    e = engine()
    e.submit(request("a", 4))
    first = e.step(1000)
    second = e.step(0)
    assert first is not None
    assert second is not None
    assert second.start_ns == first.end_ns


def test_a_pause_lengthens_one_step_and_is_told_apart_from_work() -> None:
    e = engine()
    e.submit(request("a", 4))
    run(e, 1)
    e.pause(5000)
    paused, after = run(e, 2)
    assert (paused.paused_ns, paused.end_ns - paused.start_ns) == (5000, 5110)
    assert (after.paused_ns, after.end_ns - after.start_ns) == (0, 110)


def test_end_by_length_by_end_of_text_and_by_the_model_s_limit() -> None:
    e = engine()
    e.submit(request("length", 4, tokens=3))
    e.submit(request("stop", 4, tokens=50, eos_after=5))
    e.submit(request("limit", 500, tokens=50))
    produced: dict[str, int] = {}
    finished: dict[str, str] = {}
    for record in steps(e):
        for name in record.produced:
            produced[name] = produced.get(name, 0) + 1
        finished |= record.finished
    assert finished == {"length": "length", "stop": "stop", "limit": "length"}
    assert produced == {"length": 3, "stop": 5, "limit": 12}


class TestPreemption:
    """Eight blocks of 16 tokens: two sequences fit until they have grown."""

    def fill(self) -> Engine:
        e = engine(num_gpu_blocks=9, max_model_len=128, max_num_batched_tokens=128)
        e.submit(request("old", 60, tokens=40))
        e.submit(request("young", 60, tokens=40))
        return e

    def test_the_youngest_starts_over_when_blocks_run_out_and_still_gets_all_its_tokens(self) -> None:
        e = self.fill()
        records = list(steps(e))
        (record,) = [record for record in records if record.preempted]
        assert record.preempted == ("young",)
        assert record.decode == ("old",)
        assert sum(1 for r in records if "young" in r.produced) == 40

    def test_what_it_had_is_computed_again_and_booked_as_prefill(self) -> None:
        e = self.fill()
        records = list(steps(e))
        lost = next(index for index, record in enumerate(records) if record.preempted)
        again = next(record for record in records[lost:] if "young" in record.prefill)
        made_before = sum(1 for record in records[:lost] if "young" in record.produced)
        assert again.prefill == {"young": 60 + made_before}
        assert "young" in again.admitted

    def test_nobody_is_admitted_in_a_step_that_preempted(self) -> None:
        e = self.fill()
        e.submit(request("third", 10, tokens=4))
        for record in steps(e):
            assert not (record.preempted and record.admitted)

    def test_a_prompt_waits_until_all_of_it_fits(self) -> None:
        e = engine(num_gpu_blocks=9, max_model_len=128)
        e.submit(request("a", 40, tokens=2))
        e.submit(request("b", 100, tokens=2))
        first, second, third, *_ = steps(e)
        assert (first.prefill, first.waiting) == ({"a": 40}, 1)
        assert second.finished == {"a": "length"}
        assert third.prefill == {"b": 64}


class TestPrefixCache:
    PROMPT = tuple(f"word-{number}" for number in range(100))
    HASHES = hash_blocks(PROMPT, 16)

    def test_full_blocks_of_a_known_prompt_are_not_computed_again(self) -> None:
        e = engine(max_num_batched_tokens=256)
        for name in ("first", "second"):
            e.submit(request(name, 100, tokens=1, block_hashes=self.HASHES))
            (record,) = list(steps(e))
            if name == "second":
                assert record.admitted == {"second": 96}
                assert record.prefill == {"second": 4}

    def test_the_last_token_is_computed_even_when_all_blocks_are_known(self) -> None:
        e = engine(max_num_batched_tokens=256)
        hashes = hash_blocks(self.PROMPT[:96], 16)
        for name in ("first", "second"):
            e.submit(request(name, 96, tokens=1, block_hashes=hashes))
            (record,) = list(steps(e))
        assert record.prefill == {"second": 16}

    def test_two_at_once_share_the_blocks_and_free_them_once(self) -> None:
        e = engine(max_num_batched_tokens=256)
        e.submit(request("first", 100, tokens=2, block_hashes=self.HASHES))
        e.submit(request("second", 100, tokens=2, block_hashes=self.HASHES))
        first, *rest = list(steps(e))
        assert first.prefill == {"first": 100, "second": 4}
        assert first.kv_usage == pytest.approx(8 / 128)
        assert rest[-1].kv_usage == 0.0

    def test_a_different_start_shares_nothing(self) -> None:
        e = engine(max_num_batched_tokens=256)
        e.submit(request("first", 100, tokens=1, block_hashes=self.HASHES))
        list(steps(e))
        other = hash_blocks(("other", *self.PROMPT[1:]), 16)
        e.submit(request("second", 100, tokens=1, block_hashes=other))
        assert run(e, 1)[0].admitted == {"second": 0}

    def test_switched_off_nothing_is_shared(self) -> None:
        e = engine(max_num_batched_tokens=256, enable_prefix_caching=False)
        for name in ("first", "second"):
            e.submit(request(name, 100, tokens=1, block_hashes=self.HASHES))
            (record,) = list(steps(e))
        assert record.prefill == {"second": 100}

    def test_content_is_forgotten_when_its_blocks_are_needed(self) -> None:
        e = engine(num_gpu_blocks=9, max_model_len=128, max_num_batched_tokens=128)
        e.submit(request("first", 100, tokens=1, block_hashes=self.HASHES))
        list(steps(e))
        e.submit(request("stranger", 120, tokens=1))
        list(steps(e))
        e.submit(request("again", 100, tokens=1, block_hashes=self.HASHES))
        assert run(e, 1)[0].admitted == {"again": 0}


class TestAbort:
    def test_frees_the_blocks_of_a_running_request(self) -> None:
        e = engine()
        e.submit(request("a", 40))
        run(e, 2)
        assert e.blocks.usage > 0
        assert e.abort("a")
        assert (e.blocks.usage, e.running, e.waiting) == (0.0, 0, 0)
        assert e.step(0) is None

    def test_takes_a_waiting_request_out_of_the_queue(self) -> None:
        e = engine(max_num_seqs=1)
        e.submit(request("a", 4))
        e.submit(request("b", 4))
        run(e, 1)
        assert e.abort("b")
        assert (e.running, e.waiting) == (1, 0)

    def test_of_an_unknown_or_ended_request_is_no_error(self) -> None:
        e = engine()
        e.submit(request("a", 4, tokens=1))
        list(steps(e))
        assert not e.abort("a")
        assert not e.abort("never")


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"num_gpu_blocks": 10}, "exceeds the KV cache of 144 tokens"),
        ({"enable_chunked_prefill": False}, "without chunked prefill a prompt must fit into one step"),
        ({"max_num_seqs": 65}, "every sequence needs a token per step"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        engine(**fields)


@pytest.mark.parametrize(("prompt", "complaint"), [(0, "1 to 511"), (512, "1 to 511")])
def test_a_prompt_that_leaves_no_room_for_a_token_is_refused(prompt: int, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        engine().submit(request("a", prompt))


def test_an_id_in_use_is_refused() -> None:
    e = engine()
    e.submit(request("a", 4))
    with pytest.raises(ValueError, match="'a' is in use"):
        e.submit(request("a", 4))
