"""The table of a judgement, and docs/verdicts-measured.md around it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.simulation.faults import FAULTS, LONG_FAULTS
from tests.simulation.goals import goal_of
from tests.simulation.judge import Figures
from tests.simulation.learned import summed_up
from tests.simulation.shapes import SCENES, SHAPES

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "verdicts-measured.md"
HEAD: Final = ("row", "stall seconds", "precision", "recall", "right names", "falsely certain", "unattributed")


LEARNED: Final = ("row", "runs", "clear step", "base of the line", "cost per token", "step budget", "advice")
PAGES: Final = ("row", "runs", "right", "false", "missed", "alerts", "falsely certain")


def cells(name: str, figures: Figures) -> tuple[str, ...]:
    named, true = figures.named("prefill"), figures.true("prefill")
    of_prefill = (
        f"{figures.precision:.3f}" if named else "–",
        f"{figures.recall:.3f}" if true else "–",
        f"{figures.right_names:.3f}" if named and true else "–",
    )
    certain = (f"{figures.falsely_certain:.1%}", f"{figures.unattributed:.1%}")
    return (name, f"{figures.total:.0f}", *of_prefill, *certain)


def plain(figures: dict[str, Figures]) -> str:
    rows = [HEAD, *(cells(name, each) for name, each in figures.items() if each.total or each.pages)]
    return "\n".join(f"{row[0]:40s}" + "".join(f"{cell:>16s}" for cell in row[1:]) for row in rows)


def markdown(figures: dict[str, Figures]) -> str:
    rows = [HEAD, ("---",) * len(HEAD), *(cells(name, each) for name, each in figures.items())]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def learned(figures: dict[str, Figures]) -> str:
    """Right of those that were told, of so many runs."""
    rows = [LEARNED, ("---",) * len(LEARNED)]
    for name, each in figures.items():
        told = (f"{found.right} of {found.told}" if found.told else "–" for found in summed_up(each.learned))
        rows.append((name, str(len(each.learned)), *told))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def pages(figures: dict[str, Figures]) -> str:
    rows = [PAGES, ("---",) * len(PAGES)]
    for name, each in figures.items():
        counts = (sum(count for (_, how), count in each.pages.items() if how == were) for were in PAGES[2:5])
        alerts = ", ".join(sorted({alert for alert, _ in each.pages})) or "–"
        certain = f"{each.falsely_certain:.1%}" if each.total else "–"
        rows.append((name, str(len(each.learned)), *map(str, counts), alerts, certain))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def shortfalls(figures: dict[str, Figures]) -> str:
    lines = []
    for name, each in figures.items():
        missed = list(goal_of(name).missed(each))
        if missed:
            lines.append(f"- **{name}**: {'; '.join(missed)}. {each.told()}".rstrip() + ".")
    return "\n".join(lines) or "None."


def page(figures: dict[str, Figures], seeds: range, long_seeds: range) -> str:
    """The rows that there are figures of."""
    shapes_, under_faults, minutes = (
        {name: figures[name] for name in names if name in figures}
        for names in (
            [shape.name for shape in SHAPES],
            [fault.name for fault in FAULTS],
            [each.name for each in (*SCENES, *LONG_FAULTS)],
        )
    )
    return TEXT.format(
        first=seeds[0],
        last=seeds[-1],
        runs=len(seeds),
        seconds=round(SHAPES[0].milliseconds / 1000),
        shapes=markdown(shapes_),
        faults=markdown(under_faults),
        long_first=long_seeds[0],
        long_last=long_seeds[-1],
        minutes=round(SCENES[0].milliseconds / 60_000),
        pages=pages(minutes),
        learned=learned(shapes_),
        shortfalls=shortfalls(shapes_ | under_faults),
        origins=origins(),
    )


def origins() -> str:
    """What each shape is written from."""
    by_origin: dict[str, list[str]] = {}
    for shape in SHAPES:
        by_origin.setdefault(shape.like, []).append(shape.name)
    rows = [
        ("shapes", "written from"),
        ("---", "---"),
        *((", ".join(names), like) for like, names in by_origin.items()),
    ]
    return "\n".join(f"| {names} | {like} |" for names, like in rows)


TEXT: Final = """# Verdicts, measured on a simulation

