"""llama-server's verbose log, read as steps: the truth that verdicts are held against.

A step is one decoding of a batch: a token of every stream that decodes, then prompt tokens of the slots that read
theirs. Of each slot the log has, before the batch,

    slot … id  4 | task 3 | slot decode token …                    it gets a token
    slot … id  3 | task 55 | new prompt, … task.n_tokens = 2512    a prompt of so many tokens begins
    slot … id  3 | task 55 | cached n_tokens = 2044, …             it goes on from there
    slot … id  3 | task 55 | init sampler, …                       its last tokens are in this batch

How many tokens of a prompt a batch took shows in where it goes on with the next one, or in its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_TIME = re.compile(r"^(?:\x1b\[[0-9;]*m)*(\d+)\.(\d\d)\.(\d\d\d)\.(\d\d\d) ")
_TASK = re.compile(r"\| task (\d+) \| (.*)")
_LENGTH = re.compile(r"task\.n_tokens = (\d+)")
_GOES_ON = re.compile(r"cached n_tokens = (\d+)")
_STOPS = re.compile(r"stop processing: n_tokens = (\d+)")


@dataclass(frozen=True, slots=True)
class Clock:
    """`start_ns`: the monotonic time at which the log's clock was zero."""

    start_ns: int

    def time_ns(self, line: str) -> int | None:
        """Minutes, seconds, milliseconds and microseconds at the front of a line; None where there are none."""
        found = _TIME.match(line)
        if found is None:
            return None
        minutes, seconds, millis, micros = map(int, found.groups())
        return self.start_ns + ((minutes * 60 + seconds) * 1_000_000 + millis * 1000 + micros) * 1000


@dataclass(slots=True)
class Work:
    """What a step did for one task: a token made ("d"), or prompt tokens read ("p") that follow `before` others."""

    task: int
    kind: str
    tokens: int
    before: int
    length: int = 0  # of the whole prompt
    gives_token: bool = False


@dataclass(slots=True)
class Step:
    scheduled_ns: int
    done_ns: int
    work: list[Work] = field(default_factory=list)


def read_log(lines: Iterable[str], clock: Clock) -> Iterator[Step]:
    """All steps, in order. Those at the end whose prompts are not known to go on come last, with what is known."""
    steps: list[Step] = []
    work: list[Work] = []
    begun_ns: int | None = None
    lengths: dict[int, int] = {}
    unfinished: dict[int, Work] = {}
    for line in lines:
        at_ns = clock.time_ns(line)
        if at_ns is None:
            continue
        if "decode: n_batch (effective)" in line:
            begun_ns = begun_ns or at_ns
        elif "done yielding to queue" in line:
            if begun_ns is not None:
                steps.append(Step(begun_ns, at_ns, work))
            work, begun_ns = [], None
        elif found := _TASK.search(line):
            _note(int(found[1]), found[2], work, lengths, unfinished)
    yield from steps


def _note(task: int, said: str, work: list[Work], lengths: dict[int, int], unfinished: dict[int, Work]) -> None:
    if said.startswith("slot decode token"):
        work.append(Work(task, "d", 1, 0, gives_token=True))
    elif length := _LENGTH.search(said):
        lengths[task] = int(length[1])
    elif goes_on := _GOES_ON.match(said):
        before = int(goes_on[1])
        _end_chunk(unfinished, task, before)
        unfinished[task] = Work(task, "p", 0, before, lengths.get(task, 0))
        work.append(unfinished[task])
    elif said.startswith("init sampler") and task in unfinished:
        unfinished[task].gives_token = True
        _end_chunk(unfinished, task, lengths[task])
    elif stops := _STOPS.match(said):
        _end_chunk(unfinished, task, int(stops[1]))


def _end_chunk(unfinished: dict[int, Work], task: int, until: int) -> None:
    if (chunk := unfinished.pop(task, None)) is not None:
        chunk.tokens = max(0, until - chunk.before)
