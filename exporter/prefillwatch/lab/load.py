"""Mixed traffic like a chat server's: steady readers, chats, longer questions and now and then a document.

Everything random is seeded, and everything is bounded: requests in all, requests at once, and time.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from prefillwatch.lab.client import Answer, ask
from prefillwatch.lab.vocabulary import TOKENS_PER_MESSAGE, WORDS, prompt_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine
    from typing import Any


@dataclass(frozen=True, slots=True)
class Kind:
    """A sort of request: sizes in tokens (both ends included), and how many start per second on average.

    The time between two of them is between half and one and a half of the average, so that none is long in coming.
    """

    name: str
    prompt_tokens: tuple[int, int]
    answer_tokens: tuple[int, int]
    per_second: float = 0.0
    #: So many tokens at the start are the same in every request of this kind, as a system prompt would be.
    shared_prefix_tokens: int = 0


VICTIM: Final = Kind("victim", (20, 60), (250, 350))
CHAT: Final = Kind("chat", (250, 500), (40, 120), per_second=0.5, shared_prefix_tokens=200)
QUESTION: Final = Kind("question", (600, 1500), (40, 120), per_second=0.1)
DOCUMENT: Final = Kind("document", (5000, 7000), (40, 80), per_second=1 / 10)


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """`victims` stream all the time, one request after the other. The other kinds start at random times."""

    url: str
    model: str
    duration_seconds: float = 60.0
    victims: int = 6
    kinds: tuple[Kind, ...] = (CHAT, QUESTION, DOCUMENT)
    max_requests: int = 100_000
    max_in_flight: int = 64
    timeout_seconds: float = 300.0
    seed: int = 1
    #: Each request names its kind as its user, and what is long comes last by priority.
    named: bool = False


@dataclass(slots=True)
class LoadReport:
    """Answers by kind. `turned_away` counts requests that were due while `max_in_flight` others ran."""

    answers: dict[str, list[Answer]] = field(default_factory=dict)
    turned_away: int = 0

    @property
    def requests(self) -> int:
        return sum(len(answers) for answers in self.answers.values())

    @property
    def failures(self) -> list[str]:
        """One line for each answer that was no complete success."""
        return [
            f"{kind}: {answer.error or f'HTTP status {answer.status}'}"
            for kind, answers in self.answers.items()
            for answer in answers
            if answer.error or answer.status != 200
        ]

    def gaps_seconds(self, kind: str) -> list[float]:
        """Inter-token latencies of all answers of a kind, as the clients saw them."""
        return [gap for answer in self.answers.get(kind, ()) for gap in answer.gaps_seconds]


async def run_load(settings: LoadSettings, on_send: Callable[[Kind, int], None] | None = None) -> LoadReport:
    """Sends traffic for the time given, then hangs up on what still runs, as readers do.

    `on_send` hears of every request: its kind and its prompt's tokens.
    """
    return await _Load(settings, on_send).run()


class _Load:
    def __init__(self, settings: LoadSettings, on_send: Callable[[Kind, int], None] | None) -> None:
        self._settings = settings
        self._on_send = on_send
        self._report = LoadReport()
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = 0
        self._end = time.monotonic() + settings.duration_seconds

    async def run(self) -> LoadReport:
        victims = [
            self._victim(random.Random(f"{self._settings.seed}-victim-{i}")) for i in range(self._settings.victims)
        ]
        others = [self._arrivals(kind) for kind in self._settings.kinds if kind.per_second > 0]
        sources = [asyncio.ensure_future(source) for source in (*victims, *others)]
        try:
            await self._wait_for(sources)
            await self._wait_for(self._tasks)  # every request that was allowed has been sent before the time is up
        finally:
            await _cancel([*sources, *self._tasks])
        for source in sources:
            if not source.cancelled():
                source.result()
        return self._report

    async def _wait_for(self, tasks: Collection[asyncio.Future[None]]) -> None:
        remaining = self._end - time.monotonic()
        if tasks and remaining > 0:
            await asyncio.wait(tasks, timeout=remaining)

    async def _victim(self, rng: random.Random) -> None:
        while self._may_start():
            answer = await self._ask(VICTIM, rng)
            if answer.error or answer.status != 200:
                await asyncio.sleep(0.5)

    async def _arrivals(self, kind: Kind) -> None:
        rng = random.Random(f"{kind.name} {self._settings.seed}")
        while True:
            await asyncio.sleep(rng.uniform(0.5, 1.5) / kind.per_second)
            if not self._may_start():
                return
            if len(self._tasks) >= self._settings.max_in_flight:
                self._report.turned_away += 1
            else:
                self._spawn(self._ask(kind, rng))

    def _may_start(self) -> bool:
        return self._started < self._settings.max_requests and time.monotonic() < self._end

    def _spawn(self, request: Coroutine[Any, Any, Answer]) -> None:
        async def run() -> None:
            await request

        task = asyncio.ensure_future(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, kind: Kind, rng: random.Random) -> Answer:
        self._started += 1
        prompt_tokens = rng.randint(*kind.prompt_tokens)
        body = request_body(self._settings.model, kind, prompt_tokens, rng)
        if self._settings.named:
            body |= {"user": kind.name, "priority": int(kind.name == DOCUMENT.name)}
        if self._on_send is not None:
            self._on_send(kind, prompt_tokens)
        answer = await ask(self._settings.url, body, timeout_seconds=self._settings.timeout_seconds)
        self._report.answers.setdefault(kind.name, []).append(answer)
        return answer


def request_body(model: str, kind: Kind, prompt_tokens: int, rng: random.Random) -> dict[str, Any]:
    """A streaming chat request of a kind; on the simulator its prompt has exactly `prompt_tokens` tokens."""
    messages = []
    own = prompt_tokens
    if kind.shared_prefix_tokens:
        words = kind.shared_prefix_tokens - TOKENS_PER_MESSAGE
        messages.append({"role": "system", "content": " ".join(WORDS[i % len(WORDS)] for i in range(words))})
        own -= kind.shared_prefix_tokens
    messages.append({"role": "user", "content": prompt_of(own, rng)})
    return {
        "model": model,
        "messages": messages,
        "max_tokens": rng.randint(*kind.answer_tokens),
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }


async def _cancel(tasks: list[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
