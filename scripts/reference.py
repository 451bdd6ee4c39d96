"""Writes the tables of docs/ that are made from the code: metrics and their names in OpenTelemetry, settings, causes.

python scripts/reference.py            writes them
python scripts/reference.py --check    tells whether they are as they should be
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from prefillwatch.contract.causes import CAUSES
from prefillwatch.export import table
from prefillwatch.export.otel_names import STANDARD, otel_name
from prefillwatch.export.spec import Kind, Spec
from prefillwatch.settings.declared import Settings, shown_default

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def metrics_table() -> str:
    specs = [value for value in vars(table).values() if isinstance(value, Spec)]
    rows = (
        (f"`{spec.name}`", spec.kind.value, ", ".join(f"`{name}`" for name in spec.label_names), spec.help)
        for spec in specs
    )
    return _table(("name", "type", "labels", "meaning"), rows)


def settings_table() -> str:
    rows = ((f"`{key}`", _default(key), Settings.model_fields[key].description or "") for key in Settings.model_fields)
    return _table(("key", "default", "meaning"), rows)


def causes_table() -> str:
    rows = (
        (
            f"`{cause.name}`",
            " and ".join(kind for kind, is_one in (("freezes", cause.freezes), ("waits", cause.waits)) if is_one),
            cause.words,
            f"[{cause.runbook}](../alerts/runbooks/{cause.runbook}.md)",
        )
        for cause in CAUSES
    )
    return _table(("cause", "of", "in words", "runbook"), rows)


def opentelemetry_table() -> str:
    ours = (
        (f"`{spec.full_name}`", f"`{otel_name(spec).name}`", _unit(otel_name(spec).unit), _in_opentelemetry(spec))
        for spec in table.TABLE
    )
    standard = ((", ".join(f"`{name}`" for name in each.attributes), each) for each in STANDARD)
    rows = (("", f"`{each.name}`", _unit(each.unit), f"exponential histogram, by {names}") for names, each in standard)
    return _table(("on `/metrics`", "name", "unit", "kind"), (*rows, *ours))


def _unit(unit: str) -> str:
    return f"`{unit}`" if unit else ""


def _in_opentelemetry(spec: Spec) -> str:
    if spec is table.RELAY_LOOP_LAG:
        return "histogram"
    return {Kind.COUNTER: "sum", Kind.GAUGE: "gauge", Kind.HISTOGRAM: "exponential histogram"}[spec.kind]


#: Page, name of the table in it, and what makes it.
TABLES = (
    ("metrics.md", "metrics", metrics_table),
    ("configuration.md", "settings", settings_table),
    ("verdicts.md", "causes", causes_table),
    ("opentelemetry.md", "names", opentelemetry_table),
)


def with_table(text: str, name: str, lines: str) -> str:
    """The page with its table as the code says. Raises ValueError where it has no place for it."""
    place = re.compile(rf"(<!-- {name}: .*? -->\n).*?(<!-- end -->)", re.DOTALL)
    if not place.search(text):
        raise ValueError(f"there is no place for the table of {name}")
    return place.sub(lambda match: f"{match[1]}{lines}\n{match[2]}", text)


def main() -> int:
    wrong = []
    for page, name, made in TABLES:
        text = (DOCS / page).read_text(encoding="utf-8")
        wanted = with_table(text, name, made())
        if text != wanted:
            wrong.append(page)
            if "--check" not in sys.argv[1:]:
                (DOCS / page).write_text(wanted, encoding="utf-8")
    if wrong and "--check" in sys.argv[1:]:
        print(
            f"the tables in docs/ are not what the code says ({', '.join(wrong)}); run: make reference", file=sys.stderr
        )
        return 1
    return 0


def _default(key: str) -> str:
    shown = shown_default(key)
    return f"`{shown}`" if shown else ""


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
