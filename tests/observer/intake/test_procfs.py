"""What the kernel tells of a process, ours being the one at hand."""

from __future__ import annotations

import os
from pathlib import Path

from prefillwatch.observer.intake import read_process


def test_our_own_process() -> None:
    figures = read_process(os.getpid())
    assert figures is not None
    assert figures.cpu_seconds > 0.0
    assert figures.resident_bytes > 1 << 20


def test_all_threads_count(tmp_path: Path) -> None:
    for task, schedstat in (("7", "1500000000 250000000 9\n"), ("8", "500000000 1000000000 3\n")):
        (tmp_path / "7" / "task" / task).mkdir(parents=True)
        (tmp_path / "7" / "task" / task / "schedstat").write_text(schedstat)
    (tmp_path / "7" / "statm").write_text("1000 3 2 1 0 100 0\n")
    figures = read_process(7, str(tmp_path))
    assert figures is not None
    assert (figures.cpu_seconds, figures.core_wait_seconds) == (2.0, 1.25)
    assert figures.resident_bytes == 3 * os.sysconf("SC_PAGE_SIZE")


def test_a_process_that_is_gone(tmp_path: Path) -> None:
    assert read_process(7, str(tmp_path)) is None


def test_a_kernel_that_does_not_tell(tmp_path: Path) -> None:
    (tmp_path / "7" / "task" / "7").mkdir(parents=True)
    (tmp_path / "7" / "task" / "7" / "schedstat").write_text("\n")
    (tmp_path / "7" / "statm").write_text("1000 3\n")
    assert read_process(7, str(tmp_path)) is None
