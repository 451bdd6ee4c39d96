"""What the doctor finds, as data."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from prefillwatch.contract.runbooks import Runbook

Number = float | int | str | None


class Seen(enum.Enum):
    """Whether a symptom is there. UNKNOWN: it cannot be known from here, or from so little traffic."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Sort(enum.Enum):
    """SYMPTOM: something that users feel. FAULT: something is wrong with how it is measured. NOTE: something to know
    when reading the rest, which is no trouble by itself."""

    SYMPTOM = "symptom"
    FAULT = "fault"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """``words`` are a few sentences for a person; ``numbers`` are what they rest on, in the units of their names.

    ``weight`` orders findings, in stream-seconds lost where they are known; ``unknown`` says what cannot be known from
    here; ``runbook`` is the name of an alert. ``aside`` is shown in the terminal and goes into no file: it may hold a
    request id.
    """

    symptom: str
    title: str
    seen: Seen
    words: str
    numbers: Mapping[str, Number] = field(default_factory=dict)
    remedy: str = ""
    runbook: Runbook | Literal[""] = ""
    unknown: str = ""
    sort: Sort = Sort.SYMPTOM
    weight: float = 0.0
    aside: str = ""

    @property
    def is_trouble(self) -> bool:
        return self.seen is Seen.YES and self.sort is not Sort.NOTE


@dataclass(frozen=True, slots=True)
class Measurement:
    """One of the figures that tell prefill interference from a slow server. ``unknown`` as in a finding."""

    name: str
    words: str
    numbers: Mapping[str, Number] = field(default_factory=dict)
    unknown: str = ""
