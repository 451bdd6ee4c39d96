"""What is asked of our quantiles: with everybody on a core they are the engine's; without, only within its bounds."""

from __future__ import annotations

from dataclasses import replace

from tests.real.truth.figures import Latency, Range, quantile

CALM = Latency(
    at=10.0,
    window="1m",
    name="p99",
    ours=0.0205,
    engine=Range(0.0195, 0.02, 0.0204),
    client=Range(0.0198, 0.0203, 0.0208),
    waited=0.001,
    possible=(0.0194, 0.021),
)


def test_a_quantile_as_the_engines_is_the_engines() -> None:
    assert CALM.is_the_engines
    assert CALM.fits


def test_one_that_nobody_saw_does_not_fit() -> None:
    far = replace(CALM, ours=0.03)
    assert not far.is_the_engines
    assert not far.fits


def test_stretched_on_the_way_it_fits_without_being_the_engines() -> None:
    stretched = replace(CALM, ours=0.03, waited=0.05, possible=(0.015, 0.035))
    assert not stretched.is_the_engines
    assert stretched.fits


def test_a_machine_without_cores_proves_nothing() -> None:
    assert replace(CALM, ours=0.3, waited=0.5).fits


def test_a_quantile_is_always_one_of_the_values() -> None:
    ordered = [1.0, 2.0, 3.0, 4.0]
    assert [quantile(ordered, rank) for rank in (-0.1, 0.0, 0.25, 0.26, 0.5, 1.0, 1.2)] == [1, 1, 1, 2, 2, 4, 4]