How often a [verdict](verdicts.md) is right, by shape of engine and by fault. Written by
`make simulate SEEDS={runs} WRITE=1 ARGS="--first {first}"`; without `--first` the seeds are fresh ones.

**These are figures of a simulation, not of real engines.** The engine runs in virtual time and logs who was in
each of its steps and why it took as long as it did (`tests/simulation/engine.py`); API server, hop, network,
our own loop and the clients are stages with times of their own (`delivery.py`), and the server's page is text
in its own words (`server_page.py`). What a relay would have seen goes through the records of the tap into the
same code that runs in production; that code shares nothing with the simulation but the format on the wire.

{runs} runs of {seconds} s, seeds {first} to {last}. Each draws its own load: 2 to 6 people who chat, and prompts of 60
to 6,000 tokens alone, in bursts or at random; speed of the engine and sizes differ. The observer starts with
nothing learned each time, so these are figures of its first seconds; a quarter of the runs with a fault have no
prompts.

- *stall seconds*: what readers waited beyond a step in gaps that are stalls. A stall counts under the cause
  that made most of it.
- *precision, recall*: of `prefill`, in those seconds. *Right names*: what the blamed shares have in common with
  the true ones.
- *falsely certain*: share of the seconds for which a cause was named that was another's.
- *unattributed*: share of the seconds with a cause to be named for which none was. Stalls of our own making
  have none, nor have those for a prompt that did not come through us.

## By shape, without a fault

{shapes}

## By fault, on vLLM with asynchronous scheduling

Two are tried on the shape that their name says, as is a page of another pool: on SGLang.

{faults}

## Critical alerts

Runs of {minutes} minutes, seeds {long_first} to {long_last}, on slow engines, and two alerts as Prometheus would see
them (`paging.py`): `StreamFreeze` and `FirstTokenStuck`. A page is *right* while readers really stand still, or while
an engine has not begun with a request for two minutes. *Missed* is what lasted long enough and paged nobody. The other
critical alerts are about processes, certificates, health checks or hours, of which nothing is simulated.

{pages}

## What is learned

Of so many runs: how many times a figure was within 20 % of the engine's own, of how many times it was told. The
advice is held against what a step as full as is advised would take: the target that it was made for. By the end of a
run of seconds little may be known; that is right, too.

{learned}

## What falls short

Held against the goals: precision 0.99, recall 0.97, right names 0.98 for vLLM on one rank and llama.cpp (0.98,
0.90, 0.96 for others); at most 1 % falsely certain, at most 10 % unattributed.

{shortfalls}

## What the shapes are written from

{origins}

## What is known of these

- **Several ranks behind one door**: streams are assigned to ranks by how they move; while a prompt waits it may be on
  any. A prompt of a rank **out of sight** is blamed on whoever is in sight, where somebody is.
- **Slices, rests and delays**: where prompts are read beside each other or later than they could be, the names
  follow an order that the engine did not have.
- **Stream interval**: short steps disappear between two reads; a prompt that is read in one of them is not seen
  there.
- **A stop while a prompt is in flight** whose price is not learned yet is called that prompt's; without a page
  of metrics one without a prompt has no name.
- **The API server**, where it stands still or tokenises while prompts are read: fewer tokens come in the bunch
  than the time would have made.
- **A server that goes on without its reader**: the prompt is out of sight, and what it held up is unattributed.
- **Hidden reasoning**: where usage does not count it, nothing shows when a prompt was read; among those that come
  together the names follow the order of arrival.
- **Withheld tokens**: what comes whole, late and on purpose looks like a bunch that the API server held up.
- **Images**: their tokens are known when the answer ends; until then the price of the text is far too small for
  the time that the encoder takes.
- **What compiles for a prompt** takes its time where the prompt is read, and before a price is learned the one
  looks like the other.
- **Endpoints that are not read**, lists of prompts and background answers: somebody's work, of a size or for a
  time that is not known from their requests alone.

Not simulated yet: offloading that holds up a step, diffusion, elastic scaling, adapters, endpoints outside `/v1`.
A run again, with every stall: `make simulate ARGS="--show SEED"`.
"""
