"""Writes the table of bounds in docs/security.md: each number as the code has it.

python scripts/security_tables.py            writes it
python scripts/security_tables.py --check    tells whether it is as it should be
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from prefillwatch.analysis.tokens import MOST_READS
from prefillwatch.core import bodies as observed
from prefillwatch.core.relays import MAX_EXCHANGES
from prefillwatch.door import conversation, door, observer_link
from prefillwatch.export import viewers
from prefillwatch.observer.api import MOST_TOLD
from prefillwatch.observer.intake import MAX_LINKS
from prefillwatch.relay import (
    bodies,
    client,
    deadlines,
    framing,
    http_head,
    observed_head,
    reactor,
    request_body,
    room,
    tap_writer,
    unsent,
)
from prefillwatch.relay import relay as relays
from prefillwatch.relay.client_state import PLACE_PATIENCE_NS, ClientState
from prefillwatch.relay.exchange import core
from prefillwatch.settings.declared import shown_default
from prefillwatch.settings.quantities import format_size
from prefillwatch.units import MS
from prefillwatch.wire import answer, inflate, request, sse, structure

PAGE = Path(__file__).resolve().parents[1] / "docs" / "security.md"

Row = tuple[str, str, str, str]


def bounds() -> Iterator[tuple[str, list[Row]]]:
    """By process: what is bounded, how, what happens beyond it, and which setting moves it."""
    yield "a relay", list(_relay())
    yield "the observer", list(_observer())
    yield "the supervisor, at the admin address", list(_supervisor())


def _relay() -> Iterator[Row]:
    small = bodies.SMALL_BODY
    yield "head of a request", f"{format_size(http_head.MAX_REQUEST_HEAD)}, {http_head.MAX_HEADERS} lines", "431", ""
    yield "options of `Connection`", f"{http_head.MAX_OPTIONS}", "431", ""
    yield (
        "time for a whole request, and for a TLS handshake",
        _set("request_timeout"),
        "408, or closed if nothing came",
        "`request_timeout`",
    )
    yield "body of a request", _set("max_body"), "413", "`max_body`"
    yield (
        "framing of a chunked body",
        f"a quarter of its payload and {format_size(request_body._FRAMING_ALLOWANCE)}",
        "413",
        "",
    )
    yield (
        "trailers; a line of framing",
        f"{format_size(framing._MAX_TRAILERS)}; {format_size(framing._MAX_SIZE_LINE)}",
        "400",
        "",
    )
    yield (
        "all bodies together, of all relays",
        f"{_set('max_bodies')}: 1/{bodies._SMALL_SHARE} for those up to {format_size(small)}, the rest for larger ones",
        f"larger ones wait {bodies._PATIENCE_NS // 10**9} s, then 503 with `Retry-After`; 408 for slow ones meanwhile",
        "`max_bodies`",
    )
    yield "requests that come while the one before is answered", format_size(client._MAX_PIPELINED), "not read yet", ""
    places = f"(descriptors − {room._OWN + room._IN_TRANSIT}) / 2: one in reserve for the way to upstream"
    head, body = (PLACE_PATIENCE_NS[state] // 10**9 for state in (ClientState.HEAD, ClientState.BODY))
    gives_way = f"the longest idle one goes, or one that has been {head} s at a head or {body} s at a body (503)"
    yield "connections of clients", places, f"{gives_way}; else new ones wait", "`max_clients`, `ulimit -n`"
    yield (
        "connections of one address",
        f"{_set('max_clients_per_address')}: no limit",
        "closed",
        "`max_clients_per_address`",
    )
    yield "an idle connection", _set("client_idle_timeout"), "closed", "`client_idle_timeout`"
    yield (
        "a client that takes nothing of its answer",
        _set("client_write_timeout"),
        "reset, and upstream stops",
        "`client_write_timeout`",
    )
    yield (
        "answers that clients have not taken",
        f"one read each, {format_size(unsent.MOST_UNSENT)} together",
        "who took nothing for longest is reset",
        "",
    )
    piece = f"{framing.MOST_CHUNKS} chunks, {relays._ACCEPTS_AT_ONCE} new connections or {deadlines._AT_ONCE} timeouts"
    share = f"{reactor._BACK_NS / MS:.0f} ms and the piece under way: at most {piece}"
    yield "work for strangers in a turn of the loop", share, "waits behind tokens for the next turn", ""
    yield "head of an answer", format_size(http_head.MAX_RESPONSE_HEAD), "502", ""
    yield (
        "what the observer is told of a request",
        f"{format_size(core.OBSERVED_BYTES)} of its body, {observed_head._MAX_PATH} characters of its path",
        "its size is told",
        "",
    )


def _observer() -> Iterator[Row]:
    shares = (
        f"{observed.UNANSWERED_SHARE:.0%} of a core before upstream has answered, {observed.ACCEPTED_SHARE:.0%} after"
    )
    yield (
        "bodies of requests that are held, all together",
        format_size(observed.MOST_HELD_BYTES),
        "only sizes count",
        "",
    )
    yield "reading bodies, all together", shares, "only sizes count: `request_bodies_unread_total`", ""
    yield (
        "a body that is read before upstream has answered",
        format_size(observed.SMALL_BYTES),
        "read when the answer is a success",
        "",
    )
    yield (
        "a compressed body",
        f"{format_size(request.MAX_INFLATED_BYTES)} inflated, {inflate._MAX_MEMBERS} members, one coding",
        "its size counts",
        "",
    )
    yield "values in one member of a body", f"{structure.MOST_MARKS:,}", "its bytes count", ""
    yield "an event of an answer", format_size(sse.MAX_EVENT_BYTES), "given up, and the next one read", ""
    yield (
        "an answer in one piece; a compressed one",
        f"{format_size(answer.MAX_ANSWER_BYTES)}; {format_size(answer.MAX_INFLATED_BYTES)} inflated",
        "not understood; its end is",
        "",
    )
    yield (
        "requests in flight that are followed, per relay",
        f"{MAX_EXCHANGES:,}",
        "they pass through unobserved",
        "",
    )
    yield "incidents that can be told, and reads kept for that", f"{MOST_TOLD}; {MOST_READS:,}", "the newest stay", ""
    yield "model names with series of their own", _set("max_models"), "`other`", "`max_models`"
    yield (
        "what a relay tells while the observer is busy",
        f"{format_size(tap_writer.BODY_ROOM)}, {format_size(tap_writer.BOOK_ROOM)} more for beginnings and ends",
        "dropped and counted",
        "",
    )
    yield "processes of vLLM at the engine socket", f"{MAX_LINKS}", "closed", ""


def _supervisor() -> Iterator[Row]:
    yield "connections", f"{door.MOST_CONNECTIONS}", "the longest silent one is closed", "`ulimit -n`"
    yield (
        "head; body of a request",
        f"{format_size(conversation.MOST_HEAD_BYTES)}; {format_size(conversation.MOST_BODY_BYTES)}",
        "431; 413",
        "",
    )
    yield (
        "time for a whole request, and for a TLS handshake",
        f"{conversation.REQUEST_LIMIT_S:.0f} s",
        "408, or closed if nothing came",
        "",
    )
    yield "time for the observer to answer", f"{conversation.ANSWER_LIMIT_S:.0f} s", "503 with the reason", ""
    yield "a client that reads slowly", f"{conversation.PIECE_LIMIT_S:.0f} s a piece", "closed", ""
    yield "requests that are with the observer", f"{observer_link.MOST_AT_ONCE}", "503 with `Retry-After`", ""
    yield "viewers of the live page", f"{viewers.MOST_VIEWERS}", "503 with `Retry-After`", ""


def _set(key: str) -> str:
    return f"`{shown_default(key)}`"


def table() -> str:
    lines = []
    for process, rows in bounds():
        lines += [f"**Of {process}**", "", "| what | bound | beyond it | setting |", "| --- | --- | --- | --- |"]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows] + [""]
    return "\n".join(lines)


def with_bounds(text: str) -> str:
    """The page with the table as the code says. Raises ValueError where it has no place."""
    place = re.compile(r"(<!-- bounds: .*? -->\n).*?(<!-- end -->)", re.DOTALL)
    if not place.search(text):
        raise ValueError(f"{PAGE.name} has no place for the table of bounds")
    return place.sub(lambda match: f"{match[1]}\n{table()}\n{match[2]}", text)


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    wanted = with_bounds(text)
    if "--check" in sys.argv[1:]:
        if text != wanted:
            print("the bounds in docs/security.md are not what the code says; run: make reference", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
