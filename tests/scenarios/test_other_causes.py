"""Stalls that no prompt is to blame for: preemption, the API server, hops before us, clients, pauses, ourselves."""

from __future__ import annotations

import pytest
from tests.scenarios.playbook import Scene, beat

from prefillwatch.export import table

GUILTY_OF_PREFILL = {"prefill"}


# --- KV pressure ---


def thrashing(scene: Scene, gauges: str) -> None:
    """Eight streams decode; from 10 s on two of them at a time are left out of the batch for seconds."""
    for number in range(8):
        freezes = [] if number > 5 else [(10_000 + 4000 * (number // 2), 3000.0 + 900 * (number % 2))]
        scene.victims(1, beat(33, 30_000, *freezes, start=100 + number))
    if gauges == "fresh":
        for second in range(30):
            full = min(1.0, 0.91 + 0.01 * second)
            preemptions = max(0, second - 9) // 2
            scene.gauges(1000 * second + 500, running=8, waiting=0, kv_usage=full, preemptions=float(preemptions))
    elif gauges == "stale":
        scene.healthy(500, 3000, running=8)


@pytest.mark.parametrize("gauges", ["fresh", "none", "stale"])
def test_a_full_kv_cache_preempts_some_while_others_go_on(gauges: str) -> None:
    """Missing or stale gauges are never evidence against it."""
    scene = Scene()
    thrashing(scene, gauges)
    scene.play()
    incident = scene.incident()
    assert (incident["cause"], incident["victims"]) == ("preemption", 6)
    assert incident["culprits"] == []
    assert incident["evidence"]["engine_gauges_known"] is (gauges == "fresh")


def test_a_prompt_in_service_while_somebody_is_preempted_is_not_to_blame() -> None:
    scene = Scene()
    thrashing(scene, "fresh")
    for at in range(9000, 22_000, 1500):
        scene.prompt(at, 8000).answers([at + 1300]).ends(at + 1301)
    scene.play()
    assert set(scene.stalls()) == {"preemption"}


def test_left_out_with_a_healthy_cache_is_unattributed() -> None:
    scene = Scene()
    scene.victims(3, beat(33, 20_000))
    scene.victims(1, beat(33, 20_000, (8000, 2500), start=107))
    scene.healthy(500, 20_000, running=4)
    scene.play()
    assert scene.incident()["cause"] == "unattributed"


def test_a_long_step_at_whose_end_a_preempted_stream_returns_recomputed_it() -> None:
    """A small prompt rides along; what took the time was the other stream's context."""
    scene = Scene()
    steps = beat(20, 20_000, (3000, 160), (10_000, 200))
    scene.victims(4, steps)
    returned = [at for at in steps if at <= 8000 or at > 10_150]
    scene.prompt(20, 300, "preempted").answers([at + 3 for at in returned]).ends(20_100)
    scene.prompt(2900, 700).answers([3163]).ends(3164)
    scene.prompt(9900, 600).answers([10_203]).ends(10_204)
    for second in range(20):
        scene.gauges(1000 * second + 300, running=5, waiting=1, kv_usage=0.99, preemptions=float(second >= 8))
    scene.play()
    assert set(scene.causes()) == {"prefill", "preemption"}
    assert scene.stalls()["prefill"] == 5


def test_a_context_that_takes_two_steps_to_be_computed_again() -> None:
    """All wait through both, and the preempted stream comes back with the second."""
    scene = Scene()
    freezes = [(2000.0 + 800 * number, 320.0) for number in range(6)]
    steps = beat(20, 20_000, (120, 580), *freezes, (10_000, 420), (10_400, 300))
    scene.victims(4, steps)
    for number in range(6):
        first = next(at for at in steps if at > 2100 + 800 * number) + 3
        scene.prompt(1970 + 800 * number, 1000).answers([first]).ends(first + 1)
    back = next(at for at in steps if at > 10_450)
    read = [at + 3 for at in steps if 700 < at <= 8500 or at >= back]
    scene.prompt(20, 1800, "preempted").answers(read).ends(20_100)
    scene.play()
    assert scene.incidents()[-1]["cause"] == "preemption"
    assert scene.stalls()["preemption"] == 4 * 2 + 1


def test_a_storm_of_rare_preemptions_hides_from_the_percentile_but_not_from_the_counter() -> None:
    scene = Scene()
    for number in range(32):
        freezes = [(4000 + 150 * number, 3000.0)] if number % 4 == 0 else []
        scene.victims(1, beat(25, 20_000, *freezes, start=100 + 0.3 * number))
    for second in range(20):
        scene.gauges(1000 * second + 300, running=30, waiting=2, kv_usage=1.0, preemptions=float(max(0, second - 3)))
    scene.play(until=20_000)
    assert scene.observed.values(table.INTER_TOKEN_LATENCY_P99)[("m", "1m", "all")] < 0.03
    scene.play()
    assert scene.stalls() == {"preemption": 8}


def test_preemption_that_hurts_nobody_is_no_incident() -> None:
    scene = Scene()
    scene.victims(6, beat(25, 20_000, (9000, 70)))
    for second in range(20):
        scene.gauges(1000 * second + 300, running=6, waiting=0, kv_usage=0.97, preemptions=float(second // 4))
    scene.play()
    assert scene.incidents() == []


# --- The API server ---


def test_tokens_held_back_by_the_api_server_come_in_a_bunch() -> None:
    """A long prompt is tokenised on the event loop before the engine has it; then it is read, and that is another
    matter."""
    scene = Scene()
    before, after = beat(30, 5000), beat(30, 14_000, (6500, 2500), start=6230)
    scene.victims(5, before + [6195 + 0.8 * number for number in range(38)] + after)
    scene.prompt(4900, 128_000, "long").answers([9005]).ends(9006)
    scene.play()
    first, second = scene.incidents()
    assert (first["cause"], first["victims"]) == ("frontend", 5)
    assert (second["cause"], second["victims"]) == ("prefill", 5)
    assert first["culprits"] == []


def test_tokens_held_back_and_merged_into_one_event() -> None:
    scene = Scene()
    for number in range(6):
        victim = scene.prompt(10 + number, 16).answers(beat(10, 4000, start=100 + 0.1 * number))
        victim.read(5500 + number, text=" word" * 148)
        victim.answers(beat(10, 12_000, start=5510 + number)).ends(12_100)
    scene.prompt(3900, 9000, "innocent").answers(beat(10, 6000, start=5520)).ends(6001)
    scene.play()
    assert scene.incident()["cause"] == "frontend"
    assert scene.incident()["evidence"]["tokens_caught_up"] > 100


def test_detokenising_falls_behind_and_events_get_fatter() -> None:
    scene = Scene()
    for number in range(20):
        victim = scene.prompt(10 + number, 16).answers(beat(30, 5000, start=100 + 0.2 * number))
        at = 5000.0
        for size in (3, 5, 6) * 12:
            at += 30 * size
            victim.read(at + 0.2 * number, text=" word" * size)
        victim.ends(at + 10)
    scene.play()
    assert set(scene.stalls()) == {"frontend"}


def test_a_parser_that_hands_over_many_tokens_is_no_stall_where_usage_tells() -> None:
    scene = Scene()
    victim, tokens = scene.prompt(10, 16), 0
    for at in beat(11.5, 3000):
        tokens += 1
        victim.read(at, usage={"prompt_tokens": 16, "completion_tokens": tokens, "total_tokens": 16 + tokens})
    for number in range(20):
        tokens += 16
        told = {"prompt_tokens": 16, "completion_tokens": tokens, "total_tokens": 16 + tokens}
        victim.read(3184 + 184 * number, text=" word" * 16, usage=told)
    victim.ends(7000, completion=tokens)
    scene.play()
    assert scene.stalls() == {}


# --- Hops and clients ---


def test_a_gateway_that_lets_go_of_sixteen_kilobytes_at_a_time() -> None:
    scene = Scene()
    scene.prompt(10, 16).answers([1650 * number for number in range(1, 20)], events=60).ends(33_000)
    scene.play()
    assert set(scene.stalls()) == {"buffering"}
    assert scene.incident()["culprits"] == []


def test_a_buffer_in_front_of_one_stream_while_others_flow() -> None:
    scene = Scene()
    scene.victims(3, beat(25, 20_000))
    scene.prompt(10, 16).answers(beat(25, 4000)).answers([6000], events=80).answers(beat(25, 20_000, start=6025)).ends(
        20_050
    )
    scene.prompt(3900, 9000, "innocent").answers([4800]).ends(4801)
    scene.play()
    assert scene.incident()["cause"] == "buffering"


def test_a_client_that_reads_slowly_is_its_own_fault() -> None:
    scene = Scene()
    scene.victims(3, beat(25, 20_000))
    slow_one = scene.prompt(10, 16).answers(beat(25, 20_000, (8000, 3000), start=104)).ends(20_050)
    slow_one.blocked(8010, 10_900)
    scene.prompt(7900, 9000, "innocent").answers([9800]).ends(9801)
    scene.play()
    incident = scene.incident()
    assert (incident["cause"], incident["victims"]) == ("client", 1)
    assert incident["evidence"]["client_blocked_seconds"] == pytest.approx(2.89, abs=0.05)


def test_a_slow_client_among_victims_of_a_prompt() -> None:
    scene = Scene()
    scene.victims(3, beat(25, 20_000, (8000, 1500)))
    scene.prompt(10, 16).answers(beat(25, 20_000, (8000, 1500), start=104)).ends(20_050).blocked(8010, 9300)
    scene.prompt(7900, 9000).answers([9505]).ends(9506)
    scene.play()
    assert scene.stalls() == {"prefill": 3, "client": 1}


# --- Pauses ---


def test_a_frozen_step_that_nothing_explains() -> None:
    scene = Scene()
    scene.victims(12, beat(40, 30_000, (6000, 700), (15_000, 2000), (24_000, 1300)))
    scene.play()
    assert scene.causes() == ["unattributed"] * 3


def test_the_world_stops_for_everybody_and_the_one_in_prefill_is_a_victim_too() -> None:
    scene = Scene()
    pauses = [(5000.0, 4000.0), (20_000.0, 9000.0), (40_000.0, 6000.0)]
    scene.victims(6, beat(20, 55_000, (2000, 500), *pauses))
    scene.prompt(1900, 2000).answers([2503]).ends(2504)
    scene.prompt(19_900, 2000, "victim too").answers([29_003]).ends(29_004)
    scene.healthy(600, 55_000, running=6)
    scene.play()
    assert scene.causes() == ["prefill", "engine_pause", "engine_pause", "engine_pause"]
    assert scene.incidents()[2]["culprits"] == []


def test_requests_in_prefill_that_stand_still_tell_of_a_pause_without_any_page() -> None:
    scene = Scene()
    scene.victims(6, beat(20, 20_000, (2000, 150), (8000, 3000)))
    scene.prompt(1900, 500).answers([2152]).ends(2153)
    scene.prompt(7900, 100, "short").answers([11_004]).ends(11_005)
    scene.play()
    assert scene.causes()[-1] == "engine_pause"


def test_a_pause_is_not_excused_twice_by_the_length_of_a_prompt() -> None:
    """A token of a prompt twice as long may cost twice as much, or the law be off by a factor of two; not both."""
    scene = Scene()
    steps = beat(20, 20_000, *((2000 + 1000 * number, 440.0) for number in range(6)), (10_000, 2600))
    scene.victims(4, steps)
    for number in range(6):
        first = next(at for at in steps if at > 2100 + 1000 * number) + 3
        scene.prompt(1990 + 1000 * number, 1400).answers([first]).ends(first + 1)
    first = next(at for at in steps if at > 10_020) + 3
    scene.prompt(9970, 2800, "twice as long").answers([first]).ends(first + 1)
    scene.play()
    assert scene.causes()[-1] == "unattributed"


def test_short_prompts_do_not_tell_what_a_long_one_may_cost() -> None:
    """Their first tokens came with no delay worth the name; a long prompt is another matter."""
    scene = Scene()
    steps = beat(20, 20_000, *((2000 + 500 * number, 32.0) for number in range(12)), (10_000, 1600))
    scene.victims(2, steps)
    for number in range(12):
        first = next(at for at in steps if at > 2030 + 500 * number) + 3
        scene.prompt(1990 + 500 * number, 400).answers([first]).ends(first + 1)
    first = next(at for at in steps if at > 10_020) + 3
    scene.prompt(9970, 4000, "long").answers([first]).ends(first + 1)
    scene.play()
    incident = scene.incident()
    assert incident["cause"] == "prefill"
    assert incident["evidence"]["prefill_possible_seconds"] is None


def test_a_pause_while_json_answers_are_written_is_not_their_prompts() -> None:
    """They show no token; but the steps since they came were too short for their prompts, so these are read."""
    scene = Scene()
    scene.victims(3, beat(20, 20_000, (4000, 900), (8000, 2500), (14_000, 1700)))
    for name, sent in (("first", 3990), ("second", 12_000)):
        request = scene.prompt(sent, 9000, name, stream=False)
        request.answers_in_json(19_000)
    scene.play()
    assert scene.causes() == ["prefill", "unattributed", "unattributed"]


def test_a_wedged_engine_shows_while_it_is_wedged() -> None:
    scene = Scene()
    scene.victims(4, beat(20, 5000), ends=False)
    scene.healthy(500, 60_000, running=4)
    scene.play(until=25_000)
    seen = scene.incident()
    assert (seen["cause"], seen["ongoing"], seen["victims"]) == ("engine_pause", True, 4)
    assert seen["duration_seconds"] == pytest.approx(20, abs=0.3)
    assert scene.observed.values(table.FROZEN_STREAMS)[("m",)] == 4
    assert scene.stalls() == {}


# --- Ourselves ---


def test_our_own_lag_is_nobodys_fault() -> None:
    scene = Scene()
    scene.victims(4, beat(20, 12_000, (6000, 1500)))
    scene.prompt(5900, 6000).answers([7505]).ends(7506)
    scene.relay_lags(7520, 1.4)
    scene.play()
    assert set(scene.stalls()) == {"unattributed"}
    assert scene.incident()["evidence"]["own_lag_seconds"] >= 1.0


def test_lost_records_are_no_stall() -> None:
    scene = Scene()
    scene.victims(4, beat(20, 6000), ends=False)
    scene.play(until=6000)
    scene.lose(6001, 8000)
    scene.victims(2, beat(20, 12_000, start=8100))
    scene.play()
    assert scene.stalls() == {}
