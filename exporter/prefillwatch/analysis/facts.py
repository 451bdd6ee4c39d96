"""Where the ledger writes what it found. The exporter implements it; so do tests and a replay."""

from __future__ import annotations

from typing import Protocol

from prefillwatch.analysis.arrays import FloatArray, IntArray
from prefillwatch.analysis.delays import Incident, Stall
from prefillwatch.analysis.requests import Request


class Sink(Protocol):
    """Final facts, each written once. Models are indexes into the ledger's model names, buckets into its prompt buckets
    (for concurrent prompts -1 is none); times in seconds."""

    def gaps(self, model: int, concurrent_bucket: int, seconds: FloatArray) -> None:
        """Gaps between token events, by the bucket of the largest prompt in service meanwhile."""

    def tokens(self, model: int, generated: int, coalesced: int) -> None:
        """Generated tokens, and token events that came in one read with another of their stream."""

    def lagged(self, model: int, gaps: int) -> None:
        """So many gaps are in part our own fault: the relay did not run when they ended."""

    def tokens_per_event(self, model: int, tokens: float, events: int) -> None:
        """So many token events carried so many tokens each (on average, where only the usage at the end is known)."""

    def long_gap(self, model: int, concurrent_bucket: int, seconds: float, request: Request, ended_ns: int) -> None:
        """Whose one of the gaps was that are long enough for a stall; not of all of them, where many are."""

    def first_token(self, model: int, bucket: int, seconds: float, request: Request) -> None:
        """TTFT of a request, by the size of its prompt."""

    def forecast(self, ratio: float) -> None:
        """A request got its first token: its time to first token over what was forecast when it came."""

    def split(self, model: int, bucket: int, queue_seconds: float, prefill_seconds: float) -> None:
        """TTFT of a request, split into queue and prefill."""

    def prompt(self, model: int, tokens: int, cached: int) -> None:
        """Size of a prompt, once per request."""

    def steps(self, model: int, prefill_tokens: IntArray, seconds: FloatArray) -> None:
        """Engine steps seen from the wire, and the prompt tokens in each."""

    def finished(self, model: int, endpoint: str, outcome: str, request: Request, ended_ns: int) -> None:
        """An exchange is over."""

    def tpot(self, model: int, seconds: float, request: Request) -> None:
        """Time per output token of a finished request."""

    def deadlines(self, model: int, due: int, missed: int) -> None:
        """Token deadlines that came due, and those missed."""

    def within_slo(self, model: int) -> None:
        """A finished request kept its TTFT and TPOT targets."""

    def stall(self, stall: Stall) -> None:
        """A gap that counts as a stall, with its final cause."""

    def blame(self, model: int, bucket: int, seconds: float) -> None:
        """Stall seconds that prompts of this size inflicted on streams of this model."""

    def incident(self, incident: Incident) -> None:
        """An incident is over; nothing will be added to it."""
