"""Runs the supervisor over stand-ins for its processes.

Usage: supervised.py JOURNAL RELAY_ROLE,ARGUMENT OBSERVER_ROLE,ARGUMENT FLAGS_JSON [COMMAND…]
"""

import asyncio
import json
import sys
from pathlib import Path

from prefillwatch import logs
from prefillwatch.errors import PrefillwatchError
from prefillwatch.settings.sources import load
from prefillwatch.supervision import Launch, Supervisor, UpstreamCommand

journal, relay, observer, flags, *command = sys.argv[1:]
logs.configure("info", "text", "prefillwatch")
settings = load({"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", **json.loads(flags)}, {})
stand_in = [sys.executable, "-S", "-E", str(Path(__file__).with_name("kept_process.py")), journal]
launch = Launch(
    settings,
    "http://127.0.0.1:1",
    UpstreamCommand(tuple(command), "http://127.0.0.1:1") if command else None,
    relay_argv=[*stand_in, *relay.split(",")],
    observer_argv=[*stand_in, *observer.split(",")],
)
try:
    sys.exit(asyncio.run(Supervisor(launch).run()))
except PrefillwatchError as error:
    sys.exit(f"{type(error).__name__}: {error}")
