"""Recorded looks at servers, and a server that answers as told."""

from __future__ import annotations

import contextlib
import functools
import json
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.pages import Pages

from prefillwatch.doctor.look import Look, read_advice, read_incidents
from prefillwatch.doctor.page import Page
from prefillwatch.doctor.readers import moment_of

RECORDED = Path(__file__).parents[1] / "data" / "doctor"


def recorded(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(lzma.decompress((RECORDED / f"{name}.json.xz").read_bytes()))
    return document


@pytest.fixture(scope="session")
def look() -> Callable[[str, str], Look]:
    """A recorded look, by scenario and by whose pages they are: ``sidecar`` or ``server``."""

    @functools.cache
    def read(name: str, kind: str) -> Look:
        told = recorded(name)[kind]
        pages = [Page(text.encode()) for text in told["pages"]]
        return Look(
            last=pages[-1],
            first=pages[0],
            seconds=told["seconds"],
            moments=tuple(map(moment_of, pages)),
            incidents=read_incidents(json.dumps(told["incidents"]).encode(), told["since"]) if "since" in told else (),
            advice=read_advice(json.dumps(told["state"]).encode()) if "state" in told else (),
        )

    return read


@pytest.fixture
def server() -> Iterator[Pages]:
    with contextlib.closing(Pages()) as pages:
        yield pages
