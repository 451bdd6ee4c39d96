"""What happened in one run: the raw times that all figures are made of. Monotonic nanoseconds; 0 is not reached."""

from __future__ import annotations

from dataclasses import dataclass, field

from prefillwatch.lab.client import Answer


@dataclass(slots=True)
class Run:
    """One run: victims streamed, `injected` prompts came at once, and were taken in."""

    prompt_tokens: int
    """Of each injected prompt, as asked for."""
    repeat: int = 0
    victims: list[list[Answer]] = field(default_factory=list)
    """The answers of each victim, one after the other; the last one was hung up on."""
    injected: list[Answer] = field(default_factory=list)
    streaming_ns: int = 0
    """All victims had their first token."""
    ended_ns: int = 0
    problem: str = ""
    """Why the run is not whole; empty when it is."""

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
