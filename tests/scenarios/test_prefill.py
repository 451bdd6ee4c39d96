"""Stalls that a prompt is to blame for, as operators met them, and what only looks like it. Long ones are shortened."""

from __future__ import annotations

import pytest
from tests.scenarios.playbook import Scene, beat, slow

from prefillwatch.export import table


def test_one_long_prompt_freezes_everybody_once() -> None:
    scene = Scene()
    scene.victims(6, beat(21, 12_000, (5000, 830)))
    scene.prompt(4900, 6000, "lump").answers(beat(21, 6200, start=5830)).ends(6210)
    scene.play()
    incident = scene.incident()
    assert incident["cause"] == "prefill"
    assert (incident["victims"], incident["decoding"]) == (6, 6)
    assert incident["worst_gap_seconds"] == pytest.approx(0.83, abs=0.03)
    assert incident["stall_seconds"] == pytest.approx(6 * 0.81, abs=0.2)
    assert incident["baseline_gap_seconds"] == pytest.approx(0.021, rel=0.05)
    assert [culprit["request_id"] for culprit in incident["culprits"]] == ["lump"]
    assert incident["culprits"][0]["share"] == 1.0
    assert incident["culprits"][0]["prompt_tokens_source"] == "usage"
    assert (incident["culprit_count"], incident["culprit_tokens"]) == (1, 6000)
    assert scene.stalls() == {"prefill": 6}
    assert scene.observed.values(table.PREFILL_BLAME)[("m", "2k-8k")] == pytest.approx(6 * 0.81, abs=0.2)
    assert scene.observed.values(table.FREEZES)[("m", "prefill")] == 1


def test_minutes_of_starvation_with_green_gauges_are_one_incident() -> None:
    scene = Scene()
    steps = beat(40, 32_000, *slow(5000, 25_000, 300, 600, 200, 450))
    scene.victims(3, steps)
    scene.prompt(4900, 100_000, "first").answers([at + 3 for at in steps if at > 14_900]).ends(32_100)
    scene.prompt(7900, 100_000, "second").answers([at + 3 for at in steps if at > 24_950]).ends(32_100)
    scene.healthy(500, 32_000, running=4)
    scene.play(until=8000)
    assert scene.incident()["cause"] == "prefill", "it must show long before it is over"
    scene.play()
    incident = scene.incident()
    assert (incident["cause"], incident["victims"]) == ("prefill", 4)
    assert incident["duration_seconds"] == pytest.approx(20, abs=1)
    assert {each["request_id"] for each in incident["culprits"]} == {"first", "second"}


def test_two_cold_prompts_share_the_blame_for_one_victim() -> None:
    scene = Scene()
    scene.victims(1, beat(35, 28_000, *slow(10_000, 21_000, 550, 700)))
    for name in ("a", "b"):
        scene.prompt(9900, 72_000, name).answers(beat(40, 21_500, start=20_950)).ends(21_600)
    scene.play()
    incident = scene.incident()
    assert incident["cause"] == "prefill"
    shares = {each["request_id"]: each["share"] for each in incident["culprits"]}
    assert shares.keys() == {"a", "b"}
    assert all(0.2 < share < 0.8 for share in shares.values())
    assert sum(shares.values()) == pytest.approx(1, abs=0.01)
    assert incident["culprit_tokens"] == 144_000


def test_forty_times_slower_on_an_empty_cache() -> None:
    """The worst gap is 0.15 s: small in seconds, huge against the stream's own baseline."""
    scene = Scene()
    scene.victims(1, beat(3.7, 12_000, *slow(4000, 8000, 151)))
    scene.prompt(3990, 65_535).answers([8010]).ends(8011)
    scene.healthy(500, 12_000, running=2, kv_usage=0.05)
    scene.play()
    assert scene.incident()["cause"] == "prefill"
    assert scene.stalls()["prefill"] >= 25


def test_minutes_of_silence_are_one_stall_that_shows_at_once() -> None:
    scene = Scene()
    scene.victims(1, beat(17, 90_000, (6000, 77_000)))
    scene.prompt(5900, 200_019, "attacker").answers(beat(17, 84_000, start=83_010)).ends(84_100)
    scene.play(until=11_000)
    seen = scene.incident()
    assert (seen["cause"], seen["ongoing"], seen["victims"]) == ("prefill", True, 1)
    assert seen["duration_seconds"] == pytest.approx(5, abs=0.2)
    assert scene.stalls() == {}
    assert scene.observed.values(table.FROZEN_STREAMS)[("m",)] == 1
    scene.play()
    incident = scene.incident()
    assert incident["id"] == seen["id"]
    assert (incident["cause"], incident["ongoing"]) == ("prefill", False)
    assert incident["duration_seconds"] == pytest.approx(77, abs=0.1)
    assert scene.stalls() == {"prefill": 1}


