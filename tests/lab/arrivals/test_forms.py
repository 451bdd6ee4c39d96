"""Forms of files beyond plain rows, made anew in the manner of each: batches, conversations, spans, windows, lists."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from prefillwatch.lab.arrivals import Arrival, ArrivalsError, Reading, Schedule, read_arrivals
from prefillwatch.lab.arrivals.servegen import generate

ROW = {"arrival": 0.5, "prompt_tokens": 40, "output_tokens": 4}
LATER = {"arrival": 2.0, "prompt_tokens": 50, "output_tokens": 5}
BOTH = (Arrival(0.0, 40, 4), Arrival(1.5, 50, 5))


def read(folder: Path, *values: Any, reading: Reading | None = None) -> Schedule:
    path = folder / "arrivals.jsonl"
    path.write_text("".join(f"{value if isinstance(value, str) else json.dumps(value)}\n" for value in values))
    return read_arrivals(path, reading)


def test_a_list_on_one_line_and_on_several(tmp_path: Path) -> None:
    assert read(tmp_path, [ROW, LATER]).arrivals == BOTH
    assert read(tmp_path, json.dumps([ROW, LATER], indent=1)).arrivals == BOTH


def test_objects_of_several_lines(tmp_path: Path) -> None:
    assert read(tmp_path, json.dumps(ROW, indent=2), json.dumps(LATER, indent=2)).arrivals == BOTH


def test_a_list_that_is_cut_off(tmp_path: Path) -> None:
    with pytest.raises(ArrivalsError, match=r"line \d: no valid JSON"):
        read(tmp_path, '[{"arrival": 1')


def test_gzip_whatever_the_name(tmp_path: Path) -> None:
    packed = gzip.compress(f"{json.dumps(ROW)}\n{json.dumps(LATER)}\n".encode())
    (tmp_path / "plain.jsonl").write_bytes(packed)
    assert read_arrivals(tmp_path / "plain.jsonl").arrivals == BOTH
    (tmp_path / "cut.jsonl").write_bytes(packed[:-12])
    with pytest.raises(ArrivalsError, match="damaged or cut off"):
        read_arrivals(tmp_path / "cut.jsonl")


def test_batches_of_requests_at_milliseconds(tmp_path: Path) -> None:
    request = {"Prompt Length": 78, "Output Length": 9, "prompt": "a text that is not sent"}
    schedule = read(
        tmp_path, {"timestamp": 1000, "requests": [request]}, {"timestamp": 4500, "requests": [request, request]}
    )
    assert [each.at_seconds for each in schedule.arrivals] == [0.0, 3.5, 3.5]
    assert schedule.prompt_tokens == 3 * 78


def test_conversations_have_blocks_of_their_own_and_begin_at_a_rate(tmp_path: Path) -> None:
    turns = [
        {"t": 0.0, "in": 200, "out": 10, "hash_ids": [1, 2, 3]},
        {"t": 8.5, "in": 320, "out": 20, "hash_ids": [1, 2, 3, 4, 5]},
    ]
    whole = [{"id": name, "requests": turns} for name in ("a", "b")]
    schedule = read(tmp_path, *whole)
    assert [each.at_seconds for each in schedule.arrivals] == [0.0, 0.0, 8.5, 8.5]
    assert {each.block_tokens for each in schedule.arrivals} == {64}
    first, second = schedule.arrivals[:2]
    assert not set(first.blocks) & set(second.blocks)
    assert set(first.blocks) < set(schedule.arrivals[2].blocks)
    assert any("all begun at once" in said for said in schedule.said)

    spread = read(tmp_path, *whole, reading=Reading(rate=0.01))
    assert spread.seconds > 8.5
    assert read(tmp_path, *[turn | {"id": name} for name in ("a", "b") for turn in turns]) == schedule


def test_an_agent_within_a_conversation_counts_from_its_own_start(tmp_path: Path) -> None:
    agent = {
        "type": "subagent",
        "t": 30.0,
        "requests": [{"t": 0.0, "in": 64, "out": 2}, {"t": 1.0, "in": 64, "out": 2}],
    }
    schedule = read(tmp_path, {"id": "a", "requests": [{"t": 0.0, "in": 64, "out": 2}, agent]})
    assert [each.at_seconds for each in schedule.arrivals] == [0.0, 30.0, 31.0]


class TestSpans:
    def test_counts_are_taken_and_texts_are_measured(self, tmp_path: Path) -> None:
        attributes = {"gen_ai.operation.name": "chat"}
        counted = attributes | {"gen_ai.usage.input_tokens": 700, "gen_ai.usage.output_tokens": 70}
        texts = attributes | {
            "gen_ai.input.messages": json.dumps([{"role": "user", "content": "x" * 400}]),
            "gen_ai.output.text": "y" * 40,
        }
        schedule = read(
            tmp_path,
            {
                "trace_id": "t",
                "spans": [
                    {"name": "chat", "start_time": "2026-02-25T10:00:00.000000", "attributes": counted},
                    {"name": "chat", "start_time": "2026-02-25T10:00:03.250000", "attributes": texts},
                    {"name": "tool", "start_time": "2026-02-25T10:00:04", "attributes": {"gen_ai.tool.name": "z"}},
                    {"start_time": "2026-02-25T10:00:05", "attributes": counted, "status": {"code": 2}},
                ],
            },
        )
        assert schedule.arrivals == (Arrival(0.0, 700, 70), Arrival(3.25, 100, 10))
        assert "1 lengths estimated from texts, 4 characters a token" in schedule.said

    def test_as_a_collector_writes_them(self, tmp_path: Path) -> None:
        def span(nanoseconds: int) -> dict[str, Any]:
            told = {
                "gen_ai.operation.name": {"stringValue": "chat"},
                "gen_ai.usage.input_tokens": {"intValue": "40"},
                "gen_ai.usage.output_tokens": {"intValue": "4"},
            }
            attributes = [{"key": key, "value": value} for key, value in told.items()]
            return {"startTimeUnixNano": str(nanoseconds), "attributes": attributes}

        begin = 1_772_000_000_000_000_000
        spans = [span(begin), span(begin + 1_500_000_000)]
        schedule = read(tmp_path, {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
        assert [(each.at_seconds, each.prompt_tokens) for each in schedule.arrivals] == [
            (0.0, 40),
            (pytest.approx(1.5), 40),
        ]


class TestServeGen:
    TRACE = "0,0,0,,0,0\n600,0.5,1.0,Gamma,0.9,0.1\n1200,2.0,8.0,Weibull,0.35,0.2\n1800,0,0,,0,0\n"
    DATASET: ClassVar = {
        "0": {"input_tokens": "{}", "output_tokens": "{}"},
        "600": {"input_tokens": "{100: 0.5, 300: 0.5}", "output_tokens": "{7: 1.0}"},
    }

    def made(self, folder: Path, seed: int = 1) -> Schedule:
        (folder / "chunk-1-trace.csv").write_text(self.TRACE)
        (folder / "chunk-1-dataset.json").write_text(json.dumps(self.DATASET))
        return read_arrivals(folder / "chunk-1-trace.csv", Reading(seed=seed))

    def test_rates_and_lengths_are_those_of_the_windows(self, tmp_path: Path) -> None:
        schedule = self.made(tmp_path)
        assert len(schedule.arrivals) == 300 + 1200
        assert schedule.seconds < 1200
        assert {each.output_tokens for each in schedule.arrivals} == {7}
        assert {each.prompt_tokens for each in schedule.arrivals} == {100, 300}
        assert schedule.prompt_tokens / 1500 == pytest.approx(200, rel=0.1)
        assert "no request of it was recorded" in schedule.said[0]

    def test_a_folder_is_many_clients_each_a_tenant_with_its_own_rate_and_lengths(self, tmp_path: Path) -> None:
        alone = self.made(tmp_path)
        (tmp_path / "chunk-10-trace.csv").write_text("0,0.1,1.0,,0,0\n600,0,0,,0,0\n")
        lengths = {"0": {"input_tokens": "{9000: 1.0}", "output_tokens": "{3: 1.0}"}}
        (tmp_path / "chunk-10-dataset.json").write_text(json.dumps(lengths))
        schedule = read_arrivals(tmp_path)
        first, second = ([each for each in schedule.arrivals if each.tenant == f"client-{n}"] for n in (1, 10))
        assert (len(first), len(second)) == (len(alone.arrivals), 60)
        assert len(schedule.arrivals) == len(first) + len(second)
        assert {(each.prompt_tokens, each.output_tokens) for each in second} == {(9000, 3)}
        times = [each.at_seconds for each in schedule.arrivals]
        assert times == sorted(times)
        assert times[0] == 0.0
        assert second[-1].at_seconds < 600 < first[-1].at_seconds
        assert schedule.said[-1] == "2 clients, each the user of its requests"
        assert {each.tenant for each in alone.arrivals} == {""}

    def test_who_is_beside_a_client_changes_nothing_of_its_own(self, tmp_path: Path) -> None:
        self.made(tmp_path)
        before = [(each.prompt_tokens, each.output_tokens) for each in read_arrivals(tmp_path).arrivals]
        (tmp_path / "chunk-2-trace.csv").write_text("0,2.0,1.0,,0,0\n600,0,0,,0,0\n")
        (tmp_path / "chunk-2-dataset.json").write_text(json.dumps({"0": self.DATASET["600"]}))
        both = read_arrivals(tmp_path).arrivals
        mine = [(each.prompt_tokens, each.output_tokens) for each in both if each.tenant == "client-1"]
        assert mine == before
        assert len(both) == len(mine) + 1200

    def test_what_is_beyond_the_most_is_counted(self, tmp_path: Path) -> None:
        self.made(tmp_path)
        schedule = generate(tmp_path, 100)
        assert (len(schedule.arrivals), schedule.left_out) == (100, 1400)

    def test_an_empty_folder_is_said_to_be_one(self, tmp_path: Path) -> None:
        with pytest.raises(ArrivalsError, match="holds no client of ServeGen"):
            read_arrivals(tmp_path)

    def test_the_same_seed_makes_the_same(self, tmp_path: Path) -> None:
        assert self.made(tmp_path) == self.made(tmp_path) != self.made(tmp_path, seed=2)

    def test_without_lengths(self, tmp_path: Path) -> None:
        (tmp_path / "chunk-1-trace.csv").write_text(self.TRACE)
        with pytest.raises(ArrivalsError, match=r"chunk-1-dataset\.json: No such file"):
            read_arrivals(tmp_path / "chunk-1-trace.csv")


def test_without_times_a_rate_makes_them(tmp_path: Path) -> None:
    row = {"prompt_tokens": 5, "output_tokens": 2}
    with pytest.raises(ArrivalsError, match="or give a rate by --arrivals-rate"):
        read(tmp_path, row)
    schedule = read(tmp_path, *[row] * 400, reading=Reading(rate=4))
    assert schedule.seconds == pytest.approx(100, rel=0.2)
    assert schedule.said == ("no times in the file: 4 a second, gaps at random",)
    with pytest.raises(ArrivalsError, match="a rate is for files without times"):
        read(tmp_path, ROW, reading=Reading(rate=4))
    with pytest.raises(ArrivalsError, match="some have none"):
        read(tmp_path, ROW, row, reading=Reading(rate=4))


def test_failed_requests_are_no_answers_of_one_token(tmp_path: Path) -> None:
    header = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    schedule = read(tmp_path, f"{header}5,ChatGPT,472,18,490,log\n45,ChatGPT,1087,0,1087,log\n50,GPT-4,9,2,11,log")
    assert schedule.arrivals == (Arrival(0.0, 472, 18), Arrival(45.0, 9, 2))
    assert schedule.left_out == 1
    assert "1 left out (failed: without an answer)" in schedule.said
