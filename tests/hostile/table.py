"""All attacks, in groups that share a sidecar."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.certificate import self_signed
from tests.hostile.attack import Attack
from tests.hostile.place import Place
from tests.hostile.rows.admin import ADMIN
from tests.hostile.rows.answers import ANSWERS
from tests.hostile.rows.bodies import BODIES
from tests.hostile.rows.connections import BUDGET, CONNECTIONS, DESCRIPTORS, LARGEST, PLACES, UPLOADS
from tests.hostile.rows.engine import ENGINE
from tests.hostile.rows.heads import HEADS
from tests.hostile.rows.slow_link import SLOW_LINK
from tests.hostile.rows.tls import TLS


@contextlib.contextmanager
def _plain() -> Iterator[Place]:
    with contextlib.closing(Place()) as place:
        yield place


@contextlib.contextmanager
def _over_tls() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="hostile-") as made:
        certificate, key = map(str, self_signed(Path(made)))
        arguments = ("--tls-cert", certificate, "--tls-key", key)
        with contextlib.closing(Place(*arguments, certificate=certificate)) as place:
            yield place


@contextlib.contextmanager
def _with_engine_socket() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="hostile-") as made:
        path = f"{made}/engine"
        with contextlib.closing(Place("--engine-socket", path, engine=path)) as place:
            yield place


@contextlib.contextmanager
def _with_little_room() -> Iterator[Place]:
    with contextlib.closing(Place("--max-body", str(LARGEST), "--max-bodies", str(BUDGET))) as place:
        yield place


@contextlib.contextmanager
def _with_few_descriptors() -> Iterator[Place]:
    with contextlib.closing(Place(prefix=("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}"))) as place:
        yield place


@dataclass(frozen=True)
class Group:
    """Attacks on one sidecar. ``start`` starts it, and ends it with its context."""

    name: str
    rows: Sequence[Attack]
    start: Callable[[], contextlib.AbstractContextManager[Place]] = _plain


GROUPS = [
    Group("heads and framing", HEADS),
    Group("bodies", BODIES),
    Group("connections", CONNECTIONS),
    Group("uploads", UPLOADS, _with_little_room),
    Group("places", PLACES, _with_few_descriptors),
    Group("answers", ANSWERS),
    Group("admin", ADMIN),
    Group("a slow link", SLOW_LINK),
    Group("tls", TLS, _over_tls),
    Group("engine socket", ENGINE, _with_engine_socket),
]
