"""Tenants in recordings: none, unless both who records and who plays ask for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.core.script import chunk, usage
from tests.recorder.stage import Live, incidents, page, played, unpacked

from prefillwatch.recorder.file import RecordingFile
from prefillwatch.settings.processes import FlightSettings

#: Names as they come over the tap, made of a header there, or here of the body's user.
CHAT, BATCH, USER = "tenant-of-chat", "tenant-of-batch", "tenant-by-body"


def traffic(live: Live) -> Live:
    """Two streams of one tenant, and a prompt of another that freezes them; and who names itself in the body."""
    live.observation.core.relays.bodies.name_user = lambda _: USER
    relay = live.relay
    streams = [relay.request(10 + i, {"priority": -1}, tenant=CHAT) for i in range(2)]
    by_body = relay.request(50, {"user": "jane@example.org"})
    lump = 0
    for number, at in enumerate([*range(100, 4000, 40), *range(4800, 8000, 40)]):
        if at >= 3920 and not lump:
            lump = relay.request(3925, {"messages": [{"role": "user", "content": "x" * 24_000}]}, tenant=BATCH)
        for i, stream in enumerate([*streams, by_body]):
            if not number:
                relay.response(at - 1, stream)
            relay.data(at + 0.2 * i, stream, chunk())
        if at == 4800:
            relay.response(at + 1, lump)
            relay.data(at + 2, lump, chunk() + usage(6000, 1))
            relay.end(at + 3, lump)
        relay.flush()
        live.advance(at)
    for stream in [*streams, by_body]:
        relay.end(8001, stream)
    relay.flush()
    live.advance(45_000)
    live.close()
    return live


def is_said(path: Path, *words: str) -> list[str]:
    content = b"".join(unpacked(path))
    return [word for word in words if word.encode() in content]


def test_a_recording_has_no_tenants_unless_it_was_asked_to_keep_them(tmp_path: Path) -> None:
    live = traffic(Live(tmp_path, tenants=True))
    assert any(CHAT in line for line in page(live.observation)), "they are shown while it is recorded"
    assert is_said(live.path, CHAT, BATCH, USER, "jane") == []
    file = RecordingFile(live.path)
    assert (file.header.analysis.max_tenants, file.header.analysis.priorities) == (0, False)
    file.close()
    lines = page(played(live.path, senders=True))
    assert not [line for line in lines if "tenant" in line or "priority" in line]


def test_what_was_asked_for_is_kept_and_played_to_the_same_figures(tmp_path: Path) -> None:
    live = traffic(Live(tmp_path, tenants=True, keeps_tenants=True))
    assert is_said(live.path, CHAT, BATCH, USER, "jane") == [CHAT, BATCH, USER]
    again = played(live.path, senders=True)
    assert page(again) == page(live.observation)
    assert incidents(again) == incidents(live.observation)
    assert [each["culprits"][0]["tenant"] for each in incidents(again)] == [BATCH]
    assert again.tenants() == live.observation.tenants()


def test_who_plays_it_has_to_ask_as_well(tmp_path: Path) -> None:
    live = traffic(Live(tmp_path, tenants=True, keeps_tenants=True))
    again = played(live.path)
    shown = [*page(again), str(incidents(again)), str(again.tenants())]
    assert not [line for line in shown if CHAT in line or BATCH in line or "_tenant_" in line or "_priority_" in line]


@pytest.mark.parametrize("kept", [False, True])
def test_a_flight_recording_has_them_where_the_settings_say_so(tmp_path: Path, kept: bool) -> None:
    flight = FlightSettings(str(tmp_path), 60.0, 32 << 20, 64 << 20, tenants=kept)
    traffic(Live(tmp_path, record=False, flight=flight, tenants=True))
    (path,) = tmp_path.glob("flight-*.pfw")
    assert is_said(path, CHAT, BATCH, USER, "jane") == ([CHAT, BATCH, USER] if kept else [])
    assert bool(played(path, senders=True).tenants()["tenants"]) is kept


def test_with_a_file_of_either_kind_both_have_to_ask(tmp_path: Path) -> None:
    flight = FlightSettings(str(tmp_path), 60.0, 32 << 20, 64 << 20)
    live = traffic(Live(tmp_path, flight=flight, tenants=True, keeps_tenants=True))
    paths = [live.path, *tmp_path.glob("flight-*.pfw")]
    assert len(paths) == 2
    assert [is_said(path, CHAT, BATCH, USER) for path in paths] == [[], []]
