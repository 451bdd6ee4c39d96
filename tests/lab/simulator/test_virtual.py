"""Playing requests through the engine in virtual time."""

from __future__ import annotations

from prefillwatch.lab.simulator import (
    Arrival,
    CostModel,
    Delivery,
    Engine,
    EngineConfig,
    Pause,
    SimRequest,
    VirtualRun,
    run_virtual,
)

CONFIG = EngineConfig(
    CostModel(base=100, per_sequence=0, per_prefill_token=0), max_num_batched_tokens=512, max_model_len=512
)


def play(*arrivals: Arrival, **options: object) -> VirtualRun:
    return run_virtual(Engine(CONFIG), arrivals, **options)  # type: ignore[arg-type]


def test_tokens_are_read_when_their_step_ends() -> None:
    run = play(Arrival(50, SimRequest("a", 10, 3)))
    assert run.sent_ns == {"a": 50}
    assert run.reads_ns == {"a": [150, 250, 350]}
    assert run.closed_ns == {"a": 350}
    assert run.outcome == {"a": "length"}
    assert run.gaps_ns("a") == [100, 100]


def test_a_request_that_arrives_during_a_step_rides_in_the_next_one() -> None:
    run = play(Arrival(0, SimRequest("a", 10, 4)), Arrival(130, SimRequest("b", 10, 1)))
    assert run.reads_ns["b"] == [300]
    assert "b" in run.steps[2].prefill


def test_an_idle_engine_waits_for_the_next_arrival() -> None:
    run = play(Arrival(0, SimRequest("a", 10, 1)), Arrival(5000, SimRequest("b", 10, 1)))
    assert [step.start_ns for step in run.steps] == [0, 5000]


def test_requests_of_the_same_moment_are_served_in_the_order_given() -> None:
    run = play(*(Arrival(0, SimRequest(name, 300, 1)) for name in "abc"))
    assert [list(step.prefill) for step in run.steps] == [["a", "b"], ["b", "c"]]


def test_a_client_that_goes_away_reads_nothing_after_that() -> None:
    run = play(Arrival(0, SimRequest("a", 10, 100), abort_ns=350), Arrival(0, SimRequest("b", 10, 8)))
    assert run.reads_ns["a"] == [100, 200, 300]
    assert run.closed_ns["a"] == 350
    assert run.outcome["a"] == "abort"
    assert len(run.reads_ns["b"]) == 8


def test_a_client_that_goes_away_during_the_last_step_does_not_see_it_end() -> None:
    run = play(Arrival(0, SimRequest("a", 10, 2), abort_ns=150), Arrival(0, SimRequest("b", 10, 8)))
    assert (run.reads_ns["a"], run.closed_ns["a"], run.outcome["a"]) == ([100], 150, "abort")


def test_a_client_that_goes_away_after_the_end_has_seen_everything() -> None:
    run = play(Arrival(0, SimRequest("a", 10, 2), abort_ns=250), Arrival(0, SimRequest("b", 10, 8)))
    assert (run.reads_ns["a"], run.closed_ns["a"], run.outcome["a"]) == ([100, 200], 200, "length")


def test_a_pause_holds_up_everybody_once() -> None:
    run = play(Arrival(0, SimRequest("a", 10, 4)), pauses=[Pause(150, 1000)])
    assert run.gaps_ns("a") == [100, 1100, 100]
    assert [step.paused_ns for step in run.steps] == [0, 0, 1000, 0]


def test_delivery_spreads_a_step_over_the_streams_and_first_tokens_come_last() -> None:
    delivery = Delivery(after_step_ns=5, per_stream_ns=2, first_token_ns=30)
    run = play(Arrival(0, SimRequest("a", 10, 3)), Arrival(150, SimRequest("b", 10, 1)), delivery=delivery)
    assert run.reads_ns["a"] == [135, 205, 305]
    assert run.reads_ns["b"] == [305 + 2 + 30]


def test_a_run_can_be_cut_off() -> None:
    run = play(Arrival(0, SimRequest("a", 10, 100)), until_ns=250)
    assert run.reads_ns["a"] == [100, 200, 300]
    assert run.outcome == {}


def test_events_tell_the_wire_in_order_of_time() -> None:
    run = play(Arrival(0, SimRequest("a", 10, 2)), Arrival(120, SimRequest("b", 10, 1)))
    assert run.events() == [
        (0, "sent", "a"),
        (100, "token", "a"),
        (120, "sent", "b"),
        (200, "token", "a"),
        (200, "closed", "a"),
        (300, "token", "b"),
        (300, "closed", "b"),
    ]
