"""Stands in for a relay or an observer under the supervisor: writes what happens to it into a journal.

Usage: kept_process.py JOURNAL ROLE [EXIT_CODE | DRAIN_SECONDS | SIGNAL]

A relay shows that it lives ten times a second; one in the role of ``dying`` kills itself by a signal.
"""

import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

journal_path, role, *rest = sys.argv[1:]
settings = json.loads(sys.stdin.buffer.read())


def note(event: str, **more: Any) -> None:
    line = json.dumps({"role": role, "pid": os.getpid(), "event": event, **more})
    with Path(journal_path).open("a") as journal:  # one write per line: several processes share the file
        journal.write(line + "\n")


def end(*_: object) -> None:
    note("sigterm")
    if role == "slow":
        time.sleep(float(rest[0]))
    note("end")
    os._exit(0)


signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGUSR2, lambda *_: note("sigusr2"))
note("start", settings=settings)
if role == "failing":
    sys.exit(int(rest[0]))

if role == "dying":
    signal.signal(int(rest[0]), signal.SIG_DFL)
    os.kill(os.getpid(), int(rest[0]))

pulses = socket.socket(fileno=settings["supervisor_fd"]) if "supervisor_fd" in settings else None
control = socket.socket(fileno=settings["control_fd"]) if "control_fd" in settings else None
if control is not None:
    control.sendall(b"ready\n")
buffered: bytes = b""
while True:
    heard = [each for each in (control or pulses,) if each is not None]
    readable = select.select(heard, [], [], 0.1)[0]
    if pulses is not None:
        pulses.send(b'{"accepting":true}')
        if readable:
            passed = socket.recv_fds(pulses, 100, 10)[1]
            note("cover", listeners=len(passed))
            for descriptor in passed:
                os.close(descriptor)
    elif readable and control is not None:
        data = control.recv(65536)
        if not data:
            note("control ended")
            os._exit(0)
        buffered += data
        while b"\n" in buffered:
            line, _, buffered = buffered.partition(b"\n")
            note("control", state=json.loads(line))
