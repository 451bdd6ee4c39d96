"""The worked example, played once for the pages that tell it."""

from __future__ import annotations

import pytest
from tests.docs.worked_example import Example, play


@pytest.fixture(scope="session")
def example() -> Example:
    return play()
