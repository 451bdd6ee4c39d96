"""Prompts of an exact length, from servers that count and from servers that only tell what was used."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from tests.lab.openai_server import Asked, OpenAIServer, run_with

from prefillwatch.lab.prompts import COMMON, PromptMaker, learning_tokens
from prefillwatch.lab.simulator import SimServer, SimSettings
from prefillwatch.lab.target import TargetError, reach


def with_simulator(scenario: Callable[[PromptMaker, str], Awaitable[None]]) -> None:
    async def main() -> None:
        async with SimServer(SimSettings(preset="small")) as server:
            await scenario(await PromptMaker.learn(await reach(server.url), "seed"), server.url)

    asyncio.run(main())


def counting(pieces: Callable[[str], int]) -> Callable[[Asked], tuple[int, bytes, str] | None]:
    """A /tokenize whose words have as many tokens as `pieces` says, under a template of ten."""

    def answer(asked: Asked) -> tuple[int, bytes, str] | None:
        if asked.path != "/tokenize":
            return None
        count = 10 + sum(pieces(word) for word in asked.body["messages"][0]["content"].split())
        return 200, json.dumps({"count": count, "max_model_len": 4096}).encode(), "application/json"

    return answer


def made(server: OpenAIServer, *sizes: int) -> tuple[PromptMaker, list[tuple[int, bool]]]:
    found: list[tuple[int, bool]] = []
    makers: list[PromptMaker] = []

    async def scenario(running: OpenAIServer) -> None:
        maker = await PromptMaker.learn(await reach(running.url), "seed")
        makers.append(maker)
        for size in sizes:
            prompt = await maker.make(size)
            found.append((prompt.tokens, prompt.exact))

    run_with(server, scenario)
    return makers[0], found


def test_the_simulators_prompts_have_exactly_the_tokens_asked_for() -> None:
    async def scenario(maker: PromptMaker, url: str) -> None:
        assert maker.source == "tokenize"
        for size in (8, 9, 500, 6000):
            prompt = await maker.make(size)
            assert (prompt.tokens, prompt.exact) == (size, True)
            answer = await maker.target.ask(maker.target.body(prompt.text, 1))
            assert answer.prompt_tokens == size

    with_simulator(scenario)


def test_no_two_prompts_begin_alike() -> None:
    async def scenario(maker: PromptMaker, url: str) -> None:
        prompts = await maker.make_many(12, 100)
        assert len({prompt.text[:40] for prompt in prompts}) == 12

    with_simulator(scenario)


def test_only_equal_blocks_are_equal_text() -> None:
    async def scenario(maker: PromptMaker, url: str) -> None:
        one, two = await maker.make(600, [7]), await maker.make(600, [7])
        assert one.text.split()[:512] == two.text.split()[:512]
        assert one.text != two.text
        assert (await maker.make(600, [8])).text[:40] != one.text[:40]

    with_simulator(scenario)


def test_words_that_are_not_one_token_are_sorted_out() -> None:
    maker, found = made(OpenAIServer(answer=counting(lambda word: 2 if len(word) > 4 else 1)), 50, 301)
    assert found == [(50, True), (301, True)]
    assert maker.source == "tokenize"


def test_a_tokenizer_that_splits_every_word_gives_the_nearest_length() -> None:
    _, found = made(OpenAIServer(answer=counting(lambda _: 3)), 310, 311)
    assert found[0] == (310, True)
    assert abs(found[1][0] - 311) <= 2


def test_without_tokenize_lengths_are_learned_from_usage() -> None:
    maker, found = made(OpenAIServer(), 410)
    assert maker.source == "usage"
    assert found == [(410, False)]


def test_a_prompt_learned_from_usage_is_about_right_and_what_was_used_corrects_it() -> None:
    async def scenario(server: OpenAIServer) -> None:
        maker = await PromptMaker.learn(await reach(server.url), "seed")
        prompt = await maker.make(410)
        assert len(prompt.text.split()) == 200  # ten tokens of template, two for each word
        maker.correct(prompt, 810)
        assert len((await maker.make(810)).text.split()) == 200

    run_with(OpenAIServer(), scenario)


def test_a_server_that_tells_no_usage_gets_a_guess() -> None:
    _, found = made(OpenAIServer(tells_usage=False), 408)
    assert found == [(408, False)]


def test_a_strict_server_is_asked_without_what_it_does_not_know() -> None:
    maker, _ = made(OpenAIServer(known=("max_completion_tokens", "stream_options")), 30)
    assert (maker.target.dialect.limit_name, maker.target.dialect.ignore_eos) == ("max_completion_tokens", False)
    maker, _ = made(OpenAIServer(known=("max_tokens",)), 30)
    assert not maker.target.dialect.usage
    maker, _ = made(OpenAIServer(known=("max_tokens", "ignore_eos", "stream_options")), 30)
    assert maker.target.dialect.ignore_eos


@pytest.mark.parametrize("known", [("max_tokens", "stream_options", "ignore_eos"), ("max_tokens",)])
def test_a_base_model_is_asked_for_completions(known: tuple[str, ...]) -> None:
    maker, found = made(OpenAIServer(chat=False, known=known), 30)
    assert maker.target.dialect.path == "/v1/completions"
    assert maker.target.body("hi", 7)["prompt"] == "hi"
    assert found == [(30, False)]


def test_learning_stays_within_its_bound() -> None:
    server = OpenAIServer(known=("max_tokens",))
    made(server)
    spent = sum(
        10 + 2 * len(body["messages"][0]["content"].split()) + body.get("max_tokens", 2) for body in server.chats
    )
    assert spent <= learning_tokens()


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (OpenAIServer(chat_status=500), "does not answer a small chat request to 'm' (HTTP 500"),
        (OpenAIServer(chat_status=401), "it wants a key"),
        (OpenAIServer(known=()), "Unrecognized request argument: max_tokens"),
        (OpenAIServer(answer_tokens=0), "without a single token in a stream"),
        (OpenAIServer(cut_after=0), "connection lost"),
    ],
)
def test_a_server_that_does_not_stream_chats_is_named(server: OpenAIServer, words: str) -> None:
    with pytest.raises(TargetError) as raised:
        made(server)
    assert words in str(raised.value)


def test_a_prompt_shorter_than_the_chat_template_is_refused() -> None:
    with pytest.raises(TargetError, match="a prompt on this server has at least 11 tokens, not 5"):
        made(OpenAIServer(), 5)


def test_the_common_words_are_different_and_plain() -> None:
    assert len(set(COMMON)) == len(COMMON) > 100
    assert all(word.isascii() and word.isalpha() and word.islower() for word in COMMON)
