"""What is known of one incident, for its story: streams that stood still, steps, prompts, what they cost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from prefillwatch.analysis.cost import Server, StepLaw, read_alone
from prefillwatch.analysis.delays import Delay, Incident, Stall, Tally
from prefillwatch.analysis.ledger import Ledger
from prefillwatch.analysis.requests import Request
from prefillwatch.analysis.steps import StepFacts
from prefillwatch.analysis.tokens import ReadLog
from prefillwatch.story import Account, Engine, Prompt, Reading, Step, Stop, Stream
from prefillwatch.units import MS, NS

_MOST_STREAMS: Final = 64
_MOST_PROMPTS: Final = 48
_MOST_STEPS: Final = 400
#: Streams whose reads are kept, and reads of each.
_MOST_LANES: Final = 24
_MOST_READS: Final = 2000
#: Before it and after it, as a part of it and within bounds.
_AROUND: Final = 0.2
_AROUND_NS: Final = (100 * MS, 2 * NS)


class Accountant:
    """Looks into the books of the moment."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def account(self, incident: Incident, document: dict[str, Any], until_ns: int) -> Account:
        """``document`` is what is shown of it; it lasts until ``until_ns``, or ended then."""
        begin_ns, ledger = incident.started_ns, self._ledger
        tally = incident.tally(until_ns)
        around_ns = min(max(round(_AROUND * (until_ns - begin_ns)), _AROUND_NS[0]), _AROUND_NS[1])
        start_ns, end_ns = begin_ns - around_ns, until_ns + around_ns
        steps = ledger.causes.evidence.facts.between(start_ns, end_ns)
        prompts = self._prompts(tally, steps)
        shown = sorted(steps, key=lambda step: (not step.prefill_tokens, -step.excess_ns))[:_MOST_STEPS]
        place = {request.rid: number for number, request in enumerate(prompts)}
        blame = {each["request_id"]: each["share"] for each in document["culprits"]}
        delays = [*incident.kept, *incident.live]
        streams = self._streams(delays, ledger.reads.between(start_ns, end_ns), begin_ns, end_ns, start_ns)
        return Account(
            incident=document,
            streams=tuple(streams),
            stream_count=max(len(tally.victims), len(streams)),
            prompts=tuple(_prompt(each, begin_ns, tally) for each in prompts),
            steps=tuple(_step(each, begin_ns, place) for each in sorted(shown, key=lambda step: step.end_ns)),
            step_count=len(steps),
            target=ledger.settings.slo.itl,
            **self._cost(incident.model, tally, prompts if blame else []),
        )

    def _prompts(self, tally: Tally, steps: list[StepFacts]) -> list[Request]:
        """Those to blame, the first of them first; then the others that were read meanwhile, the largest first."""
        requests = self._ledger.causes.evidence.requests
        blamed = sorted(tally.blame_ns, key=lambda request: -tally.blame_ns[request])
        read = {rid for step in steps for rid, _ in step.members if isinstance(rid, int)}
        others = {request for rid in read if (request := requests.find(rid)) is not None} - set(blamed)
        ordered = sorted(others, key=lambda request: (-request.uncached_tokens, request.rid))
        return [*blamed, *ordered][:_MOST_PROMPTS]

    def _streams(
        self, delays: Iterable[Delay], reads: ReadLog, begin_ns: int, end_ns: int, start_ns: int
    ) -> list[Stream]:
        """Those that lost most first."""
        of: dict[tuple[Request, int], list[Delay]] = {}
        for delay in delays:
            of.setdefault((delay.request, delay.slot if isinstance(delay, Stall) else -1), []).append(delay)
        ordered = sorted(of.items(), key=lambda each: -sum(delay.excess_ns for delay in each[1]))[:_MOST_STREAMS]
        streams = []
        for number, ((request, slot), own) in enumerate(ordered):
            times = reads.of(slot, max(start_ns, request.first_ns), end_ns) if number < _MOST_LANES else []
            until_ns = end_ns if request.rid in self._ledger.requests else request.last_ns  # a slot has other owners
            stops = [
                Stop(
                    _since(each.started_ns, begin_ns),
                    _since(each.ended_ns, begin_ns) if each.ended_ns else None,
                    each.excess_ns / NS,
                )
                for each in sorted(own, key=lambda delay: delay.started_ns)
            ]
            streams.append(
                Stream(
                    request_id=request.request_id,
                    choice=next((choice for choice, its in request.slots.items() if its == slot), 0),
                    lost=sum(each.excess_ns for each in own) / NS,
                    stops=tuple(stops),
                    reads=tuple(_since(at, begin_ns) for at in times[:_MOST_READS] if at <= until_ns),
                    first=_since(request.first_ns, begin_ns) if request.first_ns else None,
                )
            )
        return streams

    def _cost(self, model: int, tally: Tally, prompts: list[Request]) -> dict[str, Any]:
        """What was learned, and the first of the prompts read alone: as it was, and under the budget advised for it."""
        ledger, law = self._ledger, self._ledger.costs.line(model)
        learned = ledger.timeline.engine
        budget = learned.budget if learned.proven else 0
        engine = Engine(
            budget=budget or None,
            chunked=learned.chunked,
            base=law.base_ns / NS if law else None,
            token=law.token_ns / NS if law else None,
            fit=law.fit if law else None,
        )
        if not prompts:
            return {"engine": engine}
        server = Server(budget, learned.chunked, tally.decoding)
        tokens = prompts[0].uncached_tokens
        advice = ledger.costs.advised(model, ledger.settings.slo.itl, server, tokens)
        cost: dict[str, Any] = {"engine": engine, "advice": advice.words, "subject": 0}
        if law is not None:
            cost["now"] = _reading(law, tokens, budget if learned.chunked else 0, tally.decoding)
            if advice.tokens is not None:
                cost["then"] = _reading(law, tokens, advice.tokens, tally.decoding)
        return cost


def _reading(law: StepLaw, tokens: int, budget: int, decoding: int) -> Reading:
    alone = read_alone(law, tokens, budget - decoding if budget else tokens)
    return Reading(budget=budget, steps=alone.steps, longest=alone.longest_s, first=alone.first_token_s)


def _prompt(request: Request, begin_ns: int, tally: Tally) -> Prompt:
    total = sum(tally.blame_ns.values())
    return Prompt(
        request_id=request.request_id,
        tokens=request.prompt_tokens,
        uncached=request.uncached_tokens,
        exact=request.prompt_exact,
        sent=_since(request.sent_ns, begin_ns),
        first=_since(request.first_ns, begin_ns) if request.first_ns else None,
        gone=_since(request.over_ns, begin_ns) if request.over_ns else None,
        share=round(tally.blame_ns.get(request, 0.0) / total, 4) if total else 0.0,
    )


def _step(facts: StepFacts, begin_ns: int, place: dict[int, int]) -> Step:
    parts = [(place[rid], tokens) for rid, tokens in facts.members if isinstance(rid, int) and rid in place]
    return Step(
        start=_since(facts.start_ns, begin_ns),
        end=_since(facts.end_ns, begin_ns),
        streams=facts.decoders,
        tokens=facts.prefill_tokens,
        clear=facts.clear_ns / NS,
        parts=tuple(sorted(parts, key=lambda part: -part[1])),
    )


def _since(time_ns: int, begin_ns: int) -> float:
    """To a tenth of a millisecond."""
    return round((time_ns - begin_ns) / NS, 4)
