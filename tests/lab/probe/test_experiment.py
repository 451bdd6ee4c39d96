"""The experiment against servers: whole, interrupted, refused, and with the server gone in the middle."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

import pytest
from tests.lab.openai_server import OpenAIServer, run_with

from prefillwatch.errors import ConfigError
from prefillwatch.lab.arrivals import Arrival, Schedule
from prefillwatch.lab.probe.experiment import Progress, run_probe
from prefillwatch.lab.probe.result import ProbeResult
from prefillwatch.lab.probe.settings import ProbeSettings, plan
from prefillwatch.lab.simulator import SimServer, SimSettings
from prefillwatch.lab.target import TargetError, reach

QUICK = ProbeSettings(
    victims=3, inject=2, prompt_tokens=(1000,), warmup_seconds=0.3, recovery_seconds=0.2, injection_seconds=10, seed="s"
)
CHATTY = ("max_tokens", "stream_options", "ignore_eos")


def on_simulator(scenario: Callable[[SimServer], Awaitable[None]], **settings: object) -> None:
    async def main() -> None:
        async with SimServer(SimSettings(preset="small", **settings)) as server:  # type: ignore[arg-type]
            await asyncio.wait_for(scenario(server), 30)

    asyncio.run(main())


def probed(settings: ProbeSettings) -> ProbeResult:
    found: list[ProbeResult] = []

    async def scenario(server: SimServer) -> None:
        found.append(await run_probe(await reach(server.url), settings))

    on_simulator(scenario)
    return found[0]


def test_victims_stream_before_during_and_after_the_injection() -> None:
    result = probed(QUICK)
    (run,) = result.runs
    assert (result.problem, result.counted_by) == ("", "tokenize")
    assert len(run.victims) == 3
    for (answer,) in run.victims:
        assert answer.reads_ns[0] <= run.streaming_ns < run.injected_ns < run.released_ns < answer.reads_ns[-1]
        assert answer.reads_ns[-1] <= run.ended_ns
    assert [answer.prompt_tokens for answer in run.injected] == [1000, 1000]
    assert all(answer.cached_tokens == 0 for answer in run.injected), "no two prompts begin alike"


def test_every_size_and_every_repeat_is_a_run_of_its_own() -> None:
    result = probed(
        dataclasses.replace(QUICK, prompt_tokens=(1000, 100), repeats=2, warmup_seconds=0.1, recovery_seconds=0.1)
    )
    assert [(run.prompt_tokens, run.repeat) for run in result.runs] == [(1000, 0), (100, 0), (1000, 1), (100, 1)]
    assert [dose.prompt_tokens for dose in result.doses()] == [100, 1000]
    assert [len(dose.runs) for dose in result.doses()] == [2, 2]


def test_no_more_tokens_are_used_than_were_announced() -> None:
    async def scenario(server: SimServer) -> None:
        used = 0
        seen = server.engine.submit

        def submit(request: object) -> None:
            nonlocal used
            used += request.prompt_tokens + (request.max_tokens or 0)  # type: ignore[attr-defined]
            seen(request)  # type: ignore[arg-type]

        server.engine.submit = submit  # type: ignore[method-assign]
        settings = dataclasses.replace(QUICK, victim_tokens=512)
        await run_probe(await reach(server.url), settings)
        assert 0 < used <= plan(settings).tokens

    on_simulator(scenario)


def test_progress_is_told_phase_by_phase() -> None:
    told: list[Progress] = []

    async def scenario(server: SimServer) -> None:
        await run_probe(await reach(server.url), QUICK, told.append)

    on_simulator(scenario)
    lasting = [each.text.split(";")[0] for each in told if not each.passing]
    assert lasting[:4] == [
        "getting to know the server",
        "rehearsal: one prompt of 1,000 tokens",
        "3 victims stream",
        "2 prompts of 1,000 tokens sent",
    ]
    assert lasting[4].startswith("taken in after ")
    assert any("tokens streamed" in each.text for each in told if each.passing)


def test_an_interrupted_probe_keeps_what_it_measured() -> None:
    async def scenario(server: SimServer) -> None:
        stop = asyncio.Event()

        def on_progress(progress: Progress) -> None:
            if "taken in" in progress.text:
                stop.set()

        settings = dataclasses.replace(QUICK, recovery_seconds=60)
        result = await run_probe(await reach(server.url), settings, on_progress, stop=stop)
        assert (result.problem, result.interrupted) == ("it was interrupted", True)
        (figures,) = result.figures()
        assert figures.taken_in == 2
        assert figures.overall.samples > 0

    on_simulator(scenario)


def test_its_time_is_up() -> None:
    late = probed(dataclasses.replace(QUICK, prompt_tokens=(100, 200), max_seconds=1.0))
    assert late.problem == "the time limit of 1 s was reached"
    assert not late.interrupted


def test_a_victim_whose_answer_ends_asks_again() -> None:
    async def scenario(server: OpenAIServer) -> None:
        settings = dataclasses.replace(QUICK, prompt_tokens=(100,), warmup_seconds=0.1, recovery_seconds=0.1)
        result = await run_probe(await reach(server.url), settings)
        assert (result.problem, result.counted_by) == ("", "usage")
        assert all(len(answers) > 2 for answers in result.runs[0].victims)
        assert all("ignore_eos" not in body for body in server.chats[1:])

    run_with(OpenAIServer(answer_tokens=10), scenario)


def test_a_victim_stops_when_its_tokens_are_used_up() -> None:
    async def scenario(server: OpenAIServer) -> None:
        stop = asyncio.Event()
        later: list[Progress] = []

        def on_progress(progress: Progress) -> None:
            later.extend([progress] if progress.text == "768 tokens streamed" else [])
            if len(later) > 1:  # told again: no victim asked anew
                stop.set()

        settings = dataclasses.replace(QUICK, prompt_tokens=(100,), victim_tokens=512, warmup_seconds=30)
        result = await run_probe(await reach(server.url), settings, on_progress, stop=stop)
        for answers in result.runs[0].victims:
            assert [answer.completion_tokens for answer in answers] == [256]

    run_with(OpenAIServer(known=CHATTY, step_seconds=0.0005), scenario)


def test_a_server_that_dies_in_the_middle_leaves_a_report_of_what_was() -> None:
    async def scenario(server: OpenAIServer) -> None:
        def on_progress(progress: Progress) -> None:
            if "taken in" in progress.text:
                server.models_status = server.chat_status = 503
                server.cut_after = 0

        settings = dataclasses.replace(QUICK, prompt_tokens=(100,), recovery_seconds=20)
        result = await run_probe(await reach(server.url), settings, on_progress)
        assert result.problem.startswith("victim ")
        assert "gets no answer any more (HTTP 503" in result.problem
        assert result.figures()[0].taken_in == 2

    run_with(OpenAIServer(answer_tokens=40), scenario)


def test_long_prompts_that_are_refused_end_the_probe_with_the_servers_words() -> None:
    async def scenario(server: OpenAIServer) -> None:
        with pytest.raises(TargetError, match=r"does not answer a prompt of 1,000 tokens \(HTTP 413: too long\)"):
            await run_probe(await reach(server.url), QUICK)

    def answer(asked: object) -> tuple[int, bytes, str] | None:
        body = getattr(asked, "body", None) or {}
        long = "messages" in body and len(body["messages"][0]["content"]) > 1000
        return (413, b'{"error":{"message":"too long"}}', "application/json") if long else None

    run_with(OpenAIServer(answer=answer), scenario)


def test_prompts_beyond_the_context_are_refused_before_anything_is_sent() -> None:
    async def scenario(server: OpenAIServer) -> None:
        settings = dataclasses.replace(QUICK, prompt_tokens=(100, 4090))
        with pytest.raises(
            ConfigError, match="do not fit the model's context of 4,096; take a smaller --prompt-tokens"
        ):
            await run_probe(await reach(server.url), settings)
        assert not server.chats

    run_with(OpenAIServer(), scenario)


def test_victims_that_are_too_many_for_the_server_are_counted() -> None:
    async def scenario(server: OpenAIServer) -> None:
        result = await run_probe(await reach(server.url), dataclasses.replace(QUICK, prompt_tokens=(100,)))
        assert "gets no answer any more (HTTP 429: slow down)" in result.problem
        assert not result.figures()

    def answer(asked: object) -> tuple[int, bytes, str] | None:
        body = getattr(asked, "body", None) or {}
        story = "messages" in body and "story" in body["messages"][0]["content"]
        return (429, b'{"error":{"message":"slow down"}}', "application/json") if story else None

    run_with(OpenAIServer(answer=answer), scenario)


def test_recorded_arrivals_come_when_they_are_due_with_answers_of_their_own() -> None:
    arrivals = Schedule((Arrival(0, 200, 3), Arrival(0.15, 900, 5), Arrival(0.3, 3, 1)))
    result = probed(QUICK.of_arrivals(arrivals))
    (run,) = result.runs
    assert [answer.prompt_tokens for answer in run.injected][:2] == [200, 900]
    assert run.injected[2].prompt_tokens == 8, "no chat on this server is shorter"
    assert [answer.completion_tokens for answer in run.injected] == [3, 5, 1]
    times = [(answer.sent_ns - run.injected_ns) / 1e9 for answer in run.injected]
    assert times == sorted(times)
    assert times[1] >= 0.1
    assert len(run.window()) == 3
    assert result.to_json()["settings"]["arrivals"] == {"seconds": 0.3, "prompt_tokens": 1103}


def test_recorded_prompts_share_the_beginnings_that_they_shared_and_none_with_the_run_before() -> None:
    """The server's prefix cache then helps as it did: 512 tokens a block, and nothing that a repeat brought in."""
    arrivals = Schedule((Arrival(0, 700, 1, (1, 2)), Arrival(0.4, 1200, 1, (1, 3, 4)), Arrival(0.8, 700, 1, (5, 2))))
    result = probed(dataclasses.replace(QUICK, repeats=2).of_arrivals(arrivals))
    for run in result.runs:
        first, second, third = (answer.cached_tokens for answer in run.injected)
        assert not first
        assert second is not None
        assert 512 <= second < 512 + 16, "as much as whole KV blocks hold"
        assert not third, "its second block is known, but not its first"
