"""Give up what a file says, then become another program: confine.py FILE PROGRAM [ARGUMENT …]

The file is JSON with the keys that `main` reads, all optional. Nothing of ours is imported: this runs as root, before
the program under test, with whatever Python the tests have.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_NAMESPACES = {
    "mount": 0x00020000,
    "cgroup": 0x02000000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_LAST_CAPABILITY = 63


def main() -> None:
    path, *argv = sys.argv[1:]
    wanted: dict[str, Any] = json.loads(Path(path).read_text())
    seccomp = Seccomp()
    enter(wanted)
    if "root" in wanted:
        change_root(**wanted["root"])
    for name, limit in wanted.get("limits", {}).items():
        resource.setrlimit(getattr(resource, name), (limit, limit))
    if "user" in wanted:
        become(wanted["user"])
    if "pid" in wanted.get("namespaces", ()):
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # who becomes somebody else has none any more
    if not wanted.get("privileged"):
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if "no_family" in wanted:
        seccomp.refuse_family(wanted["no_family"])
    if "filter" in wanted:
        seccomp.allow_only(**wanted["filter"])
    os.execve(argv[0], argv, wanted.get("environment", os.environ))


def enter(wanted: dict[str, Any]) -> None:
    """Groups, namespaces, cores."""
    for group in wanted.get("cgroups", ()):
        Path(group, "cgroup.procs").write_text(str(os.getpid()))
    if "cpus" in wanted:
        os.sched_setaffinity(0, wanted["cpus"])
    if "network" in wanted:
        with Path(wanted["network"]).open() as namespace:
            checked(_libc.setns(namespace.fileno(), _NAMESPACES["net"]), "enter the network")
    spaces = wanted.get("namespaces", ())
    checked(_libc.unshare(sum(_NAMESPACES[name] for name in spaces)), f"have namespaces of {spaces}")
    if "pid" in spaces:
        become_the_first_process()


def checked(code: int, what: str) -> None:
    if code != 0:
        sys.exit(f"this kernel does not let us {what}: {os.strerror(ctypes.get_errno())}")


def become_the_first_process() -> None:
    """The child goes on, as number 1 of its namespace; we pass signals on to it and end as it does."""
    child = os.fork()
    if child == 0:
        return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(child, number))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def become(user: int) -> None:
    """Somebody without a name, groups and capabilities."""
    for capability in range(_LAST_CAPABILITY + 1):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails for numbers that the kernel does not have
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


# The root
# ---------------------------------------------------------------------------------------------------------------------

_READ_ONLY = 1
_DETACH = 2
_REMOUNT, _BIND, _RECURSIVE, _PRIVATE, _SHARED = 32, 4096, 16384, 1 << 18, 1 << 20


def change_root(path: str, mounts: list[tuple[str, str, str, str]], read_only: bool, shared: bool = False) -> None:
    """A root of our own in the empty folder ``path``: (what, where, type, options) for each that is mounted there.

    The type ``bind`` shows a file or folder of the host, read-only if the options say ``ro``; ``link`` makes a symbolic
    link. All else is a type of the kernel's. ``shared``: mounts of a namespace inside are seen, as on a machine.
    """
    mount("none", "/", "", _RECURSIVE | _PRIVATE)
    mount("root", path, "tmpfs", data="mode=755")
    for what, where, kind, options in mounts:
        target = Path(path, where.lstrip("/"))
        target.parent.mkdir(parents=True, exist_ok=True)
        if kind == "link":
            target.symlink_to(what)
            continue
        if kind == "bind" and not Path(what).is_dir():
            target.touch()
        else:
            target.mkdir(exist_ok=True)
        if kind == "bind":
            mount(what, str(target), "", _BIND)
            if options == "ro":
                mount(what, str(target), "", _BIND | _REMOUNT | _READ_ONLY)
        else:
            mount(what, str(target), kind, data=options)
    if read_only:
        mount("root", path, "", _REMOUNT | _READ_ONLY)
    # Not chroot: in one of those the kernel makes no namespaces of users, and systemd wants one.
    os.chdir(path)
    checked(_libc.pivot_root(b".", b"."), "change the root")
    checked(_libc.umount2(b".", _DETACH), "leave the old root")
    os.chdir("/")
    if shared:
        mount("none", "/", "", _RECURSIVE | _SHARED)


def mount(what: str, where: str, kind: str, flags: int = 0, data: str = "") -> None:
    code = _libc.mount(what.encode(), where.encode(), kind.encode() or None, flags, data.encode() or None)
    checked(code, f"mount {what} ({kind or 'bind'}) at {where}")


# System calls
# ---------------------------------------------------------------------------------------------------------------------

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_KILL_PROCESS = 0x80000000
_UNKNOWN = -1
_EQUAL = 4
_EAFNOSUPPORT = 97


class Compare(ctypes.Structure):
    """struct scmp_arg_cmp of libseccomp."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("datum", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


class Seccomp:
    """Filters of system calls, by the library that systemd and apt make theirs with."""

    def __init__(self) -> None:
        """Loads the library, which may not be there once the root is another."""
        self._lib = ctypes.CDLL("libseccomp.so.2")
        self._lib.seccomp_init.restype = ctypes.c_void_p

    def allow_only(self, calls: list[str], answer: int | None) -> None:
        """These calls, and no others: those fail with the error ``answer``, or end the process."""
        context = self._begin(_KILL_PROCESS if answer is None else _ERRNO | answer)
        for call in calls:
            number = self._lib.seccomp_syscall_resolve_name(call.encode())
            # Unknown is what systemd knows and this libseccomp does not; nobody here calls it.
            if number != _UNKNOWN and self._lib.seccomp_rule_add(context, _ALLOW, number, 0) != 0:
                sys.exit(f"cannot allow {call}")
        self._load(context)

    def refuse_family(self, family: int) -> None:
        """There are no sockets of this address family, as on a kernel that was started without it."""
        context = self._begin(_ALLOW)
        number = self._lib.seccomp_syscall_resolve_name(b"socket")
        compare = Compare(0, _EQUAL, family, 0)
        self._lib.seccomp_rule_add_array(context, _ERRNO | _EAFNOSUPPORT, number, 1, ctypes.byref(compare))
        self._load(context)

    def _begin(self, otherwise: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._lib.seccomp_init(otherwise))

    def _load(self, context: ctypes.c_void_p) -> None:
        if (code := self._lib.seccomp_load(context)) != 0:
            sys.exit(f"the kernel takes no filter: {os.strerror(-code)}")


main()
