"""Rows of a sweep as they could have been measured."""

from __future__ import annotations

from prefillwatch.lab.sweep.figures import MixFigures, Outcome, ProbeFigures, Spread, Stalls


def spread(p99: float, *, p50: float | None = None, n: int = 1000, high: float | None = None) -> Spread:
    return Spread(
        samples=n,
        p50_seconds=p99 if p50 is None else p50,
        p99_seconds=p99,
        max_seconds=p99,
        p99_low_seconds=p99 * 0.95,
        p99_high_seconds=high,
    )


def stalls(count: int = 10) -> Stalls:
    return Stalls(stalls=count, stall_seconds=0.5 * count, decode_seconds=100.0, streams=6, frozen_streams=6)


def probe(
    window: float, first_token: float = 1.0, *, overall: float | None = None, inject: int = 12, stalled: int = 10
) -> ProbeFigures:
    return ProbeFigures(
        inject=inject,
        prompt_tokens=6000,
        runs=1,
        overall=spread(window if overall is None else overall, p50=0.021, n=2000),
        window=spread(window, n=84),
        first_token=spread(first_token, n=inject),
        stalls=stalls(stalled),
        prompt_tokens_per_second=6000.0,
    )


def mix(tokens: float, gaps: float = 0.05, first_token: float = 0.5) -> MixFigures:
    return MixFigures(
        seconds=60.0,
        requests=42,
        answered=42,
        failed=0,
        turned_away=0,
        gaps=spread(gaps, n=9000, high=gaps * 1.1),
        first_token=spread(first_token, n=42),
        first_token_by_size={"0-512": spread(0.1, n=30), "2k-8k": spread(first_token, n=6)},
        stalls=stalls(),
        generated_tokens_per_second=tokens,
        prompt_tokens_per_second=900.0,
        requests_per_second=1.1,
    )


def row(label: str, window: float, first_token: float, tokens: float | None = None) -> Outcome:
    return Outcome(
        flags=(label,),
        label=label,
        probes=(probe(window, first_token),),
        mix=mix(tokens) if tokens is not None else None,
    )


def failed(label: str, why: str = "ended with code 1: no memory") -> Outcome:
    return Outcome(flags=(label,), label=label, failure=why)
