"""Which prompts were in a step of which the engine reports only totals: so many prompt tokens of so many requests.

The engine serves prompts in order of arrival and goes on with one it has begun. Which of them a step finished shows in
the first tokens that came right after it; so ask once those are known.

Example: 2,048 tokens of 2 requests were reported. A document of 4,000 tokens was sent first, a chat of 30 tokens after
it, and the chat's first token came with the end of the step. So the chat was finished: 30 tokens; the document had the
other 2,018 and is not done.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from prefillwatch.analysis.steps.packing import Prompt
from prefillwatch.analysis.tuning import DEFAULT, FirstTokens


def shares_of_totals(
    start_ns: int,
    end_ns: int,
    tokens: int,
    requests: int,
    prompts: Iterable[Prompt],
    rules: FirstTokens = DEFAULT.first_tokens,
) -> list[tuple[Hashable, int]]:
    """Requests in a step and the tokens of each, which add up to what the engine reported; empty where none of the
    prompts can have been there.

    ``reported`` of each prompt is how far it had come before.
    """
    there = sorted(
        (each for each in prompts if _was_there(each, start_ns, end_ns, rules)),
        key=lambda each: _order(each, end_ns, rules),
    )
    there = there[: max(1, requests)] if tokens > 0 else []
    shares = zip(there, _shares(there, tokens), strict=True)
    return [(prompt.rid, share) for prompt, share in shares if share]


def _was_there(prompt: Prompt, start_ns: int, end_ns: int, rules: FirstTokens) -> bool:
    if prompt.gone_ns is not None and prompt.gone_ns <= start_ns:
        return False
    earliest_ns = end_ns - rules.before_reported_end_ns
    return prompt.sent_ns < end_ns and (prompt.first_ns is None or prompt.first_ns >= earliest_ns)


def _order(prompt: Prompt, end_ns: int, rules: FirstTokens) -> tuple[bool, bool, bool, int]:
    """First those that it finished; then those that may not be done; of these those it went on with; by arrival."""
    finished = prompt.first_ns is not None and prompt.first_ns <= end_ns + rules.after_reported_end_ns
    done = prompt.reported >= prompt.uncached and (prompt.sure or not prompt.streamed)
    return not finished, done, not prompt.reported, prompt.sent_ns


def _shares(prompts: Sequence[Prompt], tokens: int) -> list[int]:
    """What each gets. Sizes may be estimates: what is too much or missing falls to the last, who may not be done."""
    shares: list[int] = []
    for others in range(len(prompts) - 1, -1, -1):
        prompt = prompts[len(shares)]
        left = max(1, prompt.uncached - prompt.reported)
        share = max(0, min(left, tokens - others)) if others else tokens
        shares.append(share)
        tokens -= share
    return shares
