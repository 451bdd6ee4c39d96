"""Arrivals that others published, read as they are: totals by plain arithmetic, units and blocks by themselves."""

from __future__ import annotations

import ast
import csv
import json
from collections import Counter
from pathlib import Path

import pytest
from tests.foreign.files.located import file

from prefillwatch.lab.arrivals import check_rate, read_arrivals


@pytest.mark.parametrize(
    ("name", "requests", "seconds", "prompt_tokens", "output_tokens", "unit"),
    [
        ("mooncake_conversation.jsonl.gz", 12_031, 3536.999, 144_793_823, 4_122_048, "ms"),
        ("mooncake_synthetic.jsonl.gz", 3_993, 1022.025, 61_194_628, 595_432, "ms"),
        ("azure_code.csv.gz", 8_819, 3435.948, 18_059_974, 245_896, "s"),
        ("azure_conv.csv.gz", 19_366, 3501.722, 22_361_870, 4_088_665, "s"),
        ("vidur_splitwise_code.csv.gz", 8_819, 3435.948, 18_059_974, 245_896, "s"),
        ("vidur_splitwise_conv.csv.gz", 19_366, 3501.722, 22_361_870, 4_088_665, "s"),
    ],
)
def test_totals(name: str, requests: int, seconds: float, prompt_tokens: int, output_tokens: int, unit: str) -> None:
    schedule = read_arrivals(file(f"arrivals/{name}"))
    assert len(schedule.arrivals) == requests
    assert schedule.seconds == pytest.approx(seconds, abs=0.001)
    assert (schedule.prompt_tokens, schedule.output_tokens) == (prompt_tokens, output_tokens)
    assert any(said.startswith(f"times in {unit} (") for said in schedule.said)
    check_rate(schedule, "--anyway")


def test_blocks_of_mooncake() -> None:
    schedule = read_arrivals(file("arrivals/mooncake_conversation.jsonl.gz"))
    blocks = [block for arrival in schedule.arrivals for block in arrival.blocks]
    assert (len(blocks), len(set(blocks))) == (288_500, 182_790)
    assert {arrival.block_tokens for arrival in schedule.arrivals} == {512}


def test_the_same_names_with_seconds_and_small_blocks() -> None:
    schedule = read_arrivals(file("made/bailian.jsonl"))
    assert schedule.seconds == 60.5
    assert {arrival.block_tokens for arrival in schedule.arrivals} == {16}


@pytest.mark.parametrize(("name", "calls", "seconds"), [("otel_simple_chain", 3, 6.0), ("otel_customer", 9, 30.0)])
def test_spans_of_agents(name: str, calls: int, seconds: float) -> None:
    path = file(f"arrivals/{name}.json")
    schedule = read_arrivals(path)
    assert (len(schedule.arrivals), schedule.seconds) == (calls, seconds)
    assert f"{calls} lengths estimated from texts, 4 characters a token" in schedule.said
    spans = json.loads(path.read_text())["spans"]
    output = sum(-(-len(span["attributes"]["gen_ai.output.text"]) // 4) for span in spans)
    assert schedule.output_tokens == output


def test_servegen_windows_have_their_rates_and_lengths() -> None:
    trace = file("arrivals/servegen_chunk-1-trace.csv")
    schedule = read_arrivals(trace)
    rates = {float(row[0]): float(row[1]) for row in csv.reader(trace.read_text().splitlines())}
    assert len(schedule.arrivals) == pytest.approx(600 * sum(rates.values()), abs=len(rates))
    # The first arrival lies within the first window with a rate; from there each is in its own.
    first = next(start for start, rate in rates.items() if rate)
    late = first + 600 - schedule.arrivals[0].at_seconds
    assert late > 0
    busiest = max(rates, key=lambda start: rates[start])
    told = next(said for said in schedule.said if "ServeGen" in said)
    begun = float(told.split("from ")[1].split(" s")[0].replace(",", ""))
    inside = [each for each in schedule.arrivals if busiest + 1 <= each.at_seconds + begun < busiest + 599]
    assert len(inside) == pytest.approx(600 * rates[busiest], rel=0.1)
    dataset = json.loads(file("arrivals/servegen_chunk-1-dataset.json").read_text())
    window = max(float(start) for start in dataset if float(start) <= busiest)
    shares = ast.literal_eval(dataset[f"{window:.0f}"]["input_tokens"])
    mean = sum(length * share for length, share in shares.items())
    assert sum(each.prompt_tokens for each in inside) / len(inside) == pytest.approx(mean, rel=0.2)


def test_servegen_clients_in_a_folder_are_tenants(tmp_path: Path) -> None:
    """The two busiest hours of the published client, twice, once under another number."""
    rows = file("arrivals/servegen_chunk-1-trace.csv").read_text().splitlines()
    since = max(range(len(rows)), key=lambda number: float(rows[number].split(",")[1])) - 6
    for number in (1, 7):
        (tmp_path / f"chunk-{number}-trace.csv").write_text("\n".join(rows[since : since + 12]))
        (tmp_path / f"chunk-{number}-dataset.json").symlink_to(file("arrivals/servegen_chunk-1-dataset.json"))
    schedule = read_arrivals(tmp_path)
    assert schedule.said[-1] == "2 clients, each the user of its requests"
    own = Counter(each.tenant for each in schedule.arrivals)
    rate = sum(float(row.split(",")[1]) for row in rows[since : since + 12])
    assert own == {name: pytest.approx(600 * rate, abs=12) for name in ("client-1", "client-7")}
    # Each at moments of its own.
    assert len({each.at_seconds for each in schedule.arrivals}) > 0.99 * len(schedule.arrivals)
