"""What a user types, and what they read when it is wrong; nothing is sent then."""

from __future__ import annotations

import asyncio
import errno
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.lab.openai_server import OpenAIServer

from prefillwatch.cli import main

QUICK = ("--warmup", "200ms", "--recovery", "100ms", "--victims", "2", "--inject", "2", "--prompt-tokens", "100")


def invoke(*arguments: str, environment: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, ["probe", *arguments], prog_name="prefillwatch", env=environment)


def against(server: OpenAIServer, *arguments: str, environment: dict[str, str] | None = None) -> Result:
    """The server has a thread of its own: the command wants the main one, for Ctrl-C."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
        result = invoke("--url", server.url, *arguments, environment=environment)
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(10)
        return result
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing option '--url'"),
        (("--url", "localhost:8000"), "'localhost:8000' is not a server's address; write http://HOST:PORT"),
        (
            ("--url", "http://x", "--prompt-tokens", "6k"),
            "'6k' is no list of token counts; write 6000 or 500,1000,2000",
        ),
        (("--url", "http://x", "--prompt-tokens", "0"), "prompt_tokens must name at least one size, each of 1 token"),
        (("--url", "http://x", "--warmup", "3"), "'3'"),
        (("--url", "http://x", "--max-tokens", "1000"), "more than --max-tokens 1,000 allows"),
        (("--url", "http://x", "--max-time", "5s"), "takes at least 8 s, more than --max-time 5 s allows"),
        (("--url", "http://x", "--injection-limit", "0s"), "injection_seconds must be a time above 0"),
        (("--url", "http://x", "--header", "no colon"), "write 'NAME: VALUE'"),
        (("--url", "http://x", "--json", "/nowhere/x.json"), "/nowhere/x.json cannot be written; choose a file in a"),
    ],
)
def test_bad_input_ends_with_code_2_and_one_clear_message(arguments: tuple[str, ...], message: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


def test_recorded_arrivals_are_looked_at_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"arrival": 0, "prompt_tokens": "many"}\n')
    result = invoke("--url", "http://x", "--arrivals", str(tmp_path / "a.jsonl"))
    assert result.exit_code == 2
    assert "a.jsonl, line 1" in result.stderr


def test_figures_are_written_and_the_key_is_not(tmp_path: Path) -> None:
    files = ("--json", str(tmp_path / "p.json"), "--html", str(tmp_path / "p.html"))
    server = OpenAIServer(known=("max_tokens", "stream_options", "ignore_eos"))
    result = against(server, *QUICK, *files, environment={"PREFILLWATCH_API_KEY": "sk-secret"})
    assert result.exit_code == 0, result.output
    assert {each.headers["authorization"] for each in server.asked} == {"Bearer sk-secret"}
    figures: dict[str, Any] = json.loads((tmp_path / "p.json").read_text())
    assert len(figures["prompts"]) == 2
    for text in (result.output, (tmp_path / "p.json").read_text(), (tmp_path / "p.html").read_text()):
        assert "sk-secret" not in text


def test_figures_are_written_although_nobody_reads_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object) -> list[str]:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("prefillwatch.commands.probe.report", closed)
    assert against(OpenAIServer(), *QUICK, "--json", str(tmp_path / "p.json")).exit_code == 1
    assert json.loads((tmp_path / "p.json").read_text())["complete"]


def test_the_report_is_told_although_figures_cannot_be_written() -> None:
    result = against(OpenAIServer(), *QUICK, "--json", "/dev/full")
    assert "injection window" in result.stdout
    assert result.stderr.endswith("prefillwatch: error: /dev/full could not be written (No space left on device)\n")
    assert result.exit_code == 1


def test_the_key_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-filed\n")
    server = OpenAIServer(models_status=401)
    result = against(server, "--api-key-file", str(tmp_path / "key"))
    assert server.asked[0].headers["authorization"] == "Bearer sk-filed"
    assert result.exit_code == 1
    assert "wants a key (HTTP 401)" in result.stderr


def test_recorded_arrivals_take_the_place_of_prompts_at_once(tmp_path: Path) -> None:
    rows = [{"arrival": at, "prompt_tokens": 60 + at, "output_tokens": 2} for at in (0, 40, 9000)]
    rows.append({"arrival": 30, "prompt_tokens": 4095, "output_tokens": 2})
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row | {"arrival": row["arrival"] / 1000}) for row in rows))
    arrivals = ("--arrivals", str(tmp_path / "a.jsonl"), "--arrivals-for", "1s")
    result = against(OpenAIServer(), *QUICK, *arrivals, "--json", str(tmp_path / "p.json"))
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "2 recorded arrivals in 40 ms, prompts of 60 to 100 tokens" in said
    assert "; 1 more left out, too long for the model" in said
    assert len(json.loads((tmp_path / "p.json").read_text())["prompts"]) == 2


def test_what_was_taken_for_granted_is_said_and_an_absurd_rate_is_questioned(tmp_path: Path) -> None:
    rows = [{"timestamp": at, "input_length": 60, "output_length": 2, "hash_ids": [1, 2]} for at in range(300)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    arrivals = ("--arrivals", str(tmp_path / "a.jsonl"))
    result = invoke("--url", "http://x", *arrivals, "--arrivals-unit", "ms", "--max-tokens", "1000000")
    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    assert "a.jsonl: 300 requests in 0.299 s; blocks of 32 tokens (by tokens over ids); times in ms (as given)" in said
    assert "is the unit of their times right?" in said
    assert "give --arrivals-anyway to send them so" in said


def test_how_to_read_a_file_that_was_not_given() -> None:
    result = invoke("--url", "http://x", "--arrivals-unit", "ms")
    assert result.exit_code == 2
    assert "add --arrivals FILE" in result.stderr