def test_a_freeze_crosses_engines() -> None:
    """Two engines behind one page; nobody can tell which stream is on which."""
    scene = Scene()
    scene.victims(1, beat(11, 50_000, (5000, 16_000), (22_000, 16_000)))
    for at in (4900, 21_900):
        scene.prompt(at, 300_000).answers([at + 16_120]).ends(at + 16_121)
    scene.healthy(500, 50_000, running=2, engines=2)
    scene.play()
    assert set(scene.causes()) == {"prefill"}
    assert scene.stalls() == {"prefill": 2}


def test_streams_of_another_engine_go_on_meanwhile() -> None:
    scene = Scene()
    scene.victims(2, beat(11, 20_000, (5000, 4000)))
    scene.victims(2, beat(13, 20_000))
    scene.prompt(4900, 30_000).answers([9030]).ends(9031)
    scene.healthy(500, 20_000, running=5, engines=2)
    scene.play()
    assert scene.incident()["cause"] == "prefill"
    assert scene.stalls() == {"prefill": 2}


def test_freezes_grow_with_the_prompt_and_short_ones_are_blamed_together() -> None:
    scene = Scene()
    scene.victims(3, beat(10.5, 30_000, (4000, 800), (9000, 4600), (20_000, 780)))
    scene.prompt(3900, 9100, "middle").answers([4802]).ends(4803)
    scene.prompt(8900, 52_900, "long").answers([13_602]).ends(13_603)
    for number in range(4):
        scene.prompt(19_900, 2200, f"short-{number}").answers([20_782]).ends(20_783)
    scene.play()
    first, second, third = scene.incidents()
    assert [each["cause"] for each in (first, second, third)] == ["prefill"] * 3
    assert [first["culprit_tokens"], second["culprit_tokens"], third["culprit_tokens"]] == [9100, 52_900, 8800]
    assert third["culprit_count"] == 4
    assert all(each["share"] == pytest.approx(0.25, abs=0.05) for each in third["culprits"])
    assert set(scene.counted(table.PREFILL_BLAME)) == {"8k-32k", "32k-128k", "2k-8k"}


def test_speculation_keeps_gap_and_gap_per_token_apart() -> None:
    """Eight tokens in each event, as usage tells; the gap between events grows tenfold while a prompt is read."""
    scene = Scene()
    victim = scene.prompt(10, 16)
    for number, at in enumerate(beat(145, 40_000, *slow(10_000, 25_000, 1500))):
        told = {"prompt_tokens": 16, "completion_tokens": 8 * number + 8, "total_tokens": 8 * number + 24}
        victim.read(at, text=" eight words in one event, as it were", usage=told)
    victim.ends(40_200, completion=8 * victim.generated)
    scene.prompt(9700, 80_000).answers([25_010]).ends(25_011)
    scene.play()
    assert scene.incident()["cause"] == "prefill"
    assert scene.stalls() == {"prefill": pytest.approx(10, abs=1)}
    assert scene.observed.values(table.INTER_TOKEN_LATENCY_MAX)[("m", "5m", "all")] == pytest.approx(1.5, rel=0.02)
    (tokens,) = scene.observed.sums(table.TOKENS_PER_EVENT).values()
    assert tokens == pytest.approx(8 * victim.generated, rel=0.01)


def test_averages_cannot_tell_the_profiles_apart_but_stalls_can() -> None:
    """The same work as one gap of 11 s, as twelve of 0.9 s, or as twenty of 0.53 s."""
    found = []
    for gap, count in ((11_148, 1), (930, 12), (557, 20)):
        scene = Scene()
        until = 5000 + gap * count
        scene.victims(2, beat(20, 40_000, *slow(5000, until - 1, gap)))
        scene.prompt(4900, 24_576).answers([until + 5]).ends(until + 6)
        scene.play()
        assert scene.causes() == ["prefill"]
        sums, counts = scene.observed.sums(table.INTER_TOKEN_LATENCY), scene.observed.counts(table.INTER_TOKEN_LATENCY)
        worst = scene.observed.values(table.INTER_TOKEN_LATENCY_MAX)[("m", "5m", "all")]
        found.append((worst, sum(sums.values()) / sum(counts.values())))
    assert found[0][0] / found[2][0] > 12
    means = [mean for _, mean in found]
    assert max(means) / min(means) < 1.05


def test_every_stream_slow_while_the_others_are_read() -> None:
    scene = Scene()
    steps = beat(31, 20_000, *slow(3000, 11_500, 725))
    scene.victims(8, steps)
    for number in range(3):
        first = next(at for at in steps if at > 5700 + 2900 * number) + 4
        scene.prompt(2900, 64_000, f"long-{number}").answers([first]).ends(first + 1)
    scene.play()
    incident = scene.incident()
    assert (incident["cause"], incident["victims"], incident["culprit_count"]) == ("prefill", 8, 3)


