"""`make pure`: no process, no socket, no waiting, and fewer examples. Loaded with ``-p tests.kit.pure``.

A test that needs one of them, or computes for longer than a person at the keyboard likes to wait, is marked ``apart``.
An event loop of its own is fine: it opens a pair of sockets, binds and connects nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Generator

import pytest
from hypothesis import settings

FORBIDDEN = frozenset({"os.fork", "os.posix_spawn", "socket.bind", "socket.connect", "subprocess.Popen", "time.sleep"})
_found: list[str] = []
_is_watching = False


def pytest_configure() -> None:
    """A quarter of the examples: `make test` tries all of them."""
    settings.register_profile("pure", settings.default, max_examples=25)
    settings.load_profile("pure")


def _hook(event: str, _: object) -> None:
    if _is_watching and event in FORBIDDEN:
        _found.append(event)


sys.addaudithook(_hook)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    global _is_watching
    _found.clear()
    _is_watching = True
    try:
        result = yield
    finally:
        _is_watching = False
    if _found:
        pytest.fail(f"{sorted(set(_found))} in a pure test: mark it `apart`", pytrace=False)
    return result
