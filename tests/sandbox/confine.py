"""Give up what a file says, then become another program: confine.py FILE PROGRAM [ARGUMENT …]

The file is JSON with the keys that `main` reads, all optional. Nothing of ours is imported: this runs as root, before
the program under test, with whatever Python the tests have.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_LAST_CAPABILITY = 63


def main() -> None:
    path, *argv = sys.argv[1:]
    wanted: dict[str, Any] = json.loads(Path(path).read_text())
    lib = ctypes.CDLL("libseccomp.so.2") if "filter" in wanted else None
    for name, limit in wanted.get("limits", {}).items():
        resource.setrlimit(getattr(resource, name), (limit, limit))
    if "cpus" in wanted:
        os.sched_setaffinity(0, wanted["cpus"])
    if "user" in wanted:
        become(wanted["user"])
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if lib is not None:
        allow_only(lib, **wanted["filter"])
    os.execvp(argv[0], argv)


def become(user: int) -> None:
    """Somebody without a name, groups and capabilities."""
    for capability in range(_LAST_CAPABILITY + 1):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails for numbers that the kernel does not have
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


# The filter
# ---------------------------------------------------------------------------------------------------------------------

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_KILL_PROCESS = 0x80000000
_UNKNOWN = -1


def allow_only(lib: ctypes.CDLL, calls: list[str], answer: int | None) -> None:
    """These system calls, and no others: those fail with the error ``answer``, or end the process."""
    lib.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(lib.seccomp_init(_KILL_PROCESS if answer is None else _ERRNO | answer))
    for call in calls:
        number = lib.seccomp_syscall_resolve_name(call.encode())
        # Unknown is what systemd knows and this libseccomp does not; nobody here calls it.
        if number != _UNKNOWN and lib.seccomp_rule_add(context, _ALLOW, number, 0) != 0:
            sys.exit(f"cannot allow {call}")
    if (code := lib.seccomp_load(context)) != 0:
        sys.exit(f"the kernel takes no filter: {os.strerror(-code)}")


main()
