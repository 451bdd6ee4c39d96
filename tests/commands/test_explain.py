"""`prefillwatch explain` of a recording; of a running sidecar see tests/e2e/test_explain.py."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.commands.test_replay import invoke
from tests.kit.pages import Behaviour, Pages
from tests.recorder.scenes import SECRET, freeze
from tests.recorder.stage import Live

from prefillwatch.story import markdown, tell


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Live:
    live = Live(tmp_path_factory.mktemp("recording"))
    freeze(live)
    live.close()
    return live


def test_a_recording_tells_what_the_sidecar_would_have_told_then(live: Live) -> None:
    result = invoke("explain", "--from", live.path)
    assert result.exit_code == 0, result.output
    (account,) = live.observation.accounts()
    assert result.stdout == markdown(tell(account, "recording.pfw"))
    assert result.stdout.startswith("# 3 streams stood still for 820 ms: a prompt was being read")
    assert "`the-culprit`" in result.stdout
    assert SECRET not in result.stdout


def test_by_the_id_of_the_incident_or_of_a_request_in_it(live: Live) -> None:
    (account,) = live.observation.accounts()
    newest = invoke("explain", "--from", live.path).stdout
    for name in (account.incident["id"], "the-culprit"):
        assert invoke("explain", name, "--from", live.path).stdout == newest


def test_a_file_has_its_picture_beside_it(live: Live, tmp_path: Path) -> None:
    story = tmp_path / "story.md"
    assert invoke("explain", "--from", live.path, "--output", story).exit_code == 0
    assert "(story.md.svg)" in story.read_text()
    picture = ET.fromstring((tmp_path / "story.md.svg").read_text())
    assert "the-culprit" in [each.text for each in picture.iter("{http://www.w3.org/2000/svg}text")]


def test_or_inside(live: Live, tmp_path: Path) -> None:
    story = tmp_path / "story.md"
    assert invoke("explain", "--from", live.path, "--output", story, "--inline").exit_code == 0
    assert "(data:image/svg+xml;base64," in story.read_text()
    assert list(tmp_path.iterdir()) == [story]


def test_the_picture_of_a_file_is_that_of_the_sidecar(live: Live, tmp_path: Path) -> None:
    """Reads and all: they are not told by the recording itself, but by the core that it is fed to."""
    invoke("explain", "--from", live.path, "--output", tmp_path / "a.md")
    (account,) = live.observation.accounts()
    assert all(len(each.reads) > 5 for each in account.streams)
    assert (tmp_path / "a.md.svg").read_text().count("v8") > 15


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("y-9", "--from", "{recording}"), 1, "no incident or request 'y-9' is known; there is "),
        (("--from", "nothing.pfw"), 1, "cannot read nothing.pfw: No such file or directory"),
        (("--from", __file__), 1, "is no recording of prefillwatch"),
        (("--from", "http://127.0.0.1:1"), 1, "no answer from http://127.0.0.1:1 "),
        (("--from", "ftp://a"), 2, "is no address of a server"),
        (("--from", "{recording}", "--output", "/nowhere/x.md"), 2, "--output /nowhere/x.md cannot be written"),
    ],
)
def test_one_clear_error(live: Live, arguments: tuple[str, ...], code: int, message: str) -> None:
    result = invoke("explain", *(argument.format(recording=live.path) for argument in arguments))
    assert (result.exit_code, len(result.stderr.splitlines())) == (code, 1), result.output
    assert message in result.stderr


def test_a_recording_of_a_release_to_come_says_which_one_can_read_it(live: Live, tmp_path: Path) -> None:
    newer = tmp_path / "newer.pfw"
    data = live.path.read_bytes()
    newer.write_bytes(data[:8] + (99).to_bytes(2, "little") + data[10:])
    result = invoke("explain", "--from", newer)
    assert result.exit_code == 1
    assert "version 99 of the format" in result.stderr


def test_a_recording_without_an_incident_says_so(tmp_path: Path) -> None:
    live = Live(tmp_path)
    live.advance(3000)
    live.close()
    result = invoke("explain", "--from", live.path)
    assert result.exit_code == 1
    assert "recording.pfw: no incident is known" in result.stderr


# --- From an address ---


@pytest.fixture
def pages() -> Iterator[Pages]:
    pages = Pages()
    yield pages
    pages.close()


def test_a_sidecar_is_asked_for_the_account_with_its_credentials(live: Live, pages: Pages, tmp_path: Path) -> None:
    (account,) = live.observation.accounts()
    pages.routes["/api/explain?id=a%2Fb+c"] = (200, msgspec.json.encode(account))
    token = tmp_path / "token"
    token.write_text("marker\n")
    result = invoke("explain", "a/b c", "--from", pages.url, "--bearer-token-file", token)
    assert result.exit_code == 0, result.output
    assert result.stdout == markdown(tell(account, pages.url))
    assert pages.asked == [("/api/explain?id=a%2Fb+c", "Bearer marker")]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((404, b'{"error":"nothing is served at /api/explain"}'), "it is older than this command"),
        ((404, b'{"error":"no incident is known"}'), "no incident is known"),
        ((404, b"<html>"), "answers 404"),
        ((401, b'{"error":"credentials"}'), "give --bearer-token-file or --basic-auth-file"),
        ((200, b"pong"), "answers, but not as prefillwatch does"),
    ],
)
def test_an_answer_that_is_no_account(pages: Pages, answer: Behaviour, message: str) -> None:
    pages.routes["/api/explain"] = answer
    result = invoke("explain", "--from", pages.url)
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert message in result.stderr
