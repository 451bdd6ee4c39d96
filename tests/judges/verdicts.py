"""Holds the verdicts on stalls against what the engine did: seconds of stalls by true and by named cause.

The engine is a real vLLM that was recorded with its step log, or the simulated one.

.venv/bin/python tests/judges/verdicts.py [NAME ...]
"""

from __future__ import annotations

import bisect
import gzip
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.core.script import DONE, Observed, Relay, chunk, ns, usage
from tests.judges.timeline import Stall as TrueStall
from tests.judges.timeline import agreement, stalls_of
from tests.judges.truth import Seen, from_recording, wire_events
from tests.judges.workloads import SIMULATED
from tests.scenarios.playbook import text_of

from prefillwatch.analysis.delays import Stall
from prefillwatch.analysis.tuning import DEFAULT, Tuning
from prefillwatch.analysis.verdicts.evidence import EnginePage
from prefillwatch.units import MS
from prefillwatch.wire.tap import Finish

RECORDINGS = Path(__file__).resolve().parents[1] / "data" / "recordings"
PACKET_MS = 20.0
PATHS = {"chat_completions": "/v1/chat/completions", "completions": "/v1/completions"}


@dataclass
class Verdicts:
    """Seconds of excess by (true cause, named cause); names: seconds blamed on prompts that were not in those steps."""

    seconds: Counter[tuple[str, str]] = field(default_factory=Counter)
    stalls: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong_names: float = 0.0
    unknown: int = 0
    incidents: list[dict[str, Any]] = field(default_factory=list)

    def named(self, cause: str) -> float:
        return sum(seconds for (_, named), seconds in self.seconds.items() if named == cause)

    def true(self, cause: str) -> float:
        return sum(seconds for (truth, _), seconds in self.seconds.items() if truth == cause)

    @property
    def recall(self) -> float:
        return self.seconds["prefill", "prefill"] / (self.true("prefill") or 1.0) if self.true("prefill") else 1.0

    @property
    def precision(self) -> float:
        return self.seconds["prefill", "prefill"] / self.named("prefill") if self.named("prefill") else 1.0

    @property
    def names(self) -> float:
        """Share of the seconds rightly blamed on prefill that fell on the right prompts."""
        hit = self.seconds["prefill", "prefill"]
        return 1 - self.wrong_names / hit if hit else 1.0


def listening(tuning: Tuning = DEFAULT) -> tuple[Observed, list[Stall]]:
    """An observer, and the list of its final stalls."""
    observed = Observed(tuning=tuning)
    stalls: list[Stall] = []
    tell = observed.publisher.stall
    observed.publisher.stall = lambda stall: (stalls.append(stall), tell(stall))[1]  # type: ignore[method-assign]
    return observed, stalls


