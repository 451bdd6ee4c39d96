"""Units and block sizes that a file does not name, and a rate that nobody means."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from prefillwatch.errors import ConfigError
from prefillwatch.lab.arrivals import Arrival, Reading, Schedule, check_rate, prompt_text, read_arrivals
from prefillwatch.lab.vocabulary import tokenize


def row(time: float, tokens: int = 100, ids: Sequence[int] = (), **more: object) -> dict[str, Any]:
    return {"timestamp": time, "input_length": tokens, "output_length": 12, "hash_ids": list(ids), **more}


def read(folder: Path, *rows: dict[str, Any], reading: Reading | None = None) -> Schedule:
    path = folder / "arrivals.jsonl"
    path.write_text("\n".join(json.dumps(each) for each in rows))
    return read_arrivals(path, reading)


BAILIAN = (
    row(0.0, 48, (3, 4, 5), chat_id=7, parent_chat_id=-1, type="text", turn=1),
    row(5.5, 48, (3, 9, 10), chat_id=8, parent_chat_id=-1, type="text", turn=1),
    row(61.1, 521, range(20, 53), chat_id=9, parent_chat_id=7, type="text", turn=2),
)


def test_chats_in_seconds_with_blocks_of_sixteen(tmp_path: Path) -> None:
    schedule = read(tmp_path, *BAILIAN)
    assert [each.at_seconds for each in schedule.arrivals] == [0.0, 5.5, 61.1]
    assert schedule.said == ("blocks of 16 tokens (by tokens over ids)", "times in s (as is usual beside such fields)")


def test_prompts_share_as_many_tokens_as_their_blocks_say(tmp_path: Path) -> None:
    first, second, _ = read(tmp_path, *BAILIAN).arrivals
    words = [tokenize(prompt_text(each, random.Random(1))) for each in (first, second)]
    assert words[0][:16] == words[1][:16]
    assert words[0][16:] != words[1][16:]


@pytest.mark.parametrize(
    ("times", "ids", "seconds", "why"),
    [
        ((0, 0.2, 0.4), (), 0.4, "they have fractions"),
        ((0, 1, 2), (), 2.0, "whole numbers do not tell; in milliseconds they would be 1,000 a second"),
        ((0, 27482), (), 27.482, "whole numbers do not tell; Mooncake's are milliseconds"),
        ((0, 27482), range(14), 27.482, "blocks of 512 tokens come with times in ms"),
        ((1700000000000, 1700000000250), (), 0.25, "too large for seconds"),
    ],
)
def test_what_the_numbers_prove_and_what_they_do_not(
    tmp_path: Path, times: Sequence[float], ids: Sequence[int], seconds: float, why: str
) -> None:
    schedule = read(tmp_path, *[row(time, 6758, ids) for time in times])
    assert schedule.seconds == pytest.approx(seconds)
    assert any(said.startswith("times in ") and why in said for said in schedule.said)


def test_small_blocks_mean_seconds_although_the_numbers_are_whole(tmp_path: Path) -> None:
    schedule = read(tmp_path, row(0, 640, range(40)), row(60, 640, range(40)))
    assert schedule.seconds == 60
    assert schedule.arrivals[0].block_tokens == 16


def test_a_last_block_that_is_not_full_may_have_no_id(tmp_path: Path) -> None:
    schedule = read(tmp_path, row(0, 650, range(10)), row(9, 700, range(10)), row(12, 200, range(3)))
    assert schedule.arrivals[0].block_tokens == 64


def test_ids_that_prove_no_size_are_said_to(tmp_path: Path) -> None:
    schedule = read(tmp_path, row(0, 10, (1,)), row(9000, 12, (2,)))
    assert schedule.said[0] == "blocks of 512 tokens (tokens over ids allow 8 to 2048)"
    schedule = read(tmp_path, row(0, 6955, (46, 47)), row(9000, 6472, (46, 48)))
    assert schedule.said[0] == "blocks of 512 tokens (tokens over ids tell nothing; that is usual)"


def test_what_is_given_is_taken(tmp_path: Path) -> None:
    schedule = read(tmp_path, *BAILIAN, reading=Reading(unit="ms", block_tokens=32))
    assert schedule.seconds == pytest.approx(0.0611)
    assert schedule.said == ("blocks of 32 tokens (as given)", "times in ms (as given)")
    assert {each.block_tokens for each in schedule.arrivals} == {32}


class TestRate:
    def test_thousands_a_second_are_questioned(self) -> None:
        schedule = Schedule(tuple(Arrival(at / 2000, 10, 1) for at in range(500)), said=("times in ms (as given)",))
        with pytest.raises(ConfigError, match=r"busiest 2,020 a second.*Taken: times in ms.*or give --anyway"):
            check_rate(schedule, "--anyway")

    def test_a_hundred_at_one_moment_are_questioned(self) -> None:
        with pytest.raises(ConfigError, match="100 at the same moment"):
            check_rate(Schedule(tuple(Arrival(0.0, 10, 1) for _ in range(100))), "--anyway")

    def test_bursts_as_traces_have_them_are_not(self) -> None:
        check_rate(Schedule(tuple(Arrival(float(at // 50), 10, 1) for at in range(500))), "--anyway")
