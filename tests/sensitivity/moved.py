"""Scores the verdicts on all recordings with one constant moved: python -m tests.sensitivity.moved MODULE.NAME FACTOR

Prints percentages as JSON.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import TypeAlias

from tests.analysis.score_verdicts import RECORDINGS, Verdicts, score

COUNTED = ("precision", "recall", "names", "other causes")
#: Causes that have a name of their own; what else stalled the engine has no right answer.
_OTHERS = ("engine_pause", "frontend", "preemption")

Figures: TypeAlias = dict[str, float]


def move(name: str, factor: float) -> None:
    """Multiply a constant of `prefillwatch.analysis`, wherever it was imported to. Counts stay whole and change."""
    module_name, constant = name.rsplit(".", 1)
    origin = importlib.import_module(f"prefillwatch.analysis.{module_name}")
    old = getattr(origin, constant)
    new = old * factor
    if isinstance(old, int):
        new = round(new) if round(new) != old else old + (1 if factor > 1 else -1)
    imported = re.compile(rf"from prefillwatch\.analysis[\w.]* import [^\n]*(\([^)]*)?\b{constant}\b")
    for module in [each for key, each in sys.modules.items() if key.startswith("prefillwatch.")]:
        path = getattr(module, "__file__", None)
        if module is origin or (path and imported.search(Path(path).read_text())):
            setattr(module, constant, new)


def figures() -> Figures:
    total, right, others = Verdicts(), 0.0, 0.0
    for path in sorted(RECORDINGS.rglob("*.jsonl.gz")):
        found = score(path)
        total.seconds += found.seconds
        total.wrong_names += found.wrong_names
        right += sum(found.seconds[cause, cause] for cause in _OTHERS)
        others += sum(found.true(cause) for cause in _OTHERS)
    named = (total.precision, total.recall, total.names, right / others)
    return dict(zip(COUNTED, (100 * each for each in named), strict=True))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        move(sys.argv[1], float(sys.argv[2]))
    print(json.dumps(figures()))
