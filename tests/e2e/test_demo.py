"""`prefillwatch demo` from start to end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.e2e.processes import Command
from tests.kit.eventually import eventually


def test_the_demo_says_where_to_look_and_ends_by_itself(start: Callable[..., Any]) -> None:
    free = [word for option in ("--listen", "--admin", "--simulator") for word in (option, "127.0.0.1:0")]
    demo: Command = start(Command, "demo", "--duration", "5s", *free)
    assert demo.wait() == 0
    assert "live page       http://127.0.0.1:" in demo.output
    assert "p99 gap between tokens" in demo.output
    assert demo.output.rstrip().endswith("stopping")


def test_ctrl_c_ends_the_demo(start: Callable[..., Any]) -> None:
    free = [word for option in ("--listen", "--admin", "--simulator") for word in (option, "127.0.0.1:0")]
    demo: Command = start(Command, "demo", *free)
    eventually(lambda: "Ctrl-C ends it." in demo.output)
    assert demo.stop(2) == 0
    assert "Traceback" not in demo.output
