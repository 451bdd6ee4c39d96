"""What the plugin tells and what the wire shows, together in the observer. Times in milliseconds."""

from __future__ import annotations

import pytest
from tests.core import script
from tests.core.script import Relay, chunk, ns, usage

from prefillwatch.core.inputs import EngineStep
from prefillwatch.engine.step_report import FinishedRequest, StepReport
from prefillwatch.export import table


class Observed(script.Observed):
    """What is behind the tap, with a plugin in the engine."""

    def __init__(self) -> None:
        super().__init__(plugin=True)
        self.relay = Relay(self)

    def tell(
        self,
        end: float,
        took: float,
        tokens: int = 0,
        gap: float = 0,
        decoded: int = -1,
        finished: tuple[FinishedRequest, ...] = (),
    ) -> None:
        """A step, which the observer hears of now."""
        self.feed(
            EngineStep(
                1,
                StepReport(
                    0,
                    ns(end),
                    ns(end) + 1,
                    ns(took),
                    prefill_tokens=tokens,
                    prefill_requests=int(tokens > 0),
                    decode_requests=1,
                    decode_tokens=decoded,
                    gaps=[(gap / 1e3, 1)] if gap else [],
                    finished=list(finished),
                ),
            )
        )

    def value(self, name: str, *labels: str) -> float | None:
        family = next(family for family in self.snapshot() if family.spec.name == name)
        return family.buckets[labels][1] if family.buckets else family.values[labels]


def stream(observed: Observed, request_id: str, sent: float, *reads: float) -> int:
    relay = observed.relay
    number = relay.request(sent, request_id=request_id)
    relay.response(reads[0] - 1, number)
    for at_ms in reads:
        relay.data(at_ms, number, chunk())
    relay.data(reads[-1], number, usage(600, len(reads)))
    relay.end(reads[-1] + 1, number)
    relay.flush()
    return number


def test_time_to_first_token_is_split_by_the_engines_steps() -> None:
    observed = Observed()
    observed.advance(900)
    stream(observed, "a", 1000, 1551, 1561)
    observed.advance(1200)
    observed.tell(1300, 250, 0)  # whatever the engine did, it was not our prompt
    observed.advance(1500)
    observed.tell(1550, 250, 600)
    observed.advance(3000)
    assert observed.value("queue_seconds", "m", "512-2k") == pytest.approx(0.300)
    assert observed.value("prefill_seconds", "m", "512-2k") == pytest.approx(0.251)


def test_the_engines_prefill_time_is_taken_for_an_answer_that_is_short_enough() -> None:
    observed = Observed()
    observed.advance(900)
    stream(observed, "a", 1000, 1551)
    observed.advance(1560)
    observed.tell(1550, 0, finished=(FinishedRequest("chatcmpl-a", 0.0, 0.2),))
    observed.advance(3000)
    assert observed.value("prefill_seconds", "m", "512-2k") == pytest.approx(0.2)
    assert observed.value("queue_seconds", "m", "512-2k") == pytest.approx(0.351)


def test_gaps_are_taken_apart() -> None:
    observed = Observed()
    observed.advance(900)
    stream(observed, "a", 1000, 1100, 1600)
    observed.tell(1095, 95, 600)
    observed.tell(1590, 490, gap=490)
    observed.advance(2000)
    assert observed.value(table.INTER_TOKEN_LATENCY_PART.name, "10s", "engine") == pytest.approx(0.49, rel=0.01)
    assert observed.value(table.INTER_TOKEN_LATENCY_PART.name, "10s", "network") == pytest.approx(0.01, abs=0.006)
    assert observed.value(table.ENGINE_LINK_STEPS.name) == 2


def test_what_steps_carried_and_how_long_requests_waited_for_the_scheduler_adds_up() -> None:
    observed = Observed()
    observed.advance(900)
    stream(observed, "a", 1000, 1100, 1600)
    observed.tell(1095, 95, 600, decoded=3)
    ended = (FinishedRequest("chatcmpl-a", 0.25, 0.1), FinishedRequest("chatcmpl-b", 0.5, 0.1))
    observed.tell(1590, 490, decoded=4, finished=ended)
    observed.advance(2000)
    assert observed.value(table.ENGINE_LINK_TOKENS.name, "prefill") == 600
    assert observed.value(table.ENGINE_LINK_TOKENS.name, "decode") == 7
    assert observed.value(table.ENGINE_LINK_FINISHED.name) == 2
    assert observed.value(table.ENGINE_LINK_QUEUE_SECONDS.name) == 0.75


def test_a_step_that_comes_after_a_later_one_was_used_is_counted() -> None:
    observed = Observed()
    observed.advance(900)
    stream(observed, "a", 1000, 1100, 1600)
    observed.tell(1590, 490)
    observed.advance(2000)
    assert observed.value(table.ENGINE_LINK_UNUSED.name) == 0
    observed.tell(1095, 95, 600)
    assert (observed.value(table.ENGINE_LINK_STEPS.name), observed.value(table.ENGINE_LINK_UNUSED.name)) == (2, 1)
