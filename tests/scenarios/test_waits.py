"""First tokens that do not come, and why. Long ones are shortened ten to twenty times."""

from __future__ import annotations

import pytest
from tests.core.script import ns
from tests.scenarios.playbook import Scene, beat, slow

from prefillwatch.analysis.settings import AnalysisSettings, WaitRule
from prefillwatch.export import table


def learned(scene: Scene) -> None:
    """A server that has been seen at work: 0.1 ms per token."""
    steps = beat(20, 3000, (600, 220), (1200, 420), (2000, 320))
    scene.victims(1, steps)
    for since, tokens in ((600, 2000), (1200, 4000), (2000, 3000)):
        first = next(at for at in steps if at > since + 100) + 2
        scene.prompt(since - 50, tokens).answers([first]).ends(first + 1)


def test_short_requests_wait_behind_huge_prompts_while_nothing_decodes() -> None:
    scene = Scene()
    learned(scene)
    for number in range(3):
        first = 10_000 + 3000 * number
        scene.prompt(6000, 130_000, f"huge-{number}").answers([first]).ends(first + 1)
    for number in range(40):
        scene.prompt(6100 + 10 * number, 40, f"short-{number}").answers([16_020 + number]).ends(16_100 + number)
    scene.healthy(6500, 17_000, running=2, waiting=41)
    scene.play(until=13_500)
    seen = scene.incident("wait")
    assert (seen["cause"], seen["ongoing"], seen["victims"]) == ("prefill", True, 40)
    assert ("m", "10s", "all") not in scene.observed.values(table.INTER_TOKEN_LATENCY_P99)
    scene.play()
    incident = scene.incident("wait")
    assert incident["cause"] == "prefill"
    assert {each["request_id"] for each in incident["culprits"]} == {"huge-0", "huge-1", "huge-2"}
    assert scene.waits() == {"prefill": 1}
    ttft = scene.observed.values(table.TIME_TO_FIRST_TOKEN_P99)
    assert ttft[("m", "1m", "0-512")] > 9


def test_a_queue_of_equals_has_no_villain() -> None:
    """Many long prompts at once: they wait for each other, and the streams suffer from all of them."""
    scene = Scene()
    learned(scene)
    steps = beat(20, 40_000, *slow(5000, 30_000, 900), start=3200)
    scene.victims(4, steps)
    for number in range(28):
        first = 5910 + 900 * number
        scene.prompt(4900 + number, 8000, f"long-{number}").answers([first]).ends(first + 1)
    for second in range(5, 30):
        scene.gauges(1000 * second + 500, running=10, waiting=max(0, 30 - second), kv_usage=0.4, preemptions=0.0)
    scene.play()
    assert scene.incident("wait")["cause"] == "queueing"
    freeze = scene.incidents()[-1]
    assert freeze["cause"] == "prefill"
    assert freeze["culprit_count"] >= 20
    assert max(each["share"] for each in freeze["culprits"]) < 0.15
    assert freeze["culprit_tokens"] == 8000 * freeze["culprit_count"]


def test_running_pinned_at_a_cap_is_queueing_and_the_streams_flow() -> None:
    scene = Scene()
    learned(scene)
    scene.victims(8, beat(25, 40_000, start=3200))
    for number in range(30):
        first = 9000 + 900 * number
        scene.prompt(5000 + 500 * number, 60).answers([max(first, 5600 + 500 * number)]).ends(first + 400)
    for second in range(5, 38):
        scene.gauges(1000 * second + 500, running=8, waiting=9, kv_usage=0.4, preemptions=0.0)
    scene.play()
    assert set(scene.causes("wait")) == {"queueing"}
    assert scene.causes() == ["prefill"], "only the one from before"


def test_the_first_request_after_a_start_compiles() -> None:
    scene = Scene()
    scene.gauges(500, running=0, waiting=0, kv_usage=0.0, preemptions=0.0, started_ns=ns(-60_000))
    scene.prompt(2000, 557).answers(beat(20, 17_000, start=16_000)).ends(17_001)
    for second in range(2, 17):
        scene.gauges(1000 * second + 500, running=1, waiting=0, kv_usage=0.01, preemptions=0.0, started_ns=ns(-60_000))
    scene.prompt(18_000, 557).answers(beat(20, 19_000, start=18_500)).ends(19_001)
    scene.play()
    assert scene.incident("wait")["cause"] == "warmup"


@pytest.mark.parametrize(("age_s", "is_warmup"), [(240, True), (8000, False), (330, False)])
def test_the_same_wait_on_a_server_that_runs_for_longer_is_no_warmup(age_s: int, is_warmup: bool) -> None:
    scene = Scene()
    scene.gauges(500, running=0, waiting=0, started_ns=ns(-1000 * age_s))
    scene.prompt(2000, 557).answers(beat(20, 17_000, start=16_000)).ends(17_001)
    scene.play()
    assert ("warmup" in scene.causes("wait")) is is_warmup


@pytest.mark.parametrize(("served", "is_warmup"), [(7, True), (8, False)])
def test_a_server_is_warmed_up_by_its_first_requests(served: int, is_warmup: bool) -> None:
    scene = Scene()
    scene.gauges(500, running=0, waiting=0, started_ns=ns(-60_000))
    for number in range(served):
        at = 1000 + 200 * number
        scene.prompt(at, 50).answers([at + 100]).ends(at + 101)
    scene.prompt(4000, 557).answers(beat(20, 19_000, start=18_000)).ends(19_001)
    scene.play()
    assert ("warmup" in scene.causes("wait")) is is_warmup


