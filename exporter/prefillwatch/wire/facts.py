"""What is known of one answer: the figures that every protocol's reader fills in."""

from __future__ import annotations

import re
from typing import Any, Final, TypeGuard

#: A count beyond this is nonsense, whatever the server meant: a thousand answers of a million tokens are less.
MAX_TOKENS: Final = 1 << 30
#: Choice indexes beyond this are folded together, so that no stream can make us keep books without end.
MAX_CHOICES: Final = 4096

_SHORT_CODE: Final = re.compile(r"[A-Za-z0-9_.\-]{1,64}")


class AnswerFacts:
    """Facts of one answer, readable at any time.

    Of the read at hand: `chars_in_read` and `tokens_in_read` (choice 0), `others` (choice -> token events) and
    `others_tokens`. Of the whole answer: everything else. Token counts come from the server's usage alone.
    """

    __slots__ = (
        "_choice_tokens",
        "_events_in_read",
        "_given_tokens",
        "_other_chars",
        "_prompt_tokens",
        "_total_tokens",
        "cached_tokens",
        "chars_in_read",
        "complete",
        "continuous",
        "error",
        "finish_reason",
        "finished",
        "model",
        "others",
        "others_tokens",
        "over",
        "response_id",
        "token_events",
        "tokens_in_read",
    )

    def __init__(self) -> None:
        self.response_id = ""
        self.model = ""
        self.cached_tokens: int | None = None
        self.finish_reason: str | None = None
        self.finished = False  # the protocol's terminal event was seen
        self.error: str | None = None  # short code of an error inside the answer
        self.token_events = 0  # of all choices
        self.complete = True  # False: bytes were lost or could not be read; counts are lower bounds
        self.chars_in_read = 0
        self.tokens_in_read = 0
        self.others: dict[int, int] | None = None
        self.others_tokens: dict[int, int] | None = None
        self.over: set[int] | None = None  # choices that said that they are done
        self._events_in_read = 0
        self._other_chars = 0  # of all reads
        self._prompt_tokens = 0
        self._total_tokens: int | None = None  # from usage that belongs to no choice
        self._choice_tokens: dict[int, int] = {}  # choice -> largest cumulative count
        self._given_tokens: dict[int, int] = {}  # choice -> count at its last token event
        self.continuous = True  # every token event so far carried usage

    @property
    def prompt_tokens(self) -> int | None:
        """All prompt tokens, cached ones included; None while the server has not said. No prompt has 0 tokens."""
        return self._prompt_tokens or None

    @property
    def completion_tokens(self) -> int | None:
        """The largest cumulative count the server gave, over all choices; None while it has not said.

        None, too, if it says 0 of an answer whose tokens were seen: then it does not count.
        """
        by_choice = self._choice_tokens
        total = self._total_tokens
        if by_choice and (total is None or total < max(by_choice.values())):
            total = sum(by_choice.values())
        return None if total == 0 and self.token_events else total

    @property
    def only_choice(self) -> int | None:
        """The choice of the one token event seen so far, if it is the only one and the answer goes on after it."""
        if self.token_events != 1 or self.finish_reason is not None or self.error is not None or self.finished:
            return None
        return next(iter(self.others)) if self.others else 0

    def progress(self) -> tuple[Any, ...]:
        """The facts that grow with every token event."""
        read = (self.chars_in_read + self._other_chars, self.tokens_in_read, self.others, self.others_tokens)
        return self.token_events, *read, self._choice_tokens, self._total_tokens

    def frame(self) -> tuple[Any, ...]:
        """The facts that stay the same while tokens come."""
        identity = (self.response_id, self.model, self._prompt_tokens, self.cached_tokens)
        over = tuple(self.over or ())
        return *identity, self.finish_reason, over, self.finished, self.error, self.complete

    def identify(self, response_id: str | None, model: str | None) -> None:
        if response_id and not self.response_id:
            self.response_id = response_id[:256]
        if model and not self.model:
            self.model = model[:256]

    def add_tokens(self, choice: int, chars: int) -> None:
        """One token event of `choice` with `chars` characters of text."""
        self.token_events += 1
        if self.over is not None:
            self.over.discard(choice)  # it said so too early
        if choice == 0:
            self._events_in_read += 1
            self.chars_in_read += chars
        else:
            if self.others is None:
                self.others = {}
            self.others[choice] = self.others.get(choice, 0) + 1
            self._other_chars += chars

    def add_usage(
        self, prompt: int | None, completion: int | None, cached: int | None, choice: int | None = None
    ) -> None:
        """Cumulative counts from the server; `choice` is the one they were sent with, None for the whole answer."""
        if _is_count(prompt) and prompt > self._prompt_tokens:
            self._prompt_tokens = prompt
        if _is_count(cached) and cached > (self.cached_tokens or -1):
            self.cached_tokens = cached
        if not _is_count(completion):
            return
        if choice is None:
            self._total_tokens = max(completion, self._total_tokens or 0)
        else:
            self._choice_tokens[choice] = max(completion, self._choice_tokens.get(choice, 0))

    def note_progress(self, choice: int, completion: int | None) -> None:
        """A token event of `choice` said how many tokens there are by now (None: it did not say)."""
        if not self.continuous:
            return
        if not _is_count(completion):
            self.continuous = False
            return
        before = self._given_tokens.get(choice)
        if before is None:
            before = 0 if self.complete else completion
        self._given_tokens[choice] = max(completion, before)
        self._brought(choice, completion - before)

    def add_counted(self, choice: int, tokens: int) -> None:
        """One event of `choice` that carries so many tokens, as ids and not as text."""
        self.add_tokens(choice, tokens)
        self._choice_tokens[choice] = self._choice_tokens.get(choice, 0) + tokens
        self._brought(choice, tokens)

    def reported(self, choice: int) -> int:
        """How many tokens of `choice` the server has counted so far."""
        return self._choice_tokens.get(choice, 0)

    def add_counted_tokens(self, choice: int, chars: int, completion: int) -> None:
        """One token event of `choice` that says how many tokens there are by now; the other counts are known."""
        self.add_tokens(choice, chars)
        self.note_progress(choice, completion)
        if completion > self._choice_tokens.get(choice, -1):
            self._choice_tokens[choice] = completion

    def fail(self, error: Any) -> None:
        if self.error is None:
            self.error = _short_code(error)

    def end_choice(self, choice: int, reason: str | None) -> None:
        if not reason:
            return
        if choice == 0 or self.finish_reason is None:
            self.finish_reason = reason[:64]
        if self.over is None:
            self.over = set()
        self.over.add(choice)

    def _brought(self, choice: int, tokens: int) -> None:
        if tokens <= 0:
            return
        if choice == 0:
            self.tokens_in_read += tokens
        else:
            if self.others_tokens is None:
                self.others_tokens = {}
            self.others_tokens[choice] = self.others_tokens.get(choice, 0) + tokens

    def _begin_read(self) -> None:
        self.chars_in_read = self.tokens_in_read = self._events_in_read = 0
        self.others = self.others_tokens = None

    def _lose(self) -> None:
        self.complete = False
        self._given_tokens.clear()


def choice_index(index: int | None) -> int:
    return min(index, MAX_CHOICES) if index is not None and index > 0 else 0


def _is_count(value: int | None) -> TypeGuard[int]:
    return value is not None and 0 <= value <= MAX_TOKENS


def _short_code(error: Any) -> str:
    """The code of an error in OpenAI's or Anthropic's form. Never its message, which may quote the prompt."""
    if isinstance(error, dict):
        for key in ("type", "code"):
            code = str(error.get(key) or "")
            if _SHORT_CODE.fullmatch(code):
                return code
    elif isinstance(error, str | int) and _SHORT_CODE.fullmatch(str(error)):
        return str(error)
    return "error"
