"""`prefillwatch replay` and `record` on the command line."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.recorder.scenes import freeze
from tests.recorder.stage import Live, incidents, page

from prefillwatch.cli import main


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments], prog_name="prefillwatch")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Live:
    live = Live(tmp_path_factory.mktemp("recording"))
    freeze(live)
    live.close()
    return live


class TestReplay:
    def test_the_summary_names_the_culprit_and_what_it_did(self, live: Live) -> None:
        result = invoke("replay", live.path)
        assert result.exit_code == 0
        lines = [line.split() for line in result.output.splitlines()]
        assert lines[0][:4] == ["recording", "recording.pfw:", "20.8", "s"]
        assert "4 ok" in result.output
        assert ["prefill", "819", "ms", "819", "ms", "820", "ms", "3"] in lines
        assert "freeze by prefill: 820 ms, 3 streams" in result.output
        assert "100%  the-culprit, a prompt of 6,000 tokens" in result.output

    def test_metrics_and_incidents_are_written_out(self, live: Live, tmp_path: Path) -> None:
        metrics, found = tmp_path / "metrics.txt", tmp_path / "incidents.json"
        assert invoke("replay", live.path, "--metrics", metrics, "--incidents", found).exit_code == 0
        lines = metrics.read_text().splitlines()
        assert set(page(live.observation)) <= set(lines)
        assert json.loads(found.read_text()) == incidents(live.observation)

    def test_a_speed_is_kept(self, live: Live) -> None:
        result = invoke("replay", live.path, "--speed", "200")
        took = next(line for line in result.output.splitlines() if line.startswith("played"))
        number, unit = took.split()[2:4]
        assert float(number) * {"ms": 1, "s": 1000}[unit.strip(",")] >= 100

    def test_a_file_that_was_cut_says_so(self, live: Live, tmp_path: Path) -> None:
        cut = tmp_path / "cut.pfw"
        cut.write_bytes(live.path.read_bytes()[:-50])
        result = invoke("replay", cut)
        assert result.exit_code == 0
        assert "cut         the file breaks off after byte" in result.output

    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            (("nothing.pfw",), 1, "cannot read nothing.pfw: No such file or directory"),
            ((__file__,), 1, "is no recording of prefillwatch"),
            (("{recording}", "--speed", "fast"), 2, "'fast' is no speed; write max, or a number above 0"),
            (("{recording}", "--speed", "0"), 2, "'0' is no speed"),
            (("{recording}", "--admin", "here"), 2, "--admin: 'here' is not an address"),
            (("{recording}", "--metrics", "/dev/full/x"), 2, "--metrics /dev/full/x cannot be written"),
        ],
    )
    def test_one_clear_error(self, live: Live, arguments: tuple[str, ...], code: int, message: str) -> None:
        result = invoke("replay", *(argument.format(recording=live.path) for argument in arguments))
        assert (result.exit_code, len(result.stderr.splitlines())) == (code, 1)
        assert message in result.stderr

    def test_what_was_found_is_told_although_its_file_cannot_be_written(self, live: Live) -> None:
        result = invoke("replay", live.path, "--incidents", "/dev/full")
        assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
        assert "freeze by prefill" in result.stdout


class TestRecord:
    def test_an_existing_file_is_left_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "run.pfw"
        path.write_text("precious")
        result = invoke("record", path, "--upstream", "http://127.0.0.1:1")
        assert result.exit_code == 2
        assert "exists already; choose another name, or delete it" in result.stderr
        assert path.read_text() == "precious"

    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        result = invoke("record", tmp_path / "gone" / "run.pfw", "--upstream", "http://127.0.0.1:1")
        assert result.exit_code == 2
        assert "No such file or directory; choose one that you can write" in result.stderr

    def test_no_file_is_left_behind_by_bad_settings(self, tmp_path: Path) -> None:
        assert invoke("record", tmp_path / "run.pfw").exit_code == 2
        assert invoke("record", tmp_path / "run.pfw", "--upstream", "x").exit_code == 2
        assert list(tmp_path.iterdir()) == []

    def test_a_port_that_is_taken_leaves_no_file_in_the_way_of_the_next_try(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            listen = f"127.0.0.1:{taken.getsockname()[1]}"
            result = invoke("record", tmp_path / "run.pfw", "--upstream", "http://127.0.0.1:1", "--listen", listen)
        assert result.exit_code != 0
        assert "in use" in result.stderr
        assert list(tmp_path.iterdir()) == []