def test_streams_that_hand_over_every_eighth_token_stall_one_after_another() -> None:
    """Others read while one is silent, as always: it is not left out of the batch."""
    scene = Scene()
    steps = beat(20, 24_000, *slow(8000, 11_500, 600))
    for number in range(4):
        scene.prompt(10 + number, 16).answers(steps[2 * number :: 8], text=" word" * 8).ends(24_100)
    scene.prompt(7900, 12_000, "long").answers([next(at for at in steps if at > 11_500) + 3]).ends(11_900)
    scene.play()
    incident = scene.incident()
    assert (incident["cause"], incident["victims"]) == ("prefill", 4)
    assert [each["request_id"] for each in incident["culprits"]] == ["long"]


def test_a_server_without_metrics() -> None:
    scene = Scene()
    scene.victims(1, beat(50, 12_000, (4000, 2800)))
    scene.prompt(3900, 8000).answers([6810]).ends(6811)
    scene.play()
    incident = scene.incident()
    assert incident["cause"] == "prefill"
    assert incident["evidence"]["engine_gauges_known"] is False
    assert scene.observed.values(table.KV_CACHE_USAGE) == {}


def test_a_cached_prompt_stalls_nobody_and_the_same_one_cold_does() -> None:
    scene = Scene()
    scene.victims(1, beat(25, 40_000, (5000, 90), *slow(15_000, 30_000, 700)))
    scene.prompt(4900, 239_000, "warm").answers([5091]).ends(5092, cached=238_900)
    scene.prompt(14_900, 239_000, "cold").answers([30_510]).ends(30_511, cached=0)
    scene.play()
    incident = scene.incident()
    assert incident["cause"] == "prefill"
    assert [each["request_id"] for each in incident["culprits"]] == ["cold"]


def test_uncached_tokens_decide_who_gets_the_larger_share() -> None:
    scene = Scene()
    scene.victims(2, beat(20, 20_000, (3000, 600), (8000, 700)))
    scene.prompt(2900, 6000).answers([3602]).ends(3603)
    scene.prompt(7900, 20_000, "cached").answers([8702]).ends(8703, cached=19_500)
    scene.prompt(7901, 6000, "cold").answers([8702]).ends(8704)
    scene.play()
    shares = {each["request_id"]: each["share"] for each in scene.incidents()[-1]["culprits"]}
    assert shares["cold"] > 0.85


def test_ones_own_long_prompt_is_nobodys_stall() -> None:
    scene = Scene()
    scene.prompt(100, 149_945).answers(beat(39, 57_000, start=53_000)).ends(57_010)
    scene.play()
    assert scene.incidents() == []
    assert scene.incidents("wait") == []


def test_a_batch_that_grows_harmlessly() -> None:
    scene = Scene()
    scene.victims(4, beat(20, 10_000) + beat(23, 20_000, start=10_023))
    scene.prompt(9900, 3000).answers(beat(23, 20_000, start=10_030)).ends(20_001)
    scene.play()
    assert scene.incidents() == []
    assert scene.stalls() == {}


@pytest.mark.parametrize("coincidence", [False, True])
def test_a_short_prompt_in_flight_by_chance_is_not_to_blame(coincidence: bool) -> None:
    """Kernels are compiled anew and everybody waits; a prompt of 300 tokens cannot explain two seconds."""
    scene = Scene()
    scene.victims(8, beat(30, 40_000, (6000, 100), (10_000, 1400), (20_000, 2000), (33_000, 1100)))
    scene.prompt(5900, 300).answers([6101]).ends(6102)
    if coincidence:
        for at, gap in ((10_000, 1400), (20_000, 2000), (33_000, 1100)):
            scene.prompt(at - 70, 300).answers([at + gap + 2]).ends(at + gap + 3)
    scene.play()
    assert set(scene.causes()) <= {"unattributed", "engine_pause"}
    assert len(scene.incidents()) == 3


def test_a_json_answer_may_be_the_culprit() -> None:
    """It shows no first token; only that its prompt was there."""
    scene = Scene()
    scene.victims(4, beat(20, 15_000, (5000, 900)))
    request = scene.prompt(4900, 9000, "document", stream=False)
    scene.at(7000, lambda relay: relay.response(7000, request.stream, content_type="application/json"))
    scene.at(7001, lambda relay: relay.end(7001, request.stream))
    scene.play()
    incident = scene.incident()
    assert incident["cause"] == "prefill"
    assert [each["request_id"] for each in incident["culprits"]] == ["document"]


