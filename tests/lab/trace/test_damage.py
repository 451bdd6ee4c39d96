"""Whatever happened to a file on its way: it is read as far as it goes, or one clear error says why not."""

from __future__ import annotations

import random

import pytest
from tests.lab.trace.gpu_trace import GpuTrace, MadeStep, text_of

from prefillwatch.lab.trace.analyse import analyse
from prefillwatch.lab.trace.errors import TraceError
from prefillwatch.lab.trace.reading import TraceReader
from prefillwatch.lab.trace.terminal import report

WHOLE = text_of(GpuTrace([MadeStep(2.0), MadeStep(2.0), MadeStep(4.0, 9), MadeStep(2.0)]).events())
BITS = (b"{", b"}", b"[", b"]", b'"', b"\\", b",", b"\x00", b"\xff", b"NaN", b"1e999", b"-", b"null", b'"traceEvents"')


def damaged(rng: random.Random) -> bytes:
    text = bytearray(WHOLE[: rng.choice((len(WHOLE), rng.randrange(len(WHOLE))))])
    for _ in range(rng.choice((1, 3, 30))):
        at = rng.randrange(len(text) + 1)
        text[at : at + rng.choice((0, 1, 200))] = rng.choice(BITS)
    return bytes(text)


@pytest.mark.parametrize("seed", range(30))
def test_a_damaged_trace_is_read_or_refused(seed: int) -> None:
    text = damaged(random.Random(seed))
    try:
        said = report(analyse("damaged.json", TraceReader([text[:5000], text[5000:]])))
    except TraceError as error:
        said = str(error)
    assert said


@pytest.mark.parametrize("opened", [b"{", b"[", b'{"a":', b'"'])
def test_what_nobody_closes_costs_no_more_than_what_somebody_does(opened: bytes) -> None:
    """A reader that tries every way to close it would not come to an end."""
    text = WHOLE.replace(b'"context":1', b'"context":' + opened, 1)
    findings = analyse("damaged.json", TraceReader([text[at : at + 50_000] for at in range(0, len(text), 50_000)]))
    assert findings.notes
