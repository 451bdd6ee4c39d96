"""Attacks by the server behind the sidecar, or by whoever can have it answer so."""

from __future__ import annotations

from tests.hostile.attack import MIB, Attack
from tests.hostile.rows.bodies import chat, post
from tests.hostile.stranger import Reply, Stranger

_BODY = chat(b'[{"role":"user","content":"Hello."}]')


def row(name: str, script: str, n: int, back: set[int] | None = None, *, unit: int = 1, **more: object) -> Attack:
    """The answer is what grows, so costs are per byte of it: of its body, or ``unit`` bytes for each of ``n``."""

    def act(stranger: Stranger, size: int) -> list[Reply]:
        replies = stranger.say(post(_BODY, more=b"X-Script: %b:%d\r\n" % (script.encode(), size)))
        stranger.link.bytes += max(unit * size, sum(len(reply.body) for reply in replies))
        return replies

    return Attack(name, act, n, back or {200}, **more)  # type: ignore[arg-type]


ANSWERS = [
    row("an event without end", "endless_event", 8 * MIB),
    row("an answer in chunks of one byte", "one_byte_chunks", 16 * 1024, cpu={"relay": 5.0, "observer": 5.0}),
    row("comments without end", "comments", 100_000),
    row("line ends without end", "line_ends", 512 * 1024),
    row("a token for each of thousands of choices", "choices", 2_000),
    row("choices with numbers beyond reason", "huge_indices", 2_000),
    row("a model and an id for each token", "names", 2_000),
    row("usage that cannot be", "false_usage", 1_000),
    row("thousands of tool calls in an event", "tool_calls", 1_000),
    row("informational answers before the answer", "interim", 500, unit=46),
    row("a head of blanks that ends in a control byte", "blank_head", 30_000, {502}),
    row("a head without end", "endless_head", 300_000, {502}),
    row("a compressed stream that explodes", "exploding", 8 * MIB, memory={"observer": 24 * MIB}),
    row("a compressed stream of empty members", "empty_members", 64 * 1024),
    row("an answer of brackets", "deep", MIB),
    row("an answer of a great many choices", "wide", MIB),
]