def test_a_picture_whose_size_nobody_tells_may_have_taken_the_time() -> None:
    scene = Scene()
    steps = beat(20, 20_000, *((2000 + 1000 * number, 320.0) for number in range(6)), (10_000, 900))
    scene.victims(4, steps)
    for number in range(6):
        first = next(at for at in steps if at > 2100 + 1000 * number) + 3
        scene.prompt(1970 + 1000 * number, 1000).answers([first]).ends(first + 1)
    picture = scene.prompt(9970, 60, "picture", media=True)
    picture.answers([next(at for at in steps if at > 10_020) + 3]).client_leaves(18_000)
    scene.play()
    assert scene.causes()[-1] == "prefill"
    assert [each["request_id"] for each in scene.incidents()[-1]["culprits"]] == ["picture"]


def test_a_culprit_whose_client_left() -> None:
    scene = Scene()
    scene.victims(4, beat(20, 15_000, (5000, 900)))
    scene.prompt(4900, 9000, "gone").client_leaves(5800)
    scene.play()
    assert scene.incident()["cause"] == "prefill"
    assert scene.incident()["culprits"][0]["request_id"] == "gone"


def test_culprits_whose_clients_leave_in_the_middle_of_a_step() -> None:
    """Nobody waits any more when it ends, and yet it was their prompts that it read."""
    scene = Scene()
    steps = beat(20, 16_000, *((1500 + 500 * number, 320.0) for number in range(6)), *slow(6500, 7300, 420))
    scene.victims(4, steps)
    for number in range(6):
        first = next(at for at in steps if at > 1550 + 500 * number) + 3
        scene.prompt(1470 + 500 * number, 1000).answers([first]).ends(first + 1)
    for number in range(3):
        scene.prompt(6480, 9000, f"gone-{number}").client_leaves(7100 + 50 * number)
    scene.play()
    assert scene.stalls() == {"prefill": 4 * 8}
    assert {each["request_id"] for each in scene.incidents()[-1]["culprits"]} <= {"gone-0", "gone-1", "gone-2"}


def test_a_json_answer_whose_prompt_takes_several_steps_of_a_server_nobody_knows() -> None:
    scene = Scene()
    scene.victims(1, beat(20, 9000, *slow(5000, 6500, 520)))
    scene.prompt(4990, 3000, "document", stream=False).answers_in_json(6700)
    scene.play()
    assert scene.stalls() == {"prefill": 3}
    assert [each["request_id"] for each in scene.incident()["culprits"]] == ["document"]


def test_a_silence_that_the_client_ended_is_no_stall() -> None:
    scene = Scene()
    (victim,) = scene.victims(1, beat(20, 5000), ends=False)
    victim.client_leaves(9000)
    scene.victims(1, beat(20, 12_000))
    scene.play()
    assert scene.stalls() == {}
    assert scene.incidents() == []


def test_a_silence_that_the_server_ended_was_real() -> None:
    scene = Scene()
    (victim,) = scene.victims(1, beat(20, 5000), ends=False)
    victim.breaks_off(9000)
    scene.play()
    assert scene.stalls() == {"unattributed": 1}


def evenly_spread(scene: Scene, streams: int, period: float, until: float) -> None:
    """Each stream has a token every ``period`` ms, at a phase of its own, and prompts come all the time: two wait at
    any moment, so that no gap is without one in service."""
    for number in range(streams):
        first = 1000 + period * number / streams
        times = [first + period * turn for turn in range(int((until - first) / period))]
        scene.prompt(first - period, 40, f"reader {number}").answers(times)
    for number in range(int((until - 500) / 50)):
        sent = 500 + 50 * number
        scene.prompt(sent, 40, f"newcomer {number}").answers([sent + 150]).ends(sent + 151)


def test_slow_streams_beside_prompts_without_end_are_no_stalls() -> None:
    """No gap is clear, and the engine's steps look as short as the time between two streams; the streams' own gaps show
    what a token takes, once 64 were learned from. There are 280."""
    scene = Scene()
    evenly_spread(scene, 20, 400, 8000)
    scene.play()
    assert sum(scene.stalls().values()) < 100


@pytest.mark.parametrize(("gap", "stalls"), [(700, 0), (900, 1)])
def test_what_is_long_for_a_slow_stream_beside_prompts_without_end_is_one(gap: float, stalls: int) -> None:
    """Four times the 200 ms that a token takes there."""
    counts = []
    for silent in (200, gap):
        scene = Scene()
        evenly_spread(scene, 20, 200, 5000)
        times = [1700 + 200 * turn for turn in range(15)]
        scene.prompt(1500, 40).answers([time + (time > 3000) * (silent - 200) for time in times])
        scene.play()
        counts.append(sum(scene.stalls().values()))
    assert counts[1] - counts[0] == stalls