def replay(path: Path) -> tuple[list[Stall], Observed]:
    """A recording through the tap."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    observed, stalls = listening()
    relay = Relay(observed)
    teller = Teller(observed, relay)
    for line in lines[1:]:
        at = line["at"] / MS if "at" in line else None
        if at is None or line["kind"] not in teller.kinds:
            continue
        if at > observed.now_ms + PACKET_MS:
            relay.flush()
            observed.advance(at)
        teller.kinds[line["kind"]](at, line)
    relay.flush()
    observed.advance(observed.now_ms + 35_000)
    return stalls, observed


def replay_simulated(seen: Seen) -> tuple[list[Stall], Observed]:
    """What the wire showed of a simulated engine, through the tap. There are no pages of metrics."""
    observed, stalls = listening()
    relay = Relay(observed)
    streams: dict[str, int] = {}
    for at_ns, what, rid in wire_events(seen):
        at, (_, tokens, uncached) = at_ns / MS, seen.prompts[rid]
        if at > observed.now_ms + PACKET_MS:
            relay.flush()
            observed.advance(at)
        if what == "sent":
            text = text_of(rid, 4 * tokens)
            streams[rid] = relay.request(at, {"messages": [{"role": "user", "content": text}]}, request_id=rid)
        elif what == "gone":
            relay.end(at, streams[rid], Finish.CLIENT_CLOSED)
        elif what == "closed":
            relay.data(at, streams[rid], usage(tokens, len(seen.reads[rid]), tokens - uncached) + DONE)
            relay.end(at, streams[rid])
        else:
            if what == "first":
                relay.response(at, streams[rid])
            relay.data(at, streams[rid], chunk())
    relay.flush()
    observed.advance(observed.now_ms + 35_000)
    return stalls, observed


class Teller:
    """Lines of a recording become tap records."""

    def __init__(self, observed: Observed, relay: Relay) -> None:
        self._observed, self._relay = observed, relay
        self.streams: dict[str, int] = {}
        self._answered: set[str] = set()
        self.kinds = {"request": self.request, "read": self.read, "end": self.end, "gauges": self.gauges}

    def request(self, at: float, line: dict[str, Any]) -> None:
        shared = line["shared_prefix"] or {"name": "", "chars": 0}
        own = line["prompt_chars"] - shared["chars"]
        text = text_of(shared["name"], shared["chars"]) + text_of(line["id"], own)
        chat = line["endpoint"].rpartition("/")[2] == "completions" and "chat" in line["endpoint"]
        body: dict[str, Any] = {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}
        path = PATHS["chat_completions" if chat else "completions"]
        body |= {"stream": line["stream"], "max_tokens": line["max_tokens"]}
        self.streams[line["id"]] = self._relay.request(at, body, path, request_id=line["id"])
        self._completions = not chat

    def read(self, at: float, line: dict[str, Any]) -> None:
        stream = self.streams[line["id"]]
        if line["id"] not in self._answered:
            self._answered.add(line["id"])
            self._relay.response(at, stream)
        if not line["tokens"]:
            return
        texts = spread(line["chars"], line["tokens"])
        make = completion if self._completions else chunk
        self._relay.data(at, stream, b"".join(map(make, texts)))

    def end(self, at: float, line: dict[str, Any]) -> None:
        stream = self.streams[line["id"]]
        if line["outcome"] == "ok" and line["prompt_tokens"]:
            told = usage(line["prompt_tokens"], line["completion_tokens"] or 0, line["cached_tokens"] or 0)
            self._relay.data(at, stream, told + DONE)
        self._relay.end(at, stream, Finish.COMPLETE if line["outcome"] == "ok" else Finish.CLIENT_CLOSED)

    def gauges(self, at: float, line: dict[str, Any]) -> None:
        page = EnginePage(
            ns(at),
            running=round(line["running"]),
            waiting=round(line["waiting"]),
            kv_usage=line["kv_usage"],
            preemptions=line["preemptions"],
        )
        self._observed.ledger.page(page)


def completion(text: str) -> bytes:
    event = {"id": "cmpl-1", "model": "m", "choices": [{"index": 0, "text": text, "finish_reason": None}]}
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"


def spread(chars: int, events: int) -> Iterator[str]:
    """Texts of so many events that have so many characters together."""
    for number in range(events):
        yield "x" * max(1, (chars * (number + 1)) // events - (chars * number) // events)


def truth(seen: Seen, faults: list[tuple[int, int, str]], stall: TrueStall) -> str:
    for since, until, what in faults:
        if min(until, stall.end_ns) - max(since, stall.start_ns) > (stall.end_ns - stall.start_ns) / 2:
            return {"engine_stopped": "engine_pause", "api_server_stopped": "frontend", "late": "recorder"}[what]
    if stall.is_prefill:
        return "prefill"
    steps = [step for step in seen.steps if stall.start_ns < step.end_ns and step.start_ns < stall.end_ns]
    longest = max((step.end_ns - step.start_ns for step in steps), default=0)
    if any(step.recomputed for step in steps):
        return "preemption"
    # Where the engine went on all the time, it was the recorder that did not read.
    return "other" if longest > (stall.end_ns - stall.start_ns) / 2 else "late"


def faults_of(path: Path) -> list[tuple[int, int, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return [
        (line["at"], line["until"], line.get("what", "late")) for line in lines if line["kind"] in ("fault", "late")
    ]


def score(path: Path) -> Verdicts:
    stalls, observed = replay(path)
    return hold_against(from_recording(path), faults_of(path), stalls, observed)


def score_simulated(seen: Seen) -> Verdicts:
    return hold_against(seen, [], *replay_simulated(seen))


def hold_against(seen: Seen, faults: list[tuple[int, int, str]], stalls: list[Stall], observed: Observed) -> Verdicts:
    durations = sorted(step.end_ns - step.start_ns for step in seen.steps if not step.prefill)
    clear_ns = durations[len(durations) // 2] if durations else 10 * MS
    true_stalls: dict[str, list[TrueStall]] = defaultdict(list)
    for rid in seen.reads:
        alone = Seen(seen.prompts, {rid: seen.reads[rid]}, seen.closed, seen.steps)
        true_stalls[rid] = stalls_of(alone, clear_ns)
    verdicts = Verdicts(incidents=observed.history.newest([], 1000))
    found: set[int] = set()
    for stall in stalls:
        true_stall = counterpart(stall, true_stalls[stall.request.request_id])
        if true_stall is None:
            verdicts.unknown += 1
        else:
            found.add(id(true_stall))
            add(verdicts, seen, faults, stall, true_stall)
    for missed in (each for own in true_stalls.values() for each in own if id(each) not in found):
        pair = truth(seen, faults, missed), "no stall"
        verdicts.seconds[pair] += missed.excess_ns / 1e9  # type: ignore[assignment]  # floats count as well
        verdicts.stalls[pair] += 1
    return verdicts


def counterpart(stall: Stall, true_stalls: list[TrueStall]) -> TrueStall | None:
    """The one in the engine's log that ended with the same read."""
    end_ns = stall.ended_ns - ns(0)
    index = bisect.bisect_left([each.end_ns for each in true_stalls], end_ns - MS // 100)
    if index == len(true_stalls) or abs(true_stalls[index].end_ns - end_ns) > MS // 10:
        return None
    return true_stalls[index]


def add(
    verdicts: Verdicts, seen: Seen, faults: list[tuple[int, int, str]], stall: Stall, true_stall: TrueStall
) -> None:
    seconds = stall.excess_ns / 1e9
    cause = truth(seen, faults, true_stall)
    verdicts.seconds[cause, stall.cause] += seconds  # type: ignore[assignment]  # floats count as well
    verdicts.stalls[cause, stall.cause] += 1
    if cause == stall.cause == "prefill":
        blamed = {share.request.request_id: share.tokens for share in stall.shares}
        verdicts.wrong_names += seconds * (1 - agreement(blamed, true_stall.truth))


def score_made(make: Callable[[], Seen]) -> Verdicts:
    return score_simulated(make())


def main(names: list[str]) -> None:
    total = Verdicts()
    makers: dict[str, Callable[[], Verdicts]] = {name: partial(score_made, make) for name, make in SIMULATED.items()}
    for path in sorted(RECORDINGS.glob("*.jsonl.gz")):
        makers[path.name.removesuffix(".jsonl.gz")] = partial(score, path)
    for name, judged in makers.items():
        if names and name not in names:
            continue
        verdicts = judged()
        total.seconds += verdicts.seconds
        total.stalls += verdicts.stalls
        total.wrong_names += verdicts.wrong_names
        show(name, verdicts)
    show("all", total)


def show(name: str, verdicts: Verdicts) -> None:
    print(
        f"{name:20s} recall {verdicts.recall:.3f}  precision {verdicts.precision:.3f}  names {verdicts.names:.3f}"
        f"  incidents {len(verdicts.incidents)}  not in the log {verdicts.unknown}"
    )
    for (true, named), seconds in sorted(verdicts.seconds.items()):
        print(f"    {true:14s} named {named:14s} {verdicts.stalls[true, named]:5d} stalls {seconds:9.2f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
