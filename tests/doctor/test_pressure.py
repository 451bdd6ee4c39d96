"""More replicas, or a smaller step: what the doctor makes of the two pressures."""

from __future__ import annotations

from tests.doctor.test_trust import TRUST

from prefillwatch.doctor.figures import Advice, Figures
from prefillwatch.doctor.finding import Finding, Seen
from prefillwatch.doctor.look import Look
from prefillwatch.doctor.page import Page
from prefillwatch.doctor.pressure import pressures
from prefillwatch.doctor.readers import read

ADVICE = Advice("m", "max_num_batched_tokens=592 keeps gaps under 200 ms", 592)


def found(capacity: float, interference: float, *advice: Advice, queue: int | None = None) -> list[Finding]:
    figures = Figures(
        server="prefillwatch",
        trust=TRUST,
        advice=advice,
        capacity_pressure=capacity,
        interference_pressure=interference,
        advised_queue=queue,
    )
    return list(pressures(figures))


def test_too_much_load_wants_replicas() -> None:
    capacity, interference = found(1.2, 0.4, ADVICE, queue=8800)
    assert (capacity.seen, interference.seen) == (Seen.YES, Seen.NO)
    assert capacity.remedy == (
        "more replicas: at least 12 for every 10 that there are; until then --max-num-queued-tokens 8800 refuses what "
        "would come too late"
    )
    assert interference.remedy == ""


def test_long_steps_want_smaller_ones() -> None:
    capacity, interference = found(0.4, 4.3, ADVICE)
    assert (capacity.seen, interference.seen) == (Seen.NO, Seen.YES)
    assert interference.remedy == "--max-num-batched-tokens 592 keeps gaps under 200 ms"
    assert "4.30 times what is promised" in interference.words
    assert "More replicas would make that rarer and no better." in interference.words


def test_without_advice_it_says_which_way() -> None:
    assert found(0.4, 4.3)[1].remedy.startswith("a smaller step (--max-num-batched-tokens lower)")


def test_a_promise_just_kept_is_kept() -> None:
    assert [each.seen for each in found(1.0, 1.0)] == [Seen.NO, Seen.NO]


def test_nothing_is_said_where_nothing_is_told() -> None:
    assert list(pressures(Figures(server="vllm"))) == []


def test_the_model_that_is_furthest_over_counts() -> None:
    text = "".join(
        f'prefillwatch_{name}{{model="{model}"}} {value}\n'
        for name, model, value in (
            ("capacity_pressure_ratio", "a", 0.3),
            ("capacity_pressure_ratio", "b", 1.4),
            ("interference_pressure_ratio", "a", 0.2),
            ("advised_max_queued_tokens", "a", 8800),
        )
    )
    figures = read(Look(Page(('prefillwatch_build_info{version="1"} 1\n' + text).encode())))
    assert (figures.capacity_pressure, figures.interference_pressure, figures.advised_queue) == (1.4, 0.2, 8800)