@pytest.mark.parametrize(("tokens", "is_long"), [(1300, True), (1100, False)])
def test_a_long_prompt_has_four_times_the_tokens_of_who_waits(tokens: int, is_long: bool) -> None:
    """Those ahead of it wait for each other, too, which is queueing."""
    scene = Scene()
    learned(scene)
    took = tokens // 10
    for number in range(100):
        first = 6000 + took * (number + 1)
        scene.prompt(5000 + number, tokens).answers([first]).ends(first + 1)
    scene.prompt(5200, 300).answers([first + 40]).ends(first + 41)
    scene.play()
    assert set(scene.causes("wait")) == ({"queueing", "prefill"} if is_long else {"queueing"})


@pytest.mark.parametrize(("waited_s", "is_late"), [(19, False), (21, True)])
def test_before_anything_is_learned_a_prompt_may_take_five_milliseconds_per_token(waited_s: int, is_late: bool) -> None:
    """And is late after four times as long."""
    scene = Scene()
    scene.prompt(1000, 1000).answers([1000 + 1000 * waited_s]).ends(1001 + 1000 * waited_s)
    scene.play()
    assert bool(scene.incidents("wait")) is is_late


def test_clients_wait_although_the_engine_has_nothing_waiting() -> None:
    """Images are prepared in front of the engine: what we gave it and what it knows of differ."""
    scene = Scene()
    for number in range(72):
        first = 4000 + 500 * number
        scene.prompt(1000 + number, 300, media=True).answers(beat(30, 45_000, start=first)).ends(45_001)
    for second in range(1, 45):
        scene.gauges(1000 * second + 500, running=min(72, 8 + 2 * second), waiting=0, kv_usage=0.3, preemptions=0.0)
    scene.play(until=20_000)
    assert scene.incident("wait")["cause"] == "before_engine"
    assert scene.incident("wait")["evidence"]["requests_unknown_to_engine"] > 10
    scene.play()
    assert set(scene.causes("wait")) == {"before_engine"}


def test_requests_parked_for_ever_among_others_that_are_served() -> None:
    scene = Scene()
    learned(scene)
    parked = [scene.prompt(4000 + number, 900, f"parked-{number}") for number in range(5)]
    for number in range(35):
        at = 5000 + 600 * number
        scene.prompt(at, 900).answers(beat(20, at + 900, start=at + 150)).ends(at + 901)
    scene.healthy(4500, 28_000, running=2, waiting=5)
    scene.play(until=25_000)
    seen = scene.incident("wait")
    assert (seen["cause"], seen["ongoing"], seen["victims"]) == ("stuck", True, 5)
    assert scene.observed.values(table.OLDEST_FIRST_TOKEN_WAIT)[("m",)] > 20
    for request in parked:
        request.client_leaves(28_000)
    scene.play()
    assert scene.incident("wait")["cause"] == "stuck"
    assert scene.waits() == {"stuck": 1}


def test_an_engine_that_answers_nobody_is_stuck() -> None:
    scene = Scene()
    learned(scene)
    for number in range(4):
        scene.prompt(5000 + 100 * number, 50)
    scene.play(until=25_000)
    assert scene.incident("wait")["cause"] == "stuck"
    assert scene.incident("wait")["ongoing"]


def test_slow_after_an_idle_time_is_neither_queue_nor_prefill() -> None:
    """Five times the usual for a lonely request, short of what would be worth a word; and far beyond it."""
    scene = Scene()
    for number in range(6):
        at = 1000 + 10_000 * number
        scene.prompt(at, 200).answers(beat(20, at + 2500, start=at + 1000)).ends(at + 2501)
    scene.prompt(70_000, 200).answers(beat(20, 80_000, start=78_000)).ends(80_001)
    scene.play()
    assert set(scene.causes("wait")) <= {"unattributed", "stuck"}
    assert len(scene.incidents("wait")) == 1


def test_ones_own_long_prompt_is_no_wait() -> None:
    scene = Scene()
    learned(scene)
    scene.prompt(5000, 100_000).answers(beat(39, 17_000, start=15_200)).ends(17_001)
    scene.play()
    assert scene.incidents("wait") == []


def test_a_json_answer_shows_no_first_token_and_no_wait() -> None:
    scene = Scene()
    learned(scene)
    request = scene.prompt(5000, 50, stream=False)
    scene.at(25_000, lambda relay: relay.response(25_000, request.stream, content_type="application/json"))
    scene.at(25_001, lambda relay: relay.end(25_001, request.stream))
    scene.play()
    assert scene.incidents("wait") == []


@pytest.mark.parametrize("seconds", [1.0, 60.0])
def test_what_counts_as_a_wait_can_be_set(seconds: float) -> None:
    scene = Scene(AnalysisSettings(wait=WaitRule(min=seconds)))
    learned(scene)
    scene.prompt(5000, 50).answers([20_000]).ends(20_001)
    scene.play()
    assert len(scene.incidents("wait")) == (seconds < 15)


def test_a_model_that_thinks_unseen_is_not_stuck() -> None:
    """The role comes at once, nothing visible for half a minute; others are served, and the page says that all run."""
    scene = Scene()
    scene.victims(2, beat(25, 45_000))
    scene.prompt(5000, 300, "thinks").answers([38_000]).ends(38_100)
    for number in range(14):
        at = 6000 + 2000 * number
        scene.prompt(at, 200).answers([at + 300, at + 325]).ends(at + 330)
    scene.healthy(500, 45_000, running=3)
    scene.play(until=36_000)
    assert scene.observed.values(table.OLDEST_FIRST_TOKEN_WAIT).get(("m",), 0.0) < 1.0
    assert scene.observed.values(table.PREFILLING_REQUESTS).get(("m",), 0.0) == 0.0
    scene.play()
    assert "stuck" not in scene.causes("wait")
