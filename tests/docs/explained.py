"""The example of docs/explain.md: the story of the worked example, as `explain` tells it.

python -m tests.docs.explained        writes the page's example and docs/explain-example.svg anew
"""

from __future__ import annotations

import msgspec
from tests.docs.worked_example import ROOT, Example, play

from prefillwatch.story import Account, markdown, picture, tell

PAGE = ROOT / "docs" / "explain.md"
PICTURE = ROOT / "docs" / "explain-example.svg"
BEGIN, END = "<!-- example: begin -->", "<!-- example: end -->"
#: The clock on the wall and the id's prefix are of the machine that plays it.
_STARTED_AT = 1_764_590_400.0


def account_of(example: Example) -> Account:
    incident = {**example.account.incident, "started_at": _STARTED_AT, "id": "19ad9c5b2f0-6"}
    return msgspec.structs.replace(example.account, incident=incident)


def written(page: str, example: Example) -> str:
    """The page with the story in its place, its headings two levels lower."""
    story = markdown(tell(account_of(example), "http://127.0.0.1:9843"), PICTURE.name)
    lower = "\n".join(f"##{line}" if line.startswith("#") else line for line in story.splitlines())
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{lower}\n{END}{tail}"


def drawn(example: Example) -> str:
    return picture(account_of(example))


if __name__ == "__main__":
    found = play()
    PAGE.write_text(written(PAGE.read_text(), found))
    PICTURE.write_text(drawn(found))
