"""Which trace a request belongs to, by the examples and the rules of W3C Trace Context."""

from __future__ import annotations

import pytest

from prefillwatch.wire.trace_context import TraceParent, trace_parent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize("flags", ["00", "01", "ff"])
def test_trace_span_and_flags_are_read(flags: str) -> None:
    assert trace_parent(f"00-{TRACE}-{SPAN}-{flags}") == TraceParent(TRACE, SPAN, flags)


@pytest.mark.parametrize("more", ["", "-", "-what-the-future-brings"])
def test_a_later_version_may_have_more_at_its_end(more: str) -> None:
    assert trace_parent(f"cc-{TRACE}-{SPAN}-01{more}") == TraceParent(TRACE, SPAN, "01")


@pytest.mark.parametrize(
    "header",
    [
        "",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01-",
        f"cc-{TRACE}-{SPAN}-01more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00_{TRACE}_{SPAN}_01",
        f"00-{'g' * 32}-{SPAN}-01",
        f"00-{'٣' * 32}-{SPAN}-01",
    ],
)
def test_anything_else_is_no_trace(header: str) -> None:
    assert trace_parent(header) is None
