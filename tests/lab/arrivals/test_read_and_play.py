"""Arrivals from files of public traces, and playing them as load."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kit.eventually import soon

from prefillwatch.lab.arrivals import (
    Arrival,
    ArrivalsError,
    PlayReport,
    Schedule,
    play,
    prompt_text,
    read_arrivals,
    sender,
)
from prefillwatch.lab.arrivals.files import LONGEST_LINE
from prefillwatch.lab.client import Answer
from prefillwatch.lab.simulator import SimServer, SimSettings
from prefillwatch.lab.vocabulary import tokenize, tokenize_chat

Read = Callable[[str], Schedule]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def write_and_read(text: str) -> Schedule:
        path = tmp_path / "arrivals.jsonl"
        path.write_text(text)
        return read_arrivals(path)

    return write_and_read


class TestForms:
    def test_mooncake_has_milliseconds_and_blocks_of_equal_text(self, read: Read) -> None:
        schedule = read(
            '{"timestamp": 27000, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}\n'
            '{"timestamp": 30250, "input_length": 6472, "output_length": 26, "hash_ids": [46, 48]}\n'
        )
        assert schedule.arrivals == (
            Arrival(0.0, 6955, 52, (46, 47)),
            Arrival(3.25, 6472, 26, (46, 48)),
        )

    def test_azure_has_dates_with_more_digits_than_microseconds(self, read: Read) -> None:
        schedule = read(
            "TIMESTAMP,ContextTokens,GeneratedTokens\n"
            "2023-11-16 18:17:03.9799600,4808,10\n"
            "2023-11-16 18:17:04.0319600,3180,8\n"
        )
        assert [each.at_seconds for each in schedule.arrivals] == [0.0, pytest.approx(0.052, abs=1e-6)]
        assert [each.prompt_tokens for each in schedule.arrivals] == [4808, 3180]

    def test_burstgpt_has_seconds_and_failed_requests_of_no_tokens(self, read: Read) -> None:
        schedule = read(
            "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
            "5,ChatGPT,472,18,490,Conversation log\n"
            "45,ChatGPT,0,0,0,Conversation log\n"
            "118,GPT-4,417,276,693,Conversation log\n"
        )
        assert schedule == Schedule((Arrival(0.0, 472, 18), Arrival(113.0, 417, 276)), left_out=1)

    @pytest.mark.parametrize(
        ("first", "second", "seconds"),
        [
            ('"arrival": 1.5', '"arrival": 2.0', 0.5),
            ('"arrived_at": 1700000000', '"arrived_at": 1700000002.25', 2.25),
            ('"timestamp": 1700000000000', '"timestamp": 1700000000250', 0.25),
            ('"arrival_ms": 100', '"arrival_ms": 350', 0.25),
            ('"created_at": "2024-05-10T00:00:00Z"', '"created_at": "2024-05-10T00:00:01.5Z"', 1.5),
        ],
    )
    def test_times(self, read: Read, first: str, second: str, seconds: float) -> None:
        rows = [f'{{{moment}, "prompt_tokens": 9, "output_tokens": 3}}' for moment in (second, first)]
        schedule = read("\n".join(rows))
        assert [each.at_seconds for each in schedule.arrivals] == [0.0, pytest.approx(seconds)]

    def test_a_mark_at_the_beginning_is_no_part_of_the_first_line(self, read: Read) -> None:
        assert len(read('\ufeff{"arrival": 1, "prompt_tokens": 5, "output_tokens": 5}').arrivals) == 1

    def test_a_table_with_gaps_has_whole_numbers_with_a_point(self, read: Read) -> None:
        (arrival,) = read("Timestamp,Request tokens,Response tokens\n1.5,374.0,44.0\n").arrivals
        assert (arrival.prompt_tokens, arrival.output_tokens) == (374, 44)


class TestBadFiles:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ('{"arrival": 1, "prompt_tokens": 5, "output_tokens": 5}\n{"arrival": 2', "line 2: no valid JSON"),
            ('{"arrival": 1, "prompt_tokens": 5}', 'line 1: no "output_tokens"'),
            ('{"prompt_tokens": 5, "output_tokens": 5}', 'line 1: no "arrival"'),
            ('{"arrival": "noon", "prompt_tokens": 5, "output_tokens": 5}', "write seconds"),
            ('{"arrival": 1, "prompt_tokens": -5, "output_tokens": 5}', "between 0 and"),
            ('{"arrival": 1, "prompt_tokens": 5.5, "output_tokens": 5}', "whole number"),
            ('{"arrival": 1, "prompt_tokens": true, "output_tokens": 5}', "whole number"),
            ('{"arrival": 1, "prompt_tokens": 5, "output_tokens": 5}\n[1]', "line 2: not a JSON object"),
            ("hello\nworld\n", "neither JSON nor a CSV header"),
            ("", "holds nothing that could be sent: it is empty"),
            ('{"arrival": 1, "prompt_tokens": 0, "output_tokens": 5}', "none of its 1 arrivals has prompt tokens"),
            ('[{"arrival": 1, "prompt_tokens": 5, "output_tokens": 5}, 3]', "entry 2: not a JSON object"),
            ('[{"arrival": 1, "prompt_tokens": 5}]', 'entry 1: no "output_tokens"'),
            ('{"a": ' + "[" * 9999 + "]" * 9999 + "}", "line 1: no valid JSON"),
            ("Timestamp,Request tokens,Response tokens\n1," + "2" * 200_000 + ",3", "line 2: no valid CSV"),
            ("Timestamp,Request tokens,Response tokens\n1,inf,3", "must be a whole number of tokens"),
            ("{" + ", ".join(f'"{n}": 1' for n in range(9_999)) + "}", r"^.{,400}$"),
            ("{" + "x" * LONGEST_LINE, "longer than"),
        ],
    )
    def test_one_error_names_line_and_remedy(self, read: Read, text: str, message: str) -> None:
        with pytest.raises(ArrivalsError, match=message):
            read(text)

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(ArrivalsError, match="No such file"):
            read_arrivals(tmp_path / "nothing")

    def test_a_file_that_is_no_text(self, tmp_path: Path) -> None:
        (tmp_path / "binary").write_bytes(b"{\xff\xfe\x00")
        with pytest.raises(ArrivalsError, match="no text file"):
            read_arrivals(tmp_path / "binary")


class TestLimits:
    SCHEDULE = Schedule(tuple(Arrival(float(second), 100, 10) for second in range(10)))

    def test_speed_moves_arrivals_together(self) -> None:
        assert self.SCHEDULE.limited(speed=4).seconds == 9 / 4

    @pytest.mark.parametrize(
        ("limits", "kept"),
        [({"requests": 3}, 3), ({"tokens": 500}, 4), ({"seconds": 2.5}, 3), ({"prompt_tokens": 99}, 0)],
    )
    def test_what_is_beyond_a_limit_is_left_out_and_counted(self, limits: dict[str, int], kept: int) -> None:
        limited = self.SCHEDULE.limited(**limits)
        assert (len(limited.arrivals), limited.left_out) == (kept, 10 - kept)
        assert limited.prompt_tokens == 100 * kept


class TestPrompts:
    def test_exactly_as_many_tokens_as_asked_for(self) -> None:
        text = prompt_text(Arrival(0.0, 700, 1, blocks=(1,)), random.Random(1))
        assert len(tokenize_chat([("user", tokenize(text))])) == 700

    def test_blocks_beyond_the_prompt_are_not_written(self) -> None:
        class Counted:
            """Counts the blocks that are read."""

            read = 0

            def __str__(self) -> str:
                Counted.read += 1
                return "block"

        arrival = Arrival(0.0, 700, 1, blocks=tuple(Counted() for _ in range(9)))
        text = prompt_text(arrival, random.Random(1))
        assert len(tokenize_chat([("user", tokenize(text))])) == 700
        assert Counted.read == 2

    def test_equal_blocks_are_equal_text(self) -> None:
        first, second = (prompt_text(Arrival(0.0, 1500, 1, (7, own)), random.Random(own)) for own in (1, 2))
        assert tokenize(first)[:512] == tokenize(second)[:512]
        assert tokenize(first)[512:1024] != tokenize(second)[512:1024]


class TestPlaying:
    def test_answers_have_the_sizes_of_the_file(self) -> None:
        schedule = Schedule((Arrival(0.0, 50, 3), Arrival(0.01, 200, 5)))

        async def main() -> PlayReport:
            async with SimServer(SimSettings(preset="small", served_model_name="m")) as server:
                return await play(schedule, sender(server.url, "m"))

        report = asyncio.run(main())
        sizes = {(arrival, answer.prompt_tokens, answer.completion_tokens) for arrival, answer in report.answers}
        assert sizes == {(each, each.prompt_tokens, each.output_tokens) for each in schedule.arrivals}

    def test_whose_a_request_is_goes_with_it_as_its_user(self) -> None:
        bodies: list[dict[str, Any]] = []

        async def main() -> None:
            async def ask(url: str, body: dict[str, Any], **_: Any) -> Answer:
                bodies.append(body)
                return Answer(0)

            with pytest.MonkeyPatch.context() as patch:
                patch.setitem(sender.__globals__, "ask", ask)
                schedule = Schedule((Arrival(0.0, 20, 1, tenant="client-7"), Arrival(0.0, 20, 1)))
                await play(schedule, sender("http://server", "m"))

        asyncio.run(main())
        assert [body.get("user") for body in bodies] == ["client-7", None]

    def test_more_than_may_run_at_once_are_turned_away(self) -> None:
        async def main() -> PlayReport:
            go_on = asyncio.Event()

            async def send(arrival: Arrival) -> Answer:
                if arrival.prompt_tokens == 3:
                    go_on.set()
                await go_on.wait()
                return Answer(0)

            schedule = Schedule((Arrival(0.0, 1, 1), Arrival(0.0, 2, 1), Arrival(0.0, 2, 1)))
            playing = asyncio.ensure_future(play(schedule, send, max_in_flight=1))
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_later(0.01, go_on.set)
            return await playing

        report = asyncio.run(main())
        assert (report.sent, report.turned_away, len(report.answers)) == (1, 2, 1)

    def test_what_was_measured_survives_being_cancelled(self) -> None:
        async def main() -> PlayReport:
            report = PlayReport()

            async def send(arrival: Arrival) -> Answer:
                await asyncio.sleep(arrival.output_tokens)
                return Answer(0)

            playing = asyncio.ensure_future(
                play(Schedule((Arrival(0.0, 1, 0), Arrival(0.0, 1, 1000))), send, report=report)
            )
            await soon(lambda: report.answers)
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
            return report

        report = asyncio.run(main())
        assert [arrival.output_tokens for arrival, _ in report.answers] == [0]
