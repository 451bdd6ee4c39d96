"""Writes the tables of the README that are made from the code: metrics and settings.

python scripts/readme_tables.py            writes them
python scripts/readme_tables.py --check    tells whether they are as they should be
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from prefillwatch.config import Settings, shown_default
from prefillwatch.export import table
from prefillwatch.export.spec import Spec

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"


def metrics_table() -> str:
    rows = (
        (f"`{spec.name}`", spec.kind.value, ", ".join(f"`{name}`" for name in spec.label_names), spec.help)
        for spec in exported()
    )
    return _table(("name", "type", "labels", "meaning"), rows)


def exported() -> list[Spec]:
    """The metrics that some code feeds. The table declares further ones that wait for theirs."""
    sources = (path for path in (ROOT / "exporter").rglob("*.py") if path != Path(table.__file__))
    words = set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", "\n".join(path.read_text() for path in sources)))
    return [value for name, value in vars(table).items() if isinstance(value, Spec) and name in words]


def settings_table() -> str:
    rows = ((f"`{key}`", _default(key), Settings.model_fields[key].description or "") for key in Settings.model_fields)
    return _table(("key", "default", "meaning"), rows)


def with_tables(text: str) -> str:
    """The README with both tables as the code says. Raises ValueError where a table has no place."""
    for name, lines in (("metrics", metrics_table()), ("settings", settings_table())):
        place = re.compile(rf"(<!-- {name}: .*? -->\n).*?(<!-- end -->)", re.DOTALL)
        if not place.search(text):
            raise ValueError(f"the README has no place for the table of {name}")
        text = place.sub(lambda match, lines=lines: f"{match[1]}{lines}\n{match[2]}", text)
    return text


def main() -> int:
    text = README.read_text(encoding="utf-8")
    wanted = with_tables(text)
    if "--check" in sys.argv[1:]:
        if text != wanted:
            print("the tables in README.md are not what the code says; run: make readme", file=sys.stderr)
            return 1
        return 0
    README.write_text(wanted, encoding="utf-8")
    return 0


def _default(key: str) -> str:
    shown = shown_default(key)
    return f"`{shown}`" if shown else ""


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
