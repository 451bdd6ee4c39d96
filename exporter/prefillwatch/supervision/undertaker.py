"""A small process that outlives us: should we be killed, it ends what the command of ``run`` left and takes our folder.

The kernel ends our own children when we die, but not what a child of ours has started, nor what lies on a disk. The
undertaker waits at a pipe that only we hold. When that ends without a word it is at work, for some seconds.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import Final

#: Run by a bare interpreter: no site, no environment, nothing from the working folder. What it reads are lines of JSON:
#: {"group": PID} or {"folder": PATH}, and at the end {"done": true} where there is nothing to do.
_WORK: Final = """
import json, os, shutil, signal, sys, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
def tell(group, number):
    try:
        os.killpg(group, number)
        return True
    except OSError:
        return False
group, folder = 0, ""
for line in sys.stdin:
    told = json.loads(line)
    if told.get("done"):
        sys.exit()
    group, folder = told.get("group", group), told.get("folder", folder)
if group > 1:
    tell(group, signal.SIGTERM)
    for _ in range(50):
        if not tell(group, 0):
            break
        time.sleep(0.1)
    tell(group, signal.SIGKILL)
if folder:
    shutil.rmtree(folder, ignore_errors=True)
"""


class Undertaker:
    """Starts at once. Where it cannot be started, there is none."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(  # noqa: S603 (ours, and nothing in it from outside)
                [sys.executable, "-I", "-S", "-c", _WORK],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C and a signal to our group are not for it
                cwd="/",
                env={},
                text=True,
            )

    def of_group(self, group: int) -> None:
        """The process group of the command, to be ended."""
        self._tell({"group": group})

    def of_folder(self, path: str) -> None:
        """A folder of ours, to be removed."""
        self._tell({"folder": path})

    def dismiss(self) -> None:
        """Nothing is left to do: we have done it ourselves."""
        self._tell({"done": True})
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            self._process.wait()

    def _tell(self, what: object) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.write(json.dumps(what) + "\n")
                self._process.stdin.flush()
