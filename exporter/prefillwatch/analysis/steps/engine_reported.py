"""Whose prompts rode in a step of which the engine tells only totals: so many prompt tokens of so many requests.

The engine serves prompts in order of arrival and goes on with one it has begun. Whom a step finished shows in the first
tokens that came right after it; so ask once those are known.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Final

from prefillwatch.analysis.steps.packing import Prompt

#: First tokens come up to so much later than the output of their step …
TRAIL_NS: Final = 20_000_000
#: … and up to so much earlier, as far as the time of that output is known.
LEAD_NS: Final = 5_000_000


def board(
    start_ns: int, end_ns: int, tokens: int, requests: int, prompts: Iterable[Prompt]
) -> list[tuple[Hashable, int]]:
    """Members of a step and their tokens, which add up to what the engine told; empty where nobody can have been there.

    ``told`` of each prompt is how far it had come before.
    """
    there = sorted((each for each in prompts if _was_there(each, start_ns, end_ns)), key=lambda e: _order(e, end_ns))
    there = there[: max(1, requests)] if tokens > 0 else []
    shares = zip(there, _shares(there, tokens), strict=True)
    return [(prompt.rid, share) for prompt, share in shares if share]


def _was_there(prompt: Prompt, start_ns: int, end_ns: int) -> bool:
    if prompt.gone_ns is not None and prompt.gone_ns <= start_ns:
        return False
    return prompt.sent_ns < end_ns and (prompt.first_ns is None or prompt.first_ns >= end_ns - LEAD_NS)


def _order(prompt: Prompt, end_ns: int) -> tuple[bool, bool, bool, int]:
    """Those it finished, those that are not done for sure, those it went on with, then whoever came first."""
    finished = prompt.first_ns is not None and prompt.first_ns <= end_ns + TRAIL_NS
    done = prompt.told >= prompt.uncached and (prompt.sure or not prompt.streamed)
    return not finished, done, not prompt.told, prompt.sent_ns


def _shares(prompts: Sequence[Prompt], tokens: int) -> list[int]:
    """What each gets. Sizes may be estimates: what is too much or missing falls to the last, who may not be done."""
    shares: list[int] = []
    for others in range(len(prompts) - 1, -1, -1):
        prompt = prompts[len(shares)]
        left = max(1, prompt.uncached - prompt.told)
        share = max(0, min(left, tokens - others)) if others else tokens
        shares.append(share)
        tokens -= share
    return shares
