"""What is kept of incidents through the whole core, and what is made of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.scenarios.playbook import Scene, beat

from prefillwatch.story import Account, UnknownIncidentError, find, markdown, tell

CLEAR = 40.0


def frozen(until: float = 9000, **body: Any) -> Scene:
    """Four streams at 40 ms; a document freezes them for 800 ms."""
    scene = Scene()
    scene.victims(4, beat(CLEAR, until, (6000, 800)))
    prompt = scene.prompt(5970, 6000, "the-document", **body)
    prompt.answers([6782.0 + CLEAR * number for number in range(5)]).ends(7100)
    scene.healthy(500, until, running=4)
    return scene


def accounts(scene: Scene) -> list[Account]:
    return scene.observed.observation.accounts()


def test_who_stood_still_while_what_was_read() -> None:
    (account,) = accounts(frozen().play())
    incident = account.incident
    assert incident["cause"] == "prefill"
    assert [each.request_id for each in account.streams] == [f"victim-{number}" for number in range(4)]
    assert sum(each.lost for each in account.streams) == pytest.approx(incident["stall_seconds"], rel=1e-3)
    assert all(len(each.stops) == 1 for each in account.streams)
    (document,) = account.prompts
    assert (document.request_id, document.tokens, document.exact, document.share) == ("the-document", 6000, True, 1.0)
    assert document.first is not None
    assert document.first - document.sent == pytest.approx(0.812, abs=0.001)
    (step,) = [each for each in account.steps if each.tokens]
    assert step.parts == ((0, 6000),)
    assert step.end - step.start == pytest.approx(incident["worst_gap_seconds"], abs=0.002)


def test_the_reads_around_it_are_there_and_none_inside() -> None:
    (account,) = accounts(frozen().play())
    for stream in account.streams:
        (stop,) = stream.stops
        assert stop.end is not None
        assert {stop.start, stop.end} <= set(stream.reads)
        assert not [at for at in stream.reads if stop.start < at < stop.end]
        assert len(stream.reads) > 5


def test_a_slot_that_went_to_the_next_stream_lends_it_no_reads() -> None:
    scene = frozen()
    leaver = scene.victims(1, beat(CLEAR, 7000, (6000, 800)))[0]
    scene.prompt(7010, 16, "next").answers(beat(CLEAR, 8500, start=7050)).ends(8505)
    (account,) = accounts(scene.play())
    (stream,) = [each for each in account.streams if each.request_id == "victim-4"]
    assert leaver.generated > 100
    assert max(stream.reads) * 1000 < 7000 - 6000 + 100


def test_an_incident_that_lasts_can_be_told() -> None:
    scene = Scene()
    scene.victims(4, beat(CLEAR, 6000))
    for stream in scene.victims(4, beat(CLEAR, 6000), ends=False):
        assert stream.tokens
    scene.prompt(6010, 6000, "the-document")
    scene.healthy(500, 12_000, running=4)
    scene.play(until=9000)
    (account,) = [each for each in accounts(scene) if each.incident["kind"] == "freeze"]
    assert account.incident["ongoing"]
    assert account.streams[0].stops[0].end is None
    assert "It is not over yet" in markdown(tell(account))


def test_a_wait_names_who_waited() -> None:
    scene = Scene()
    scene.victims(2, beat(CLEAR, 22_000))
    scene.prompt(5000, 50, "forgotten").answers([20_000.0]).ends(20_010)
    scene.healthy(500, 22_000, running=2)
    scene.play()
    account = find(accounts(scene), "forgotten")
    assert account.incident["kind"] == "wait"
    (stream,) = account.streams
    assert stream.stops[0].end == pytest.approx(15.0, abs=0.01)
    assert "waited for a first token" in markdown(tell(account))


def test_no_text_of_anybody_is_kept() -> None:
    told = msgspec.json.encode(accounts(frozen(user="a-user-of-ours").play()))
    assert b"the-document the-document" not in told, "its prompt begins like this"
    assert b" word" not in told
    assert b"a-user-of-ours" not in told


def test_the_newest_are_kept() -> None:
    scene = Scene()
    scene.observed.observation.kept_accounts.keep(3)
    freezes = [(4000.0 + 5000 * number, 500.0) for number in range(5)]
    scene.victims(1, beat(CLEAR, 26_000, *freezes))
    scene.play()
    assert [each.incident["id"] for each in accounts(scene)] == [each["id"] for each in scene.incidents()[:1:-1]]
    with pytest.raises(UnknownIncidentError, match="no incident or request"):
        find(accounts(scene), scene.incidents()[0]["id"])
