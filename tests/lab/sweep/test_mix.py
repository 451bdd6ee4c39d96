"""The mix: what arrives when, what is played on a server, and the figures that come of it."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.lab.openai_server import OpenAIServer, run_with

from prefillwatch.errors import ConfigError
from prefillwatch.lab.arrivals import Arrival, Schedule
from prefillwatch.lab.client import Answer
from prefillwatch.lab.simulator import SimServer, SimSettings
from prefillwatch.lab.sweep.figures import MixFigures
from prefillwatch.lab.sweep.mix import MixSettings, mix_schedule
from prefillwatch.lab.sweep.mix_figures import Played, mix_figures
from prefillwatch.lab.sweep.play_mix import run_mix
from prefillwatch.lab.target import reach
from prefillwatch.units import NS


class TestSchedule:
    def test_a_minute_holds_short_chats_medium_prompts_and_documents(self) -> None:
        sizes = [arrival.prompt_tokens for arrival in mix_schedule(MixSettings()).arrivals]
        assert sum(size <= 500 for size in sizes) > 20
        assert 3 <= sum(600 <= size <= 1500 for size in sizes) <= 10
        assert 3 <= sum(size >= 5000 for size in sizes) <= 10

    def test_the_same_seed_gives_every_setting_the_same_mix(self) -> None:
        assert mix_schedule(MixSettings()) == mix_schedule(MixSettings())
        assert mix_schedule(MixSettings(seed=2)) != mix_schedule(MixSettings())

    def test_arrivals_are_in_order_and_within_the_time(self) -> None:
        times = [arrival.at_seconds for arrival in mix_schedule(MixSettings(seconds=30.0)).arrivals]
        assert times == sorted(times)
        assert max(times) < 30.0

    def test_a_rate_multiplies_them(self) -> None:
        once, thrice = (len(mix_schedule(MixSettings(rate=rate)).arrivals) for rate in (1.0, 3.0))
        assert 2.5 * once < thrice < 3.5 * once

    def test_documents_are_cut_to_what_the_model_takes(self) -> None:
        fitted = mix_schedule(MixSettings(), max_model_len=2048).arrivals
        assert all(each.prompt_tokens + each.output_tokens <= 2048 for each in fitted)
        assert len(fitted) == len(mix_schedule(MixSettings()).arrivals)

    def test_arrivals_of_a_file_that_do_not_fit_are_left_out_and_counted(self) -> None:
        schedule = Schedule((Arrival(0.0, 100, 10), Arrival(1.0, 5000, 10)), left_out=1)
        assert schedule.fitting(2048) == Schedule((Arrival(0.0, 100, 10),), left_out=2)
        assert schedule.fitting(None) == schedule

    @pytest.mark.parametrize("wrong", [{"seconds": -1.0}, {"rate": 0.0}, {"readers": 0}])
    def test_a_mix_that_cannot_be(self, wrong: dict[str, float]) -> None:
        with pytest.raises(ConfigError, match="the mix needs"):
            MixSettings(**wrong)  # type: ignore[arg-type]


def answer(sent_s: float, *reads_s: float, status: int = 200, complete: bool = True, error: str = "") -> Answer:
    made = Answer(round(sent_s * NS), status, [round(read * NS) for read in reads_s], [1] * len(reads_s))
    made.events, made.complete, made.error = len(reads_s), complete, error
    made.closed_ns = made.reads_ns[-1] if complete and reads_s else 0
    return made


class TestFigures:
    def figures(self, *arrivals: tuple[int, Answer], readers: tuple[list[Answer], ...] = ()) -> MixFigures:
        played = Played(start_ns=0, end_ns=20 * NS, readers=list(readers))
        played.arrivals = [(Arrival(0.0, tokens, 10), each) for tokens, each in arrivals]
        return mix_figures(played, seconds=10.0)

    def test_rates_are_over_the_seconds_of_the_mix(self) -> None:
        found = self.figures((100, answer(1, 2, 3, 4)), (900, answer(8, 9, 11, 12)))
        assert found.generated_tokens_per_second == pytest.approx(0.4), "three and one of six"
        assert found.prompt_tokens_per_second == pytest.approx(100), "both began to answer in time"
        assert found.requests_per_second == pytest.approx(0.1), "one ended in time"

    def test_events_with_several_tokens_count_as_usage_says(self) -> None:
        double = answer(1, 2, 3)
        double.completion_tokens = 4
        assert self.figures((100, double)).generated_tokens_per_second == pytest.approx(0.4)

    def test_first_tokens_by_size(self) -> None:
        found = self.figures((100, answer(1, 2)), (6000, answer(1, 4)), (7000, answer(1, 6)))
        assert {size: each.max_seconds for size, each in found.first_token_by_size.items()} == {"0-512": 1, "2k-8k": 5}

    def test_who_never_got_a_first_token_counts_with_the_time_that_it_waited(self) -> None:
        found = self.figures((100, answer(1, 2)), (100, answer(5, complete=False, status=0)))
        assert found.first_token is not None
        assert found.first_token.max_seconds == 15
        assert (found.answered, found.failed, found.failures) == (1, 1, ("1 × no first token in time",))

    def test_who_was_refused_did_not_wait(self) -> None:
        found = self.figures((100, answer(1, status=503)))
        assert found.first_token is None
        assert found.failures == ("1 × HTTP 503",)

    def test_what_lies_between_two_answers_of_a_reader_is_no_gap(self) -> None:
        readers = ([answer(0, 1.00, 1.02, 1.04), answer(3, 3.00, 3.02, 3.44)],)
        found = self.figures((100, answer(1, 2)), readers=readers)
        assert found.gaps is not None
        assert found.gaps.samples == 4
        assert found.gaps.max_seconds == pytest.approx(0.42)
        assert found.stalls.stall_seconds == pytest.approx(0.40)

    def test_failures_are_counted_the_commonest_first(self) -> None:
        lost = [(100, answer(1, 2, complete=False, error="connection lost")) for _ in range(2)]
        found = self.figures(*lost, (100, answer(1, status=400)))
        assert found.failures == ("2 × connection lost", "1 × HTTP 400")


def test_played_on_a_server_everything_is_answered_and_readers_stream_meanwhile() -> None:
    settings = MixSettings(seconds=1.5, readers=2, rate=4.0)
    schedule = mix_schedule(settings)

    async def play() -> MixFigures:
        async with SimServer(SimSettings(preset="small")) as server:
            return await run_mix(await reach(server.url), schedule, settings)

    found = asyncio.run(play())
    assert (found.requests, found.answered, found.failures) == (len(schedule.arrivals), len(schedule.arrivals), ())
    sizes = Counter("0-512" if each.prompt_tokens < 512 else "512-2k" for each in schedule.arrivals)
    assert {size: each.samples for size, each in found.first_token_by_size.items()} == dict(sizes)
    assert found.gaps is not None
    assert found.gaps.samples > 100
    assert found.stalls.streams == 2
    assert found.generated_tokens_per_second > 0


def test_recorded_prompts_share_the_beginnings_that_they_shared_and_are_no_longer_than_they_were() -> None:
    schedule = Schedule((Arrival(0.0, 600, 1, (1, 2)), Arrival(0.2, 600, 1, (1, 3)), Arrival(0.3, 20, 1)))
    server = OpenAIServer(known=("max_tokens", "stream_options", "ignore_eos"))

    async def play(running: OpenAIServer) -> None:
        await run_mix(await reach(running.url), schedule, MixSettings(seconds=0.5, readers=1))

    run_with(server, play)
    texts = [chat["messages"][0]["content"].split() for chat in server.chats]
    *_, one, other = (text for text in texts if len(text) > 256)
    assert one[:256] == other[:256], "512 tokens, on this server two a word"
    assert one[256:] != other[256:]
    assert 5 in map(len, texts), "20 tokens with the template of ten"
