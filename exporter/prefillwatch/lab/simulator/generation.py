"""One request while it is answered: its sequences in the engine on one side, its answer on the other."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from prefillwatch.lab.simulator.engine import SimRequest
from prefillwatch.lab.simulator.kv import hash_blocks
from prefillwatch.lab.simulator.shapes.base import Finished, Shape, Usage
from prefillwatch.lab.vocabulary import WORDS

if TYPE_CHECKING:
    from prefillwatch.lab.simulator.answer import Answer
    from prefillwatch.lab.simulator.requests import GenerationRequest
    from prefillwatch.lab.simulator.runner import EngineLoop

# Answers whose end the client leaves to the model stop after 40 to 400 tokens. The steps are coprime to the spans they
# walk, so that lengths and words look made up although every run has the same.
_SHORTEST_ANSWER, _ANSWER_SPAN, _ANSWER_STEP = 40, 361, 149
_WORD_STEP: Final = 97

_answer_numbers = itertools.count()


class Generation:
    """Submits one sequence per prompt and choice, and answers when tokens come."""

    def __init__(
        self,
        answer: Answer,
        shape: Shape,
        request: GenerationRequest,
        engine: EngineLoop,
        *,
        tell_cached: bool,
    ) -> None:
        self._answer = answer
        self._shape = shape
        self._request = request
        self._engine = engine
        self._tell_cached = tell_cached
        self._choices: list[_Choice] = []
        self._open = 0

    def start(self, request_id: str, max_model_len: int, block_size: int) -> None:
        self._answer.on_close = self._abandon
        self._answer.on_drain = self._flush
        for prompt in self._request.prompts:
            hashes = hash_blocks(prompt, block_size)
            for _ in range(self._request.n):
                choice = _Choice(self, len(self._choices), f"{request_id}-{len(self._choices)}", len(prompt))
                self._choices.append(choice)
                self._engine.submit(self._sequence(choice, max_model_len, hashes), choice, self._request.n)
        self._open = len(self._choices)

    def _sequence(self, choice: _Choice, max_model_len: int, hashes: tuple[int, ...]) -> SimRequest:
        room = max_model_len - choice.prompt_tokens
        asked = self._request.max_tokens
        eos_after = None
        if asked is None and not self._request.ignore_eos:
            eos_after = _SHORTEST_ANSWER + choice.number * _ANSWER_STEP % _ANSWER_SPAN
        return SimRequest(choice.request_id, choice.prompt_tokens, room if asked is None else asked, eos_after, hashes)

    def produced(self, choice: _Choice, word: str, finish: str | None) -> None:
        """A choice has one more word, its last one where there is a finish reason."""
        choice.text.append(word)
        choice.finish = finish
        if finish is not None:
            self._open -= 1
        if self._request.stream:
            choice.held.append(word)
            if not self._answer.blocked:
                self._emit(choice)
        if not self._open:
            self._complete()

    def _emit(self, choice: _Choice) -> None:
        """Sends what a choice has to say: a word, or all that came while the reader was behind, as one event."""
        text = "".join(choice.held)
        choice.held.clear()
        usage = Usage(choice.prompt_tokens, len(choice.text)) if self._request.continuous_usage else None
        opening = () if choice.opened else self._open_choice(choice)
        self._answer.send(*opening, self._shape.delta(choice.index, text, choice.finish, usage))

    def _open_choice(self, choice: _Choice) -> tuple[bytes, ...]:
        choice.opened = True
        if not self._answer.started:
            self._answer.start_stream()
        return self._shape.first(choice.index, choice.prompt_tokens)

    def _flush(self) -> None:
        for choice in self._choices:
            if choice.held:
                self._emit(choice)

    def _complete(self) -> None:
        self._answer.on_close = None
        finished = [Finished(c.index, "".join(c.text), c.finish or "stop") for c in self._choices]
        if self._request.stream:
            self._flush()
            self._answer.end_stream(*self._shape.last(finished, self._usage()))
        else:
            self._answer.respond(self._shape.whole(finished, self._usage()))

    def _usage(self) -> Usage:
        cached = sum(choice.cached for choice in self._choices[:: self._request.n]) if self._tell_cached else None
        return Usage(self._request.prompt_tokens, sum(len(choice.text) for choice in self._choices), cached)

    def _abandon(self) -> None:
        for choice in self._choices:
            if choice.finish is None:
                self._engine.abort(choice.request_id)


class _Choice:
    """A sequence's sink: makes up words and hands them on."""

    __slots__ = (
        "cached",
        "finish",
        "generation",
        "held",
        "index",
        "number",
        "opened",
        "prompt_tokens",
        "request_id",
        "text",
    )

    def __init__(self, generation: Generation, index: int, request_id: str, prompt_tokens: int) -> None:
        self.generation = generation
        self.index = index
        self.request_id = request_id
        self.prompt_tokens = prompt_tokens
        self.number = next(_answer_numbers)
        self.cached = 0
        self.opened = False
        self.finish: str | None = None
        self.text: list[str] = []
        self.held: list[str] = []

    def admitted(self, cached_tokens: int) -> None:
        self.cached = cached_tokens

    def token(self, finish_reason: str | None) -> None:
        word = WORDS[(self.number + len(self.text)) * _WORD_STEP % len(WORDS)]
        self.generation.produced(self, f" {word}" if self.text else word, finish_reason)
