"""Mixed traffic: what is sent, and that it is bounded in count, in time and at once."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import replace

import pytest

from prefillwatch.lab.load import (
    CHAT,
    DOCUMENT,
    QUESTION,
    VICTIM,
    Kind,
    LoadReport,
    LoadSettings,
    request_body,
    run_load,
)
from prefillwatch.lab.simulator import SimServer, SimSettings
from prefillwatch.lab.vocabulary import content_tokens, prompt_of, tokenize_chat

SETTINGS = SimSettings(preset="small", served_model_name="m")
SHORT = Kind("short", (20, 60), (5, 10), per_second=50.0)


def load(kinds: tuple[Kind, ...] = (SHORT,), simulator: SimSettings = SETTINGS, **fields: object) -> LoadReport:
    async def main() -> LoadReport:
        async with SimServer(simulator) as server:
            settings = LoadSettings(server.url, "m", kinds=kinds, **fields)  # type: ignore[arg-type]
            of_the_server = asyncio.all_tasks()
            report = await run_load(settings)
            patience = asyncio.get_running_loop().time() + 10  # the server has to see first who has left
            while asyncio.all_tasks() - of_the_server and asyncio.get_running_loop().time() < patience:
                await asyncio.sleep(0.01)
            assert not asyncio.all_tasks() - of_the_server
            return report

    return asyncio.run(main())


class TestRequests:
    @pytest.mark.parametrize("kind", [VICTIM, CHAT, QUESTION, DOCUMENT])
    def test_prompts_are_exactly_as_long_as_asked_for(self, kind: Kind) -> None:
        rng = random.Random(1)
        for tokens in kind.prompt_tokens:
            body = request_body("m", kind, tokens, rng)
            messages = [(message["role"], content_tokens(message["content"])) for message in body["messages"]]
            assert len(tokenize_chat(messages)) == tokens

    def test_a_shared_prefix_is_the_same_every_time_and_the_rest_is_not(self) -> None:
        rng = random.Random(1)
        first, second = (request_body("m", CHAT, 300, rng)["messages"] for _ in range(2))
        assert first[0] == second[0]
        assert first[1] != second[1]

    def test_the_same_seed_makes_the_same_requests(self) -> None:
        first, second = (request_body("m", QUESTION, 700, random.Random(7)) for _ in range(2))
        assert first == second

    def test_a_prompt_shorter_than_the_chat_template_is_refused(self) -> None:
        with pytest.raises(ValueError, match="at least 8 tokens, not 7"):
            prompt_of(7, random.Random(1))


class TestBounds:
    def test_the_number_of_requests(self) -> None:
        report = load(victims=2, max_requests=9, duration_seconds=30)
        assert report.requests == 9
        assert report.failures == []

    def test_the_last_request_is_not_hung_up_on_before_the_time(self) -> None:
        slow = Kind("slow", (20, 60), (100, 100), per_second=100.0)
        report = load((slow,), victims=0, max_requests=2, duration_seconds=30)
        assert [answer.complete for answer in report.answers["slow"]] == [True, True]

    def test_time_and_everything_is_hung_up_on_then(self) -> None:
        began = time.monotonic()
        endless = Kind("endless", (20, 60), (8000, 8000), per_second=50.0)
        report = load((endless,), victims=1, duration_seconds=0.5)
        assert time.monotonic() - began < 10
        assert report.answers.get("endless", []) == []

    def test_requests_at_once(self) -> None:
        slow = Kind("slow", (20, 60), (100, 100), per_second=100.0)
        report = load((slow,), victims=0, max_in_flight=3, max_requests=4, duration_seconds=30)
        assert report.requests >= 1, "the fourth could only begin when one of the others had ended"
        assert report.turned_away > 0

    def test_victims_alone_and_nothing_at_all(self) -> None:
        assert set(load((), victims=1, max_requests=1, duration_seconds=30).answers) == {"victim"}
        assert load((), victims=0, duration_seconds=30).requests == 0


class TestReport:
    def test_has_every_gap_of_every_answer(self) -> None:
        report = load((replace(SHORT, answer_tokens=(5, 5)),), victims=0, max_requests=4, duration_seconds=30)
        assert [answer.completion_tokens for answer in report.answers["short"]] == [5] * 4
        assert len(report.gaps_seconds("short")) == sum(len(a.reads_ns) - 1 for a in report.answers["short"])
        assert report.gaps_seconds("never") == []

    def test_names_failures_by_kind(self) -> None:
        too_long = Kind("long", (500, 500), (5, 5), per_second=50.0)
        small = replace(SETTINGS, max_model_len=256)
        report = load((too_long,), small, victims=0, max_requests=2, duration_seconds=30)
        assert report.failures == ["long: HTTP status 400"] * 2
