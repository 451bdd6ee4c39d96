"""A step as the engine itself noted it in the trace."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Annotation:
    """A step by the engine's own account, vLLM's or SGLang's."""

    start_ns: int
    end_ns: int
    #: Requests whose prompt was worked on.
    prompts: int
    prompt_tokens: int
    #: Requests that got a token each.
    answers: int
    on_gpu: bool
    #: The device or process that it was noted on.
    place: str

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.prompts, self.prompt_tokens, self.answers
