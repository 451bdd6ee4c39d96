"""What happened in one run: the raw times that all figures are made of. Monotonic nanoseconds; 0 is not reached."""

from __future__ import annotations

from dataclasses import dataclass, field

from prefillwatch.lab.client import Answer


@dataclass(slots=True)
class Run:
    """One run: victims streamed, `injected` prompts came at once, and were taken in."""

    #: Of each injected prompt, as asked for; of the longest where they differ.
    prompt_tokens: int
    repeat: int = 0
    #: The answers of each victim, one after the other; the last one was hung up on.
    victims: list[list[Answer]] = field(default_factory=list)
    injected: list[Answer] = field(default_factory=list)
    #: Of each injected prompt; empty where all have `prompt_tokens`.
    asked_tokens: list[int] = field(default_factory=list)
    #: All victims had their first token.
    streaming_ns: int = 0
    ended_ns: int = 0
    #: Why the run is not whole; empty when it is.
    problem: str = ""

    @property
    def injected_ns(self) -> int:
        """The first long prompt was sent."""
        return min((answer.sent_ns for answer in self.injected if answer.sent_ns), default=0)

    @property
    def released_ns(self) -> int:
        """The last long prompt had its first token, or had failed; where some had neither, the end of the run."""
        ends = [answer.reads_ns[0] if answer.reads_ns else answer.closed_ns for answer in self.injected]
        if not ends:
            return 0
        return max(ends) if all(ends) else self.ended_ns or max(ends)

    def window(self) -> list[tuple[int, int]]:
        """When prompts were being taken in, as separate times in order: from the sending of each to its first token.

        Where all are sent at once it is one, from `injected_ns` to `released_ns`.
        """
        spans = sorted((answer.sent_ns, self._first_token_ns(answer)) for answer in self.injected if answer.sent_ns)
        merged: list[tuple[int, int]] = []
        for start, end in spans:
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        return merged

    def _first_token_ns(self, answer: Answer) -> int:
        """Its first token; without one, its end, or the end of the run."""
        return answer.reads_ns[0] if answer.reads_ns else answer.closed_ns or max(self.ended_ns, answer.sent_ns)
