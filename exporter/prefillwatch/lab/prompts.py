"""Prompts of an exact number of tokens, each of them unique, for a server whose tokenizer is unknown.

They are made of common words that are one token each in nearly every tokenizer. A server with /tokenize (vLLM, and the
simulator) counts, with its chat template, and each prompt is corrected until it fits. Of any other server a small
request or two tell what the chat template adds and what a word costs; then lengths are as good as that.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from prefillwatch.lab.arrivals.schedule import MOONCAKE_BLOCK
from prefillwatch.lab.client import Answer
from prefillwatch.lab.target import DIALECTS, PATIENCE_S, TOKENIZE, Target, TargetError, refusal

#: Words so short and common that tokenizers have each, with the space before it, as one token.
COMMON: Final = tuple(
    """
    the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which
    one you were all her she there would their we him been has when who will no more if out so up said what its
    about than into them can only other time new some could these two may first then do any like my now over such
    our man me even most made after also did many off before must well back through years much where your way down
    should because long each just state people those too world still work own never day same another know while last
    might great old year come since go came right used take three
    """.split()  # noqa: SIM905 (a list of literals would take a screen)
)
#: With fewer one-token words than this a prompt would repeat itself too much.
FEWEST_WORDS: Final = 16
#: The most tokens that learning may cost: see `learning_tokens`.
SMALL_WORDS: Final = (4, 68)
#: Chat templates bring system prompts of up to some hundred tokens.
LARGEST_TEMPLATE: Final = 512
_CHATTER_WORDS: Final = 16
_ROUNDS: Final = 12


@dataclass(frozen=True, slots=True)
class Prompt:
    text: str
    #: Including the chat template, as far as is known before sending.
    tokens: int
    #: Counted by the server, not estimated.
    exact: bool


def learning_tokens() -> int:
    """The most tokens that getting to know a server costs, prompts and answers together."""
    return (len(DIALECTS) + len(SMALL_WORDS)) * (2 * max(SMALL_WORDS) + LARGEST_TEMPLATE)


class PromptMaker:
    """Makes prompts for one target. `source` says how it counts: "tokenize" or "usage"."""

    def __init__(self, target: Target, source: Literal["tokenize", "usage"], seed: str) -> None:
        self.target = target
        self.source: Literal["tokenize", "usage"] = source
        self._seed = seed
        self._rng = random.Random(seed)
        self._words: tuple[str, ...] = COMMON
        self._overhead = 0.0
        self._per_word = 1.0

    @classmethod
    async def learn(cls, target: Target, seed: str = "") -> PromptMaker:
        """Finds out which endpoints the server has, and how it counts. Sends at most `learning_tokens()` tokens.
        Without a seed every run has prompts of its own, so that none is in the server's prefix cache from before.
        Raises TargetError when the server refuses even the plainest request.

        Without a seed every run has prompts of its own, so that none is in the server's prefix cache from before.
        Raises TargetError when the server refuses even the plainest request.
        """
        known = await _dialect(target)
        source: Literal["tokenize", "usage"] = "usage" if await _count(known, "the") is None else "tokenize"
        maker = cls(known, source, seed or str(random.SystemRandom().getrandbits(64)))
        await (maker._learn_by_tokenize() if source == "tokenize" else maker._learn_by_usage())
        return maker

    @property
    def shortest(self) -> int:
        """Tokens of the shortest prompt there can be, for the chat template counts too."""
        return round(self._overhead) + 1

    async def make(self, tokens: int, blocks: Sequence[object] = (), block_tokens: int = MOONCAKE_BLOCK) -> Prompt:
        """A text that makes a request of `tokens` prompt tokens. Raises TargetError where the chat template alone is as
        long.

        Prompts share the text of equal `blocks` of `block_tokens` at their start, as recorded traffic may have it.
        """
        if tokens < self.shortest:
            raise TargetError(f"a prompt on this server has at least {self.shortest} tokens, not {tokens}")
        length = max(1, round((tokens - self._overhead) / self._per_word))
        words = self._shared(blocks, block_tokens)[:length]
        words += self._rng.choices(self._words, k=length - len(words))
        if self.source == "usage":
            return Prompt(" ".join(words), tokens, exact=False)
        return await self._fitted(words, tokens)

    async def make_many(self, count: int, tokens: int) -> list[Prompt]:
        """This many different prompts."""
        return [await self.make(tokens) for _ in range(count)]

    def chatter(self) -> str:
        """A short unique message that asks for a long answer; its length is not exact."""
        about = " ".join(self._rng.choices(self._words, k=_CHATTER_WORDS))
        return f"Tell a very long story about {about} and never come to its end."

    @property
    def chatter_tokens(self) -> int:
        """The most tokens of such a message, including the chat template."""
        return round(self._overhead + 2 * (_CHATTER_WORDS + 12) * max(1.0, self._per_word))

    def correct(self, prompt: Prompt, used_tokens: int | None) -> None:
        """Learns from the server's own count of a prompt that was sent, where there is no better source."""
        if self.source == "usage" and used_tokens and used_tokens > self._overhead:
            words = (prompt.tokens - self._overhead) / self._per_word
            self._per_word = (used_tokens - self._overhead) / max(1.0, words)

    def _shared(self, blocks: Sequence[object], block_tokens: int) -> list[str]:
        length = max(1, round(block_tokens / self._per_word))
        return [
            word
            for block in blocks
            for word in random.Random(f"{self._seed} block {block}").choices(self._words, k=length)
        ]

    async def _fitted(self, words: list[str], tokens: int) -> Prompt:
        best: Prompt | None = None
        for _ in range(_ROUNDS):
            text = " ".join(words)
            counted = await _count(self.target, text)
            if counted is None:
                raise TargetError(f"{self.target.url}{TOKENIZE} no longer answers; is the server still up?")
            if best is None or abs(counted - tokens) < abs(best.tokens - tokens):
                best = Prompt(text, counted, exact=True)
            if counted == tokens:
                break
            off = round((counted - tokens) / self._per_word) or (1 if counted > tokens else -1)
            if off > 0:
                del words[max(1, len(words) - off) :]
            else:
                words += self._rng.choices(self._words, k=-off)
        assert best is not None
        return best

    async def _learn_by_tokenize(self) -> None:
        base = await self._counted(["the"]) - 1
        whole = await self._counted(["the", *COMMON]) - base - 1
        singles = await self._singles(list(COMMON), base, whole)
        if len(singles) >= FEWEST_WORDS:
            self._words = tuple(singles)
        else:
            self._per_word = max(1.0, whole / len(COMMON))
        self._overhead = float(base)

    async def _singles(self, words: list[str], base: int, counted: int) -> list[str]:
        """Those of the words that are one token each. A half that holds only such words is not divided further."""
        if counted == len(words):
            return words
        if len(words) == 1:
            return []
        left, right = words[: len(words) // 2], words[len(words) // 2 :]
        on_the_left = await self._counted(["the", *left]) - base - 1
        return [
            *await self._singles(left, base, on_the_left),
            *await self._singles(right, base, counted - on_the_left),
        ]

    async def _counted(self, words: list[str]) -> int:
        counted = await _count(self.target, " ".join(words))
        if counted is None:
            raise TargetError(f"{self.target.url}{TOKENIZE} no longer answers; is the server still up?")
        return counted

    async def _learn_by_usage(self) -> None:
        few, many = SMALL_WORDS
        tokens_few, tokens_many = await self._used(few), await self._used(many)
        if tokens_few is None or tokens_many is None or tokens_many <= tokens_few:
            self._overhead = 8.0  # what chat templates usually add
            return
        self._per_word = (tokens_many - tokens_few) / (many - few)
        self._overhead = max(0.0, tokens_few - few * self._per_word)

    async def _used(self, words: int) -> int | None:
        text = " ".join(self._rng.choices(COMMON, k=words))
        answer = await self.target.ask(self.target.body(text, 1, whole=True), timeout_seconds=PATIENCE_S)
        if why := refusal(answer):
            raise TargetError(f"{self.target.url} refuses a request of {words} words ({why})")
        return answer.prompt_tokens


#: Refusals after which another dialect may do: something unknown in the request, or no such endpoint.
_TRY_ANOTHER: Final = (400, 404, 405, 422, 501)


async def _dialect(target: Target) -> Target:
    """The target in the richest dialect that it takes. Raises TargetError where it takes none."""
    why = ""
    for dialect in DIALECTS:
        spoken = target.speaking(dialect)
        answer = await spoken.ask(spoken.body("the time", 2), timeout_seconds=6 * PATIENCE_S)
        refused = refusal(answer)
        if not refused:
            _check_that_it_streams(spoken, answer)
            return spoken
        if dialect.chat or not why:
            why = refused
        if answer.status not in _TRY_ANOTHER:
            break
    if answer.status in (401, 403):
        why = f"HTTP {answer.status}: it wants a key; give one by --api-key-file or PREFILLWATCH_API_KEY"
    raise TargetError(f"{target.url} does not answer a small chat request to {target.model!r} ({why})")


def _check_that_it_streams(target: Target, answer: Answer) -> None:
    if not answer.reads_ns:
        raise TargetError(
            f"{target.url} answers a streaming request to {target.model!r} without a single token in a stream; "
            "the experiment needs answers that stream"
        )


class _Counted(msgspec.Struct):
    count: int


async def _count(target: Target, text: str) -> int | None:
    """Tokens of a request with that text by the server's /tokenize; None where it has none."""
    body = {"model": target.model, **target.dialect.prompt(text)}
    answer = await target.ask(body, path=TOKENIZE, timeout_seconds=PATIENCE_S)
    try:
        return msgspec.json.decode(answer.body, type=_Counted).count if answer.status == 200 else None
    except msgspec.DecodeError:
        return None
