"""The picture, as SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from tests.story.facts import account, incident, stream

from prefillwatch.story import Bar, Lane, Lanes, Span, Stop, draw, picture
from prefillwatch.story.drawing import round_moments

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [each.text or "" for each in ET.fromstring(svg).iter(f"{SVG}text")]


def drawn(**different: object) -> str:
    given = {"title": "t", "begin": 0.0, "end": 1.0, "lanes": [Lane("a", [0.1, 0.2])]} | different
    return draw(Lanes(**given))  # type: ignore[arg-type]


def test_each_read_is_a_tick_and_each_gap_is_dashed() -> None:
    svg = ET.fromstring(drawn(lanes=[Lane("a", [0.1, 0.5], [(0.1, 0.5)])]))
    (path,) = [each.get("d") or "" for each in svg.iter(f"{SVG}path")]
    assert path.count("v8") == 2
    assert len([each for each in svg.iter(f"{SVG}line") if each.get("stroke-dasharray")]) == 1


def test_reads_too_close_to_be_told_apart_are_a_line() -> None:
    path = drawn(lanes=[Lane("a", [number / 10_000 for number in range(5000)])])
    assert path.count("v8") == 2
    assert path.count("H") == 1


def test_what_lies_outside_is_cut_off() -> None:
    svg = ET.fromstring(drawn(steps=[Span(-5.0, 9.0)], prompts=[Bar("p", -5.0, None)], lanes=[Lane("a", [-3.0, 4.0])]))
    width = float((svg.get("viewBox") or "").split()[2])
    assert all(0 <= float(each.get("x") or 0) <= width for each in svg.iter(f"{SVG}rect"))
    assert not list(svg.iter(f"{SVG}path"))
    assert not list(svg.iter(f"{SVG}circle")), "a prompt without a first token has no end"


def test_names_are_text_and_nothing_else() -> None:
    svg = drawn(lanes=[Lane("<b>&", [0.1])], title='a "quoted" <title>')
    assert "<b>&" in texts(svg)
    assert ET.fromstring(svg).get("aria-label") == 'a "quoted" <title>'


def test_a_long_name_keeps_both_its_ends() -> None:
    (name,) = [each for each in texts(drawn(lanes=[Lane("chatcmpl-0123456789abcdef0123456789", [0.1])])) if "…" in each]
    assert name == "chatcmpl-012…3456789"


def test_words_stand_below_steps_that_have_room_for_them() -> None:
    told = texts(drawn(steps=[Span(0.0, 0.5, ["wide"]), Span(0.5, 0.51, ["narrow"])]))
    assert "wide" in told
    assert "narrow" not in told


@pytest.mark.parametrize(("begin", "end"), [(-0.1, 1.0), (0.0, 0.07), (-2.0, 21.0), (0.0, 3600.0)])
def test_the_axis_has_a_few_round_moments(begin: float, end: float) -> None:
    moments = round_moments(begin, end)
    assert 4 <= len(moments) <= 11
    assert begin <= moments[0] < moments[-1] <= end


# --- Of an account ---


def test_an_account_becomes_lanes_steps_and_prompts() -> None:
    told = texts(picture(account()))
    assert told[0] == "Freeze by prefill, 600 ms"
    assert {"one", "two", "document", "2,000 tokens", "300 ms"} <= set(told)


def test_more_streams_than_lanes_are_counted() -> None:
    many = account(streams=tuple(stream(f"s{number}") for number in range(30)), stream_count=30)
    told = texts(picture(many))
    assert "s15" in told
    assert "s16" not in told
    assert "not shown: 14 more streams" in told


def test_of_a_long_incident_the_beginning_is_shown() -> None:
    long = account(
        incident=incident(duration_seconds=600.0, ongoing=True),
        streams=(stream("one", Stop(0.0, None, 600.0)),),
        stream_count=1,
    )
    assert "shown: the first 20 s of 10 min" in texts(picture(long))


def test_two_choices_of_a_request_are_told_apart() -> None:
    both = account(streams=(stream("same"), stream("same")))
    assert texts(picture(both)).count("same #0") == 2
