"""Where other people's files of arrivals and traces lie. Nothing of them is in this tree."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[3]
#: Names the folder with the files; without it they are looked for beside the checkout.
VARIABLE = "PWTEST_FOREIGN"


def file(name: str) -> Path:
    """A file of other people, by folder and name. Where it is missing the test fails and says what is needed."""
    path = Path(os.environ.get(VARIABLE) or ROOT.parent / "shared" / "foreign") / name
    assert path.is_file(), (
        f"{path} is missing; docs/foreign-suites.md says where it comes from. {VARIABLE} names a folder."
    )
    return path
