"""The story of an account, block by block: what happened, step by step, to whom, by whom, why, and what would help."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any, Final

from prefillwatch.contract.causes import BY_NAME, PREFILL
from prefillwatch.report import ABSENT, counted, duration, listed, share
from prefillwatch.story.account import Account, Prompt, Reading, Step, Stream
from prefillwatch.story.arguments import arguments, weighed
from prefillwatch.story.blocks import Block, Heading, Name, Picture, Points, Said, Table, Text
from prefillwatch.story.pictures import NAMELESS, picture, title

_MOST_STEPS: Final = 12
_MOST_STREAMS: Final = 20
_MOST_PROMPTS: Final = 12
#: Where runbooks lie, seen from the top of the repository.
_RUNBOOKS: Final = "alerts/runbooks"


def tell(account: Account, source: str = "") -> list[Block]:
    """``source`` says where it is from."""
    return [
        Heading(_headline(account), 1),
        Text(_what_happened(account)),
        Picture(picture(account), title(account)),
        *_step_by_step(account),
        *_who_read_what(account),
        *_what_each_lost(account),
        *_why(account),
        *_what_would_have_helped(account),
        *_where_from(account, source),
    ]


def _headline(account: Account) -> str:
    incident = account.incident
    who = counted(incident["victims"], "stream" if _froze(account) else "request")
    words = BY_NAME[incident["cause"]].words if incident["cause"] in BY_NAME else incident["cause"]
    verb = "stood still" if _froze(account) else "waited for a first token"
    return f"{who} {verb} for {duration(incident['duration_seconds'])}: {words}"


def _froze(account: Account) -> bool:
    return bool(account.incident["kind"] == "freeze")


def _what_happened(account: Account) -> Said:
    incident = account.incident
    said: list[str | Name] = [f"{_moment(incident['started_at'])}, model ", Name(incident["model"]), ". "]
    culprits = [each for each in account.prompts if each.share]
    if culprits:
        said += _the_prompts(account, culprits)
    if _froze(account):
        said += _the_freeze(account)
    else:
        worst = incident["worst_gap_seconds"]
        said.append(f"{_people(incident['victims'], 'request')} for a first token, up to {duration(worst)}. ")
    if incident["ongoing"]:
        said.append("It is not over yet, and the verdict is not final.")
    return said


def _people(count: int, one: str) -> str:
    return f"{counted(count, one)} waited"


def _the_prompts(account: Account, culprits: list[Prompt]) -> Iterator[str | Name]:
    first = culprits[0]
    when = _moment(account.incident["started_at"] + first.sent, date=False)
    yield f"At {when} the request "
    yield _name(first)
    yield f" was handed to the server with a prompt of {_size(first)}"
    if first.uncached != first.tokens:
        yield f", {first.uncached:,} of which it had to compute"
    mine = [step for step in account.steps if any(account.prompts[place] is first for place, _ in step.parts)]
    if mine:
        lengths = listed(duration(step.end - step.start) for step in mine[:4])
        more = f" and {len(mine) - 4} more" if len(mine) > 4 else ""
        yield f"; the engine read it in {counted(len(mine), 'step')} ({lengths}{more})"
    yield ". "
    if first.first is not None:
        yield f"Its own first token came {duration(first.first - first.sent)} after it was sent. "
    count = int(account.incident["culprit_count"])
    if count > 1:
        yield f"It has {share(first.share)} of the blame; {counted(count - 1, 'other prompt')} the rest. "


def _the_freeze(account: Account) -> Iterator[str]:
    incident = account.incident
    victims, decoding = incident["victims"], max(incident["decoding"], incident["victims"])
    who = f"{victims:,} of {counted(decoding, 'stream')}" if decoding > victims else f"All {counted(victims, 'stream')}"
    who = "The only stream" if decoding == 1 else who
    baseline = incident["baseline_gap_seconds"]
    usual = f" where a token comes every {duration(baseline)} otherwise" if baseline else ""
    gaps = int(incident["evidence"].get("delays") or 0)
    yield (
        f"{who} stood still, {counted(gaps, 'gap')} in all, the worst {duration(incident['worst_gap_seconds'])}{usual}."
        f" Together they lost {duration(incident['stall_seconds'])}. "
    )


# --- What happened, in tables ---


def _step_by_step(account: Account) -> Iterator[Block]:
    if not account.steps:
        return
    yield Heading("Step by step")
    yield Text("Moments count from the beginning of the incident. A step gives every stream its next token at its end.")
    long = [step for step in account.steps if step.tokens or step.end - step.start > 2 * step.clear > 0]
    rows: list[list[Said]] = [
        [
            _of_whom(account, step),
            duration(step.start),
            duration(step.end - step.start),
            duration(step.clear) if step.clear else ABSENT,
            f"{step.tokens:,}" if step.tokens else ABSENT,
            f"{step.streams:,}",
        ]
        for step in long[:_MOST_STEPS]
    ]
    if rows:
        yield Table(("prompts in it", "began", "took", "without a prompt", "prompt tokens", "streams waiting"), rows)
    rest = account.step_count - len(rows)
    if rest > 0:
        yield Text(f"{counted(rest, 'step')} around it {'is' if rest == 1 else 'are'} left out.")


def _of_whom(account: Account, step: Step) -> Said:
    if not step.parts:
        return "of nobody whom we know" if step.tokens else "none"
    said: list[str | Name] = []
    for place, tokens in step.parts[:3]:
        said += [", " if said else "", _name(account.prompts[place]), f" {tokens:,}" if len(step.parts) > 1 else ""]
    if len(step.parts) > 3:
        said.append(f" and {len(step.parts) - 3} more")
    return said


def _who_read_what(account: Account) -> Iterator[Block]:
    if not account.prompts:
        return
    yield Heading("Whose prompts were read")
    rows: list[list[Said]] = [
        [
            _name(each),
            _size(each).removesuffix(" tokens").removesuffix(" token"),
            f"{each.uncached:,}",
            duration(each.sent),
            duration(each.first) if each.first is not None else "left" if each.gone is not None else ABSENT,
            share(each.share) if each.share else ABSENT,
        ]
        for each in account.prompts[:_MOST_PROMPTS]
    ]
    yield Table(("request", "prompt tokens", "to compute", "sent", "first token", "blame"), rows)
    more = len(account.prompts) - len(rows)
    if more > 0:
        yield Text(f"And {counted(more, 'more prompt')}.")


def _what_each_lost(account: Account) -> Iterator[Block]:
    if not account.streams:
        return
    froze = _froze(account)
    yield Heading("What each stream lost" if froze else "Who waited")
    rows: list[list[Said]] = []
    for each in account.streams[:_MOST_STREAMS]:
        lengths = [stop.end - stop.start for stop in each.stops if stop.end is not None]
        lasts = any(stop.end is None for stop in each.stops)
        worst = duration(max(lengths)) if lengths else ABSENT
        rows.append([_name(each), f"{len(each.stops):,}", worst + (" so far" if lasts else ""), duration(each.lost)])
    head = ("stream", "gaps", "longest", "lost") if froze else ("request", "waits", "waited", "beyond its own prompt")
    yield Table(head, rows)
    more = account.stream_count - len(rows)
    if more > 0:
        yield Text(f"And {counted(more, 'more stream' if froze else 'more request')}.")


# --- Why, and what would help ---


def _why(account: Account) -> Iterator[Block]:
    incident = account.incident
    cause, words = str(incident["cause"]), "of the worst gap" if _froze(account) else "of the longest wait"
    usual = float(incident["baseline_gap_seconds"] or 0.0)
    speaks_for, against, unknown = weighed(cause, arguments(incident["kind"], incident["evidence"], usual))
    yield Heading("What speaks for it, and what against")
    final = "is provisional" if incident["ongoing"] else "is final"
    yield Text([f"The verdict {final}: ", Name(cause), f". The evidence is {words}."])
    for side, sentences in (("For it:", speaks_for), ("Against it:", against), ("Not known:", unknown)):
        if sentences:
            yield Text(side)
            yield Points([sentence[:1].upper() + sentence[1:] for sentence in sentences])
    if not against:
        yield Text("Nothing that was seen speaks against it.")


def _what_would_have_helped(account: Account) -> Iterator[Block]:
    cause = BY_NAME.get(str(account.incident["cause"]))
    if cause is None:
        return
    yield Heading("What would have helped")
    if cause.name == PREFILL:
        yield from _other_budget(account)
    if cause.remedy:
        yield Text(f"In general: {cause.remedy}.")
    elif cause.name != PREFILL:
        yield Text("No setting is known to help by itself; the runbook says where to look.")
    yield Text(["Runbook: ", Name(f"{_RUNBOOKS}/{cause.runbook}.md"), "."])


def _other_budget(account: Account) -> Iterator[Block]:
    """The same prompt under the advised budget."""
    now, then, subject = account.now, account.then, account.subject
    if subject is None or now is None:
        yield Text(f"By the learned cost: {account.advice or 'nothing is known of the cost of a prompt yet'}.")
        return
    prompt, engine = account.prompts[subject], account.engine
    if engine.token is not None and engine.base is not None:
        per_thousand = duration(1000 * engine.token)
        yield Text(
            f"By the cost learned here (a step takes {duration(engine.base)}, and {per_thousand} more for a thousand "
            f"prompt tokens), the same prompt of {_size(prompt)}, read alone:"
        )
    rows = [_reading_row("as it was", now)]
    if then is not None and then.budget != now.budget:
        rows.append(_reading_row("as advised", then))
    yield Table(("budget", "tokens per step", "steps", "longest step", "its first token after"), rows)
    if account.advice:
        yield Text(f"Advice for it: {account.advice}.")


def _reading_row(name: str, reading: Reading) -> list[Said]:
    budget = f"{reading.budget:,}" if reading.budget else "the whole prompt"
    return [name, budget, f"{reading.steps:,}", duration(reading.longest), duration(reading.first)]


def _where_from(account: Account, source: str) -> Iterator[Block]:
    said: list[str | Name] = ["Incident ", Name(str(account.incident["id"]))]
    if source:
        said += [", from ", Name(source)]
    said.append(
        ", told by prefillwatch from times of tokens and sizes of prompts. Nobody's prompt or answer was kept for it; "
        "how a verdict comes about is in docs/verdicts.md."
    )
    yield Text(said)


def _name(each: Stream | Prompt) -> str | Name:
    return Name(each.request_id) if each.request_id else NAMELESS


def _size(prompt: Prompt) -> str:
    return ("" if prompt.exact else "about ") + counted(prompt.tokens, "token")


def _moment(unix: Any, *, date: bool = True) -> str:
    form = "%Y-%m-%d %H:%M:%S.%f" if date else "%H:%M:%S.%f"
    return datetime.fromtimestamp(float(unix), timezone.utc).strftime(form)[:-3] + " UTC"
