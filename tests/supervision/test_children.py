"""Child processes: their ends are told, whatever happens at the same time."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from prefillwatch.supervision.children import Children


async def end_of(argv: list[str], number: int) -> int:
    """Signal a process that has just ended, before the loop had a chance to notice; the exit code that is told."""
    children = Children()
    child = children.start(argv, death_signal=signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    child.signal(number)
    code = await asyncio.wait_for(child.exited, 10)
    children.close()
    return code


def test_a_signal_to_a_process_that_has_just_ended_does_not_swallow_its_end() -> None:
    assert asyncio.run(end_of([sys.executable, "-S", "-c", "raise SystemExit(7)"], signal.SIGTERM)) == 7


def test_a_signal_ends_it_and_is_told() -> None:
    async def play() -> int:
        children = Children()
        child = children.start(["sleep", "60"], death_signal=signal.SIGKILL)
        child.signal(signal.SIGTERM)
        code = await asyncio.wait_for(child.exited, 10)
        child.signal(signal.SIGTERM)  # and nothing more happens
        children.close()
        return code

    assert asyncio.run(play()) == -signal.SIGTERM


def adopts_orphans() -> bool:
    """Whether what a shell leaves running becomes our child when the shell has ended."""
    shell = subprocess.run(["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"], capture_output=True, check=True)
    left = int(shell.stdout)
    ours = f"\nPPid:\t{os.getpid()}\n" in Path(f"/proc/{left}/status").read_text()
    os.kill(left, signal.SIGKILL)
    if ours:
        os.waitpid(left, 0)
    return ours


def test_orphans_are_ours_to_collect_until_it_is_closed() -> None:
    async def play() -> tuple[bool, bool]:
        children = Children()
        while_open = adopts_orphans()
        children.close()
        return while_open, adopts_orphans()

    assert asyncio.run(play()) == (True, False)


def oom_score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def test_who_is_expendable_is_ended_first_where_memory_runs_out() -> None:
    async def play() -> tuple[int, int]:
        children = Children()
        kept = children.start(["sleep", "60"], death_signal=signal.SIGKILL)
        expendable = children.start(["sleep", "60"], death_signal=signal.SIGKILL, expendable=True)
        scores = oom_score(kept.pid), oom_score(expendable.pid)
        for child in (kept, expendable):
            child.signal(signal.SIGKILL)
            await asyncio.wait_for(child.exited, 10)
        children.close()
        return scores

    kept, expendable = asyncio.run(play())
    assert kept == oom_score(os.getpid())
    assert expendable == min(1000, kept + 200)
