"""The table of tunables in docs/method.md, made from `prefillwatch.analysis.tuning`.

python -m tests.docs.tunables        writes the table anew
"""

from __future__ import annotations

from pathlib import Path

from prefillwatch.analysis.tuning import sheet

PAGE = Path(__file__).resolve().parents[2] / "docs" / "method.md"
BEGIN, END = "<!-- tunables: begin -->", "<!-- tunables: end -->"


def table() -> str:
    rows = ["| tunable | value | unit | origin | noticed by |", "| --- | --- | --- | --- | --- |"]
    rows += [f"| `{each.name}` | {each.value:,} | {each.unit} | {each.origin} | {each.noticed} |" for each in sheet()]
    return "\n".join(rows)


def written(page: str) -> str:
    """The page with the table in its place."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
