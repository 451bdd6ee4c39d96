"""A step as the engine itself noted it in the trace."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Annotation:
    """A step by the engine's own account, vLLM's or SGLang's."""

    start_ns: int
    end_ns: int
    prompts: int
    """Requests whose prompt was worked on."""
    prompt_tokens: int
    answers: int
    """Requests that got a token each."""
    on_gpu: bool
    place: str
    """The device or process that it was noted on."""

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.prompts, self.prompt_tokens, self.answers
