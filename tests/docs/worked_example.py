"""The worked example of docs/method.md: six streams and one prompt, played through the observer and written down.

python -m tests.docs.worked_example        writes the page's table and docs/worked-example.svg anew
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.core.script import ns
from tests.scenarios.playbook import Scene

from prefillwatch.analysis.steps.timeline import StepFacts
from prefillwatch.story import Account, Bar, Lane, Lanes, Span, draw, find

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "method.md"
PICTURE = ROOT / "docs" / "worked-example.svg"
BEGIN, END = "<!-- worked example: begin -->", "<!-- worked example: end -->"

#: The engine of the example: a step takes 20 ms, and 0.14 ms more for each prompt token in it.
CLEAR_MS, TOKEN_MS = 20.0, 0.14
BUDGET, STREAMS = 2048, 6
#: Prompts from which the observer learns the engine, then the one of the example: when sent, and how long.
LEARNED_FROM = ((3_000, 6_000), (6_000, 3_000), (8_000, 5_000), (10_000, 4_000), (12_000, 2_500))
SENT_MS, TOKENS = 14_005, 6_000
_LAST_MS = 16_000


@dataclass(frozen=True)
class Example:
    """What the observer made of it; times in milliseconds from when the prompt was sent."""

    steps: list[tuple[float, float, int, int]]  # begin, end, decoding streams, prompt tokens
    incident: dict[str, Any]
    budget: int
    cost_ms: float
    first_token: float
    account: Account


def play() -> Example:
    scene = Scene()
    ends, firsts = _engine()
    scene.victims(STREAMS, ends)
    for (sent, tokens), first in firsts.items():
        name = "the-document" if sent == SENT_MS else f"earlier-{sent}"
        prompt = scene.prompt(sent, tokens, name)
        prompt.answers([first + 1.5 + CLEAR_MS * number for number in range(5)]).ends(first + 110)
    scene.healthy(500, _LAST_MS, running=STREAMS)
    facts = _steps_of(scene)
    scene.play()
    engine = scene.observed.ledger.timeline.engine
    sent_ns = ns(SENT_MS)
    steps = [
        ((each.start_ns - sent_ns) / 1e6, (each.end_ns - sent_ns) / 1e6, each.decoders, each.prefill_tokens)
        for each in facts
        if -50e6 < each.end_ns - sent_ns < 1_000e6
    ]
    (incident,) = [each for each in scene.incidents() if each["culprits"][0]["request_id"] == "the-document"]
    first = firsts[SENT_MS, TOKENS] + 1.5 - SENT_MS
    account = find(scene.observed.observation.accounts(), "the-document")
    return Example(steps, incident, engine.budget, engine.cost.token_ns / 1e6, first, account)


def _engine() -> tuple[list[float], dict[tuple[int, int], float]]:
    """When its steps end, and which of them makes the first token of which prompt."""
    waiting, ends, firsts, now = [*LEARNED_FROM, (SENT_MS, TOKENS)], [100.0], {}, 100.0
    left = dict(waiting)
    while now < _LAST_MS:
        arrived = [each for each in waiting if each[0] <= now]
        chunk = min(left[arrived[0][0]], BUDGET - STREAMS) if arrived else 0
        now += CLEAR_MS + TOKEN_MS * chunk
        ends.append(now)
        if arrived:
            left[arrived[0][0]] -= chunk
            if not left[arrived[0][0]]:
                firsts[waiting.pop(0)] = now
    return ends, firsts


def _steps_of(scene: Scene) -> list[StepFacts]:
    """The list that final steps will be in."""
    facts: list[StepFacts] = []
    causes = scene.observed.ledger.causes
    tell: Callable[[int, list[StepFacts]], None] = causes.facts

    def noted(engine: int, final: list[StepFacts]) -> None:
        facts.extend(final)
        tell(engine, final)

    causes.facts = noted  # type: ignore[method-assign,assignment]
    return facts


def table(example: Example) -> str:
    """The steps around the prompt, as Markdown."""
    rows = ["| step | from | to | took | prompt tokens in it | what tells |", "| --- | --- | --- | --- | --- | --- |"]
    mixed = [each for each in example.steps if each[3]]
    shown = [each for each in example.steps if each[1] <= mixed[0][0] + 1][-2:]
    shown += mixed + [each for each in example.steps if each[0] >= mixed[-1][1] - 1][:2]
    for number, (begin, end, _, tokens) in enumerate(shown, 1):
        cells = [number, *(f"{ms:.0f} ms" for ms in (begin, end, end - begin)), tokens or "–", _why(tokens, mixed, end)]
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    incident = example.incident
    culprit = incident["culprits"][0]
    seconds = {name: incident[name] for name in ("duration_seconds", "worst_gap_seconds", "stall_seconds")}
    outcome = (
        f"What comes out: one incident, cause `{incident['cause']}`, {incident['victims']} victims, "
        f"{seconds['duration_seconds'] * 1000:.0f} ms long, worst gap {seconds['worst_gap_seconds'] * 1000:.0f} ms, "
        f"{seconds['stall_seconds']:.2f} stall seconds; culprit: the document of {culprit['prompt_tokens']:,} tokens, "
        f"share {culprit['share']:.0%}.\nLearned of the engine by then: a budget of {example.budget} tokens per step "
        f"and {example.cost_ms:.3f} ms per uncached prompt token."
    )
    rows += ["", outcome]
    return "\n".join(rows)


def _why(tokens: int, mixed: list[tuple[float, float, int, int]], end: float) -> str:
    if not tokens:
        return "as long as a clear step: nobody's prompt was in it"
    if end == mixed[-1][1]:
        return "the document's first token comes 1.5 ms after it: here it was done, with what was left"
    return f"packed back from there: {BUDGET} less one token for each of {STREAMS} streams"


_FROM_MS, _UNTIL_MS = -45, 985


def picture(example: Example) -> str:
    """Lanes of the six streams over the steps of the engine, as SVG."""
    shown = [each for each in example.steps if _FROM_MS < each[1] < _UNTIL_MS]
    mixed = [(begin, end, tokens) for begin, end, _, tokens in shown if tokens]
    lanes = [
        Lane(
            f"stream {stream + 1}",
            [(end + 0.2 * stream) / 1e3 for _, end, *_ in shown],
            [(begin / 1e3, end / 1e3) for begin, end, _ in mixed],
        )
        for stream in range(STREAMS)
    ]
    return draw(
        Lanes(
            title="Six streams, one prompt of 6,000 tokens",
            begin=_FROM_MS / 1e3,
            end=_UNTIL_MS / 1e3,
            lanes=lanes,
            steps=[Span(begin / 1e3, end / 1e3, (f"{end - begin:.0f} ms", f"{n:,} tokens")) for begin, end, n in mixed],
            prompts=[Bar("the document", 0.0, example.first_token / 1e3)],
        )
    )


def written(page: str, example: Example) -> str:
    """The page with the example's table in its place."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table(example)}\n{END}{tail}"


if __name__ == "__main__":
    found = play()
    PAGE.write_text(written(PAGE.read_text(), found))
    PICTURE.write_text(picture(found))
