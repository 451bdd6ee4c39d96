"""Finding samples in pages that are huge, odd or broken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from prefillwatch.engine import exposition
from prefillwatch.engine.exposition import Sample, SampleFinder, looks_like_metrics

FINDER = SampleFinder({"vllm": frozenset({"usage", "usage_total", "running"}), "tgi": frozenset({"queue_size"})})


def found(page: str | bytes) -> list[Sample]:
    return list(FINDER.find(page.encode() if isinstance(page, str) else page))


def values(page: str | bytes) -> list[float]:
    return [sample.value for sample in found(page)]


def test_a_sample_has_namespace_name_labels_and_value() -> None:
    assert found('vllm:usage{engine="0",model_name="m"} 0.25\n') == [
        Sample("vllm", "usage", {"engine": "0", "model_name": "m"}, 0.25)
    ]


@pytest.mark.parametrize(
    "line",
    [
        "vllm:usage 0.25",
        "vllm_usage 0.25",
        "ray_vllm_usage 0.25",
        "kserve_vllm:usage 0.25",
        "vllm:usage{} 0.25",
        "vllm:usage\t0.25",
        "  vllm:usage 0.25",
        "vllm:usage 0.25 1743000000000",
        "vllm:usage 2.5e-1",
        "vllm:usage +.25",
        'vllm:usage 0.25 # {trace_id="a"} 0.3',
        "vllm:usage 0.25\r",
        'vllm:usage{a="}"} 0.25',
        'vllm:usage{a="# vllm:usage 9"} 0.25',
        'vllm:usage{ a = "1" , b="2" ,} 0.25',
        'vllm:usage{a="1"}0.25',
    ],
)
def test_what_counts_as_a_line(line: str) -> None:
    assert values(f"# TYPE vllm:usage gauge\n{line}\nother 1\n") == [0.25]


@pytest.mark.parametrize(
    "line",
    [
        "# vllm:usage 0.25",
        "xvllm:usage 0.25",
        "vllm:usage_bucket 0.25",
        "vllm:usages 0.25",
        "vllm:usage",
        "vllm:usage ",
        "vllm:usage 0.",
        "vllm:usage 1e",
        "vllm:usage many",
        "vllm:usage 0.25 then more",
        "vllm:usage 1 2 3",
        'vllm:usage{a="1} 0.25',
        'vllm:usage{a="1" b="2"} 0.25',
        "vllm:usage{a=1} 0.25",
        'vllm:usage{="1"} 0.25',
        'vllm:usage{a="1"',
        "vllm:usage{a",
        "vllm:usage{",
        "tgi_queue_siz",
    ],
)
def test_what_is_as_good_as_absent(line: str) -> None:
    assert values(f"{line}\nvllm:running 7\n") == [7.0]


def test_special_values_are_passed_on() -> None:
    assert str(values("vllm:usage NaN\nvllm:usage +Inf\nvllm:usage -inf\n")) == "[nan, inf, -inf]"


def test_longer_names_are_not_taken_for_shorter_ones() -> None:
    assert [sample.name for sample in found("vllm:usage_total 1\nvllm:usage 2\n")] == ["usage_total", "usage"]


def test_first_and_last_line_count_without_newlines_around() -> None:
    assert values("vllm:usage 1\nvllm:usage 2") == [1.0, 2.0]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_any_label_value_is_read_as_the_reference_writes_it(value: str) -> None:
    registry = CollectorRegistry()
    Gauge("vllm_usage", "Help.", ["model_name", "engine"], registry=registry).labels(value, "1").set(0.5)
    assert found(generate_latest(registry)) == [Sample("vllm", "usage", {"model_name": value, "engine": "1"}, 0.5)]


@given(st.binary(max_size=300))
def test_garbage_never_raises(garbage: bytes) -> None:
    assert 5.0 in values(garbage + b"\nvllm:usage 5\n" + garbage)
    looks_like_metrics(garbage)


@given(st.integers(0, 200), st.integers(1, 60))
def test_slices_lose_and_double_nothing(padding: int, size: int) -> None:
    page = "x" * padding + "".join(f'\nvllm:usage{{engine="{number}"}} {number}' for number in range(20))
    whole = exposition._SLICE
    try:
        exposition._SLICE = size  # type: ignore[misc]
        assert values(page) == list(range(20))
    finally:
        exposition._SLICE = whole  # type: ignore[misc]


def test_a_huge_page_gives_up_its_few_samples() -> None:
    filler = "".join(f'other_metric_bucket{{le="{number}",path="/v1/chat"}} {number}\n' for number in range(1000))
    page = filler * 200 + "vllm:usage 1\n" + filler * 200
    assert len(page) > 15_000_000
    assert values(page) == [1.0]


def test_a_page_of_nothing_but_samples_is_cut_off() -> None:
    assert len(values("vllm:usage 1\n" * 10_000)) == 4096


def test_a_line_without_end_is_not_read() -> None:
    assert values('vllm:usage{a="' + "x" * 100_000 + '"} 1\nvllm:running 2\n') == [2.0]


@pytest.mark.parametrize(
    ("page", "looks"),
    [
        (b"# HELP a b\n", True),
        (b"# TYPE a gauge\n", True),
        (b"python_info 1\n", True),
        (b'up{job="x"} NaN', True),
        (b"<html><body>Sign in</body></html>", False),
        (b'{"error": {"message": "nope", "code": 404}}', False),
        (b"Internal Server Error", False),
        (b"", False),
    ],
)
def test_web_pages_and_json_are_no_metrics(page: bytes, looks: bool) -> None:
    assert looks_like_metrics(page) is looks
